"""What one client can make the front remember or answer, and what happens to the rest of a call when a part fails."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.grpc_wire import METHODS, GrpcWire
from tests.unit.proxy.test_front_calls import commands, message, receive, receive_request, send
from tests.unit.proxy.test_front_hostile import front_of

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.clock import SYSTEM_CLOCK
from rocketline.errors import ConnectFailed
from rocketline.grpc import answering
from rocketline.http2.frames import INITIAL_WINDOW_SIZE
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import CheckTransactionStateHeader
from rocketline.protocol.records import RecordHead, encode_record, topic_part
from rocketline.proxy import receiving, transactions
from rocketline.proxy.access import MAX_ACCOUNTS, Access, channel_of
from rocketline.proxy.backend import BrokerQueues, Topic
from rocketline.proxy.context import Context
from rocketline.proxy.proto import Code, Resolution, pb
from rocketline.proxy.sending import Sending
from rocketline.proxy.telemetry import MAX_SETTINGS_BYTES
from rocketline.proxy.transactions import CROSSING_S, Transactions
from rocketline.proxy.validation import MAX_ENDPOINTS_BYTES, MAX_RESOURCE_BYTES
from rocketline.testing import LocalCluster

HOST = b"\x7f\0\0\x01\0\0\0\x01"


async def test_what_a_route_repeats_is_short(wire: GrpcWire) -> None:
    long_namespace = pb.QueryRouteRequest()
    long_namespace.topic.name, long_namespace.topic.resource_namespace = "TNORMAL", "n" * MAX_RESOURCE_BYTES
    many_addresses = pb.QueryRouteRequest()
    many_addresses.topic.name = "TNORMAL"
    many_addresses.endpoints.addresses.add(host="h" * MAX_ENDPOINTS_BYTES)
    for request, code in ((long_namespace, Code.ILLEGAL_TOPIC), (many_addresses, Code.ILLEGAL_ACCESS_POINT)):
        answer = await wire.call("QueryRoute", request)
        assert answer.status.code == code
        assert answer.ByteSize() < MAX_RESOURCE_BYTES


async def test_settings_are_short(cluster: LocalCluster, wire: GrpcWire) -> None:
    wire.metadata["x-mq-client-id"] = "limits-settings"
    command = pb.TelemetryCommand()
    command.settings.publishing.SetInParent()
    command.settings.user_agent.platform = "x" * MAX_SETTINGS_BYTES
    stream = wire.start(METHODS["Telemetry"].path)
    await wire.flow({stream: b"\0" + command.ByteSize().to_bytes(4, "big") + command.SerializeToString()})
    assert (await wire.ended(stream)).grpc_status == 3
    assert await commands(wire, stream, 1) == []
    assert front_of(cluster).clients.get("limits-settings") is None


async def test_one_answer_has_a_limit_and_the_rest_comes_again(wire: GrpcWire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "MAX_ANSWER_BYTES", 1000)
    await send(wire, *(message("TNORMAL", bytes([number]) * 600, tag="large") for number in range(4)))
    missing, most = set(range(4)), 0
    while missing:
        got = await receive(wire, "TNORMAL", "limits-answer", tag="large")
        most = max(most, len(got))
        missing -= {item.body[0] for item in got}
    assert most == 2


async def test_what_a_deaf_client_is_sent_is_bounded_and_others_get_the_rest(
    cluster: LocalCluster, wire: GrpcWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has many long polls open, all of which are answered."""
    count, size, most = 40, 10_000, 50_000
    monkeypatch.setattr(answering, "MAX_QUEUED_BYTES", most)
    front = front_of(cluster)
    async with GrpcWire(cluster.grpc_address, settings={INITIAL_WINDOW_SIZE: 0}) as deaf:
        deaf.metadata["x-mq-client-id"] = "limits-deaf"
        streams = [deaf.start(METHODS["ReceiveMessage"].path) for _ in range(count)]
        for stream in streams:
            deaf.send(stream, receive_request("TNORMAL", "limits-deaf", tag="deaf"), ends=True)
        while max((channel.waiting_count for channel in front.server.channels), default=0) < count:
            await asyncio.sleep(0.01)
        for number in range(count):
            await send(wire, message("TNORMAL", bytes([number]) * size, tag="deaf"))
        (channel,) = [found for found in front.server.channels if found.stream_count > 1]
        while channel.waiting_count:
            await asyncio.sleep(0.01)
        assert most < channel._http2.queued_bytes < most + 2 * size
        missing = set(range(count))
        while len(missing) > most // size + 2:  # the others are on their way to the deaf one
            missing -= {item.body[0] for item in await receive(wire, "TNORMAL", "limits-deaf", tag="deaf")}


async def test_many_accounts_on_one_connection_end_neither_it_nor_each_other() -> None:
    class Connection:
        remote, remote_ip, remote_port, identity, is_encrypted = "127.0.0.1:1", "127.0.0.1", 1, "", False
        owner: Any = None
        is_closed = False

        def __init__(self) -> None:
            self.on_close: list[Any] = []

        def close(self) -> None:
            self.is_closed = True

    connection: Any = Connection()
    channel_of(connection, "")
    latest = [channel_of(connection, f"user-{number}") for number in range(3 * MAX_ACCOUNTS)][-1]
    assert not connection.is_closed
    assert len(connection.owner) <= MAX_ACCOUNTS
    assert channel_of(connection, f"user-{3 * MAX_ACCOUNTS - 1}") is latest


class FailingBroker:
    """A cluster of one broker that stores every other message, and fails at the others."""

    name, guard, is_available = "broker-a", None, True

    def __init__(self) -> None:
        self.count = 0
        self.ended: list[str] = []

    def known_topic(self, name: str) -> Topic:
        link: Any = self
        return Topic(name, "NORMAL", [BrokerQueues(link, 1, 1, 6)])

    async def link(self, name: str) -> FailingBroker:
        return self

    async def call(self, channel: Any, command: Command, timeout_s: float, late: Any = None) -> Command:
        if command.code == RequestCode.END_TRANSACTION:
            self.ended.append((command.ext or {})["commitOrRollback"])
            return command.reply(ResponseCode.SUCCESS)
        self.count += 1
        if not self.count % 2:
            raise ConnectFailed("nobody there")
        answer = command.reply(ResponseCode.SUCCESS)
        answer.ext = {"queueOffset": str(self.count)}
        return answer


def context() -> Context:
    call, channel = SimpleNamespace(), SimpleNamespace(remote="127.0.0.1:1")
    return Context(call, channel, "c1", None)  # type: ignore[arg-type]


async def test_what_is_stored_of_a_call_is_told_though_the_rest_failed() -> None:
    broker: Any = FailingBroker()
    ended = Transactions(broker, Access(broker), lambda: 0.0)
    sending = Sending(GrpcConfig(), broker, Access(broker), ended, SYSTEM_CLOCK)
    sent = [message("T") for _ in range(3)]
    answer = await sending.send(context(), pb.SendMessageRequest(messages=sent))
    assert answer.status.code == Code.MULTIPLE_RESULTS
    codes = [entry.status.code for entry in answer.entries]
    assert codes == [Code.OK, Code.INTERNAL_SERVER_ERROR, Code.OK]
    assert answer.entries[2].message_id == sent[2].system_properties.message_id


class Asked:
    """Transactions of one producer, with a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.broker: Any = FailingBroker()
        self.transactions = Transactions(self.broker, Access(self.broker), lambda: self.now)
        self.sent: list[Any] = []
        self.producer: Any = SimpleNamespace(id="p", stream=SimpleNamespace(send=self.sent.append))

    def prepared(self, name: str) -> None:
        self.transactions.prepared("T", name, "broker-a", 5, "7F00000100002A9F0000000000000064")

    async def commit(self, name: str) -> int:
        request = pb.EndTransactionRequest(transaction_id=name, resolution=Resolution.COMMIT)
        request.topic.name = "T"
        return int((await self.transactions.end(context(), request)).status.code)

    def check(self, name: str) -> None:
        head = RecordHead(*topic_part("T"), 0, 5, 100, 0, 0, 1000, HOST, 2000, HOST, 0, 0)
        record = encode_record(head, b"body", f"UNIQ_KEY\x01{name}\x02".encode())
        header = CheckTransactionStateHeader(queue_offset=5, log_offset=100, transaction_id=name)
        self.transactions.check(self.producer, Command(RequestCode.CHECK_TRANSACTION_STATE, header.encode(), record))


async def test_an_outcome_that_the_broker_lost_is_told_again() -> None:
    asked = Asked()
    asked.prepared("x")
    for _ in range(2):
        assert await asked.commit("x") == Code.OK
    asked.check("x")  # was on its way
    assert (len(asked.broker.ended), asked.sent) == (1, [])
    asked.now += CROSSING_S
    asked.check("x")
    assert len(asked.sent) == 1
    assert await asked.commit("x") == Code.OK
    assert len(asked.broker.ended) == 2


async def test_ended_transactions_push_no_open_ones_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MAX_KEPT", 3)
    asked = Asked()
    asked.prepared("open")
    for number in range(10):
        asked.prepared(f"t{number}")
        assert await asked.commit(f"t{number}") == Code.OK
    assert len(asked.transactions) == 1
    assert await asked.commit("open") == Code.OK
