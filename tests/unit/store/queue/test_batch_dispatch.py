"""Dispatching many records at once writes the same bytes as dispatching them one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.unit.store.samples import tiny

from rocketline.clock import ManualClock
from rocketline.message import LogOffset, QueueOffset
from rocketline.protocol.record_layout import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketline.protocol.records import LogEntry
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.queue.batch_dispatch import by_queue, put_in_index, put_in_queues
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.testing.disks import MemoryDisk

FOLDER = Path("/bulk")


def entries(count: int, seed: int = 1) -> list[LogEntry]:
    random = Random(seed)
    offsets: dict[tuple[str, int], int] = {("a", 0): 7}
    made = []
    for number in range(count):
        topic, queue_id = random.choice("abc"), random.randrange(2)
        number_in_queue = offsets.get((topic, queue_id), 0)
        if random.random() < 0.02:
            number_in_queue = random.choice((0, number_in_queue + 3))
        offsets[topic, queue_id] = number_in_queue + 1
        properties = {"UNIQ_KEY": f"id-{number:020d}"} if number % 5 else {}
        properties |= {"KEYS": f"k{number} ü{number} shared"} if number % 3 == 0 else {}
        properties |= {"TAGS": random.choice(("red", "grün"))} if number % 2 else {}
        flag = random.choice((0,) * 20 + (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK))
        made.append(
            LogEntry(
                LogOffset(number * 300), 300, topic, queue_id, QueueOffset(number_in_queue), number,
                1_000_000 + number * 700, flag, properties,
            )
        )  # fmt: skip
    return made


def files(disk: MemoryDisk) -> dict[Path, bytes]:
    return {path: bytes(disk.read(path) or b"") for path in disk._files}


@pytest.mark.parametrize("step", [1, 7, 500])
@pytest.mark.parametrize("doubled", [0, 5])
def test_queues(step: int, doubled: int) -> None:
    one, many = MemoryDisk(), MemoryDisk()
    of_one, of_many = ConsumeQueues(one, FOLDER, tiny()), ConsumeQueues(many, FOLDER, tiny())
    made = entries(500)
    for (topic, queue_id), group in by_queue(made).items():
        for entry in group:
            of_one.obtain(topic, queue_id).put(entry.queue_offset, entry.log_offset, entry.size, entry.tags_code)
    for start in range(0, len(made), step):
        put_in_queues(of_many, made[max(0, start - doubled) : start + step])
    assert files(many) == files(one) != {}
    for key, queue in of_one.by_key.items():
        other = of_many.by_key[key]
        assert (other.max_offset, other.min_offset, other.next_log_offset, other.is_dirty) == (
            queue.max_offset, queue.min_offset, queue.next_log_offset, True,
        )  # fmt: skip


@pytest.mark.parametrize("step", [1, 7, 500])
def test_the_index(step: int) -> None:
    one, many = MemoryDisk(), MemoryDisk()
    of_one = KeyIndex(one, FOLDER, tiny(), ManualClock())
    of_many = KeyIndex(many, FOLDER, tiny(), ManualClock())
    made = entries(500)
    for entry in made:
        if entry.sys_flag != TRANSACTION_ROLLBACK:
            of_one.put(entry.topic, entry.log_offset, entry.store_ms, entry.properties)
    for start in range(0, len(made), step):
        put_in_index(of_many, made[max(0, start - 2) : start + step])
    of_one.flush()
    of_many.flush()
    assert files(many) == files(one) != {}
    assert of_many.find("a", "shared", 0, 1 << 60, 10) == of_one.find("a", "shared", 0, 1 << 60, 10) != []


def test_seconds_that_do_not_fit_are_cut() -> None:
    one, many = MemoryDisk(), MemoryDisk()
    of_one, of_many = (KeyIndex(disk, FOLDER, tiny(), ManualClock()) for disk in (one, many))
    made = [entry._replace(store_ms=store_ms) for entry, store_ms in zip(entries(4), (5000, 1000, 1 << 52, 6000))]
    for entry in made:
        of_one.put(entry.topic, entry.log_offset, entry.store_ms, entry.properties)
    of_many.put_rows(made)
    of_one.flush()
    of_many.flush()
    assert files(many) == files(one)


def test_a_name_no_folder_can_have_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    queues = ConsumeQueues(MemoryDisk(), FOLDER, tiny())
    entry = entries(1)[0]._replace(queue_id=0, sys_flag=0)
    put_in_queues(queues, [entry._replace(topic="../x"), entry._replace(topic="good")])
    assert set(queues.by_key) == {("good", 0)}
    assert "no folder can be topic '../x'" in caplog.text
