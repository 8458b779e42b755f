from __future__ import annotations

import pytest

from rocketline.errors import RemoteProtocolError
from rocketline.message import ConsumerOffset, QueueOffset
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    ConsumerSendMsgBackHeader,
    GetAllTopicConfigHeader,
    GetRouteHeader,
    Header,
    HeartbeatResponseHeader,
    PullMessageHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetHeader,
    QueryMessageHeader,
    RegisterBrokerHeader,
    ResetOffsetHeader,
    SendMessageHeader,
    SendMessageResponseHeader,
    UnregisterClientHeader,
)

SEND = SendMessageHeader("PG", "T", "TBW102", 4, 1, 0, 1700000000000, 7, "TAGS\x01A\x02", 2, True, 16, True, "broker-a")
SHORT = {
    "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "7", "i": "TAGS\x01A\x02",
    "j": "2", "k": "true", "l": "16", "m": "true", "n": "broker-a",
}  # fmt: skip
LONG = {
    "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "1",
    "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "7", "properties": "TAGS\x01A\x02", "reconsumeTimes": "2",
    "unitMode": "true", "maxReconsumeTimes": "16", "batch": "true", "bname": "broker-a",
}  # fmt: skip


def test_send_in_both_spellings() -> None:
    assert SEND.encode() == SHORT
    assert SEND.encode_long() == LONG
    for code in (310, 320, 325):
        assert SendMessageHeader.decode(Command(code, SHORT)) == SEND
    for code in (10, 324):
        assert SendMessageHeader.decode(Command(code, LONG)) == SEND


def test_send_with_only_what_is_required() -> None:
    header = SendMessageHeader.decode(Command(310, {name: SHORT[name] for name in "abcdefgh"}))
    assert (header.properties, header.reconsume_times, header.unit_mode, header.batch) == ("", 0, False, False)
    assert header.max_reconsume_times is None
    assert "l" not in header.encode()


@pytest.mark.parametrize("name", list("abcdefgh"))
def test_send_names_the_missing_field(name: str) -> None:
    ext = {key: value for key, value in SHORT.items() if key != name}
    with pytest.raises(RemoteProtocolError, match=f"request 310: field {name} is missing"):
        SendMessageHeader.decode(Command(310, ext))


def test_long_spelling_names_the_long_field() -> None:
    ext = {key: value for key, value in LONG.items() if key != "topic"}
    with pytest.raises(RemoteProtocolError, match="request 10: field topic is missing"):
        SendMessageHeader.decode(Command(10, ext))
    with pytest.raises(RemoteProtocolError, match="request 10: field queueId is 'x'"):
        SendMessageHeader.decode(Command(10, {**LONG, "queueId": "x"}))


def test_no_fields_at_all() -> None:
    with pytest.raises(RemoteProtocolError, match="field a is missing"):
        SendMessageHeader.decode(Command(310, None))
    assert GetAllTopicConfigHeader.decode(Command(21, None)) == GetAllTopicConfigHeader()
    assert GetAllTopicConfigHeader.decode(Command(21, {"ReqT": "0"})).encode() == {}


@pytest.mark.parametrize(
    "value", ["abc", "", " 1", "1 ", "0x10", "1.5", "٣", "2147483648", "-2147483649", str(2**70), "9" * 5000]
)
def test_int32_refused(value: str) -> None:
    with pytest.raises(RemoteProtocolError, match="request 310: field e is '"):
        SendMessageHeader.decode(Command(310, {**SHORT, "e": value}))


@pytest.mark.parametrize(
    ("value", "number"), [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1), ("-1", -1), ("0", 0)]
)
def test_int32_taken(value: str, number: int) -> None:
    assert SendMessageHeader.decode(Command(310, {**SHORT, "e": value})).queue_id == number


@pytest.mark.parametrize("value", [str(2**63), str(-(2**63) - 1), "now"])
def test_int64_refused(value: str) -> None:
    with pytest.raises(RemoteProtocolError, match="field g is"):
        SendMessageHeader.decode(Command(310, {**SHORT, "g": value}))


def test_int64_taken() -> None:
    assert SendMessageHeader.decode(Command(310, {**SHORT, "g": str(2**63 - 1)})).born_ms == 2**63 - 1


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("True", True), ("1", True), ("false", False),
                                             ("FALSE", False), ("0", False)])  # fmt: skip
def test_bool(text: str, value: bool) -> None:
    assert SendMessageHeader.decode(Command(310, {**SHORT, "m": text})).batch is value


@pytest.mark.parametrize("text", ["yes", "", "2", "truee"])
def test_bool_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="field m is"):
        SendMessageHeader.decode(Command(310, {**SHORT, "m": text}))


def test_errors_show_only_the_start_of_a_long_value() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        SendMessageHeader.decode(Command(310, {**SHORT, "e": "x" * 100_000}))
    assert len(str(caught.value)) < 300


def test_response_errors_say_so() -> None:
    with pytest.raises(RemoteProtocolError, match="response 0: field nextBeginOffset is missing"):
        PullMessageResponseHeader.decode(Command(11).reply(0, {}))


def test_unknown_fields_are_ignored() -> None:
    ext = {"topic": "T", "ReqT": "0", "ns": "x", "nsd": "true", "oway": "false", "lo": "true", "bname": "b"}
    assert GetRouteHeader.decode(Command(105, ext)) == GetRouteHeader("T")


def test_text_stays_text() -> None:
    assert GetRouteHeader.decode(Command(105, {"topic": "null"})).topic == "null"
    assert GetRouteHeader.decode(Command(105, {"topic": "123"})).topic == "123"


def test_names_that_differ_from_the_rule() -> None:
    pull = PullMessageHeader(
        "G", "T", 0, QueueOffset(5), 32, 2, ConsumerOffset(4), 15000, 9, proxy_forward_client_id="p", broker_name="b"
    )
    encoded = pull.encode()
    assert encoded["proxyFrowardClientId"] == "p"
    assert encoded["suspendTimeoutMillis"] == "15000"
    assert encoded["bname"] == "b"
    assert PullMessageHeader.decode(Command(11, encoded)) == pull
    assert ResetOffsetHeader("T", "G", 1, True).encode()["isForce"] == "true"
    assert UnregisterClientHeader("c").encode() == {"clientID": "c"}
    assert RegisterBrokerHeader("b", "a:1", "c", 0).encode()["bodyCrc32"] == "0"
    unique = QueryMessageHeader.decode(
        Command(
            12,
            {
                "topic": "T",
                "key": "k",
                "maxNum": "32",
                "beginTimestamp": "0",
                "endTimestamp": "1",
                "_UNIQUE_KEY_QUERY": "true",
            },
        )
    )
    assert unique.unique_key_query
    assert (
        ConsumerSendMsgBackHeader.decode(Command(36, {"offset": "7", "group": "G", "delayLevel": "0"})).log_offset == 7
    )


def test_send_response() -> None:
    header = SendMessageResponseHeader("ID", 3, QueueOffset(12), transaction_id="U")
    assert header.encode() == {
        "msgId": "ID", "queueId": "3", "queueOffset": "12", "transactionId": "U",
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
    }  # fmt: skip
    assert SendMessageResponseHeader.decode(Command(310).reply(0, header.encode())) == header
    full = SendMessageResponseHeader("ID", 3, QueueOffset(12), "U", "B", "R", "eu", False)
    assert SendMessageResponseHeader.decode(Command(310).reply(0, full.encode())) == full
    bare = SendMessageResponseHeader.decode(Command(310).reply(0, {"msgId": "ID", "queueId": "0", "queueOffset": "0"}))
    assert (bare.region, bare.trace_on) == ("DefaultRegion", True)


def test_pull_response() -> None:
    header = PullMessageResponseHeader(QueueOffset(3), QueueOffset(1), QueueOffset(9))
    assert header.encode() == {"suggestWhichBrokerId": "0", "nextBeginOffset": "3", "minOffset": "1", "maxOffset": "9"}
    full = PullMessageResponseHeader(QueueOffset(3), QueueOffset(1), QueueOffset(9), 1, -4, 2, 3, 5)
    assert len(full.encode()) == 8
    assert PullMessageResponseHeader.decode(Command(11).reply(0, full.encode())) == full


def test_heartbeat_response() -> None:
    ext = HeartbeatResponseHeader(True, False).encode()
    assert ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
    assert HeartbeatResponseHeader.decode(Command(34).reply(0, None)).subscription_changed


def test_none_stays_out() -> None:
    assert QueryConsumerOffsetHeader("G", "T", 0).encode() == {"consumerGroup": "G", "topic": "T", "queueId": "0"}


@pytest.mark.parametrize(
    "kind", sorted({*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}, key=lambda kind: kind.__name__)
)
def test_hand_written_encoders_agree_with_the_general_one(kind: type[Header]) -> None:
    values = {str: "x", int: 7, bool: True}
    fields = {
        name: next(
            values[wanted] for wanted in values if wanted.__name__ in str(annotation) or _is_offset(annotation, wanted)
        )
        for name, annotation in kind.__annotations__.items()
    }
    header = kind(**fields)
    assert header.encode() == Header.encode(header)
    assert len(header.encode()) == len(kind.__struct_fields__)
    code = next((code for code, other in REQUEST_HEADERS.items() if other is kind and code not in (10, 324)), 0)
    assert kind.decode(Command(code, header.encode())) == header


def _is_offset(annotation: str, wanted: type) -> bool:
    return wanted is int and ("Int" in annotation or "Offset64" in annotation)


def test_registries_name_known_codes() -> None:
    assert set(REQUEST_HEADERS) <= set(RequestCode)
    assert set(RESPONSE_HEADERS) <= set(RequestCode)
