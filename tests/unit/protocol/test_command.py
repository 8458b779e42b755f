from __future__ import annotations

from rocketline.protocol.command import ONEWAY, RESPONSE, ROCKETMQ, Command


def test_reply_answers_in_kind() -> None:
    request = Command(310, {"b": "T"}, b"x", opaque=7, encoding=ROCKETMQ, version=407, language="JAVA")
    reply = request.reply(0, {"msgId": "1"}, b"y", remark="fine")
    assert (reply.opaque, reply.encoding, reply.code, reply.body) == (7, ROCKETMQ, 0, b"y")
    assert reply.is_response
    assert not reply.is_oneway
    assert (reply.version, reply.language) == (493, "PYTHON")


def test_reply_always_has_fields() -> None:
    assert Command(34).reply(0).ext == {}


def test_flags() -> None:
    assert Command(15, flag=ONEWAY).is_oneway
    assert not Command(15, flag=ONEWAY).is_response
    assert Command(0, flag=RESPONSE).is_response


def test_repr_tells_what_it_is() -> None:
    assert repr(Command(310, {"b": "T"}, b"xy", opaque=3)) == "<request 310 #3 ext={'b': 'T'} body=2B>"
    assert "response 1" in repr(Command(310).reply(1, remark="no such topic"))
    assert "no such topic" in repr(Command(310).reply(1, remark="no such topic"))
