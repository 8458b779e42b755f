from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketline.client.producer.batching import outgoing_batch, split_batch
from rocketline.client.producer.outgoing import (
    RequestMaker,
    check_message,
    joined_properties,
    message_properties,
)
from rocketline.client.producer.receipts import SendReceipt, SendStatus, split_receipt
from rocketline.client.producer.send_options import Compression, SendOptions
from rocketline.errors import ConfigError, InvalidMessage, MessageTooLarge, RemoteProtocolError
from rocketline.message import Message, MessageQueue, QueueOffset
from rocketline.protocol.command import Command
from rocketline.protocol.compression import decompress
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import decode_batch

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=30)
MIB4 = 4 * 1024 * 1024


def properties_of(message: Message) -> dict[str, str]:
    return message_properties(message, "ID")


def maker(group: str = "g", now_ms: int = 0) -> RequestMaker:
    return RequestMaker(group, SendOptions(), lambda _: "ID", lambda: now_ms)


def test_a_request_has_the_fields_javas_client_sends() -> None:
    message = Message("orders", b"body", tag="created", keys=["1", "2"], properties={"n": "ü"}, flag=7, delay_level=3)
    outgoing = maker("shop", 1234).make(message)
    header = SendMessageHeader.decode(Command(outgoing.code, {**outgoing.ext, "n": "broker-a"}))
    assert outgoing.code == 310
    assert (header.producer_group, header.topic, header.default_topic) == ("shop", "orders", "TBW102")
    assert (header.default_topic_queue_nums, header.sys_flag, header.born_ms, header.flag) == (4, 0, 1234, 7)
    assert (header.reconsume_times, header.unit_mode, header.batch) == (0, False, False)
    assert decode_properties(header.properties) == {
        "UNIQ_KEY": "ID", "WAIT": "true", "n": "ü", "KEYS": "1 2", "TAGS": "created", "DELAY": "3",
    }  # fmt: skip


def test_a_unique_id_of_the_callers_own_is_kept() -> None:
    message = Message("T", b"x", properties={"UNIQ_KEY": "MINE"})
    assert maker().make(message).message_id == "MINE"


def test_not_waiting_for_storage_is_a_property() -> None:
    assert properties_of(Message("T", b"x", wait_stored=False))["WAIT"] == "false"


@pytest.mark.parametrize(
    ("delay", "text"),
    [
        (timedelta(), "0"),
        (timedelta(seconds=2.5), "2500"),
        (timedelta(microseconds=1), "1"),
        (timedelta(3), "259200000"),
    ],
)
def test_a_delay_is_rounded_up_to_milliseconds(delay: timedelta, text: str) -> None:
    properties = properties_of(Message("T", b"x", delay=delay))
    assert (properties["TIMER_DELAY_MS"], "TIMER_DELIVER_MS" in properties) == (text, False)


def test_a_delivery_time_is_the_same_in_every_zone() -> None:
    at = datetime(2026, 11, 15, 12, 0, 0, 500, tzinfo=UTC)
    for zone in (UTC, timezone(timedelta(hours=5, minutes=30))):
        assert properties_of(Message("T", b"x", deliver_at=at.astimezone(zone)))["TIMER_DELIVER_MS"] == "1794744000001"


@pytest.mark.parametrize("topic", ["", "sp ace", "../../x", "ü", "x" * 128, "SCHEDULE_TOPIC_XXXX", "a/b"])
def test_topics_no_broker_takes_are_refused(topic: str) -> None:
    with pytest.raises(InvalidMessage, match="topic"):
        check_message(Message(topic, b"x"), MIB4)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("T", b""), "empty"),
        (Message("T", b"x", flag=1 << 31), "32 bits"),
        (Message("T", b"x", delay_level=19), "delay level 19"),
        (Message("T", b"x", delay_level=-1), "delay level -1"),
        (Message("T", b"x", delay=timedelta(seconds=-1)), "below zero"),
        (Message("T", b"x", delay=timedelta(1), delay_level=1), "more than one of"),
        (Message("T", b"x", delay=timedelta(1), deliver_at=datetime(2030, 1, 1, tzinfo=UTC)), "more than one of"),
        (Message("T", b"x", deliver_at=datetime(2030, 1, 1)), "no time zone"),
    ],
)
def test_messages_no_broker_takes_are_refused(message: Message, reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        check_message(message, MIB4)


def test_the_size_limit_is_four_mebibytes_and_inclusive() -> None:
    check_message(Message("T", bytes(MIB4)), MIB4)
    with pytest.raises(MessageTooLarge, match="4194305 bytes, the limit is 4194304"):
        check_message(Message("T", bytes(MIB4 + 1)), MIB4)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"a": ""}, "'a' has an empty"),
        ({"": "a"}, "empty name"),
        ({"a": "x\x01y"}, "separator"),
        ({"a": "x\x02y"}, "separator"),
        ({"a\x02": "y"}, "separator"),
        ({"a": 5}, "text"),
        ({"a": None}, "text"),
        ({"a": "\ud800"}, "Unicode"),
        ({"a": "x" * 32767}, "32767"),
        ({"a": "ü" * 16400}, "32767"),
    ],
)
def test_properties_that_cannot_travel_are_refused(properties: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        joined_properties(properties_of(Message("T", b"x", properties=properties)))


def test_keys_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"keys=\['42'\]"):
        properties_of(Message("T", b"x", keys=[42]))  # type: ignore[list-item]


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=50),
        min_size=1,
    )
)
def test_whatever_is_accepted_arrives(properties: dict[str, str]) -> None:
    assert decode_properties(joined_properties(properties)) == properties


ODD = st.text("ab \x01\x02ü", max_size=3) | st.just("x" * 9000)


@settings(max_examples=150)
@given(st.none() | ODD, st.lists(ODD, max_size=2), st.booleans())
def test_the_short_way_to_join_tag_and_keys_says_the_same(tag: str | None, keys: list[str], wait: bool) -> None:
    message = Message("T", b"x", tag=tag, keys=keys, wait_stored=wait)
    try:
        expected = joined_properties(properties_of(message))
    except InvalidMessage as error:
        with pytest.raises(InvalidMessage) as caught:
            maker().make(message)
        assert str(caught.value) == str(error)
    else:
        assert maker().make(message).ext["i"] == expected


@pytest.mark.parametrize(("name", "bits"), [("zlib", 0x300), ("lz4", 0x100), ("zstd", 0x200)])
def test_bodies_are_compressed_as_asked(name: str, bits: int) -> None:
    body = b"rocket" * 1000
    packed, sys_flag = Compression(name).compress(body)
    assert sys_flag == bits | 1
    assert len(packed) < len(body)
    assert decompress(packed, sys_flag) == body


def test_a_body_that_does_not_shrink_travels_as_it_is() -> None:
    body = bytes(range(256))
    assert Compression().compress(body) == (body, 0)


def test_unknown_compression_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'brotli': one of zlib, lz4, zstd"):
        Compression("brotli")


def make_batch(messages: list[Message], options: SendOptions | None = None) -> Any:
    numbers = iter(range(1000))
    return outgoing_batch(
        messages, RequestMaker("g", options or SendOptions(), lambda _: f"ID{next(numbers)}", lambda: 99)
    )


def test_a_batch_carries_each_message_with_its_own_id() -> None:
    messages = [Message("T", b"one", tag="a", flag=1), Message("T", b"two", keys=["k"], flag=2)]
    outgoing, ids = make_batch(messages)
    items = decode_batch(outgoing.body)
    assert (outgoing.code, outgoing.ext["m"]) == (320, "true")
    assert [(item.flag, bytes(item.body)) for item in items] == [(1, b"one"), (2, b"two")]
    assert [decode_properties(item.properties.decode())["UNIQ_KEY"] for item in items] == ids == ["ID0", "ID1"]
    assert decode_properties(outgoing.ext["i"]) == {"UNIQ_KEY": "ID2", "WAIT": "true"}


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "empty"),
        ([Message("T", b"x"), Message("U", b"x")], "message 1 is for 'U'"),
        ([Message("T", b"x", delay_level=1)], "delayed"),
        ([Message("T", b"x", delay=timedelta(1))], "delayed"),
        ([Message("T", b"x"), Message("T", b"x", wait_stored=False)], "wait_stored"),
        ([Message("%RETRY%g", b"x")], "no batches"),
        ([Message("T", b"x"), Message("T", b"")], "empty"),
    ],
)
def test_batches_keep_the_rules(messages: list[Message], reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        make_batch(messages)


def test_a_batch_over_the_limit_says_how_to_go_on() -> None:
    with pytest.raises(MessageTooLarge, match="split_batch"):
        make_batch([Message("T", bytes(600))] * 2, SendOptions(max_message_bytes=1000))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 900), TEXT), max_size=30))
def test_split_batches_fit_and_keep_order(sizes: list[tuple[int, str]]) -> None:
    messages = [
        Message(
            "T",
            bytes(size),
            tag=f"t{number}",
            properties={"p": f"x{text}"},
        )
        for number, (size, text) in enumerate(sizes)
    ]
    parts = list(split_batch(messages, max_bytes=2000))
    assert [message for part in parts for message in part] == messages
    for part in parts:
        assert len(make_batch(part)[0].body) <= 2000


RECEIPT = SendReceipt(SendStatus.OK, "BATCH", "A,B,C", MessageQueue("T", "b", 1), QueueOffset(7), "BATCH")


def test_a_batch_receipt_becomes_one_per_message() -> None:
    receipts = split_receipt(RECEIPT, ["m1", "m2", "m3"])
    assert [(r.message_id, r.offset_id, r.queue_offset) for r in receipts] == [
        ("m1", "A", 7),
        ("m2", "B", 8),
        ("m3", "C", 9),
    ]
    assert {r.queue for r in receipts} == {RECEIPT.queue}


def test_a_batch_receipt_with_other_ids_than_messages_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="batch of 2"):
        split_receipt(RECEIPT, ["m1", "m2"])
