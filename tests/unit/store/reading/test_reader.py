import pytest
from tests.support.compiled import needs_compiled
from tests.unit.store.samples import disk_reads, message, opened, read_all, split, tiny

from rocketline.errors import ConfigError
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.records import decode_record
from rocketline.store.config import ReadConfig
from rocketline.store.message_store import MessageStore, ReadStatus
from rocketline.store.queue.consume_queue import FILLER_SIZE


def filled(store: MessageStore, count: int, body_bytes: int = 20, tags: tuple[str, ...] = ("",)) -> MessageStore:
    for number in range(count):
        tag = tags[number % len(tags)]
        store.append(message(bytes(body_bytes), **({"TAGS": tag} if tag else {})))
    store.dispatch()
    return store


def offsets(store: MessageStore, chunks: list[memoryview]) -> list[int]:
    return [decode_record(record, 0, len(record), check_crc=True).queue_offset for record in split(chunks)]


def roomy(**changes: object):  # type: ignore[no-untyped-def]
    """One file each, so that only the limits count."""
    return tiny(log_segment_bytes=8 << 20, queue_segment_bytes=200_000, max_message_bytes=4 << 20, **changes)


def test_neighbours_in_the_log_come_as_one_slice() -> None:
    store = filled(opened(config=roomy()), 100)
    result = store.read("orders", 0, 10, 32)
    assert result.status is ReadStatus.FOUND
    assert (result.next_queue_offset, result.min_offset, result.max_offset) == (42, 0, 100)
    assert (result.message_count, len(result.chunks)) == (32, 1)
    assert result.total_bytes == len(result.chunks[0])
    assert offsets(store, result.chunks) == list(range(10, 42))
    assert not result.lagging
    store.close()


@needs_compiled
def test_what_is_read_very_often_is_read_at_once_where_nothing_is_wrong() -> None:
    store = filled(opened(config=roomy()), 10)
    key, limits = ("orders", 0), (4, 1 << 20, None)
    for queue_offset in (0, 5, 9):
        found = store.read_verified(key, queue_offset, *limits)
        assert found is not None
        assert offsets(store, found.chunks) == list(range(queue_offset, min(10, queue_offset + 4)))
        usual = store.read(*key, queue_offset, 4)
        assert (found.status, found.next_queue_offset) == (usual.status, usual.next_queue_offset)
    end = store.read_verified(key, 10, *limits)
    assert end is not None
    assert (end.status, end.next_queue_offset) == (ReadStatus.OFFSET_OVERFLOW_ONE, 10)
    assert [store.read_verified(key, elsewhere, *limits) for elsewhere in (-1, 11, 1000)] == [None] * 3
    assert store.read_verified(("orders", 7), 0, *limits) is None
    store.close()


@pytest.mark.parametrize("body", [b"small", b"large" * 4000])
def test_strangers_in_between_split_the_slices(body: bytes) -> None:
    store = opened(config=roomy())
    for number in range(6):
        store.append(message(queue_id=0, body=body))
        if number % 2:
            store.append(message(queue_id=1))
    store.dispatch()
    result = store.read("orders", 0, 0, 32)
    assert (result.message_count, len(result.chunks)) == (6, 1 if body == b"small" else 3), "small ones become a copy"
    assert offsets(store, result.chunks) == list(range(6))
    store.close()


def test_one_read_ends_with_its_consume_queue_file() -> None:
    store = filled(opened(), 25)
    assert store.read("orders", 0, 7, 32).next_queue_offset == 10
    assert store.read("orders", 0, 10, 32).next_queue_offset == 20
    assert len(read_all(store)) == 25
    store.close()


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-5, ReadStatus.OFFSET_TOO_SMALL, 0),
        (25, ReadStatus.OFFSET_OVERFLOW_ONE, 25),
        (26, ReadStatus.OFFSET_OVERFLOW_BADLY, 25),
        (10**9, ReadStatus.OFFSET_OVERFLOW_BADLY, 25),
    ],
)
def test_offsets_out_of_range(offset: int, status: ReadStatus, next_offset: int) -> None:
    store = filled(opened(), 25)
    result = store.read("orders", 0, offset, 32)
    assert (result.status, result.next_queue_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset, result.chunks) == (0, 25, [])
    store.close()


def test_queues_without_messages() -> None:
    store = filled(opened(), 1)
    assert store.read("nothing", 0, 7, 32)[:4] == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    store._queues.obtain("orders", 5)
    assert store.read("orders", 5, 7, 32)[:4] == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    store.close()


def test_an_offset_equal_to_the_maximum_becomes_readable() -> None:
    store = filled(opened(), 10)
    assert store.read("orders", 0, 10, 32).status is ReadStatus.OFFSET_OVERFLOW_ONE
    filled(store, 1)
    assert store.read("orders", 0, 10, 32).message_count == 1
    store.close()


def test_a_missing_consume_queue_file_is_stepped_over() -> None:
    store = filled(opened(), 35)
    queue = store._queues.get("orders", 0)
    assert queue is not None
    del queue.file._segments[1]
    result = store.read("orders", 0, 13, 32)
    assert (result.status, result.next_queue_offset) == (ReadStatus.OFFSET_FOUND_NULL, 20)
    store.close()


def test_the_asked_number_of_messages_is_the_most() -> None:
    store = filled(opened(config=roomy()), 100)
    assert store.read("orders", 0, 0, 5).message_count == 5
    assert store.read("orders", 0, 0, 1).message_count == 1
    assert store.read("orders", 0, 0, 32).message_count == 32
    store.close()


def test_bytes_from_memory_are_limited_but_the_first_always_fits() -> None:
    store = filled(opened(config=roomy()), 40, body_bytes=20_000)
    assert store.read("orders", 0, 0, 32).message_count == 262_144 // (20_000 + 97)
    store.append(message(bytes(3 << 20)))
    store.dispatch()
    result = store.read("orders", 0, 40, 32)
    assert (result.message_count, result.total_bytes > 3 << 20) == (1, True)
    store.close()


def test_a_callers_byte_limit_counts_as_well() -> None:
    store = filled(opened(config=roomy()), 10)
    size = store.read("orders", 0, 0, 1).total_bytes
    assert store.read("orders", 0, 0, 32, max_bytes=3 * size).message_count == 3
    assert store.read("orders", 0, 0, 32, lambda code: True, max_bytes=3 * size).message_count == 3
    assert store.read("orders", 0, 0, 32, max_bytes=1).message_count == 1
    store.close()


def test_less_is_read_from_disk() -> None:
    store = filled(opened(config=roomy(reads=ReadConfig(memory_ratio=0))), 40)
    result = store.read("orders", 0, 0, 32)
    assert (result.message_count, result.lagging) == (8, True)
    assert len(result.chunks) == 1
    store.close()
    store = filled(opened(config=roomy(reads=ReadConfig(memory_ratio=0))), 8, body_bytes=20_000)
    assert store.read("orders", 0, 0, 32).message_count == 3
    store.close()


def test_bulk_reads_have_limits_of_their_own() -> None:
    reads = ReadConfig(bulk_messages=100, bulk_bytes=300_000)
    store = filled(opened(config=roomy(reads=reads)), 200, body_bytes=2000)
    assert store.read("orders", 0, 0, 32).message_count == 32
    assert store.read("orders", 0, 0, 33).message_count == 33
    assert store.read("orders", 0, 0, 1 << 31).message_count == 100
    with_filter = store.read("orders", 0, 0, 1 << 31, accept_record=lambda record: True)
    assert (with_filter.message_count, offsets(store, with_filter.chunks)) == (100, list(range(100)))
    store.close()
    store = filled(opened(config=roomy(reads=reads)), 200, body_bytes=5000)
    assert 250_000 < store.read("orders", 0, 0, 100).total_bytes <= 300_000
    store.close()


def test_bulk_reads_from_disk_get_a_quarter() -> None:
    reads = ReadConfig(bulk_messages=100, bulk_bytes=400_000, memory_ratio=0)
    store = filled(opened(config=roomy(reads=reads)), 100)
    assert store.read("orders", 0, 0, 100).message_count == 25
    store.close()
    store = filled(opened(config=roomy(reads=reads)), 100, body_bytes=10_000)
    assert 80_000 < store.read("orders", 0, 0, 100).total_bytes <= 100_000
    store.close()


def test_bulk_reads_can_be_switched_off() -> None:
    store = filled(opened(config=roomy(reads=ReadConfig(bulk_messages=0))), 100)
    assert store.read("orders", 0, 0, 1000).message_count == 32
    store.close()


@pytest.mark.parametrize("wrong", [{"bulk_bytes": 16 << 20}, {"bulk_bytes": -1}, {"bulk_messages": 1 << 20}])
def test_bulk_limits_that_no_client_could_take_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="bulkRead"):
        ReadConfig(**wrong)


def test_a_reader_near_the_end_is_in_memory() -> None:
    store = filled(opened(), 3)
    assert store.in_memory(0)
    store.close()
    store = filled(opened(config=disk_reads()), 3)
    assert not store.in_memory(0)
    store.close()


class TestFilters:
    def test_by_tag_code(self) -> None:
        store = filled(opened(config=roomy()), 90, tags=("red", "green", "blue"))
        result = store.read("orders", 0, 0, 10, {tag_hash("red")}.__contains__)
        assert offsets(store, result.chunks) == list(range(0, 30, 3))
        assert result.next_queue_offset == 30, "units looked at, up to the next match"
        store.close()

    def test_nothing_matches(self) -> None:
        store = filled(opened(config=roomy()), 2000)
        result = store.read("orders", 0, 0, 32, lambda code: False)
        assert (result.status, result.next_queue_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 800)
        assert store.read("orders", 0, 1600, 32, lambda code: False).next_queue_offset == 2000
        assert store.read("orders", 0, 0, 1000, lambda code: False).next_queue_offset == 1000
        store.close()

    def test_by_record(self) -> None:
        store = opened(config=roomy())
        for number in range(20):
            store.append(message(bytes([number])))
        store.dispatch()

        def is_even(record: memoryview) -> bool:
            return decode_record(record, 0, len(record)).body[0] % 2 == 0

        result = store.read("orders", 0, 0, 5, None, is_even)
        assert offsets(store, result.chunks) == [0, 2, 4, 6, 8]
        assert result.status is ReadStatus.FOUND
        assert store.read("orders", 0, 19, 5, None, is_even).status is ReadStatus.NO_MATCHED_MESSAGE
        store.close()

    def test_found_even_when_the_last_ones_do_not_match(self) -> None:
        store = filled(opened(config=roomy()), 3, tags=("red", "green", "green"))
        result = store.read("orders", 0, 0, 32, {tag_hash("red")}.__contains__)
        assert (result.status, result.message_count, result.next_queue_offset) == (ReadStatus.FOUND, 1, 3)
        store.close()

    def test_an_extension_address_is_no_hash(self) -> None:
        store = filled(opened(config=roomy()), 2, tags=("red", "green"))
        queue = store._queues.get("orders", 0)
        assert queue is not None
        for number in range(2):
            unit = queue.unit(number)
            assert unit is not None
            address = -(1 << 63) + number * 20
            queue.file.segment_at(0).open()[number * 20 + 12 : number * 20 + 20] = address.to_bytes(
                8, "big", signed=True
            )  # type: ignore[union-attr]
        result = store.read("orders", 0, 0, 32, {tag_hash("green")}.__contains__)
        assert offsets(store, result.chunks) == [1]
        store.close()


class TestWhenTheLogIsGone:
    def test_units_of_a_deleted_file_are_skipped_to_the_next(self) -> None:
        store = filled(opened(config=tiny(queue_segment_bytes=2000)), 30, body_bytes=400)
        per_file = sum(store._queues.get("orders", 0).unit(n)[0] < 4096 for n in range(30))  # type: ignore[union-attr,index]
        store._log.file.remove_first()
        result = store.read("orders", 0, 0, 32)
        assert result.status is ReadStatus.FOUND
        assert offsets(store, result.chunks) == list(range(per_file, 30))
        none = store.read("orders", 0, 0, 32, lambda code: False)
        assert none.status is ReadStatus.NO_MATCHED_MESSAGE
        store.close()

    def test_nothing_but_removed_messages(self) -> None:
        store = filled(opened(config=tiny(queue_segment_bytes=100)), 30, body_bytes=400)
        store._log.file.remove_first()
        result = store.read("orders", 0, 0, 32)
        assert (result.status, result.next_queue_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 5)
        store.close()

    def test_an_empty_unit_is_no_message(self) -> None:
        store = filled(opened(), 8)
        queue = store._queues.get("orders", 0)
        assert queue is not None
        queue.put(12, 10**6, 100, 0)
        result = store.read("orders", 0, 5, 32)
        assert (result.message_count, result.next_queue_offset) == (3, 10)
        assert offsets(store, result.chunks) == [5, 6, 7]
        store.close()

    def test_a_filler_unit_is_no_message(self) -> None:
        store = filled(opened(config=roomy()), 2)
        queue = store._queues.get("orders", 0)
        assert queue is not None
        queue.put(4, 10**6, 100, 0)
        assert queue.unit(3) == (0, FILLER_SIZE, 0)
        result = store.read("orders", 0, 2, 32)
        assert result.status is ReadStatus.MESSAGE_WAS_REMOVING
        assert store.read("orders", 0, 0, 32).message_count == 2
        store.close()
