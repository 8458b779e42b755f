"""A lane: reads of many connections are served together at the end of a turn, and nothing of a connection is overtaken."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.parts import Peer

from rocketline.protocol.command import Command
from rocketline.protocol.connection import frame_bytes
from rocketline.transport import Lane, Read, Router, Served
from rocketline.transport.lane import EVERY, MANY, MISSES

PLAIN, OTHER = 310, 77


def frame(code: int = PLAIN) -> bytes:
    return frame_bytes(Command(code, {}))


class Served310:
    """A lane for reads that begin with one kind of frame, and handlers for the rest."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.router = Router({PLAIN: self._handle, OTHER: self._handle})
        self.router.lane = self.lane = Lane(self)
        self.general: list[int] = []
        self.peers = [Peer(self.router, ("192.0.2.5", 4000 + number)) for number in range(MANY + 1)]

    def __call__(self, reads: list[Read]) -> Served | None:
        self.calls.append(len(reads))
        found = [b"answer" if data.startswith(frame()) else None for data, _, _ in reads]
        if not any(found):
            return None
        size = len(frame())
        rests = [
            (number, size if answers else 0)
            for number, (answers, read) in enumerate(zip(found, reads))
            if not answers or len(read[0]) > size
        ]
        return found, rests, len(reads) - found.count(None), 0

    def _handle(self, channel: object, request: Command) -> Command:
        self.general.append(request.code)
        return request.reply(0)

    async def turn(self, *reads: bytes) -> None:
        for peer, data in zip(self.peers, reads):
            peer.channel.data_received(data)
        await asyncio.sleep(0)

    async def busy(self) -> None:
        """A turn with so many reads that those of the next are kept."""
        await self.turn(*[frame()] * MANY)
        self.calls.clear()
        for peer in self.peers:
            peer.transport.written.clear()


@pytest.fixture
async def served() -> Served310:
    return Served310()


async def test_a_few_reads_are_answered_at_once_and_many_together(served: Served310) -> None:
    await served.turn(*[frame()] * (MANY - 1))
    served.peers[0].channel.data_received(frame())
    assert served.calls == [1] * MANY, "each by itself"
    await asyncio.sleep(0)
    await served.busy()
    for peer in served.peers[:2]:
        peer.channel.data_received(frame())
        assert not peer.transport.written
    await asyncio.sleep(0)
    assert served.calls == [2]
    assert [bytes(peer.transport.written) for peer in served.peers[:3]] == [b"answer", b"answer", b""]
    assert served.router.sends == [MANY - 1 + 1 + MANY + 2]
    served.peers[0].channel.data_received(frame())
    assert served.calls == [2, 1], "two are few: the next are answered at once again"


async def test_one_connection_with_many_reads_is_answered_at_once(served: Served310) -> None:
    for _ in range(2 * MANY):
        served.peers[0].channel.data_received(frame())
    await asyncio.sleep(0)
    served.calls.clear()
    served.peers[0].channel.data_received(frame())
    assert served.calls == [1]


async def test_the_rest_of_a_kept_read_goes_the_general_road(served: Served310) -> None:
    await served.busy()
    await served.turn(frame() + frame(OTHER), frame(OTHER), frame())
    assert served.calls == [3]
    assert served.general == [OTHER, OTHER]
    assert [peer.transport.written.startswith(b"answer") for peer in served.peers[:3]] == [True, False, True]


async def test_a_connection_that_reads_again_has_what_was_kept_served_first(served: Served310) -> None:
    await served.busy()
    channel = served.peers[0].channel
    channel.data_received(frame() + frame(OTHER)[:30])
    channel.data_received(frame(OTHER)[30:] + frame(PLAIN))
    await asyncio.sleep(0)
    assert served.calls == [1], "what is in the middle of a frame is not for the lane"
    assert served.general == [OTHER, PLAIN]


@pytest.mark.parametrize("ends", ["eof", "lost"])
async def test_what_was_kept_is_served_when_its_connection_ends(served: Served310, ends: str) -> None:
    await served.busy()
    channel = served.peers[0].channel
    channel.data_received(frame() + frame(OTHER))
    if ends == "eof":
        channel.eof_received()
    else:
        channel.connection_lost(None)
    assert (served.calls, served.general) == ([1], [OTHER])
    await asyncio.sleep(0)
    assert served.calls == [1]


async def test_nonsense_ends_its_own_connection_only(served: Served310) -> None:
    await served.busy()
    await served.turn(frame(), b"\xff" * 20, frame())
    assert [peer.channel.is_open for peer in served.peers[:3]] == [True, False, True]
    assert served.peers[2].transport.written == b"answer"


async def test_without_anything_for_the_lane_all_go_the_general_road(served: Served310) -> None:
    await served.busy()
    await served.turn(frame(OTHER), frame(OTHER))
    assert (served.calls, served.general) == ([2], [OTHER, OTHER])


async def test_connections_with_nothing_for_the_lane_are_looked_at_now_and_then(served: Served310) -> None:
    channel = served.peers[0].channel
    for _ in range(MISSES + 4 * EVERY):
        channel.data_received(frame(OTHER))
    assert len(served.calls) == MISSES + 4
    served.calls.clear()
    for _ in range(EVERY):
        channel.data_received(frame())
    assert served.calls
    served.calls.clear()
    channel.data_received(frame())
    assert served.calls == [1], "one that was served ends that"


async def test_a_lane_may_be_told_to_keep_nothing(served: Served310) -> None:
    served.lane.may_keep = False
    await served.busy()
    served.peers[0].channel.data_received(frame())
    assert served.calls == [1]
