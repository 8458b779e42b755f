"""Records that are checked together are as sound as each of them is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.alike_records import AlikeRecords, alike_records
from tests.support.twins import thorough

from rocketline.protocol.alike_records import are_sound_records
from rocketline.protocol.record_table import is_sound_table
from rocketline.protocol.records import is_sound_record


@thorough
@given(alike_records(), st.data())
def test_together_or_one_by_one(log: AlikeRecords, data: st.DataObject) -> None:
    size = log.places[0][1]
    alike = [(offset, number) for offset, own_size, number in log.places if own_size == size]
    step = data.draw(st.integers(1, 3))
    offsets, numbers = zip(*alike[::step])
    if data.draw(st.integers(0, 4)) == 0:
        numbers = (*numbers[:-1], 99)
    queue_id = data.draw(st.sampled_from([0, 0, 1]))
    stop = offsets[0] + size * len(offsets)
    where = range(offsets[0], stop, size) if offsets == tuple(range(offsets[0], stop, size)) else offsets
    found = are_sound_records(memoryview(log.data), log.base, where, size, queue_id, numbers)
    assert found == all(
        is_sound_record(log.data, offset - log.base, size, offset, queue_id, number)
        for offset, number in zip(offsets, numbers)
    )


@thorough
@given(alike_records(), st.data())
def test_as_a_table_or_one_by_one(log: AlikeRecords, data: st.DataObject) -> None:
    """What is sound as a table is sound; the other way round it need not be."""
    size, (first, _, number) = log.places[0][1], log.places[0]
    alike = [offset for offset, own_size, _ in log.places if own_size == size and offset >> 32 == first >> 32]
    offsets = alike[:: data.draw(st.sampled_from([1, 1, 2]))]
    number += data.draw(st.sampled_from([0, 0, 0, 1]))
    queue_id = data.draw(st.sampled_from([0, 0, 1]))
    records = b"".join([log.data[offset - log.base : offset - log.base + size] for offset in offsets])
    halves = memoryview(b"".join([(offset & 0xFFFFFFFF).to_bytes(4, "big") for offset in offsets])).cast("I")
    if is_sound_table(records, size, first, halves, queue_id, number):
        assert all(
            is_sound_record(log.data, offset - log.base, size, offset, queue_id, own_number)
            for own_number, offset in enumerate(offsets, number)
        )
