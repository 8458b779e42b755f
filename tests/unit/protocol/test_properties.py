from __future__ import annotations

import pytest
from tests.golden.wire.load import ids

from rocketline.protocol import replies
from rocketline.protocol.properties import decode_properties, encode_properties, property_problem


def test_written_as_java_does() -> None:
    for vector in ids()["properties_encode"]:
        properties = {name: value for name, value in vector["map"].items() if value is not None}
        text = encode_properties(properties)
        # The order of a Java map is arbitrary.
        assert sorted(text.split("\x02")) == sorted(bytes.fromhex(vector["encoded_hex"]).decode().split("\x02"))
        assert decode_properties(text) == vector["decoded_again"]


def test_read_as_java_does() -> None:
    for vector in ids()["properties_decode"]:
        assert decode_properties(bytes.fromhex(vector["hex"]).decode()) == vector["decoded"]


@pytest.mark.parametrize(
    ("name", "value"), [("", "v"), ("n", ""), ("n\x01", "v"), ("n", "v\x02"), ("n\x02", "v"), ("n", "\x01")]
)
def test_pairs_that_cannot_travel(name: str, value: str) -> None:
    problem = property_problem(name, value)
    assert problem is not None
    assert repr(name) in problem


def test_pairs_that_can() -> None:
    assert property_problem("n", " ") is None
    assert property_problem("ü", "a=b\n") is None


def test_names_of_the_properties_of_a_reply() -> None:
    named = (replies.CORRELATION_ID, replies.REPLY_TO_CLIENT, replies.TTL, replies.MSG_TYPE, replies.REPLY)
    assert named == ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE", "reply")
    assert (replies.CLUSTER, replies.PUSH_REPLY_TIME, replies.ARRIVE_TIME) == (
        "CLUSTER",
        "PUSH_REPLY_TIME",
        "ARRIVE_TIME",
    )
