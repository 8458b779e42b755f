from hypothesis import given
from hypothesis import strategies as st

from rocketline.errors import ProtocolError
from rocketline.protocol.records import BatchItem, decode_batch, encode_batch
from rocketline.store.batch_records import looks_lost
from rocketline.store.plain_batches import plain_batch

flags = st.sampled_from([0, 7, -1])
alike = st.lists(st.builds(BatchItem, flags, st.binary(min_size=9, max_size=9), st.just(b"KEYS\x01k\x02")), max_size=5)
mixed = st.lists(
    st.builds(BatchItem, flags, st.binary(max_size=20), st.sampled_from([b"", b"TAGS\x01a\x02", b"x\0", b"\0y"])),
    max_size=5,
)


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


@given(alike | mixed)
def test_columns_are_those_of_the_messages(items: list[BatchItem]) -> None:
    check(encode_batch(items))


@given(alike | mixed, st.data())
def test_what_is_damaged_is_left_to_the_general_road(items: list[BatchItem], data: st.DataObject) -> None:
    body = bytearray(encode_batch(items) + data.draw(st.sampled_from([b"", b"\0", b"\0" * 22])))
    if body:
        body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    check(bytes(body))
