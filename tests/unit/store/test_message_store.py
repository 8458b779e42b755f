import errno
import os
import threading
from pathlib import Path

import pytest
from tests.support.leftovers import open_files, threads_since

from rocketline.clock import ManualClock
from rocketline.errors import StoreClosed, StoreError, StoreInUse, StoreReadOnly
from rocketline.message import LogOffset
from rocketline.protocol.hashing import index_key_hash
from rocketline.protocol.records import decode_message, decode_record
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk, RealDisk
from rocketline.store.message_store import AppendStatus, MessageStore, ReadStatus, StoreEvents
from rocketline.testing.disks import FaultyDisk, MemoryDisk

from .samples import HOST, ROOT, item, message, new_store, opened, read_all, tiny


@pytest.fixture(params=["memory", "real"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return MemoryDisk() if request.param == "memory" else RealDisk()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(disk: Disk, root: Path):  # type: ignore[no-untyped-def]
    store = opened(disk, root=root)
    yield store
    store.close()


def body_of(record: bytes | memoryview) -> bytes:
    return bytes(decode_record(record, 0, len(record), check_crc=True).body)


def test_the_whole_journey(disk: Disk, root: Path) -> None:
    store = opened(disk, root=root)
    sent = [f"message {number}".encode() * 20 for number in range(60)]
    for number, body in enumerate(sent):
        result = store.append(message(body, queue_id=number % 3, KEYS=f"k{number}"))
        assert (result.status, result.queue_offset) == (AppendStatus.OK, number // 3)
    batch = store.append_batch(message(queue_id=0), [item(b"b1", UNIQ_KEY="u1"), item(b"b2", UNIQ_KEY="u2")])
    assert store.dispatch() == 62
    for _ in range(2):
        assert [body_of(record) for record in read_all(store, queue_id=1)] == sent[1::3]
        assert [body_of(record) for record in read_all(store, queue_id=0)] == [*sent[0::3], b"b1", b"b2"]
        assert [body_of(record) for record in store.query("orders", "k7", 10).records] == [sent[7]]
        view = store.record_at(batch.log_offsets[1])
        assert view is not None
        assert decode_message(view, 0, len(view)).message_id == "u2"
        store.close()
        store = opened(disk, root=root)
    store.close()


def test_the_folder_is_apaches(root: Path) -> None:
    store = opened(RealDisk(), root=root)
    store.append(message(KEYS="k"))
    store.dispatch()
    assert (root / "abort").read_text() == str(os.getpid())
    assert (root / "lock").read_text() == "lock"
    store.close()
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    index = files.pop(3)
    apaches = ["checkpoint", f"commitlog/{0:020d}", f"consumequeue/orders/0/{0:020d}", "lock"]
    assert files == [*apaches, "rocketline.progress", "rocketline.queues"]
    assert len(index) == len("index/20231114221320000")
    assert (root / "checkpoint").stat().st_size == 4096


def test_a_folder_in_use_is_refused_and_unharmed(disk: Disk, root: Path) -> None:
    store = opened(disk, root=root)
    store.append(message(b"mine"))
    with pytest.raises(StoreInUse, match=rf"{root} is already open in this process .*process {os.getpid()}"):
        opened(disk, root=root)
    assert store.append(message(b"still mine")).status is AppendStatus.OK
    store.close()
    again = opened(disk, root=root)
    assert [body_of(record) for record in read_all(again)] == [b"mine", b"still mine"]
    again.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=f"cannot create folder {tmp_path}/file/data: Not a directory"):
        opened(RealDisk(), root=tmp_path / "file" / "data")


@pytest.mark.parametrize(("operation", "part"), [("write", "abort"), ("open", "checkpoint"), ("make_folder", "data")])
def test_an_open_that_fails_leaves_the_folder_unlocked(operation: str, part: str) -> None:
    inner = MemoryDisk()
    opened(inner).close()
    faulty = FaultyDisk(inner)
    faulty.fail(operation, errno.EACCES, part=part)
    store = new_store(faulty)
    with pytest.raises(StoreError, match=f"{part}: Permission denied"):
        store.open()
    assert store.append(message()).reason == "the store could not be opened"
    opened(inner).close()


def test_a_full_disk_refuses_sends_until_there_is_room_again() -> None:
    inner = MemoryDisk()
    faulty = FaultyDisk(inner)
    store = opened(faulty)
    faulty.fail("reserve", errno.ENOSPC, part="commitlog", forever=True, nth=2)
    stored = 0
    while (result := store.append(message(bytes(1000)))).status is AppendStatus.OK:
        stored += 1
    assert result.status is AppendStatus.NOT_AVAILABLE
    assert "No space left on device" in result.reason
    assert store.append_batch(message(), [item(bytes(1000))]).status is AppendStatus.NOT_AVAILABLE
    store.dispatch()
    assert len(read_all(store)) == stored == 3
    faulty.heal()
    assert store.append(message(bytes(1000))).queue_offset == stored
    store.close()
    again = opened(inner)
    assert len(read_all(again)) == stored + 1
    again.close()


def test_a_full_disk_while_closing_means_a_check_at_the_next_start() -> None:
    inner = MemoryDisk()
    faulty = FaultyDisk(inner)
    store = opened(faulty)
    store.append(message(b"stored"))
    faulty.fail("open", errno.ENOSPC, part="consumequeue", forever=True)
    store.close()
    again = new_store(inner)
    assert again.open().after_crash
    assert [body_of(record) for record in read_all(again)] == [b"stored"]
    again.close()


def test_no_room_for_the_table_of_queues_is_no_failed_flush() -> None:
    inner = MemoryDisk()
    faulty = FaultyDisk(inner)
    store = opened(faulty)
    store.append(message(b"one"))
    store.dispatch()
    faulty.fail("write", errno.ENOSPC, part="rocketline.queues", forever=True)
    store.flush_now()
    assert store.append(message(b"two")).status is AppendStatus.OK
    store.dispatch()
    store.close()
    again = new_store(inner)
    assert again.open().after_crash
    assert [body_of(record) for record in read_all(again)] == [b"one", b"two"]
    again.close()


def test_a_table_of_queues_that_cannot_be_written_for_another_reason_is_one() -> None:
    faulty = FaultyDisk(MemoryDisk())
    store = opened(faulty)
    store.append(message())
    store.dispatch()
    faulty.fail("write", errno.EIO, part="rocketline.queues", forever=True)
    with pytest.raises(StoreReadOnly, match="cannot write"):
        store.flush_now()
    store.close()


def test_closing_twice_and_using_it_afterwards(store: MessageStore) -> None:
    store.append(message())
    store.dispatch()
    store.close()
    store.close()
    assert store.append(message()).status is AppendStatus.NOT_AVAILABLE
    assert store.append_batch(message(), [item(b"")]).reason == "the store is closed"
    assert not store.is_writable
    for call in (
        store.dispatch,
        store.flush_now,
        lambda: store.read("orders", 0, 0, 1),
        lambda: store.record_at(LogOffset(0)),
        lambda: store.query("orders", "k", 1),
        lambda: store.delete_topic("orders"),
    ):
        with pytest.raises(StoreClosed, match="is not open"):
            call()
    with pytest.raises(StoreError, match="make a new one"):
        store.open()


def test_closing_ends_its_threads_and_descriptors(root: Path) -> None:
    before = threading.enumerate()
    store = opened(RealDisk(), root=root)
    store.append(message(KEYS="k"))
    store.dispatch()
    assert threads_since(before)
    assert open_files(root)
    store.close()
    assert (threads_since(before), open_files(root)) == ([], [])


def test_slices_outlive_the_store(root: Path) -> None:
    store = opened(RealDisk(), root=root)
    store.append(message(b"on its way"))
    store.dispatch()
    chunk = store.read("orders", 0, 0, 1).chunks[0]
    store.close()
    assert body_of(chunk) == b"on its way"


def test_default_sizes_cost_little(root: Path) -> None:
    store = MessageStore(root, StoreConfig(), HOST)
    store.open()
    store.append(message(KEYS="k"))
    store.dispatch()
    assert (root / "commitlog" / f"{0:020d}").stat().st_size == 1 << 30
    on_disk = sum(path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file())
    assert on_disk < 40 << 20, "4 MiB of log, 20 MB of index slots"
    store.close()


def test_offsets(store: MessageStore) -> None:
    assert (store.log_min_offset, store.log_next_offset, store.flushed_offset, store.dispatched_offset) == (0, 0, 0, 0)
    result = store.append(message())
    assert store.log_next_offset == result.next_log_offset
    assert (store.dispatched_offset, store.max_offset("orders", 0)) == (0, 0)
    store.dispatch()
    assert (store.dispatched_offset, store.max_offset("orders", 0)) == (result.next_log_offset, 1)
    store.flush_now()
    assert store.flushed_offset == result.next_log_offset
    assert (store.min_offset("nothing", 0), store.max_offset("nothing", 3)) == (0, 0)
    assert store.is_writable
    assert store.reason == ""


def test_times() -> None:
    clock = ManualClock(1000)
    store = opened(clock=clock)
    assert store.earliest_store_ms("orders", 0) == -1
    for _ in range(5):
        store.append(message())
        clock.advance(1)
    store.dispatch()
    assert store.earliest_store_ms("orders", 0) == 1000
    assert store.store_ms_of("orders", 0, 3) == 4000
    assert store.store_ms_of("orders", 0, 5) == -1
    assert store.offset_at_time("orders", 0, 2500) == 2
    assert store.offset_at_time("orders", 0, 2500, upper=True) == 1
    assert store.offset_at_time("nothing", 0, 2500) == 0
    assert store.last_store_ms == 5000
    store.close()


def test_deleting_a_topic(store: MessageStore) -> None:
    for queue_id in (0, 3):
        store.append(message(queue_id=queue_id))
    store.append(message(topic="other"))
    store.dispatch()
    assert store.queue_ids("orders") == [0, 3]
    store.delete_topic("orders")
    store.delete_topic("nothing")
    assert store.topics() == {"other"}
    assert store.read("orders", 0, 0, 1).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.append(message()).queue_offset == 0
    store.dispatch()
    assert len(read_all(store)) == 1


def test_arrivals_are_reported_until_the_store_is_closed() -> None:
    arrived: list[int] = []
    events = StoreEvents(arrived=lambda entries: arrived.extend(entry.queue_offset for entry in entries))
    store = opened(events=events)
    store.append(message())
    assert arrived == []
    store.dispatch()
    assert arrived == [0]
    store.append(message())
    store.close()
    assert arrived == [0]


class TestQueries:
    def test_the_key_itself_is_checked(self, store: MessageStore) -> None:
        # "Aa" and "BB" have the same Java hash.
        assert index_key_hash("orders", "Aa") == index_key_hash("orders", "BB")
        store.append(message(b"1", KEYS="Aa"))
        store.append(message(b"2", KEYS="BB"))
        store.append(message(b"3", KEYS="x Aa"))
        store.dispatch()
        assert [body_of(record) for record in store.query("orders", "Aa", 10).records] == [b"1", b"3"]
        assert [body_of(record) for record in store.query("orders", "BB", 10).records] == [b"2"]

    def test_strangers_with_the_same_hash_do_not_hide_older_messages(self) -> None:
        clock = ManualClock(10_000)
        store = opened(clock=clock)
        store.append(message(b"mine", KEYS="Aa"))
        clock.advance(10)
        store.append(message(b"stranger", KEYS="BB"))
        store.dispatch()
        assert [body_of(record) for record in store.query("orders", "Aa", 1).records] == [b"mine"]
        store.close()

    def test_kinds_of_keys(self, store: MessageStore) -> None:
        store.append(message(b"1", UNIQ_KEY="id", KEYS="k1 k2", TAGS="red"))
        store.append(message(b"2", KEYS="id"))
        store.dispatch()

        def bodies(key: str, kind: str = "") -> list[bytes]:
            return [body_of(record) for record in store.query("orders", key, 10, index_type=kind).records]

        assert bodies("id") == [b"1", b"2"]
        assert bodies("id", "K") == [b"1", b"2"]
        assert bodies("id", "U") == [b"1"]
        assert bodies("red", "T") == [b"1"]
        assert bodies("red") == []
        assert bodies("k2") == [b"1"]
        assert store.query("other", "id", 10).records == []

    def test_newest_first_chosen_oldest_first_given(self, store: MessageStore) -> None:
        for number in range(30):
            store.append(message(bytes([number]), KEYS="same"))
        store.dispatch()
        result = store.query("orders", "same", 3)
        assert [body_of(record) for record in result.records] == [b"\x1b", b"\x1c", b"\x1d"]
        assert result.index_updated_log_offset == decode_record(result.records[-1], 0, 4096).log_offset
        assert result.index_updated_ms == store.last_store_ms

    def test_by_time(self) -> None:
        clock = ManualClock(10_000)
        store = opened(clock=clock)
        for number in range(5):
            store.append(message(bytes([number]), KEYS="same"))
            clock.advance(1)
        store.dispatch()
        found = store.query("orders", "same", 10, 11_000, 12_999).records
        assert [body_of(record) for record in found] == [b"\x01", b"\x02"]
        store.close()

    def test_without_an_index(self) -> None:
        disk = MemoryDisk()
        store = opened(disk, tiny(index_enabled=False))
        store.append(message(KEYS="k"))
        store.dispatch()
        assert store.query("orders", "k", 10) == ([], 0, 0)
        store.close()
        assert not disk.exists(ROOT / "index")


def test_a_log_file_whose_name_cannot_be_flushed_makes_the_store_read_only() -> None:
    disk = FaultyDisk(MemoryDisk())
    store = opened(disk)
    disk.fail("sync", errno.EIO, part="commitlog")
    first = store.append(message())
    assert (first.status, "Input/output error" in first.reason) == (AppendStatus.NOT_AVAILABLE, True)
    second = store.append(message())
    assert "read-only since a flush failed" in second.reason
    store.close()
