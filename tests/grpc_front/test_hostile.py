"""Peers that keep no rules: the front's memory stays bounded, and others are served while they do it."""

from __future__ import annotations

import asyncio
import os
import re
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.grpc_client import GrpcClient, calls, consumer_settings, defs, message, resource
from tests.support.grpc_front import Address, Front
from tests.support.raw_http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    RawPeer,
    call_headers,
    frame,
    grpc_message,
    header_block,
)

from rocketline.cli.servers.child import ChildCluster

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("grpc faults")]

MIB = 1 << 20
COSTS_MIB = {
    "test_messages_that_never_become_whole_are_bounded": 12,
    "test_answers_that_nobody_reads_are_bounded": 110,  # 32 MiB of which are the messages that it sends
    "test_five_thousand_idle_streams_cost_little": 36,
    "test_garbage_handles_cost_nothing": 36,
}
MAY_COST_MIB = 4
"""How much memory a misuse may take, about twice what it took; without bounds each takes a multiple."""
UNREAD_MIB = 64
"""The same while it goes on, of answers that nobody reads."""


class Server:
    def __init__(self, cluster: ChildCluster) -> None:
        self._cluster = cluster
        self.address = Address(cluster.grpc, cluster.namesrv, is_ours=True, has_our_broker=True)

    @property
    def grpc(self) -> str:
        return self.address.grpc

    def watch(self) -> int:
        """Its memory now; from here on the highest is noted anew."""
        Path(f"/proc/{self._cluster.pid}/clear_refs").write_text("5")
        return self._memory("VmRSS")

    @property
    def highest(self) -> int:
        """The most memory since `watch`, also while a peer was at it."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self._cluster.pid}/status").read_text()
        (kib,) = re.findall(rf"{name}:\s+(\d+) kB", status)
        return int(kib) * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ChildCluster(["--data", str(tmp_path_factory.mktemp("hostile")), "--grpc-port", "0"]) as cluster:
        yield Server(cluster)


class Bystander:
    """Somebody else, with a topic and a group of his own."""

    def __init__(self, server: Server, topic: str, group: str) -> None:
        self._server = server
        self._names = topic, group

    async def exchange(self) -> None:
        await exchange(self._server, *self._names)

    def is_served(self) -> bool:
        """For tests to say in the middle of a misuse; fails when he is not."""
        asyncio.run(self.exchange())
        return True


@pytest.fixture
def bystander(server: Server, request: pytest.FixtureRequest) -> Iterator[Bystander]:
    """Is served before a test and after it; and its memory is looked at."""

    async def make() -> Bystander:
        async with Front(server.address) as front:
            return Bystander(server, await front.topic(), await front.group())

    found = asyncio.run(make())
    assert found.is_served()
    before = server.watch()
    yield found
    assert found.is_served()
    assert server.highest - before < COSTS_MIB.get(request.node.originalname, MAY_COST_MIB) * MIB


async def exchange(server: Server, topic: str, group: str) -> None:
    """Somebody else sends, receives and acknowledges."""
    async with GrpcClient(server.grpc) as client:
        await client.introduce(consumer_settings(group, topic))
        (entry,) = await client.send_all([message(topic)])
        found = await client.receive_until(group, topic, 1)
        assert entry.message_id in {item.system_properties.message_id for item in found}
        assert (await client.ack(group, topic, *found)).status.code == defs.Code.OK


def headers_frame(stream: int, method: str, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, call_headers(method, f"hostile-{stream}"))


@pytest.mark.parametrize(
    "nonsense",
    [
        os.urandom(4096),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + bytes(4096),  # begins like TLS
        b"\0\0\0\x40" + b"{}" * 32,  # remoting
        b"PROXY TCP4 " + b"9" * 4096,
    ],
    ids=["random", "http1", "tls", "remoting", "proxy protocol"],
)
def test_bytes_of_another_protocol_end_the_connection(server, bystander, nonsense):
    with RawPeer(server.grpc, hello=False) as peer:
        peer.flood(nonsense, 4096)
        assert bystander.is_served()
        assert peer.ended()


def test_a_frame_larger_than_agreed_ends_the_connection(server, bystander):
    with RawPeer(server.grpc) as peer:
        peer.send(frame(DATA, 0, 1, length=(1 << 24) - 1))
        assert bystander.is_served()
        peer.flood(bytes(65536), 256 * MIB)
        assert peer.ended()


def test_headers_without_end_end_the_connection(server, bystander):
    with RawPeer(server.grpc) as peer:
        peer.send(frame(HEADERS, 0, 1, call_headers("Telemetry", "endless")))
        more = frame(CONTINUATION, 0, 1, header_block({"x-more": "y" * 8000}))
        peer.send(more)
        assert bystander.is_served()
        assert peer.flood(more, 256 * MIB) < 256 * MIB
        assert peer.ended()


def test_a_header_block_that_unpacks_to_much_is_refused(server, bystander):
    """One byte repeats a header of the table: a small block that means gigabytes."""
    value = b"v" * 4000
    entry = b"\x40" + b"\x06x-bomb" + b"\x7f" + bytes([(4000 - 127) % 128 + 128, (4000 - 127) // 128]) + value
    with RawPeer(server.grpc) as peer:
        peer.send(frame(HEADERS, END_HEADERS, 1, call_headers("QueryRoute", "bomb") + entry))
        for stream in range(3, 105, 2):
            peer.send(frame(HEADERS, END_HEADERS, stream, b"\xbe" * 16_000))
        assert bystander.is_served()
        for stream in range(3, 105, 2):
            ((kind, flags, block), *_) = peer.answer_of(stream)
            assert (kind, flags & END_STREAM) == (HEADERS, END_STREAM)
            assert b"grpc-status\x018" in block, block  # RESOURCE_EXHAUSTED


def test_a_message_that_says_it_is_huge_is_refused_before_it_comes(server, bystander):
    with ExitStack() as peers:
        for number in range(20):
            peer = peers.enter_context(RawPeer(server.grpc))
            peer.send(headers_frame(1, "SendMessage"))
            peer.send(frame(DATA, 0, 1, struct.pack(">BI", 0, (1 << 32) - 1) + bytes(8000)))
            if number == 0:
                assert peer.answer_of(1), "it must not wait for four gibibytes"
        assert bystander.is_served()


def test_messages_that_never_become_whole_are_bounded(server, bystander):
    """Every stream of many gets almost all of a large message."""
    with ExitStack() as peers:
        for _ in range(50):
            peer = peers.enter_context(RawPeer(server.grpc))
            for stream in range(1, 41, 2):
                peer.send(headers_frame(stream, "SendMessage"))
                # As far as the windows go that every connection has at its start.
                peer.send(frame(DATA, 0, stream, grpc_message(b"", 4 * MIB) + bytes(3000)))
        assert bystander.is_served()


async def test_answers_that_nobody_reads_are_bounded(server, bystander):
    """Twenty groups ask for 32 messages of one mebibyte each, and take nothing."""
    async with Front(server.address) as front:
        large = await front.topic()
        groups = [await front.group() for _ in range(20)]
        async with front.client() as client:
            for _ in range(32):
                await client.send_all([message(large, bytes(MIB))])
    before = server.watch()
    with ExitStack() as peers:
        for group in groups:
            peer = peers.enter_context(RawPeer(server.grpc, window=0))
            request = calls.ReceiveMessageRequest(group=resource(group), batch_size=32)
            request.message_queue.topic.name = large
            request.message_queue.broker.name = "broker-a"
            request.invisible_duration.FromSeconds(10)
            request.long_polling_timeout.FromSeconds(5)
            data = grpc_message(request.SerializeToString())
            peer.send(headers_frame(1, "ReceiveMessage") + frame(DATA, END_STREAM, 1, data))
        await bystander.exchange()
        assert server.highest - before < UNREAD_MIB * MIB
    # Nobody had them, so another gets them.
    async with GrpcClient(server.grpc) as client:
        await client.introduce(consumer_settings(groups[0], large))
        found: set[str] = set()
        while len(found) < 32:
            received = await client.receive(groups[0], large)
            found |= {item.system_properties.message_id for item in received.messages}


def test_five_thousand_idle_streams_cost_little(server, bystander):
    with ExitStack() as peers:
        for _ in range(50):
            peer = peers.enter_context(RawPeer(server.grpc))
            peer.send(b"".join(headers_frame(stream, "Telemetry") for stream in range(1, 201, 2)))
        assert bystander.is_served()


def test_streams_that_are_opened_and_reset_at_once_cost_little(server, bystander):
    with RawPeer(server.grpc) as peer:
        cancel = struct.pack(">I", 8)
        pairs = (
            headers_frame(stream, "ReceiveMessage") + frame(RST_STREAM, 0, stream, cancel)
            for stream in range(1, 40_001, 2)
        )
        for pair in pairs:
            if peer.flood(pair, len(pair)) == 0:
                break
        assert bystander.is_served()


def test_connections_that_say_nothing_keep_nobody_out(server, bystander):
    with ExitStack() as peers:
        for _ in range(300):
            peers.enter_context(RawPeer(server.grpc, hello=False)).send(b"PRI * HT")
        assert bystander.is_served()


def test_garbage_handles_cost_nothing(server, bystander):
    """Calls that settle thousands of messages, none of which there is."""

    async def settle() -> None:
        async with Front(server.address) as front:
            topic, group = await front.topic(), await front.group()
            async with GrpcClient(server.grpc) as client:
                await client.introduce(consumer_settings(group, topic))
                for number in range(40):
                    request = calls.AckMessageRequest(group=resource(group), topic=resource(topic))
                    for entry in range(1000):
                        text = GARBAGE[entry % len(GARBAGE)].format(number, entry)
                        request.entries.add(receipt_handle=text)
                    answer = await client.call("AckMessage", request)
                    assert {entry.status.code for entry in answer.entries} == {defs.Code.INVALID_RECEIPT_HANDLE}
                    if number == 20:
                        await bystander.exchange()

    asyncio.run(settle())


GARBAGE = (
    "garbage {} {}", "{}" + "9" * 5000 + "{}", "0 99999999999999 60000 1 0 nobody-{} 0 {} 0", "\0{}ü{}",
    "0 1 1 0 0 broker-a {} {} 0",
)  # fmt: skip
