"""The compiled column functions give the same results as the Python ones, for sound and for damaged records."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.compiled import compiled, needs_compiled, outcome, pure, python, thorough

from rocketline import _impl
from rocketline.spark import columns, property_columns, record_table
from rocketline.spark.columns import COLUMNS, MORE_COLUMNS, ColumnPlan
from rocketline.spark.property_columns import read_properties
from rocketline.spark.record_table import RecordTable, cut_out, read_table

from .records import CAP_BYTES, odd_properties, records, tidy_properties

pytestmark = needs_compiled

PLAN = ColumnPlan((*COLUMNS.names, *MORE_COLUMNS.names), "broker-a", max_body_bytes=CAP_BYTES)


@st.composite
def buffers(draw: st.DrawFn) -> bytes:
    """Records back to back, often with some wrong bytes, sometimes cut off."""
    raw = bytearray(b"".join(draw(st.lists(records(), min_size=1, max_size=5))))
    places = st.integers(0, len(raw) - 1) | st.integers(0, min(110, len(raw) - 1))
    for place, byte in draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=3)):
        raw[place] = byte
    return bytes(raw[: draw(st.just(len(raw)) | st.integers(0, len(raw)))])


def arrays(table: RecordTable) -> list[tuple[Any, bytes]]:
    return [(getattr(table, field.name).dtype, getattr(table, field.name).tobytes()) for field in fields(table)[1:]]


@thorough
@given(buffers(), st.none() | st.integers(-5, 5) | st.just(1 << 62), st.booleans())
def test_where_records_are(raw: bytes, shift: int | None, fits: bool) -> None:
    log_offset = shift
    if fits and shift is not None and len(raw) > 36:
        log_offset = int.from_bytes(raw[28:36], "big", signed=True)
    quickly = read_table(raw, log_offset)
    with pure(record_table, "locate_run"):
        carefully = read_table(raw, log_offset)
    assert arrays(quickly) == arrays(carefully)
    assert quickly.end == carefully.end


@thorough
@given(buffers())
def test_whole_batches(raw: bytes) -> None:
    quickly = outcome(decoded, raw)
    with (
        pure(record_table, "locate_run"),
        pure(record_table, "lay_out"),
        pure(property_columns, "take_properties"),
        pure(columns, "wrong_bodies"),
    ):
        carefully = outcome(decoded, raw)
    assert quickly == carefully


def decoded(raw: bytes) -> list[Any]:
    found = []
    for batch, faults in columns.decode(raw, PLAN):
        batch.validate(full=True)
        found.append((batch.schema, batch.to_pylist(), faults))
    return found


@thorough
@given(
    st.lists(tidy_properties | odd_properties | st.binary(max_size=30), max_size=8), st.integers(1, 3), st.booleans()
)
def test_properties(texts: list[bytes], times: int, with_maps: bool) -> None:
    texts = [text for text in texts for _ in range(times)]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    begins = ends - [len(text) for text in texts]
    args = (b"".join(texts), begins.astype(np.int64), ends, ("TAGS", "UNIQ_KEY", "a"), with_maps)
    quickly = read_properties(*args)
    with pure(property_columns, "take_properties"):
        carefully = read_properties(*args)
    for name, column in quickly.named.items():
        column.validate(full=True)
        assert column.to_pylist() == carefully.named[name].to_pylist()
    if quickly.maps is None or carefully.maps is None:
        assert quickly.maps is carefully.maps is None
        return
    quickly.maps.validate(full=True)
    assert quickly.maps.to_pylist() == carefully.maps.to_pylist()


def test_more_properties_than_the_compiled_function_reads() -> None:
    for count in (63, 64, 65, 300):
        text = b"".join(b"n%d\x01v%d\x02" % (number, number) for number in range(count))
        found = read_properties(text, np.zeros(1, np.int64), np.array([len(text)]), ("n1",), True)
        assert found.maps is not None
        assert found.maps.to_pylist() == [[(f"n{number}", f"v{number}") for number in range(count)]]
        assert found.named["n1"].to_pylist() == ["v1"]


@thorough
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=12))
def test_stretches(raw: bytes, cuts: list[int]) -> None:
    places = np.sort(np.minimum(cuts, len(raw)).astype(np.int64))[: len(cuts) // 2 * 2]
    checksums = np.zeros(len(places) // 2, np.int32)
    begins, ends = places[0::2].copy(), places[1::2].copy()
    args = (raw, begins, ends, checksums)
    assert compiled("wrong_bodies")(*args) == python("wrong_bodies")(*args)
    quickly = cut_out(raw, begins, ends)
    with pure(record_table, "lay_out"):
        assert cut_out(raw, begins, ends).to_pylist() == quickly.to_pylist()


@pytest.mark.parametrize(
    ("begins", "ends"),
    [([-1], [2]), ([3], [2]), ([0], [11]), ([0, 5], [5]), ([1 << 62], [-(1 << 62)]), ([-(1 << 63)], [(1 << 63) - 1])],
)
def test_nothing_beyond_a_buffer(begins: list[int], ends: list[int]) -> None:
    module: Any = _impl._module
    places = np.array(begins, np.int64), np.array(ends, np.int64)
    with pytest.raises(ValueError, match="lie in their buffer"):
        module.lay_out(bytes(10), *places)
    with pytest.raises(ValueError, match="lie in their buffer"):
        module.take_properties(bytes(10), *places, (), True)
    with pytest.raises(ValueError, match="lie in their buffer"):
        module.wrong_bodies(bytes(10), *places, np.zeros(1, np.int32))


def test_every_body_has_a_checksum() -> None:
    one = np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="has a checksum"):
        compiled("wrong_bodies")(b"", one, one, np.zeros(2, np.int32))
