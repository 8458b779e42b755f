"""Records that are checked together are as sound as each of them is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.alike_records import AlikeRecords, alike_records
from tests.support.twins import unhurried

from rocketline.protocol.alike_records import are_sound_records
from rocketline.protocol.records import is_sound_record


@unhurried
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
