"""Accounts of a front beside a broker: who signed, and whose a client is."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from tests.support.grpc_wire import METHODS, GrpcWire
from tests.unit.proxy.conftest import create_topics
from tests.unit.proxy.test_front_calls import commands, message, publish, receive_request, send, subscribe

from rocketline.admin import Admin
from rocketline.admin.accounts import one_entry
from rocketline.auth.config import AuthConfig
from rocketline.broker.grpc_config import GrpcConfig
from rocketline.grpc.status import Status
from rocketline.protocol.bodies.access import UserInfo
from rocketline.protocol.signing import Credentials
from rocketline.proxy.config import ProxyConfig
from rocketline.proxy.proto import ClientType, Code, pb
from rocketline.proxy.server import Proxy
from rocketline.testing import LocalCluster

DATE = "20260101T000000Z"
PASSWORDS = {"admin": "a long secret", "other": "another secret"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    with LocalCluster(grpc=True, users=PASSWORDS) as running:
        create_topics(running)
        yield running


def signed(name: str, password: str | None = None, *, ending: str = "", upper: bool = False) -> dict[str, str]:
    digest = hmac.new((password or PASSWORDS[name]).encode(), DATE.encode(), "sha1").hexdigest()
    text = f"MQv2-HMAC-SHA1 Credential={name}{ending}, SignedHeaders=x-mq-date-time, Signature="
    return {"x-mq-date-time": DATE, "authorization": text + (digest.upper() if upper else digest)}


@pytest.mark.parametrize(
    "headers",
    [signed("admin"), signed("admin", upper=True), signed("admin", ending="//Rocketmq")],
    ids=["lower", "upper", "go"],
)
async def test_signatures_of_all_clients(guarded: LocalCluster, headers: dict[str, str]) -> None:
    async with GrpcWire(guarded.grpc_address) as wire:
        wire.metadata |= headers
        assert (await send(wire, message("TNORMAL"))).status.code == Code.OK


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({}, "username cannot be null."),
        (signed("admin", "wrong"), "check signature failed."),
        (signed("nobody", "x"), "User:nobody is not found."),
        ({"authorization": signed("admin")["authorization"]}, "datetime is null."),
        ({"authorization": "nonsense", "x-mq-date-time": DATE}, "authentication header is incorrect."),
        ({"authorization": "X Signature=zz,,=", "x-mq-date-time": DATE}, "username cannot be null."),
    ],
)
async def test_signatures_that_are_refused(guarded: LocalCluster, headers: dict[str, str], text: str) -> None:
    async with GrpcWire(guarded.grpc_address) as wire:
        wire.metadata |= headers
        answer = await send(wire, message("TNORMAL"))
        assert (answer.status.code, answer.status.message) == (Code.UNAUTHORIZED, text)
        (frame,) = await wire.call("ReceiveMessage", receive_request("TNORMAL", "g"))
        assert frame.status.code == Code.UNAUTHORIZED
        stream = wire.start(METHODS["Telemetry"].path)
        wire.send(stream, pb.TelemetryCommand(settings=pb.Settings(client_type=1)))
        (told,) = await commands(wire, stream, 1)
        assert told.status.code == Code.UNAUTHORIZED
        assert (await wire.ended(stream)).grpc_status == 0


async def test_who_guesses_is_sent_away(guarded: LocalCluster) -> None:
    async with GrpcWire(guarded.grpc_address) as wire:
        wire.metadata |= signed("admin", "a guess")
        for _ in range(12):
            stream = wire.start(METHODS["SendMessage"].path)
            wire.send(stream, pb.SendMessageRequest(messages=[message("TNORMAL")]), ends=True)
        await wire.until(lambda: wire.is_closed)


async def test_refusals_are_in_the_audit_log_as_what_they_are(
    guarded: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketline.audit")
    async with GrpcWire(guarded.grpc_address) as wire:
        wire.metadata |= signed("mallory", "a guess")
        await send(wire, message("TNORMAL"))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "rocketline.audit"]
    for part in ('access_key="mallory"', 'what="SEND_MESSAGE_V2"', 'result="REFUSED"', 'reason="unknown_account"'):
        assert part in line
    assert "certificate" not in line


async def test_a_whitelist_of_routes_opens_only_routes() -> None:
    config = {"authorizationWhitelist": "105"}
    with LocalCluster(grpc=True, users={"admin": PASSWORDS["admin"]}, config=config) as cluster:
        create_topics(cluster)
        async with Admin(cluster.namesrv, credentials=Credentials("admin", PASSWORDS["admin"])) as admin:
            for broker in await admin.brokers():
                user = UserInfo(username="other", password=PASSWORDS["other"], user_type="Normal")
                await broker.accounts.create_user(user)
        async with GrpcWire(cluster.grpc_address) as wire:
            wire.metadata |= signed("other")
            route = pb.QueryRouteRequest()
            route.topic.name = "TNORMAL"
            assert (await wire.call("QueryRoute", route)).status.code == Code.OK
            frames = await wire.call("ReceiveMessage", receive_request("TNORMAL", "g"))
            assert frames[0].status.code == Code.UNAUTHORIZED
            ack = pb.AckMessageRequest()
            ack.group.name, ack.topic.name = "g", "TNORMAL"
            ack.entries.add(receipt_handle="x")
            assert (await wire.call("AckMessage", ack)).status.code == Code.UNAUTHORIZED


async def test_a_client_belongs_to_its_account(guarded: LocalCluster) -> None:
    async with GrpcWire(guarded.grpc_address) as owner, GrpcWire(guarded.grpc_address) as stranger:
        owner.metadata |= signed("admin")
        stranger.metadata |= signed("other")
        await publish(owner, "TNORMAL")
        stolen = await publish(stranger, "TNORMAL")
        assert stranger.answer(stolen).messages(pb.TelemetryCommand)[0].status.code == Code.UNAUTHORIZED
        end = pb.NotifyClientTerminationRequest()
        assert (await stranger.call("NotifyClientTermination", end)).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
        assert (await owner.call("Heartbeat", pb.HeartbeatRequest())).status.code == Code.OK


# Every method


TOPIC, GROUP = "TNORMAL", "walkers"
SEND, READ, JOIN = f"Topic:{TOPIC} Pub", f"Topic:{TOPIC} Sub", f"Group:{GROUP} Sub"
UNSERVED = -1
UNKNOWN_CLIENT = Code.UNRECOGNIZED_CLIENT_TYPE
"""What a client is told that opened no stream: for that it needs the rights on its group."""


class Row(NamedTuple):
    """A call, and the rights that it asks for."""

    request: Any
    rights: tuple[str, ...]
    refusal: int = Code.UNAUTHORIZED
    """What it is told when one of them is lacking."""


def row_of(method: str) -> Row | None:
    """None: nobody serves the method."""
    request = METHODS[method].request()
    if "topic" in request.DESCRIPTOR.fields_by_name:
        request.topic.name = TOPIC
    if "group" in request.DESCRIPTOR.fields_by_name:
        request.group.name = GROUP
    match method:
        case "QueryRoute":
            return Row(request, (SEND,))
        case "SendMessage":
            return Row(pb.SendMessageRequest(messages=[message(TOPIC)]), (SEND,))
        case "RecallMessage":
            request.recall_handle = "x"
            return Row(request, (SEND,))
        case "EndTransaction":
            request.transaction_id = request.message_id = "x"
            return Row(request, (SEND,))
        case "QueryAssignment":
            return Row(request, (JOIN, READ))
        case "ReceiveMessage":
            return Row(receive_request(TOPIC, GROUP), (JOIN, READ))
        case "AckMessage":
            request.entries.add(receipt_handle="x")
            return Row(request, (JOIN, READ))
        case "ForwardMessageToDeadLetterQueue" | "ChangeInvisibleDuration":
            request.receipt_handle = request.message_id = "x"
            return Row(request, (JOIN, READ))
        case "Heartbeat" | "NotifyClientTermination":
            return Row(request, (JOIN,), UNKNOWN_CLIENT)
        case "Telemetry":
            request.settings.client_type = ClientType.SIMPLE_CONSUMER
            request.settings.subscription.group.name = GROUP
            request.settings.subscription.subscriptions.add().topic.name = TOPIC
            return Row(request, (JOIN, READ))
    return None


async def ended_with(wire: GrpcWire, method: str, request: Any) -> int:
    """The code that a call is answered with."""
    stream = wire.start(METHODS[method].path)
    wire.send(stream, request, ends=method != "Telemetry")
    answer = wire.answer(stream)
    await wire.until(lambda: bool(answer.data) or answer.is_ended)
    if answer.grpc_status == Status.UNIMPLEMENTED:
        return UNSERVED
    told = answer.messages(METHODS[method].response)[0]
    return Code.OK if method == "Telemetry" and told.HasField("settings") else told.status.code


async def admit(cluster: LocalCluster, name: str, rights: Iterable[str]) -> dict[str, str]:
    """The headers of a new account with these rights, and of a client of its own."""
    async with Admin(cluster.namesrv, credentials=Credentials("admin", PASSWORDS["admin"])) as admin:
        for broker in await admin.brokers():
            await broker.accounts.create_user(UserInfo(username=name, password="a password", user_type="Normal"))
            for resource, action in (right.split() for right in rights):
                await broker.accounts.put_acl(one_entry(f"User:{name}", [resource], [action], "Allow"))
    return signed(name, "a password") | {"x-mq-client-id": name}


@asynccontextmanager
async def front(cluster: LocalCluster, where: str) -> AsyncIterator[str]:
    """The address of a front in the broker's process, or of one in a process of its own with the broker's accounts."""
    if where == "broker":
        yield cluster.grpc_address
        return
    inner = json.dumps({"accessKey": "admin", "secretKey": PASSWORDS["admin"]})
    auth = AuthConfig(enabled=True, path=cluster.brokers[0].config.auth_folder, inner_account=inner)
    async with Proxy(ProxyConfig(namesrv=cluster.namesrv, grpc=GrpcConfig(port=0), auth=auth)) as proxy:
        yield proxy.address


@pytest.mark.parametrize("where", ["broker", "proxy"])
@pytest.mark.parametrize("method", METHODS)
async def test_a_method_asks_for_its_rights(guarded: LocalCluster, method: str, where: str) -> None:
    row = row_of(method) or Row(METHODS[method].request(), (), UNSERVED)
    lacking = [
        await admit(guarded, f"{where}-{method}-{without}", (right for right in row.rights if right != without))
        for without in row.rights
    ]
    having = await admit(guarded, f"{where}-{method}", row.rights)
    async with front(guarded, where) as address:
        ends = []
        for account in ({}, *lacking, having):
            async with GrpcWire(address) as wire:
                wire.metadata |= account
                if row.refusal == UNKNOWN_CLIENT and account is having:
                    await subscribe(wire, GROUP)
                ends.append(await ended_with(wire, method, row.request))
    if row.refusal == UNSERVED:
        assert ends == [UNSERVED, UNSERVED]
    else:
        assert ends[:-1] == [Code.UNAUTHORIZED, *(row.refusal for _ in lacking)]
        assert ends[-1] not in (UNSERVED, Code.UNAUTHORIZED, UNKNOWN_CLIENT)


async def test_rights_of_a_client_that_is_known_count_too(guarded: LocalCluster) -> None:
    """It opened its stream while it had them."""
    account = await admit(guarded, "former", [JOIN])
    async with (
        GrpcWire(guarded.grpc_address) as wire,
        Admin(guarded.namesrv, credentials=Credentials("admin", PASSWORDS["admin"])) as admin,
    ):
        wire.metadata |= account
        await subscribe(wire, GROUP)
        assert await ended_with(wire, "Heartbeat", row_of("Heartbeat").request) == Code.OK  # type: ignore[union-attr]
        for broker in await admin.brokers():
            await broker.accounts.delete_acl("User:former")
        for method in ("Heartbeat", "NotifyClientTermination"):
            assert await ended_with(wire, method, row_of(method).request) == Code.UNAUTHORIZED  # type: ignore[union-attr]
