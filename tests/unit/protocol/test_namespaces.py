from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketline.errors import ConfigError
from rocketline.message import Message, MessageQueue
from rocketline.protocol.namespaces import NO_NAMESPACE, Namespace, without_any_namespace

GOLDEN = Path(__file__).parents[2] / "golden" / "trace" / "namespaces.json"

SPACE = Namespace("MQ_INST_1")

WRAPPED = {
    "orders": "MQ_INST_1%orders",
    "%RETRY%billing": "%RETRY%MQ_INST_1%billing",
    "%DLQ%billing": "%DLQ%MQ_INST_1%billing",
    "OTHER%orders": "MQ_INST_1%OTHER%orders",
}

SYSTEM = ["TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_anything", "CID_RMQ_SYS_TRANS"]


def test_names_come_out_as_apaches_class_has_them() -> None:
    rows = json.loads(GOLDEN.read_text("utf-8"))
    ours = [
        [space, name, Namespace(space).wrap(name), Namespace(space).unwrap(name), without_any_namespace(name)]
        for space, name, *_ in rows
    ]
    assert len(rows) > 100
    assert ours == rows


@pytest.mark.parametrize(("name", "wrapped"), WRAPPED.items())
def test_names_are_wrapped_once_and_unwrapped(name: str, wrapped: str) -> None:
    assert SPACE.wrap(name) == wrapped
    assert SPACE.wrap(wrapped) == wrapped
    assert SPACE.unwrap(wrapped) == name


@pytest.mark.parametrize("name", SYSTEM)
def test_names_of_the_system_stay(name: str) -> None:
    assert SPACE.wrap(name) == name
    assert without_any_namespace(name) == name


def test_names_of_other_namespaces_stay_wrapped() -> None:
    assert SPACE.unwrap("OTHER%orders") == "OTHER%orders"
    assert SPACE.unwrap("%RETRY%OTHER%billing") == "%RETRY%OTHER%billing"
    assert SPACE.unwrap("orders") == "orders"


@pytest.mark.parametrize(
    ("name", "plain"),
    [("ANY%orders", "orders"), ("%RETRY%ANY%g", "%RETRY%g"), ("%DLQ%g", "%DLQ%g"), ("orders", "orders"), ("", "")],
)
def test_any_namespace_can_be_taken_off(name: str, plain: str) -> None:
    assert without_any_namespace(name) == plain


def test_without_a_namespace_everything_stays() -> None:
    queue, message = MessageQueue("T", "b", 0), Message("T", b"x")
    assert not NO_NAMESPACE
    assert (NO_NAMESPACE.wrap("T"), NO_NAMESPACE.unwrap("NS%T")) == ("T", "NS%T")
    assert NO_NAMESPACE.wrap_queue(queue) is queue
    assert NO_NAMESPACE.unwrap_queue(queue) is queue
    assert NO_NAMESPACE.wrap_message(message) is message


def test_queues_and_messages_are_wrapped() -> None:
    queue = MessageQueue("T", "b", 3)
    assert SPACE.wrap_queue(queue) == MessageQueue("MQ_INST_1%T", "b", 3)
    assert SPACE.unwrap_queue(SPACE.wrap_queue(queue)) == queue
    message = SPACE.wrap_message(Message("T", b"x", properties={"a": "b"}))
    assert (message.topic, message.properties) == ("MQ_INST_1%T", {"a": "b", "INSTANCE_ID": "MQ_INST_1"})


@pytest.mark.parametrize("name", ["a%b", "a b", "../x", "x" * 101])
def test_a_namespace_is_a_plain_word(name: str) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        Namespace(name)
