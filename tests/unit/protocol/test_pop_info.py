"""The texts of pop mode are those of Apache's own classes, and what those refuse is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.wire.load import frames, pop_texts

from rocketline.errors import InvalidReceipt, RemoteProtocolError
from rocketline.message import QueueOffset
from rocketline.protocol.bodies import BatchAckMessageRequestBody, decode_body, encode_body
from rocketline.protocol.bodies.pop import (
    MAX_BITS,
    BatchAck,
    MessageRequestModeTable,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    decode_bits,
    encode_bits,
)
from rocketline.protocol.connection import Connection
from rocketline.protocol.fastjson import parse
from rocketline.protocol.headers import PopMessageResponseHeader
from rocketline.protocol.pop_info import (
    ReceiptHandle,
    encode_message_offsets,
    encode_order_counts,
    encode_start_offsets,
    parse_message_offsets,
    parse_order_counts,
    parse_start_offsets,
    pop_retry_topic,
    real_topic,
    topic_flag,
)

GROUP, TOPIC = "CG", "TopicTest"


def by_java_key(parsed: dict[tuple[int, int], Any]) -> dict[str, Any]:
    return {f"{flag}@{queue_id}": value for (flag, queue_id), value in parsed.items()}


def test_handles_are_apaches() -> None:
    for item in pop_texts()["extra_info"]:
        text = item["text_with_offset_105"]
        handle = ReceiptHandle.parse(text)
        assert str(handle) == text
        assert handle.flag == topic_flag(item["topic"])
        assert real_topic(GROUP, TOPIC, handle.flag) == item["topic"]
        assert (handle.ck_start_offset, handle.queue_offset, handle.broker_name) == (100, 105, "broker-a")


def test_the_proxys_handle_has_a_ninth_part() -> None:
    item = pop_texts()["receipt_handle"]
    handle = ReceiptHandle.parse(item["text"])
    assert (str(handle), handle.log_offset) == (item["text"], 987654321)
    assert handle.next_visible_ms == item["nextVisibleTime"]
    changed = handle.changed(1, 2, 3)
    assert str(changed) == "105 1 2 3 0 broker-a 2 105 987654321"


def test_retry_topics_are_apaches() -> None:
    names = pop_texts()["retry_topic"]
    assert (pop_retry_topic(GROUP, TOPIC), pop_retry_topic(GROUP, TOPIC, 2)) == (names["v1"], names["v2"])


def test_lists_of_offsets_are_apaches() -> None:
    texts = pop_texts()
    starts = parse_start_offsets(texts["startOffsetInfo"]["text"])
    assert by_java_key(starts) == texts["startOffsetInfo"]["parsed"]
    assert encode_start_offsets(starts) == texts["startOffsetInfo"]["text"]
    offsets = parse_message_offsets(texts["msgOffsetInfo"]["text"])
    assert by_java_key(offsets) == texts["msgOffsetInfo"]["parsed"]
    assert encode_message_offsets(offsets) == texts["msgOffsetInfo"]["text"]
    counts = parse_order_counts(texts["orderCountInfo"]["text"])
    assert counts == {(0, 0, None): 2, (0, 0, QueueOffset(11)): 1}
    again = encode_order_counts((flag, queue, offset, count) for (flag, queue, offset), count in counts.items())
    assert again == texts["orderCountInfo"]["text"]


def test_what_apache_refuses_is_refused() -> None:
    for item in pop_texts()["parse_odd"]:
        for parser, key in (
            (parse_start_offsets, "parseStartOffsetInfo"),
            (parse_message_offsets, "parseMsgOffsetInfo"),
        ):
            wanted = item[key]
            if isinstance(wanted, str):
                with pytest.raises(RemoteProtocolError, match="OffsetInfo"):
                    parser(item["text"])  # type: ignore[operator]
            else:
                assert by_java_key(parser(item["text"])) == (wanted or {})  # type: ignore[operator]
    assert parse_order_counts(None) == {}
    for text in ("0 qo0 1", "0 0 1;0 0 2", "0 qo0%x 1", "0 0"):
        with pytest.raises(RemoteProtocolError, match="orderCountInfo"):
            parse_order_counts(text)


def test_apaches_answers_name_every_message() -> None:
    seen = 0
    for frame in frames():
        (command,) = Connection().receive(frame.data)
        if frame.request != 200050 or not command.is_response or command.code:
            continue
        header = PopMessageResponseHeader.decode(command)
        starts = parse_start_offsets(header.start_offset_info)
        offsets = parse_message_offsets(header.msg_offset_info)
        assert starts.keys() == offsets.keys()
        assert {key: listed[0] for key, listed in offsets.items()} == starts
        parse_order_counts(header.order_count_info)
        seen += 1
    assert seen


def test_bodies_are_apaches() -> None:
    kinds = {
        (200151, False): BatchAckMessageRequestBody,
        (400, False): QueryAssignmentRequestBody,
        (400, True): QueryAssignmentResponseBody,
        (401, False): SetMessageRequestModeRequestBody,
        (402, True): MessageRequestModeTable,
    }
    seen = set()
    for frame in frames():
        (command,) = Connection().receive(frame.data)
        kind = kinds.get((frame.request, command.is_response))
        if kind is None or not command.body:
            continue
        body = decode_body(kind, command.body)
        assert parse(encode_body(body)) == parse(command.body)
        seen.add((frame.request, command.is_response))
        if isinstance(body, BatchAckMessageRequestBody):
            assert [ack.offsets for ack in body.acks] == [[2, 3]]
    assert seen == set(kinds)


@given(st.sets(st.integers(0, 4000)))
def test_bit_sets_come_back(bits: set[int]) -> None:
    assert decode_bits(encode_bits(bits)) == sorted(bits)


@pytest.mark.parametrize("text", ["AQ", "Ä", "====", "A" * 4 * (MAX_BITS // 16)])
def test_bad_bit_sets(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="bit set"):
        decode_bits(text)


def test_no_explicit_null_in_what_a_broker_cannot_say() -> None:
    assert encode_body(QueryAssignmentResponseBody()) == b"{}"
    assert decode_body(QueryAssignmentResponseBody, b"{}").message_queue_assignments is None
    ack = BatchAck("g", "t", "0", 5, 0, 3, 1, 2, encode_bits([0, 9]))
    assert ack.offsets == [5, 14]


_numbers = st.integers(0, (1 << 63) - 1)


@given(_numbers, _numbers, st.integers(0, 999), st.integers(0, 2), st.none() | _numbers)
def test_handles_come_back(offset: int, time_ms: int, revive: int, flag: int, log_offset: int | None) -> None:
    handle = ReceiptHandle(offset, time_ms, 60_000, revive, flag, "b", 3, QueueOffset(offset), log_offset)  # type: ignore[arg-type]
    assert ReceiptHandle.parse(str(handle)) == handle


@given(st.text(alphabet="0123456789 -+b", max_size=60))
def test_no_text_does_worse_than_be_refused(text: str) -> None:
    with suppress(InvalidReceipt):
        assert str(ReceiptHandle.parse(text)).split(" ")[5] == text.split(" ")[5]
