"""Clients that mean no good, or are broken: bounded memory, and others are served all the same."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.grpc_wire import METHODS, GrpcWire
from tests.unit.proxy.test_front_calls import message, receive, receive_request, send, subscribe

from rocketline.grpc import channel as grpc_channel
from rocketline.grpc.framing import framed
from rocketline.grpc.schema import Schema
from rocketline.grpc.services import load_common
from rocketline.http2 import ErrorCode
from rocketline.http2.frames import CONTINUATION, HEADERS, INITIAL_WINDOW_SIZE, PING, RST_STREAM, frame, reset_frame
from rocketline.proxy import clients as front_clients
from rocketline.proxy.front import GrpcFront
from rocketline.proxy.proto import ClientType, Code, pb
from rocketline.testing import LocalCluster

SEND = METHODS["SendMessage"].path
MIB = 1024 * 1024


def front_of(cluster: LocalCluster) -> GrpcFront:
    front = cluster._running._front
    assert front is not None
    return front


async def others_are_served(cluster: LocalCluster) -> None:
    async with GrpcWire(cluster.grpc_address) as other:
        assert (await send(other, message("TNORMAL"))).status.code == Code.OK


async def test_thousands_of_idle_streams(cluster: LocalCluster, wire: GrpcWire) -> None:
    streams = [wire.start(SEND) for _ in range(1900)]
    last = await wire.ended(streams[-1])
    assert last.reset == ErrorCode.REFUSED_STREAM
    front = front_of(cluster)
    assert max(channel.stream_count for channel in front.server.channels) <= 1024
    await others_are_served(cluster)
    assert wire.answer(streams[0]).reset is None


async def test_who_never_stops_to_open_streams_is_sent_away(cluster: LocalCluster, wire: GrpcWire) -> None:
    for _ in range(5000):
        wire.start(SEND)
    await wire.until(lambda: wire.is_closed)
    assert wire.goaway in (None, ErrorCode.ENHANCE_YOUR_CALM)  # what was sent too late may break the connection first
    await others_are_served(cluster)


async def test_rapid_resets(cluster: LocalCluster, wire: GrpcWire) -> None:
    for _ in range(2000):
        wire.writer.write(reset_frame(wire.start(SEND), ErrorCode.CANCEL))
    await wire.until(lambda: wire.is_closed)
    assert wire.goaway in (None, ErrorCode.ENHANCE_YOUR_CALM)
    await others_are_served(cluster)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(1000), ErrorCode.FRAME_SIZE_ERROR),
        (frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, bytes(10_000)) * 10, ErrorCode.ENHANCE_YOUR_CALM),
        (frame(PING, 0, 0, bytes(8)) * 20_000, ErrorCode.ENHANCE_YOUR_CALM),
    ],
    ids=["a huge frame", "endless metadata", "pings"],
)
async def test_bytes_that_end_the_connection(cluster: LocalCluster, wire: GrpcWire, bad: bytes, code: int) -> None:
    wire.writer.write(bad)
    await wire.until(lambda: wire.is_closed)
    assert wire.goaway in (None, code)
    await others_are_served(cluster)


async def test_endless_metadata_of_one_call(wire: GrpcWire) -> None:
    stream = wire.start(SEND, {"x-more": "x" * 16_000})
    wire.data(stream, b"", ends=True)
    assert (await wire.ended(stream)).grpc_status == 8
    assert (await send(wire, message("TNORMAL"))).status.code == Code.OK


async def test_a_message_that_says_it_is_too_long(wire: GrpcWire) -> None:
    stream = wire.start(SEND)
    wire.data(stream, b"\0" + (1 << 31).to_bytes(4, "big"))
    assert (await wire.ended(stream)).grpc_status == 8


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({":path": "/nowhere"}, {b"grpc-status": b"12"}),
        ({"content-type": "text/html"}, {b":status": b"415"}),
        ({":method": "GET"}, {b":status": b"405"}),
        ({"grpc-encoding": "zstd"}, {b"grpc-status": b"12"}),
        ({"grpc-timeout": "soon"}, {b"grpc-status": b"13"}),
    ],
)
async def test_requests_that_are_none(wire: GrpcWire, more: dict[str, str], expected: dict[bytes, bytes]) -> None:
    stream = wire.start(SEND, more)
    answer = await wire.ended(stream)
    assert expected.items() <= answer.headers.items()


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0\x03\xff\xff\xff", b"\0\0\0\0\x09abc", b"\0\0\0\0\0" * 2])
async def test_bodies_that_are_no_message(wire: GrpcWire, data: bytes) -> None:
    stream = wire.start(SEND)
    wire.data(stream, data, ends=True)
    answer = await wire.ended(stream)
    assert answer.grpc_status == 13


async def test_large_bodies_at_the_same_time(wire: GrpcWire) -> None:
    """More than is given room for at once: they come one after the other, and none waits for ever."""
    streams = [wire.start(SEND) for _ in range(12)]
    parts = [
        framed(pb.SendMessageRequest(messages=[message("TNORMAL", bytes(4 * MIB))]).SerializeToString())
        for _ in streams
    ]
    await wire.flow(dict(zip(streams, parts)))
    for stream in streams:
        (answer,) = (await wire.ended(stream)).messages(pb.SendMessageResponse)
        assert answer.status.code == Code.OK


async def test_who_never_reads_gives_its_messages_back(cluster: LocalCluster) -> None:
    async with GrpcWire(cluster.grpc_address, settings={INITIAL_WINDOW_SIZE: 0}) as deaf:
        deaf.metadata["x-mq-client-id"] = "deaf"
        async with GrpcWire(cluster.grpc_address) as other:
            await send(other, message("TNORMAL", b"unread", tag="unread"))
            stream = deaf.start(METHODS["ReceiveMessage"].path)
            deaf.send(stream, receive_request("TNORMAL", "hostile-deaf", tag="unread"), ends=True)
            await deaf.until(lambda: deaf.answer(stream).headers)
            deaf.writer.write(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
            (got,) = await receive(other, "TNORMAL", "hostile-deaf", tag="unread")
    assert (got.body, got.system_properties.delivery_attempt) == (b"unread", 2)


async def test_what_a_dead_client_holds_comes_again(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    front = front_of(cluster)
    async with GrpcWire(cluster.grpc_address) as other:
        await send(other, message("TNORMAL", b"held", tag="held"))
        async with GrpcWire(cluster.grpc_address) as dying:
            dying.metadata["x-mq-client-id"] = "dying"
            await subscribe(dying, "hostile-held", "TNORMAL", kind=ClientType.PUSH_CONSUMER)
            await receive(dying, "TNORMAL", "hostile-held", tag="held", auto_renew=True)
            assert len(front.renewals) == 1
        client = front.clients.get("dying")
        assert client is not None
        while client.lost_at is None:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(front_clients, "GONE_S", 0.0)
        cluster._call(front.clients.drop_silent())
        (got,) = await receive(other, "TNORMAL", "hostile-held", tag="held")
    assert got.system_properties.delivery_attempt == 2
    assert len(front.renewals) == 0


@pytest.mark.parametrize("method", ["SendMessage", "Telemetry"])
async def test_a_message_that_never_ends_is_given_up(
    cluster: LocalCluster, wire: GrpcWire, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    stream, silent = wire.start(METHODS[method].path), wire.start(METHODS["Telemetry"].path)
    wire.data(silent, framed(b""))
    wire.data(stream, b"\0\0\0\x10\0begin")
    await others_are_served(cluster)
    monkeypatch.setattr(grpc_channel, "REQUEST_S", -1.0)

    async def sweep() -> None:
        for channel in list(front_of(cluster).server.channels):
            channel.sweep()

    cluster._call(sweep())
    assert (await wire.ended(stream)).grpc_status == 4
    assert not wire.answer(silent).is_ended  # a stream that goes both ways may be silent between its messages


async def test_health_and_reflection(wire: GrpcWire) -> None:
    schema = Schema()
    load_common(schema)
    health = schema.methods("grpc.health.v1.Health")["Check"]
    stream = wire.start(health.path)
    wire.send(stream, health.request(service="apache.rocketmq.v2.MessagingService"), ends=True)
    assert (await wire.ended(stream)).messages(health.response)[0].status == 1
    for version in ("v1", "v1alpha"):
        method = schema.methods(f"grpc.reflection.{version}.ServerReflection")["ServerReflectionInfo"]
        stream = wire.start(method.path)
        wire.send(stream, method.request(list_services=""))
        wire.send(stream, method.request(file_containing_symbol="apache.rocketmq.v2.MessagingService"), ends=True)
        listed, found = (await wire.ended(stream)).messages(method.response)
        names = {service.name for service in listed.list_services_response.service}
        assert {"apache.rocketmq.v2.MessagingService", "grpc.health.v1.Health"} <= names
        assert len(found.file_descriptor_response.file_descriptor_proto) == 4


async def test_tls_and_plain_on_one_port(cluster: LocalCluster) -> None:
    for tls in (True, False):
        async with GrpcWire(cluster.grpc_address, tls=tls) as wire:
            assert (await send(wire, message("TNORMAL", tag="tls"))).status.code == Code.OK
            assert len(await receive(wire, "TNORMAL", "hostile-tls", tag="tls")) == 1
            if tls:
                assert wire.alpn == "h2"
