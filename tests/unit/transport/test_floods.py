"""Many peers at once that vanish, drip or are too many: others are served, and limits end the connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.transport.peers import BLOAT, ECHO, HOLD, RawPeer, Scripted, eventually, request, serving

from rocketline.protocol.command import Command
from rocketline.protocol.connection import frame_bytes
from rocketline.transport import Limits, RemotingClient, RemotingServer, accepting
from rocketline.transport.limits import SLOWEST_BYTES, Drips

SEED = 18
PEERS = 300
IDLE_S = 1.5
FRAME = frame_bytes(request(ECHO, opaque=7))
LONG_FRAME = frame_bytes(request(ECHO, body=bytes(100_000)))


async def connected(server: RemotingServer, count: int) -> list[RawPeer]:
    return [await RawPeer.connect(server.port) for _ in range(count)]


async def connected_and_served(server: RemotingServer, count: int) -> list[RawPeer]:
    """Each is served at once: on a busy machine the last of them connects when the first had no more time for it."""
    peers = []
    for _ in range(count):
        peer = await RawPeer.connect(server.port)
        await peer.send(FRAME)
        assert (await peer.receive()).opaque == 7
        peers.append(peer)
    return peers


async def is_served(server: RemotingServer) -> bool:
    """Whether a new connection is."""
    async with RemotingClient() as client:
        answer = await client.call(f"127.0.0.1:{server.port}", Command(ECHO, body=b"x" * 10_000), PATIENCE_S)
    return len(answer.body) == 10_000


async def test_peers_that_vanish_leave_nothing_behind() -> None:
    """S16. To a server a peer whose network is gone is one that says nothing more and reads nothing more."""
    chance, scripted = Random(SEED), Scripted()
    limits = Limits(idle_s=IDLE_S, write_stall_s=0.5, write_high_water_bytes=64 << 10)
    async with serving(scripted.router, limits, max_connections=PEERS) as server:
        vanished = await connected(server, PEERS)
        kinds = [
            FRAME,  # answered
            FRAME[: chance.randrange(1, len(FRAME))] if chance.random() < 0.5 else LONG_FRAME[:5000],  # cut off
            frame_bytes(request(HOLD)),  # waits for its answer
            frame_bytes(request(BLOAT, size=str(4 << 20))),  # does not take its answer
        ]
        sent = [chance.choice(kinds) for _ in vanished]
        for peer, data in zip(vanished, sent):
            await peer.send(data)
        await scripted.wait_held(sent.count(kinds[2]))
        scripted.release.set()
        await eventually(lambda: not server.channels)
        for peer in vanished:
            peer.abort()
        for peer in await connected_and_served(server, PEERS):  # every place is free again
            peer.abort()


async def test_peers_that_drip_are_closed_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """S18. Half of them drip their first frame; half have been served once, and drip the next one."""
    monkeypatch.setattr(accepting, "FIRST_FRAME_S", IDLE_S)
    chance = Random(SEED)
    async with serving(Scripted().router, Limits(idle_s=IDLE_S), max_connections=2 * PEERS) as server:
        dripping = await connected_and_served(server, PEERS // 2) + await connected(server, PEERS // 2)
        ends = [asyncio.create_task(peer.read_until_closed()) for peer in dripping]
        position = 0
        while not all(end.done() for end in ends):
            data = LONG_FRAME[position : position + 1]
            position += 1
            for peer, end in zip(dripping, ends):
                if not end.done() and chance.random() < 0.9:
                    with suppress(ConnectionError):
                        await peer.send(data)
            assert await is_served(server)
        await eventually(lambda: not server.channels)
        for peer in dripping:
            peer.abort()


async def test_a_flood_of_connections_is_refused_and_ends_with_them() -> None:
    """S19. Who is connected is served; who comes after the limit is closed at once; later everybody is welcome again."""
    limit = 100
    async with serving(Scripted().router, max_connections=limit) as server, RemotingClient() as loyal:
        address = f"127.0.0.1:{server.port}"
        assert (await loyal.call(address, Command(ECHO), PATIENCE_S)).code == 0
        flood = await connected(server, limit - 1)
        await eventually(lambda: len(server.channels) == limit)
        for _ in range(5):
            late = await connected(server, PEERS)
            for peer in late:
                assert await peer.read_until_closed() == b""
                peer.abort()
            assert (await loyal.call(address, Command(ECHO), PATIENCE_S)).code == 0
            assert len(server.channels) == limit
        for peer in flood:
            peer.abort()
        await eventually(lambda: len(server.channels) == 1)
        assert await is_served(server)


def test_what_counts_as_dripping() -> None:
    drips, peer = Drips(120.0), object()
    sizes = [(0, 10), (60, 20), (119, 30), (120, 31)]
    assert [drips.is_dripping(peer, size, now) for now, size in sizes] == [False, False, False, True]
    drips.forget(peer)
    slow_line = [(now, now * SLOWEST_BYTES // 100) for now in range(0, 500, 10)]
    assert not any(drips.is_dripping(peer, size, now) for now, size in slow_line)
    many_frames = [(now, 900 if now % 60 else 100) for now in range(500, 1000, 10)]
    assert not any(drips.is_dripping(peer, size, now) for now, size in many_frames)
    assert not drips.is_dripping(peer, 0, 1000)
    assert not drips.is_dripping(peer, 5, 1119)
