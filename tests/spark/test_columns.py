"""Decoding by the column gives what decoding record by record gives."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketline.errors import CorruptRecord
from rocketline.protocol.compression import ZLIB, compress
from rocketline.protocol.record_layout import COMPRESSED
from rocketline.spark import columns
from rocketline.spark.columns import COLUMNS, MORE_COLUMNS, ColumnPlan, Decoded
from rocketline.spark.record_table import locate, record_starts

from .records import CAP_BYTES, expected_row, record, records


def decode(buffer: bytes, plan: ColumnPlan) -> Decoded:
    """The only batch there is."""
    decoded = list(columns.decode(buffer, plan))
    assert len(decoded) == 1
    return decoded[0]


EVERYTHING = (*COLUMNS.names, *MORE_COLUMNS.names)


@settings(max_examples=200)
@given(st.lists(records(), min_size=1, max_size=12), st.sampled_from([None, "broker-a"]))
def test_rows_equal_records_decoded_one_by_one(raws: list[bytes], broker_name: str | None) -> None:
    plan = ColumnPlan(EVERYTHING, broker_name, max_body_bytes=CAP_BYTES)
    batch, faults = decode(b"".join(raws), plan)
    assert faults == []
    assert batch.schema == plan.schema
    batch.validate(full=True)
    assert batch.to_pylist() == [expected_row(raw, broker_name) for raw in raws]


@settings(max_examples=50)
@given(st.lists(records(), min_size=1, max_size=5), st.lists(st.sampled_from(EVERYTHING), unique=True, min_size=1))
def test_a_narrow_plan_has_the_same_values(raws: list[bytes], columns: list[str]) -> None:
    batch, _ = decode(b"".join(raws), ColumnPlan(tuple(columns), max_body_bytes=CAP_BYTES))
    assert batch.to_pylist() == [{name: expected_row(raw)[name] for name in columns} for raw in raws]


@settings(max_examples=100)
@given(st.lists(records(), min_size=1, max_size=5), st.data())
def test_garbage_is_refused_or_read_and_never_breaks_anything(raws: list[bytes], data: st.DataObject) -> None:
    raw = bytearray(b"".join(raws))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        batch, faults = decode(bytes(raw), ColumnPlan(EVERYTHING, max_body_bytes=CAP_BYTES))
    except CorruptRecord:
        return
    batch.validate(full=True)
    assert batch.num_rows + len(faults) == len(record_starts(bytes(raw))[0])


def test_no_columns_still_count_the_rows() -> None:
    assert decode(record() * 3, ColumnPlan(())).batch.num_rows == 3


def test_an_empty_answer_has_no_batch() -> None:
    assert list(columns.decode(b"", ColumnPlan())) == []


def test_many_rows_or_much_inflated_data_become_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [b"%d" % number * 100 for number in range(50)]
    raw = b"".join(record(body=compress(body, ZLIB), sys_flag=COMPRESSED | ZLIB) for body in bodies)
    monkeypatch.setattr(columns, "MAX_INFLATED_BYTES", 1000)
    monkeypatch.setattr(columns, "MAX_BATCH_ROWS", 20)
    batches = [batch.column("body").to_pylist() for batch, _ in columns.decode(raw, ColumnPlan(("body",)))]
    assert [body for batch in batches for body in batch] == bodies
    assert max(sum(map(len, batch)) for batch in batches) <= 1000


@pytest.mark.parametrize("sizes", [[5] * 500, [5] * 200 + [7] * 300, list(range(300)), [5] * 100 + [6] + [5] * 100])
def test_starts_are_found_in_runs_of_one_size_and_between_them(sizes: list[int]) -> None:
    raws = [record(body=bytes(size)) for size in sizes]
    starts, end = record_starts(b"".join(raws))
    assert starts.tolist() == [sum(map(len, raws[:number])) for number in range(len(raws))]
    assert end == sum(map(len, raws))


def test_a_record_that_is_cut_off_is_left_for_the_next_buffer() -> None:
    whole = record() * 70
    for cut in (1, 90, len(record()) - 1):
        starts, end = record_starts((whole + record())[: len(whole) + cut])
        assert (len(starts), end) == (70, len(whole))


def test_a_table_ends_before_the_first_record_at_a_wrong_offset() -> None:
    size = len(record())
    raw = b"".join(record(log_offset=1000 + size * number) for number in (0, 1, 3))
    starts, _ = record_starts(raw)
    table = locate(raw, starts, log_offset=1000)
    assert (len(starts), len(table), table.end) == (3, 2, 2 * size)
    assert len(locate(raw, starts)) == 3


def test_bodies_that_do_not_match_or_inflate_are_faults_without_a_row() -> None:
    broken = bytearray(record(body=b"flipped", log_offset=7))
    broken[88] ^= 1
    bomb = record(body=compress(bytes(5000), ZLIB), sys_flag=COMPRESSED | ZLIB, log_offset=8)
    not_zlib = record(body=b"no zlib", sys_flag=COMPRESSED, log_offset=9)
    raw = record(body=b"a") + broken + bomb + not_zlib + record(body=b"b")
    batch, faults = decode(raw, ColumnPlan(("body",), max_body_bytes=CAP_BYTES))
    assert batch.column("body").to_pylist() == [b"a", b"b"]
    assert [fault.log_offset for fault in faults] == [7, 8, 9]
    assert "CRC" in faults[0].reason
    assert "more than 4096 bytes" in faults[1].reason
    assert "cannot be inflated" in faults[2].reason


def test_checksums_are_looked_at_only_if_asked_for() -> None:
    broken = bytearray(record(body=b"flipped"))
    broken[88] ^= 1
    assert decode(bytes(broken), ColumnPlan(("body",), check_crc=False)).batch.num_rows == 1
    assert decode(bytes(broken), ColumnPlan(("topic",), check_crc=True)).batch.num_rows == 0


def test_a_topic_that_is_no_text_is_a_fault() -> None:
    raw = bytearray(record("orders"))
    raw[raw.index(b"orders")] = 0xFF
    batch, faults = decode(record("a") + bytes(raw), ColumnPlan(("topic",)))
    assert batch.column("topic").to_pylist() == ["a"]
    assert faults[0].reason == "its topic is not UTF-8"


def test_records_of_some_topics_are_picked_before_anything_is_decoded() -> None:
    raw = b"".join(record(topic, body=topic.encode()) for topic in ("a", "b", "a", "c", "ab"))
    table = locate(raw, record_starts(raw)[0]).of_topics(["a", "c"])
    ((batch, _),) = ColumnPlan(("body",)).decode(table)
    assert batch.column("body").to_pylist() == [b"a", b"a", b"c"]


def test_many_names_of_properties_are_told_apart() -> None:
    raws = [record(properties=f"n{number}\x01v\x02TAGS\x01t{number}\x02".encode()) for number in range(3000)]
    raws[5] = record(properties=b"TAGS\x01first\x02n\x01v\x02TAGS\x01last\x02")
    batch, _ = decode(b"".join(raws), ColumnPlan(("tags", "properties")))
    assert batch.to_pylist() == [{name: expected_row(raw)[name] for name in ("tags", "properties")} for raw in raws]


def test_an_unknown_column_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no column 'offset'"):
        ColumnPlan(("offset",))


def test_a_plan_travels_to_executors() -> None:
    plan = ColumnPlan(("topic", "body"), "broker-a")
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert plan.schema == pa.schema({"topic": pa.string(), "body": pa.binary()})
