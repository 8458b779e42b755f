"""A message to send is a value: it is what it was made of, and stays so."""

from __future__ import annotations

import pickle

import msgspec
import pytest

from rocketline.message import Message


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
