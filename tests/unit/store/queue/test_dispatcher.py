import errno
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.store.samples import HOST, item, message, tiny

from rocketline.clock import ManualClock
from rocketline.errors import DiskFull
from rocketline.protocol.record_layout import (
    INNER_BATCH,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rocketline.protocol.records import LogEntry
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.log.appended_range import AppendedRange
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.queue.dispatcher import Dispatcher
from rocketline.testing.disks import FaultyDisk, MemoryDisk

DATA = Path("/data")
FOREVER = (0, 10**15)


class Parts:
    """A log, queues and an index, joined by a dispatcher."""

    def __init__(self, waits_for_flush: bool = False, tags_code_for=None) -> None:  # type: ignore[no-untyped-def]
        self.disk = FaultyDisk(MemoryDisk())
        self.log = CommitLog(self.disk, DATA / "commitlog", tiny(), HOST, ManualClock())
        self.queues = ConsumeQueues(self.disk, DATA / "consumequeue", tiny())
        self.index = KeyIndex(self.disk, DATA / "index", tiny(), ManualClock())
        self.dispatcher = Dispatcher(self.log, self.queues, self.index, tags_code_for, waits_for_flush)
        self.arrived: list[LogEntry] = []
        self.dispatcher.on_arrivals = self.arrived.extend

    def in_queue(self, topic: str = "orders", queue_id: int = 0) -> int:
        queue = self.queues.get(topic, queue_id)
        return queue.max_offset if queue else 0

    def found(self, key: str) -> int:
        return len(self.index.find("orders", key, *FOREVER, 64))


def test_appended_messages_become_findable_and_are_announced() -> None:
    parts = Parts()
    first = parts.log.append(message(KEYS="k1", TAGS="red"))
    parts.log.append_batch(message(queue_id=2), [item(b"a", KEYS="k1"), item(b"b")])
    assert parts.dispatcher.dispatch() == 3
    assert parts.dispatcher.dispatch() == 0
    queue = parts.queues.get("orders", 0)
    assert queue is not None
    assert queue.unit(0) == (first.log_offset, first.size, parts.arrived[0].tags_code)
    assert parts.in_queue(queue_id=2) == 2
    assert parts.found("k1") == 2
    assert [(entry.queue_id, entry.queue_offset) for entry in parts.arrived] == [(0, 0), (2, 0), (2, 1)]
    assert parts.dispatcher.dispatched == parts.log.wrote
    assert parts.dispatcher.last == parts.arrived[-1]


@pytest.mark.parametrize(
    ("sys_flag", "queued", "indexed"),
    [
        (TRANSACTION_COMMIT, True, True),
        (TRANSACTION_PREPARED, False, True),
        (TRANSACTION_ROLLBACK, False, False),
        (INNER_BATCH, False, True),
    ],
)
def test_what_is_listed_where(sys_flag: int, queued: bool, indexed: bool) -> None:
    parts = Parts()
    sample = message(KEYS="k1")
    sample.sys_flag = sys_flag
    parts.log.append(sample)
    parts.dispatcher.dispatch()
    assert (parts.in_queue() == 1, parts.found("k1") == 1) == (queued, indexed)
    assert len(parts.arrived) == 1


def test_under_sync_flush_only_what_is_on_disk_is_shown() -> None:
    parts = Parts(waits_for_flush=True)
    first = parts.log.append(message())
    parts.log.append(message())
    assert parts.dispatcher.dispatch() == 0
    parts.log.file.flush(first.next_log_offset)
    assert parts.dispatcher.dispatch() == 1
    assert parts.in_queue() == 1
    parts.log.file.flush(parts.log.wrote)
    assert parts.dispatcher.dispatch() == 1


def test_another_tags_code_may_be_given() -> None:
    parts = Parts(tags_code_for=lambda entry: entry.store_ms + 5000)
    result = parts.log.append(message(TAGS="red"))
    parts.dispatcher.dispatch()
    queue = parts.queues.get("orders", 0)
    assert queue is not None
    assert queue.unit(0) == (result.log_offset, result.size, result.store_ms + 5000)


@pytest.mark.parametrize("part", ["consumequeue", "index"])
@pytest.mark.parametrize("operation", ["open", "reserve", "make_folder"])
def test_a_full_disk_leaves_the_rest_for_later(part: str, operation: str) -> None:
    parts = Parts()
    parts.log.append(message(queue_id=0))
    parts.log.append(message(queue_id=1, KEYS="k1 k2"))
    parts.log.append(message(queue_id=2))
    parts.disk.fail(operation, errno.ENOSPC, nth=2 if part == "consumequeue" else 1, part=part)
    with pytest.raises(DiskFull):
        parts.dispatcher.dispatch()
    assert not parts.arrived, "what was appended together is announced together"
    assert parts.dispatcher.dispatch() == 3
    assert [parts.in_queue(queue_id=number) for number in range(3)] == [1, 1, 1]
    assert parts.found("k2") == 1
    assert [entry.queue_id for entry in parts.arrived] == [0, 1, 2]


@pytest.mark.parametrize("count", [5, 11, 12, 60])
def test_a_full_disk_amid_many_loses_and_doubles_nothing(count: int) -> None:
    """Every place where room is made, once: nothing is lost, announced twice, or filed more than once too often."""
    for part in ("consumequeue", "index"):
        for nth in range(1, 6):
            parts = Parts()
            for number in range(count):
                parts.log.append(message(queue_id=number % 3, KEYS=f"key-{number}", UNIQ_KEY=f"id-{number:020}"))
            parts.disk.fail("reserve", errno.ENOSPC, nth=nth, part=part)
            with suppress(DiskFull):
                parts.dispatcher.dispatch()
            told = len(parts.arrived)
            assert parts.dispatcher.dispatch() == count - told
            assert [entry.properties["KEYS"] for entry in parts.arrived] == [f"key-{n}" for n in range(count)]
            assert sum(parts.in_queue(queue_id=number) for number in range(3)) == count
            assert [parts.found(f"key-{number}") for number in range(count)] == [1] * count
            assert sum(file.count - 1 for file in parts.index.files) <= 2 * count + 2


def test_a_failing_listener_does_not_make_a_message_arrive_twice() -> None:
    parts = Parts()
    parts.log.append(message())
    parts.log.append(message())

    def fails(entries: list[LogEntry]) -> None:
        raise RuntimeError("listener")

    parts.dispatcher.on_arrivals = fails
    with pytest.raises(RuntimeError):
        parts.dispatcher.dispatch()
    parts.dispatcher.on_arrivals = parts.arrived.extend
    assert parts.dispatcher.dispatch() == 0
    assert parts.arrived == []
    assert parts.in_queue() == 2


def test_replaying_is_silent_and_idempotent() -> None:
    parts = Parts()
    for number in range(25):
        parts.log.append(message(KEYS=f"key-number-{number}"))
    entries = all_entries(parts.log)
    parts.dispatcher.dispatch()
    parts.arrived.clear()
    parts.dispatcher.replay(entries)
    assert parts.arrived == []
    assert parts.in_queue() == 25
    assert parts.found("key-number-7") == 1


def test_replaying_passes_over_a_name_no_folder_can_have() -> None:
    parts = Parts()
    parts.log.append(message())
    (entry,) = all_entries(parts.log)
    parts.dispatcher.replay([entry._replace(topic="../x"), entry])
    assert parts.in_queue() == 1
    assert parts.queues.topics() == {"orders"}


def all_entries(log: CommitLog) -> list[LogEntry]:
    return [entry for found in log.appended for entry in log.entries_of(found)]


def without_entries(parts: Parts) -> None:
    """What was appended, as somebody leaves it who writes into reserved room."""
    appended = parts.log.appended
    ranges = [AppendedRange(found.start, found.end, found.topics) for found in appended]
    appended.clear()
    appended.extend(ranges)


def test_a_range_without_entries_is_dispatched_as_far_as_it_is_on_disk() -> None:
    parts = Parts(waits_for_flush=True)
    parts.log.append(message(KEYS="k1", TAGS="red"))
    second = parts.log.append(message(KEYS="k1"))
    without_entries(parts)
    assert parts.dispatcher.dispatch() == 0
    parts.log.file.flush(second.log_offset)
    assert parts.dispatcher.dispatch() == 1
    assert (parts.in_queue(), parts.found("k1"), parts.dispatcher.dispatched) == (1, 1, second.log_offset)
    parts.log.file.flush(parts.log.wrote)
    assert parts.dispatcher.dispatch() == 1
    assert (parts.in_queue(), parts.found("k1")) == (2, 2)
    assert [(entry.queue_offset, entry.properties.get("TAGS")) for entry in parts.arrived] == [(0, "red"), (1, None)]


def test_a_range_that_cannot_be_dispatched_now_is_dispatched_later() -> None:
    parts = Parts()
    parts.log.append(message(KEYS="k1"))
    without_entries(parts)
    parts.disk.fail("reserve", errno.ENOSPC)
    with pytest.raises(DiskFull):
        parts.dispatcher.dispatch()
    assert (parts.in_queue(), parts.arrived) == (0, [])
    assert parts.dispatcher.dispatch() == 1
    assert (parts.in_queue(), parts.found("k1"), len(parts.arrived)) == (1, 1, 1)


def test_ranges_are_dispatched_with_and_without_entries_alike() -> None:
    left = []
    for noted in (True, False):
        parts = Parts()
        for number in range(45):
            properties = {"KEYS": f"a{number} b{number}", "TAGS": f"t{number % 3}"} if number % 5 == 0 else {}
            parts.log.append(message(b"", "orders", number % 3, UNIQ_KEY=f"id-{number:020}", **properties))
            if number % 9 == 8:
                if not noted:
                    without_entries(parts)
                assert parts.dispatcher.dispatch() == 9
        parts.dispatcher.dispatch()
        queues = [
            [queue.unit(n) for n in range(15)] for queue in map(parts.queues.by_key.get, parts.queues.by_key) if queue
        ]
        index = [bytes(file._view[: file._entries_at + 20 * file.count]) for file in parts.index.files]
        last = parts.dispatcher.last
        assert last is not None
        left.append(
            (queues, index, parts.arrived, (last.log_offset, last.size, last.store_ms), parts.dispatcher.dispatched)
        )
    assert left[0] == left[1]


@pytest.mark.parametrize("count", [5, 11, 12])
def test_a_full_disk_amid_a_range_without_entries_loses_and_doubles_nothing(count: int) -> None:
    for part in ("consumequeue", "index"):
        for nth in range(1, 6):
            parts = Parts()
            for number in range(count):
                parts.log.append(message(queue_id=number % 3, KEYS=f"key-{number}", UNIQ_KEY=f"id-{number:020}"))
            without_entries(parts)
            parts.disk.fail("reserve", errno.ENOSPC, nth=nth, part=part)
            with suppress(DiskFull):
                parts.dispatcher.dispatch()
            told = len(parts.arrived)
            assert told in (0, count)
            assert parts.dispatcher.dispatch() == count - told
            assert [entry.properties["KEYS"] for entry in parts.arrived] == [f"key-{n}" for n in range(count)]
            assert sum(parts.in_queue(queue_id=number) for number in range(3)) == count
            assert [parts.found(f"key-{number}") for number in range(count)] == [1] * count
            assert sum(file.count - 1 for file in parts.index.files) <= 2 * count + 2


def test_ranges_are_dispatched_in_their_order() -> None:
    parts = Parts()
    parts.log.append(message(KEYS="k1", UNIQ_KEY="A"))
    without_entries(parts)
    last = parts.log.append(message(queue_id=1, KEYS="k2"))
    parts.disk.fail("open", errno.ENOSPC, nth=2, part="consumequeue")
    with pytest.raises(DiskFull):
        parts.dispatcher.dispatch()
    assert [entry.properties["KEYS"] for entry in parts.arrived] == ["k1"]
    assert parts.dispatcher.dispatched == last.log_offset
    assert parts.dispatcher.dispatch() == 1
    assert [entry.properties["KEYS"] for entry in parts.arrived] == ["k1", "k2"]


def test_units_that_hold_something_else_than_tags_are_made_from_entries() -> None:
    parts = Parts(tags_code_for=lambda entry: 77)
    for _ in range(2):
        parts.log.append(message(TAGS="red"))
        without_entries(parts)
        assert parts.dispatcher.dispatch() == 1
    queue = parts.queues.get("orders", 0)
    assert queue is not None
    assert [unit and unit[2] for unit in map(queue.unit, range(2))] == [77, 77]
    assert [entry.properties for entry in parts.arrived] == [{"TAGS": "red"}] * 2


def test_what_was_written_into_reserved_room_is_taken_back_when_its_writer_fails() -> None:
    parts = Parts()
    parts.log.append(message())
    room = parts.log.reserve(300)
    assert room is not None
    parts.log.append(message(b"written by somebody who fails"))
    parts.log.wrote, parts.log.appended[0].end = room.start, room.start
    parts.log.abandon(room)
    assert parts.log.queue_offsets == {("orders", 0): 1}
    assert parts.log.append(message(b"again")).queue_offset == 1
