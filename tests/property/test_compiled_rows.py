"""Rows that are compiled into batches: the same bytes as from Python, for tidy and for odd rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.compiled import compiled, needs_compiled, python, thorough

from rocketline.protocol.records import decode_batch
from rocketline.spark.sink.encoding import RowColumns, Texts
from rocketline.spark.sink.rows import RowBatch, RowIds

pytestmark = needs_compiled

PREFIX = RowIds.of("w", 1).prefix
MAP = pa.map_(pa.string(), pa.string())

tidy = st.text("abcü\N{GRINNING FACE} ", min_size=1, max_size=12)
odd = tidy | st.sampled_from(["", "\x01", "a\x02b", "KEYS", "TAGS", "WAIT", "UNIQ_KEY", "__SHARDINGKEY", "x" * 40_000])


def rows(texts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "body": st.none() | st.binary(max_size=300),
            "tags": st.none() | texts,
            "keys": st.none() | texts,
            "shardingKey": st.none() | texts,
            "properties": st.none() | st.lists(st.tuples(texts, st.none() | texts), max_size=5),
            "flag": st.integers(-(1 << 31), (1 << 31) - 1),
        }
    )


def columns_of(table: list[dict[str, Any]], skip: int) -> RowColumns:
    """The columns without the first rows: parts of larger arrays."""
    kinds = {
        "body": pa.binary(), "tags": pa.string(), "keys": pa.large_string(), "shardingKey": pa.string(),
        "properties": MAP, "flag": pa.int64(),
    }  # fmt: skip
    arrays = {name: pa.array([row[name] for row in table], kind)[skip:] for name, kind in kinds.items()}
    return RowBatch(arrays, "T", 0).columns


@thorough
@given(
    st.lists(rows(tidy) | rows(odd), min_size=1, max_size=12),
    st.integers(0, 5),
    st.integers(-400_000, 4000) | st.just(1 << 20),
    st.data(),
)
def test_the_same_bytes(table: list[dict[str, Any]], skip: int, most_bytes: int, data: st.DataObject) -> None:
    columns = columns_of(table, skip)
    left = max(0, len(table) - skip)
    chosen = np.array(data.draw(st.permutations(range(left))), np.int32)
    start, most_rows = data.draw(st.integers(0, left)), data.draw(st.integers(-5, 20))
    arguments = (columns, chosen, start, most_rows, most_bytes, PREFIX, 7)
    quickly = compiled("encode_rows")(*arguments)
    assert quickly == python("encode_rows")(*arguments)
    assert len(decode_batch(quickly[0])) == quickly[1]


@given(st.lists(st.sampled_from([1, 300_000]), max_size=5), st.integers(-300_000, 400_000))
def test_a_row_larger_than_all_room_is_left_to_the_caller(sizes: list[int], most_bytes: int) -> None:
    table = [{"body": bytes(size), "tags": None, "keys": None, "shardingKey": None, "properties": None, "flag": 0}
             for size in sizes]  # fmt: skip
    arguments = (columns_of(table, 0), np.arange(len(table), dtype=np.int32), 0, 100, most_bytes, PREFIX, 0)
    found = compiled("encode_rows")(*arguments)
    assert found == python("encode_rows")(*arguments)
    assert len(found[0]) <= max(0, most_bytes)


def test_only_rows_with_very_many_properties_are_left_to_python() -> None:
    def encoded(pairs: int) -> tuple[int, int]:
        properties = [(f"p{number}", "v") for number in range(pairs)]
        row = {"body": b"x", "tags": "t", "keys": "k", "shardingKey": "s", "properties": properties, "flag": 0}
        arguments = (columns_of([row], 0), np.arange(1, dtype=np.int32), 0, 1, 1 << 20, PREFIX, 0)
        return compiled("encode_rows")(*arguments)[1], python("encode_rows")(*arguments)[1]

    assert encoded(32) == (1, 1)
    assert encoded(33) == (0, 1)


@thorough
@given(st.lists(st.none() | st.text() | st.just("\N{GRINNING FACE}" * 9)))
def test_the_same_hashes(texts: list[str | None]) -> None:
    raw = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
    columns = RowBatch(
        {"body": pa.array([b"x"] * len(raw), pa.binary()), "shardingKey": pa.array(raw, pa.binary())}, "T", 0
    )
    keys = columns.columns.sharding_key
    assert compiled("text_hashes")(keys) == python("text_hashes")(keys)


@pytest.mark.parametrize(
    ("column", "chosen"),
    [
        (Texts(None, b"", b""), b""),
        (Texts(None, bytes(7), b""), b""),
        (Texts(b"\x01", bytes(12), b""), b""),
        (Texts(None, np.array([0, 9], np.int32), b"x"), bytes(4)),
        (Texts(None, np.array([5, 1], np.int32), b"xxxxxxxx"), bytes(4)),
        (Texts(None, np.array([-1, 1], np.int32), b"xxxxxxxx"), bytes(4)),
        (Texts(None, np.array([0, 1], np.int32), b"x"), np.array([1], np.int32)),
        (Texts(None, np.array([0, 1], np.int32), b"x"), np.array([-1], np.int32)),
    ],
)
def test_buffers_that_are_no_columns_are_refused(column: Texts, chosen: Any) -> None:
    with pytest.raises(ValueError, match="no columns"):
        compiled("encode_rows")(RowColumns(column), chosen, 0, 10, 1000, PREFIX, 0)
