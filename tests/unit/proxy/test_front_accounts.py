"""Accounts of a front beside a broker: who signed, and whose a client is."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterator

import pytest
from tests.support.grpc_wire import METHODS, GrpcWire
from tests.unit.proxy.conftest import create_topics
from tests.unit.proxy.test_front_calls import commands, message, publish, receive_request, send

from rocketline.admin import Admin
from rocketline.protocol.bodies.access import UserInfo
from rocketline.protocol.signing import Credentials
from rocketline.proxy.proto import Code, pb
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
