"""Records that are checked as one table: what makes one of them unsound is found, whatever it is."""

from __future__ import annotations

import pytest

from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.record_table import MAX_BYTES, is_sound_table
from rocketline.protocol.records import encode_record, is_sound_record, topic_part

COUNT = 9
QUEUE = 3
HOST = encode_host("127.0.0.1", 1)
PROPERTIES = b"UNIQ_KEY\x01%04d\x02"


def table(
    topic: str = "orders", body_bytes: int = 20, number: int = 5, base: int = 700, host: bytes = HOST
) -> bytearray:
    magic, name = topic_part(topic)
    records = bytearray()
    for row in range(COUNT):
        records += encode_record(
            magic, name, QUEUE, number + row, base + len(records), bytes([row]) * body_bytes, PROPERTIES % row, 0,
            0 if len(host) == 8 else 0x30, 1_700_000_000_000 + row, host, 1_700_000_000_001 + row, host, 0, 0,
        )  # fmt: skip
    return records


def is_sound(records: bytes | bytearray, number: int = 5, base: int = 700, queue_id: int = QUEUE) -> bool:
    size = len(records) // COUNT
    offsets = [base + size * row for row in range(COUNT)]
    halves = memoryview(b"".join([(offset & 0xFFFFFFFF).to_bytes(4, "big") for offset in offsets])).cast("I")
    return is_sound_table(memoryview(bytes(records)), size, base, halves, queue_id, number)


@pytest.mark.parametrize("topic", ["t", "to", "top", "topic", "t" * 127, "t" * 128, "t" * 200])
@pytest.mark.parametrize("body_bytes", [0, 1, 128])
def test_records_that_are_alike(topic: str, body_bytes: int) -> None:
    assert is_sound(table(topic, body_bytes))


@pytest.mark.parametrize("number", [0, 247, 248, 255, 65_530, (1 << 32) - COUNT, 1 << 33])
@pytest.mark.parametrize("base", [0, 1 << 31, 1 << 40])
def test_numbers_and_offsets_of_any_length(number: int, base: int) -> None:
    records = table(number=number, base=base)
    assert is_sound(records, number, base)
    assert not is_sound(records, number + 1, base)
    assert not is_sound(records, number, base + 1)
    assert not is_sound(records, number, base, QUEUE + 1)


@pytest.mark.parametrize("row", [0, 4, COUNT - 1])
def test_a_wrong_byte_anywhere(row: int) -> None:
    """Only where `is_sound_record` does not look either may a table be sound that has one, and mostly it is."""
    sound = table()
    size = len(sound) // COUNT
    seen = 0
    for place in range(row * size, row * size + size):
        for wrong in (1, 0x80):
            records = bytearray(sound)
            records[place] ^= wrong
            own = is_sound_record(records, row * size, size, 700 + row * size, QUEUE, 5 + row)
            found = is_sound(records)
            assert own or not found, place - row * size
            seen += found
    assert seen > 2 * 50, "times, hosts and properties are free"


def test_two_wrong_bytes_that_agree() -> None:
    """A record that says another place, and another that says the same of its neighbour."""
    records = table()
    size = len(records) // COUNT
    one, other = (bytes(records[row * size : row * size + size]) for row in (2, 3))
    records[2 * size : 4 * size] = other + one
    assert not is_sound(records)


def test_the_number_that_does_not_fit_is_left_to_others() -> None:
    records = table(number=(1 << 32) - 3)
    assert not is_sound(records, (1 << 32) - 3)


def test_addresses_of_another_kind_and_long_records_are_left_to_others() -> None:
    assert not is_sound(table(host=encode_host("::1", 1)))
    assert not is_sound(table(body_bytes=MAX_BYTES))


@pytest.mark.parametrize("size", [1, 20, 90])
def test_what_is_too_short_for_a_record(size: int) -> None:
    assert not is_sound(bytes(size * COUNT))
