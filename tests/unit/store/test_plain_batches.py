import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketline.errors import ProtocolError
from rocketline.protocol.records import BatchItem, decode_batch, encode_batch
from rocketline.store.known_properties import KnownProperties
from rocketline.store.log.batch_records import looks_lost
from rocketline.store.plain_batches import MAX_ALIKE, alike_batch, plain_batch

flags = st.sampled_from([0, 7, -1])
alike = st.lists(st.builds(BatchItem, flags, st.binary(min_size=9, max_size=9), st.just(b"KEYS\x01k\x02")), max_size=5)
mixed = st.lists(
    st.builds(BatchItem, flags, st.binary(max_size=20), st.sampled_from([b"", b"TAGS\x01a\x02", b"x\0", b"\0y"])),
    max_size=5,
)

one_program = st.builds(
    lambda flag, bodies, before, after: [
        BatchItem(flag, body, b"%bUNIQ_KEY\x017F0000010000%08X%b" % (before, number, after))
        for number, body in enumerate(bodies)
    ],
    flags,
    st.lists(st.binary(min_size=5, max_size=5), min_size=1, max_size=5),
    st.sampled_from([b"", b"WAIT\x01true\x02", b"z\x01\0\x02"]),
    st.sampled_from([b"", b"\x02", b"\x02TAGS\x01a\x02", b"\x02x\x01\0"]),
)
"""Whose messages are alike."""


def items_of(body: bytes) -> list[BatchItem] | None:
    """By the general road, as far as it has nothing to say about them."""
    try:
        items = decode_batch(body)
    except ProtocolError:
        return None
    return items if items and not any(looks_lost(item.properties) for item in items) else None


def check(body: bytes) -> None:
    batch, items = plain_batch(body), items_of(body)
    if items is None:
        assert batch is None
        return
    assert batch is not None
    assert list(map(BatchItem, batch.flags, batch.bodies, batch.properties)) == items
    assert [*batch.body_sizes] == [len(item.body) for item in items]
    assert [*batch.properties_sizes] == [len(item.properties) for item in items]
    assert sum(batch.sizes) == len(body)


def check_alike(body: bytes) -> bool:
    """Whether messages were cut as alike ones; then it must be so."""
    known = KnownProperties(False)
    batch, items = alike_batch(body, known), items_of(body)
    if batch is None:
        return False
    properties = [batch.before + end + batch.after for end in batch.ends]
    assert [BatchItem(batch.flag, *each) for each in zip(batch.bodies, properties)] == items
    assert len({len(content) for content in batch.bodies}) == 1
    for raw, end in zip(properties, batch.ends):
        assert known.look(raw) == (batch.id_start + end, batch.said)
    return True


@given(one_program)
def test_messages_of_one_program_are_cut_in_one_go(items: list[BatchItem]) -> None:
    assert check_alike(encode_batch(items)) is (items[0].properties[-1:] != b"\0")


@given(one_program, st.data())
def test_anything_else_is_not_taken_for_alike(items: list[BatchItem], data: st.DataObject) -> None:
    body = bytearray(encode_batch(items) + data.draw(st.sampled_from([b"", b"", b"\0", b"\0" * 22])))
    for _ in range(data.draw(st.integers(1, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    check_alike(bytes(body))
    check(bytes(body))


@pytest.mark.parametrize("after", [b"", b"\x02WAIT\x01true\x02"])
def test_each_byte_counts(after: bytes) -> None:
    body = encode_batch([BatchItem(0, b"b", b"UNIQ_KEY\x017F00%08d" % number + after) for number in range(3)])
    assert check_alike(body)
    for place in range(len(body)):
        for change in (1, 0x80):
            other = bytearray(body)
            other[place] ^= change
            check_alike(bytes(other))


@given(st.lists(st.sampled_from(["\x02", "A", "\x01", "ü"]), min_size=8, max_size=8).map("".join))
def test_ends_of_ids_are_letters_and_digits(end: str) -> None:
    raw = end.encode()[:8]
    items = [BatchItem(0, b"b", b"UNIQ_KEY\x017F00" + each + b"\x02") for each in (b"ABCDEFGH", raw)]
    assert check_alike(encode_batch(items)) is (end == "A" * 8)


def test_very_many_are_not_cut_in_one_go() -> None:
    items = [BatchItem(0, b"b", b"UNIQ_KEY\x01%08d" % number) for number in range(MAX_ALIKE + 1)]
    assert not check_alike(encode_batch(items))
    assert check_alike(encode_batch(items[1:]))


@given(alike | mixed | one_program)
def test_columns_are_those_of_the_messages(items: list[BatchItem]) -> None:
    check(encode_batch(items))


@given(alike | mixed | one_program, st.data())
def test_what_is_damaged_is_left_to_the_general_road(items: list[BatchItem], data: st.DataObject) -> None:
    body = bytearray(encode_batch(items) + data.draw(st.sampled_from([b"", b"\0", b"\0" * 22])))
    if body:
        body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    check(bytes(body))
