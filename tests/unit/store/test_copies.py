"""A log that follows another one: pieces cut anywhere, files that roll, what does not fit, and an end that is cut off."""

from random import Random
from typing import Any

import pytest

from rocketline.errors import LogDiverged, StoreError
from rocketline.store.config import FlushConfig, StoreConfig
from rocketline.store.files.segmented_file import SegmentedFile
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.message_store import AppendStatus, MessageStore
from rocketline.store.queue.consume_queue import ConsumeQueue
from rocketline.testing.disks import MemoryDisk

from .samples import killed, message, opened, read_all, tiny

SMALL_FILES = tiny(log_segment_bytes=4096)


def filled(count: int = 60, config: StoreConfig = SMALL_FILES, seed: int = 1) -> MessageStore:
    """A store with messages of all sizes over several files."""
    random, store = Random(seed), opened(MemoryDisk(), config)
    for number in range(count):
        body = random.randbytes(random.choice((1, 50, 300, 900)))
        assert store.append(message(body, queue_id=number % 3, KEYS=f"k{number}")).status is AppendStatus.OK
    store.dispatch()
    return store


def log_bytes(store: MessageStore, start: int = 0, end: int | None = None) -> bytes:
    end = store.log_next_offset if end is None else end
    found = b""
    while start < end:
        piece = store.copies.slice(start, end)
        found += piece
        start += len(piece)
    return found


def follow(replica: MessageStore, data: bytes, start: int = 0, sizes: int | Random = 100) -> None:
    """Give a replica the bytes of a log in pieces."""
    appender = replica.copies.new_appender()
    done = 0
    while done < len(data):
        size = sizes if isinstance(sizes, int) else sizes.choice((1, 2, 7, 8, 9, 88, 512, 4000))
        replica.copies.append(appender, start + done, data[done : done + size])
        done += size
    replica.dispatch()


def same(first: MessageStore, second: MessageStore) -> None:
    assert log_bytes(first) == log_bytes(second)
    for queue_id in range(3):
        assert list(map(bytes, read_all(first, queue_id=queue_id))) == list(
            map(bytes, read_all(second, queue_id=queue_id))
        )
    for key in ("k0", "k7", "k59"):
        found = [bytes(record) for record in first.query("orders", key, 10).records]
        assert [bytes(record) for record in second.query("orders", key, 10).records] == found


@pytest.mark.parametrize("sizes", [1, 17, 4096, 100_000, Random(7)])
def test_pieces_cut_anywhere_give_the_same_log(sizes: int | Random) -> None:
    master, replica = filled(), opened(MemoryDisk(), SMALL_FILES)
    follow(replica, log_bytes(master), sizes=sizes)
    assert replica.log_next_offset == master.log_next_offset > 4096 * 3
    same(master, replica)


def test_only_whole_records_count() -> None:
    master, replica = filled(3), opened(MemoryDisk(), SMALL_FILES)
    data = log_bytes(master)
    follow(replica, data[:-1])
    last = replica.log_next_offset
    assert last < len(data) - 1
    assert replica.log_next_offset == sum(
        len(record) for queue in (0, 1) for record in read_all(replica, queue_id=queue)
    )
    # A new connection begins where the last whole record ends.
    follow(replica, data[last:], last)
    same(master, replica)


def test_a_replica_opens_again_and_goes_on_as_master() -> None:
    disk = MemoryDisk()
    master, replica = filled(), opened(disk, SMALL_FILES)
    follow(replica, log_bytes(master))
    replica.close()
    replica = opened(disk, SMALL_FILES)
    same(master, replica)
    assert replica.append(message(b"next", queue_id=1)).queue_offset == master.max_offset("orders", 1)


def test_a_replica_numbers_messages_once_it_leads() -> None:
    master, replica = filled(), opened(MemoryDisk(), SMALL_FILES)
    follow(replica, log_bytes(master))
    replica.copies.number_queues()
    assert replica.append(message(b"next", queue_id=1)).queue_offset == master.max_offset("orders", 1)


def test_a_log_may_begin_with_a_later_file() -> None:
    master, replica = filled(), opened(MemoryDisk(), SMALL_FILES)
    start = master.copies.last_file_offset()
    follow(replica, log_bytes(master, start), start)
    assert (replica.log_min_offset, replica.log_next_offset) == (start, master.log_next_offset)
    found = [record for queue_id in range(3) for record in read_all(replica, queue_id=queue_id)]
    assert sum(map(len, found)) == master.log_next_offset - start


def test_what_does_not_fit_is_never_written() -> None:
    master, replica = filled(), opened(MemoryDisk(), SMALL_FILES)
    data = log_bytes(master)
    follow(replica, data[:1000])
    end = replica.log_next_offset
    with pytest.raises(LogDiverged, match="goes on at log offset 1001"):
        follow(replica, data[1001:], 1001)
    damaged = bytearray(data[end:])
    damaged[100] ^= 1  # in a body
    with pytest.raises(LogDiverged, match="checksum or its place"):
        follow(replica, bytes(damaged), end, sizes=3000)
    with pytest.raises(LogDiverged, match="is no record"):
        follow(replica, data[end + 8 :], end)
    with pytest.raises(LogDiverged, match="mappedFileSizeCommitLog"):
        follow(opened(MemoryDisk(), tiny(log_segment_bytes=8192)), data)
    assert log_bytes(replica) == data[:end]


def test_a_cut_leaves_what_the_other_log_has() -> None:
    disk = MemoryDisk()
    master, replica = filled(40), opened(disk, SMALL_FILES)
    follow(replica, log_bytes(master))
    end = replica.log_next_offset
    replica.copies.number_queues()
    for number in range(30):
        replica.append(message(b"lost" * 30, queue_id=number % 3, KEYS="k7"))
    replica.dispatch()
    replica.copies.cut(end)
    same(master, replica)
    for number in range(20):
        master.append(message(b"won", queue_id=number % 3, KEYS=f"k{40 + number}"))
    master.dispatch()
    follow(replica, log_bytes(master, end), end)
    same(master, replica)
    replica.close()
    same(master, opened(disk, SMALL_FILES))


@pytest.mark.parametrize("kept", [0, 1, 13, 39])
def test_a_cut_at_any_record_survives_a_crash(kept: int) -> None:
    disk = MemoryDisk()
    store = opened(disk, SMALL_FILES)
    ends = [0]
    for number in range(40):
        ends.append(store.append(message(b"x" * 200, queue_id=number % 3, KEYS=f"k{number}")).next_log_offset)
    store.dispatch()
    store.flush_now()
    store.copies.cut(ends[kept])
    assert [store.max_offset("orders", queue_id) for queue_id in range(3)] == [
        (kept + 2 - queue) // 3 for queue in range(3)
    ]
    # The next start must not look for what was cut off.
    again = opened(killed(disk, store), SMALL_FILES)
    assert again.log_next_offset == ends[kept]
    assert again.query("orders", "k39", 10).records == []
    assert again.append(message(b"y", queue_id=0)).queue_offset == (kept + 2) // 3


@pytest.mark.parametrize("kept", [0, 1, 20, 39])
@pytest.mark.parametrize("with_table", [False, True])
def test_a_crash_in_the_middle_of_a_cut_leaves_part_of_the_log(
    kept: int, with_table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole records, from the first to somewhere behind the cut, and queues that go on behind them."""
    disk = MemoryDisk()
    flush = FlushConfig(log_interval_ms=10**9, queue_interval_ms=10**9, checkpoint_log_bytes=1)
    store = opened(disk, tiny(log_segment_bytes=4096, flush=flush))
    ends = [0]
    for number in range(40):
        ends.append(store.append(message(b"x" * 200, queue_id=number % 3, KEYS=f"k{number}")).next_log_offset)
    store.dispatch()
    threads = store._threads
    assert threads is not None
    if with_table:
        store.flush_now()
    else:
        threads.queue_flusher.run_round()  # the mark is newer than the table of queue lengths
    before, crashed = log_bytes(store), list[MemoryDisk]()

    def watch(owner: type[Any], name: str) -> None:
        really = getattr(owner, name)

        def watched(*args: Any, **more: Any) -> Any:
            crashed.extend((disk.after_kill(), disk.crash(len(crashed))))
            done = really(*args, **more)
            crashed.extend((disk.after_kill(), disk.crash(len(crashed))))
            return done

        monkeypatch.setattr(owner, name, watched)

    watch(ConsumeQueue, "cut_back")
    watch(KeyIndex, "cut_back")
    watch(SegmentedFile, "truncate")
    store.copies.cut(ends[kept])
    monkeypatch.undo()
    assert len(crashed) > 10
    for after in crashed:
        again = opened(after, SMALL_FILES)
        count = ends.index(again.log_next_offset)
        assert count >= kept
        assert log_bytes(again) == before[: ends[count]]
        assert [again.max_offset("orders", queue_id) for queue_id in range(3)] == [
            (count + 2 - queue_id) // 3 for queue_id in range(3)
        ]
        assert [len(again.query("orders", f"k{number}", 10).records) for number in (0, 39)] == [count > 0, count > 39]
        assert again.append(message(b"y", queue_id=0)).queue_offset == (count + 2) // 3
        again.close()


def test_a_cut_where_no_record_ends_changes_nothing() -> None:
    store = filled()
    before = log_bytes(store)
    with pytest.raises(StoreError, match="no record ends there"):
        store.copies.cut(store.log_next_offset - 5)
    assert log_bytes(store) == before


def test_nothing_is_readable_beyond_what_replicas_have() -> None:
    store = opened(MemoryDisk(), SMALL_FILES)
    store.copies.limit_reads(0)
    ends = [store.append(message(b"x", queue_id=0)).next_log_offset for _ in range(5)]
    assert store.dispatch() == 0
    store.copies.limit_reads(ends[1] + 3)  # a replica of Apache's may have part of a record
    assert store.dispatch() == 2
    assert store.dispatch() == 0
    store.copies.limit_reads(ends[3])
    assert store.dispatch() == 2
    store.copies.limit_reads(None)
    assert (store.dispatch(), store.max_offset("orders", 0)) == (1, 5)


def test_records_are_recognised() -> None:
    master, replica, other = filled(), opened(MemoryDisk(), SMALL_FILES), filled(seed=2)
    follow(replica, log_bytes(master)[:3000])
    proof = replica.copies.last_record()
    assert proof is not None
    assert master.copies.has_record(proof)
    assert not other.copies.has_record(proof)
    assert opened(MemoryDisk(), SMALL_FILES).copies.last_record() is None


def test_a_store_that_is_a_replica_takes_no_messages_of_its_own() -> None:
    store = opened(MemoryDisk(), SMALL_FILES)
    store.refuse_messages(AppendStatus.TOO_FEW_REPLICAS, "in-sync replicas not enough")
    result = store.append(message())
    assert (result.status, result.reason) == (AppendStatus.TOO_FEW_REPLICAS, "in-sync replicas not enough")
    assert store.reserve(100) is None
    store.clean_up()
    assert not store.is_writable
    store.take_messages()
    assert store.append(message()).status is AppendStatus.OK


def test_what_replicas_may_lack_does_not_last() -> None:
    store = filled(10)
    assert store.lasting_offset == 0
    store.flush_now()
    end = store.log_next_offset
    assert store.lasting_offset == end
    store.copies.limit_reads(100)
    assert store.lasting_offset == 100


def test_numbers_are_not_given_before_the_whole_log_is_readable() -> None:
    master, replica = filled(), opened(MemoryDisk(), SMALL_FILES)
    appender = replica.copies.new_appender()
    replica.copies.append(appender, 0, log_bytes(master)[:3000])
    with pytest.raises(StoreError, match="not readable yet"):
        replica.copies.number_queues()


def test_what_was_confirmed_is_known_at_the_next_start() -> None:
    disk = MemoryDisk()
    store = opened(disk, SMALL_FILES)
    end = store.append(message(b"x")).next_log_offset
    store.dispatch()
    store.copies.confirmed = end
    store.close()
    assert opened(disk, SMALL_FILES).copies.confirmed == end
