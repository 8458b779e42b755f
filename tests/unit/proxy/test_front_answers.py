"""What clients are told for each answer of a broker, and where a dead letter says it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.grpc_wire import GrpcWire
from tests.unit.proxy.test_front_calls import ack_request, message, receive_request, send

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.errors import ConnectionLost, RequestTimeout
from rocketline.message import LogOffset, MessageView, QueueOffset
from rocketline.protocol.bodies import SubscriptionGroupConfig
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command
from rocketline.proxy.backend import BrokerQueues, Topic
from rocketline.proxy.front import GrpcFront
from rocketline.proxy.links import BrokerLink, FrontChannel
from rocketline.proxy.messages import to_client
from rocketline.proxy.problems import _BY_ANSWER, problem_of
from rocketline.proxy.proto import Code, pb
from rocketline.transport.server_config import TlsConfig, TlsMode

TOLD = {
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.NO_MESSAGE: Code.MESSAGE_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.SYSTEM_ERROR: Code.INTERNAL_SERVER_ERROR,
}
STORED = {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE}
HANDLE = "0 99999999999999 60000 1 0 broker-a 0 0 0"


class Scripted:
    """A cluster of one broker, which answers everything in the same way."""

    name, guard, is_available = "broker-a", None, True

    def __init__(self, answer: ResponseCode | Exception) -> None:
        self._answer = answer

    def known_topic(self, name: str) -> Topic:
        link: Any = self
        return Topic(name, "NORMAL", [BrokerQueues(link, 1, 1, 6)])

    async def topic(self, name: str) -> Topic:
        return self.known_topic(name)

    async def group(self, name: str) -> SubscriptionGroupConfig | None:
        return None

    async def link(self, broker_name: str) -> Scripted:
        return self

    async def registrars(self, channel: FrontChannel, topics: Sequence[str]) -> Sequence[BrokerLink]:
        return ()

    def forget(self, channel: FrontChannel) -> None:
        channel.close()

    async def call(self, channel: Any, command: Command, timeout_s: float, late: Any = None) -> Command:
        if isinstance(self._answer, Exception):
            raise self._answer
        return command.reply(self._answer, {}, remark="as the script says")


async def told(answer: ResponseCode | Exception, method: str) -> tuple[int, str, str]:
    """(code, text, id of the message) that a client gets."""
    backend: Any = Scripted(answer)
    config = GrpcConfig(port=0, min_poll_ms=1, max_poll_ms=1)
    front = GrpcFront(backend, "127.0.0.1", config, tls=TlsConfig(mode=TlsMode.DISABLED))
    async with front, GrpcWire(front.address) as wire:
        if method == "send":
            (entry,) = (await send(wire, message("T"))).entries
            return entry.status.code, entry.status.message, entry.message_id
        if method == "receive":
            found = (await wire.call("ReceiveMessage", receive_request("T", "g")))[0].status
        else:
            found = (await wire.call("AckMessage", ack_request("T", "g", HANDLE))).entries[0].status
        return found.code, found.message, ""


def test_every_row_of_the_table_is_here() -> None:
    assert _BY_ANSWER.items() <= TOLD.items()


@pytest.mark.parametrize("method", ["send", "receive", "ack"])
@pytest.mark.parametrize("answer", TOLD, ids=lambda answer: answer.name)
async def test_answers_of_a_broker(answer: ResponseCode, method: str) -> None:
    code, text, message_id = await told(answer, method)
    wanted = TOLD[answer]
    if method == "ack" and answer == ResponseCode.NO_MESSAGE:
        wanted = Code.INVALID_RECEIPT_HANDLE  # there is none at its place
    assert code == wanted
    is_stored = method == "send" and answer in STORED
    assert bool(message_id) == is_stored
    assert is_stored or text == "as the script says"


@pytest.mark.parametrize("method", ["send", "receive", "ack"])
@pytest.mark.parametrize(
    ("error", "wanted"),
    [(RequestTimeout("no answer"), Code.PROXY_TIMEOUT), (ConnectionLost("gone"), Code.INTERNAL_SERVER_ERROR)],
)
async def test_brokers_that_do_not_answer(error: Exception, wanted: int, method: str) -> None:
    assert (await told(error, method))[:2] == (wanted, str(error))


def test_a_refused_account_is_told_apart() -> None:
    answer = Command(310).reply(ResponseCode.NO_PERMISSION, remark="User:u has no permission to access Topic:t")
    assert problem_of(answer).code == Code.UNAUTHORIZED


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        ({"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": "01AB"}, ("orders", "01AB")),
        ({"DLQ_ORIGIN_TOPIC": "orders"}, None),
        ({}, None),
    ],
)
def test_where_a_dead_letter_comes_from(properties: dict[str, str], wanted: tuple[str, str] | None) -> None:
    stored = MessageView(
        "%DLQ%g", b"body", {"UNIQ_KEY": "01CD", **properties}, 0, QueueOffset(7), LogOffset(99), 1, "h:1", 2, "h:2"
    )
    made = to_client(stored, pb.Resource(name="%DLQ%g"))
    assert dict(made.user_properties) == {}
    system = made.system_properties
    if wanted is None:
        assert not system.HasField("dead_letter_queue")
    else:
        assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == wanted
