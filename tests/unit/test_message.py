"""A message to send is a value: it is what it was made of, and stays so. One received is decoded as it is looked at."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest

from rocketline.message import LogOffset, Message, MessageView
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.records import RecordHead, decode_message, encode_record, topic_part


def test_keys_become_a_tuple() -> None:
    assert Message("T", b"x", keys=["a", "b"]).keys == ("a", "b")
    assert Message("T", b"x", keys="order 7").keys == ("order 7",)
    assert Message("T", b"x").keys == ()


def test_it_does_not_change() -> None:
    message = Message("T", b"x")
    with pytest.raises(AttributeError):
        message.body = b"y"  # type: ignore[misc]


def test_messages_do_not_share_their_properties() -> None:
    first, second = Message("T", b"x"), Message("T", b"x")
    assert first == second and first.properties is not second.properties


def test_a_copy_may_differ() -> None:
    message = Message("T", b"x", tag="t", keys=["k"], properties={"a": "b"}, flag=3, sharding_key="s")
    assert pickle.loads(pickle.dumps(message)) == message
    changed = msgspec.structs.replace(message, body=b"y", keys=["l"])
    assert (changed.body, changed.keys, changed.tag, changed.properties) == (b"y", ("l",), "t", {"a": "b"})


HOST = encode_host("10.1.2.3", 10911)
RECORD = encode_record(
    RecordHead(*topic_part("T"), 3, 11, 22, 7, 0, 1000, HOST, 2000, HOST, 1, 99), b"hi", b"TAGS\x01A\x02OLD\x01o\x02"
)


def received(changes: dict[str, str | None] | None = None) -> MessageView:
    return decode_message(RECORD, 0, len(RECORD), changes=changes or {})


def test_properties_of_a_received_message_can_be_changed() -> None:
    message = received()
    message.properties["TAGS"] = "B"
    message.properties["x"] = "y"
    del message.properties["OLD"]
    assert message.properties == {"TAGS": "B", "x": "y"} and message.tag == "B"
    assert pickle.loads(pickle.dumps(message)).properties == {"TAGS": "B", "x": "y"}
    message.properties = {"KEYS": "a b"}
    assert message.keys == ("a", "b") and message.tag is None


def test_fields_set_before_they_are_looked_at() -> None:
    message = received()
    message.properties, message.born_host, message.store_host, message.offset_id = {"a": "b"}, "here", "there", "id"
    message.log_offset = LogOffset(5)
    assert (message.properties, message.born_host, message.store_host) == ({"a": "b"}, "here", "there")
    assert message.offset_id == message.message_id == "id"


def test_the_offset_id_is_the_stores_whatever_is_done_to_the_message() -> None:
    message = received()
    message.log_offset = LogOffset(5)
    assert message.offset_id == "0A01020300002A9F0000000000000016"


def test_messages_of_an_answer_share_changes_and_no_properties() -> None:
    changes = {"MIN_OFFSET": "0", "OLD": None}
    first, second = received(changes), received(changes)
    first.properties["MIN_OFFSET"] = "5"
    assert second.properties == {"TAGS": "A", "MIN_OFFSET": "0"}
    assert changes == {"MIN_OFFSET": "0", "OLD": None}


def test_threads_that_look_at_the_same_time_see_the_same_properties() -> None:
    message = received()
    record = message._record
    seen = record[0](record, "properties")  # another thread decoded them and has not set the field yet
    message.properties["x"] = "y"
    assert seen is message.properties and seen == {"TAGS": "A", "OLD": "o", "x": "y"}


def test_a_received_message_has_no_other_fields() -> None:
    message: Any = received()
    with pytest.raises(AttributeError, match="'MessageView' object has no attribute 'propertys'"):
        message.propertys
    with pytest.raises(AttributeError, match="'MessageView' object has no attribute 'propertys'"):
        message.propertys = {}
    assert not hasattr(message, "__dict__")


def test_a_received_message_does_not_keep_the_answer() -> None:
    record = bytearray(RECORD)
    message = decode_message(memoryview(record), 0, len(record))
    record.clear()  # refused while anybody holds a view of it
    assert (message.body, message.tag, message.born_host) == (b"hi", "A", "10.1.2.3:10911")
