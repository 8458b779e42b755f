from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketline.errors import RemoteProtocolError
from rocketline.protocol.trace import (
    EndTransaction,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TracedMessage,
    TraceRecord,
    decode_traces,
    encode_trace,
    trace_keys,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "trace" / "traces.jsonl"

PUB = Pub(5, "R", "g", "T", "ID", "a", "k1 k2", "h:1", 3, 7, TracedMessage.NORMAL, "OID", True)


def golden_messages() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("message", golden_messages(), ids=lambda message: message["client"])
def test_javas_traces_are_read_and_written_to_the_byte(message: dict[str, Any]) -> None:
    body = bytes.fromhex(message["body"])
    records = decode_traces(body)
    assert "".join(map(encode_trace, records)).encode() == body
    assert {key for record in records for key in trace_keys(record)} == set(message["keys"].split())


def test_what_javas_traces_say() -> None:
    records = [record for item in golden_messages() for record in decode_traces(bytes.fromhex(item["body"]))]
    pubs = [record for record in records if isinstance(record, Pub)]
    assert {(pub.group, pub.success, pub.region) for pub in pubs} == {
        ("shop", True, "DefaultRegion"),
        ("shop2", True, "DefaultRegion"),
    }
    assert {pub.topic for pub in pubs} == {"orders540", "orders497"}  # the namespace of one is not told
    assert {(pub.tags, pub.keys) for pub in pubs} == {("TagA", "k1 k2"), (None, None), (None, "ключ")}
    assert {pub.kind for pub in pubs} == {TracedMessage.NORMAL, TracedMessage.DELAYED}
    starts = {record.request_id: record for record in records if isinstance(record, SubBefore)}
    ends = [record for record in records if isinstance(record, SubAfter)]
    assert {(starts[end.request_id].retry_times, end.success, end.outcome) for end in ends} == {
        (0, False, 4),
        (1, True, 0),
    }
    assert len(starts) == len(ends)


@pytest.mark.parametrize(
    "record",
    [
        PUB,
        SubBefore(5, "R", "g", "REQ", "ID", 2, None),
        SubAfter("REQ", "ID", 1, False, "k", 2, 9, "g"),
        SubAfter("REQ", "ID", 1, True, None),
        EndTransaction(5, "R", "g", "T", "ID", None, "k", "h:1", TracedMessage.COMMIT, "TX", "COMMIT_MESSAGE", True),
        Recall(5, "R", "g", "T", "ID", False),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_come_back_as_they_were(record: TraceRecord) -> None:
    twice = (encode_trace(record) * 2).encode()
    assert decode_traces(twice) == [record, record]


def test_older_and_newer_forms_of_a_pub_are_read() -> None:
    fields = encode_trace(PUB).rstrip("\x02").split("\x01")
    oldest = "\x01".join(fields[:12] + fields[13:])
    with_host = "\x01".join([*fields, "10.0.0.1"])
    (old,) = decode_traces(oldest.encode())
    (new,) = decode_traces(with_host.encode())
    assert isinstance(old, Pub)
    assert isinstance(new, Pub)
    assert (old.offset_id, old.success) == (None, True)
    assert (new.offset_id, new.success, new.client_host) == ("OID", True, "10.0.0.1")


def test_an_end_without_outcome_is_a_success() -> None:
    (record,) = decode_traces(b"SubAfter\x01REQ\x01ID\x014\x01true\x01k\x02")
    assert record == SubAfter("REQ", "ID", 4, True, "k", 0)


def test_a_separator_in_a_key_does_not_tear_the_record() -> None:
    record = SubBefore(5, "R", "g", "REQ", "ID", 0, "a\x01b\x02c")
    (read,) = decode_traces(encode_trace(record).encode())
    assert isinstance(read, SubBefore)
    assert read.keys == "a b c"


def test_kinds_nobody_knows_are_left_out() -> None:
    assert decode_traces(b"New\x01x\x02" + encode_trace(PUB).encode()) == [PUB]
    assert decode_traces(b"") == []


@pytest.mark.parametrize(
    "body",
    [
        b"Pub\x015\x02",
        b"Pub\x01x\x01R\x01g\x01T\x01ID\x01a\x01k\x01h\x013\x017\x010\x01O\x01true\x02",
        b"Pub\x015\x01R\x01g\x01T\x01ID\x01a\x01k\x01h\x013\x017\x019\x01O\x01true\x02",
        b"SubBefore\x015\x01R\x02",
        b"SubAfter\x02",
        b"\xff\xfe",
    ],
)
def test_broken_traces_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="trace"):
        decode_traces(body)
