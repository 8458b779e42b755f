"""The fast path: reads of many connections are served together at the end of a turn, and nothing of one is overtaken."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.compiled import needs_compiled
from tests.unit.broker.parts import MemoryTransport, Peer

from rocketline.broker import Broker, BrokerConfig
from rocketline.broker.fastpath.path import MANY_CONNECTIONS as MANY
from rocketline.broker.fastpath.path import BrokerFastPath
from rocketline.broker.fastpath.sends import Read, ServedReads
from rocketline.broker.fastpath.state import EVERY, MISSES
from rocketline.clock import ManualClock
from rocketline.metrics.families import Distribution
from rocketline.protocol.command import Command
from rocketline.protocol.connection import frame_bytes
from rocketline.store.config import StoreConfig
from rocketline.transport import RemotingServer, Router
from rocketline.transport.timed_router import TimedChannel, TimedRouter

PLAIN, OTHER = 310, 77
SMALL = StoreConfig(log_segment_bytes=1 << 20, queue_segment_bytes=2000, index_slots=100, index_entries=500)


def frame(code: int = PLAIN) -> bytes:
    return frame_bytes(Command(code, {}))


class Served310:
    """A fast path for reads that begin with one kind of frame, and handlers for the rest."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.learnt: list[bytes] = []
        self.breaks_at = b""
        self.router = Router({PLAIN: self._handle, OTHER: self._handle})
        self.router.fast_path = self.fast_path = BrokerFastPath(self, None)  # type: ignore[arg-type]
        self.general: list[int] = []
        self.peers = [Peer(self.router, ("192.0.2.5", 4000 + number)) for number in range(MANY + 1)]

    def learn(self, channel: object, data: bytes) -> None:
        self.learnt.append(data)

    def serve(self, reads: list[Read]) -> ServedReads | None:
        self.calls.append(len(reads))
        if self.breaks_at and any(self.breaks_at in data for data, _, _ in reads):
            raise ArithmeticError("as the test wants it")
        found = [b"answer" if data.startswith(frame()) else None for data, _, _ in reads]
        if not any(found):
            return None
        size = len(frame())
        rests = [
            (number, size if answers else 0)
            for number, (answers, read) in enumerate(zip(found, reads))
            if not answers or len(read[0]) > size
        ]
        return found, rests

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
    served.peers[0].channel.data_received(frame())
    assert served.calls == [2, 1], "two are few: the next are answered at once again"


async def test_one_connection_with_many_reads_is_answered_at_once(served: Served310) -> None:
    for _ in range(2 * MANY):
        served.peers[0].channel.data_received(frame())
    await asyncio.sleep(0)
    served.calls.clear()
    served.peers[0].channel.data_received(frame())
    assert served.calls == [1]


@pytest.mark.parametrize("cut", [1, 6, 9])
async def test_a_frame_that_comes_in_pieces_is_served_when_it_is_whole(served: Served310, cut: int) -> None:
    data = frame()
    await served.turn(data + data[:cut])
    await served.turn(data[cut:-1])
    assert served.general == []
    await served.turn(data[-1:])
    assert (served.general, served.calls[-1]) == ([], 1)


async def test_the_rest_of_a_kept_read_takes_the_general_path(served: Served310) -> None:
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
    assert served.calls == [1], "what is in the middle of a frame is not for the fast path"
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


async def test_a_server_that_closes_waits_for_the_answer_to_what_was_kept(
    served: Served310, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.busy()
    server, peer = RemotingServer(served.router, "127.0.0.1", 0), served.peers[0]
    server.channels.add(peer.channel)
    written: list[bytes] = []
    peer.channel.on_close.append(server.channels.discard)

    def close() -> None:
        written.append(bytes(peer.transport.written))
        MemoryTransport.close(peer.transport)

    monkeypatch.setattr(peer.transport, "close", close)
    peer.channel.data_received(frame())
    await server.close()
    assert written == [b"answer"], "what is written to a socket that closes is lost"
    assert peer.channel.waiting_count == 0


async def test_nonsense_ends_its_own_connection_only(served: Served310) -> None:
    await served.busy()
    await served.turn(frame(), b"\xff" * 20, frame())
    assert [peer.channel.is_open for peer in served.peers[:3]] == [True, False, True]
    assert served.peers[2].transport.written == b"answer"


async def test_a_fast_path_that_fails_costs_nobody_an_answer(
    served: Served310, caplog: pytest.LogCaptureFixture
) -> None:
    await served.turn(frame())
    served.breaks_at = frame()
    await served.turn(frame())
    assert served.general == [PLAIN], "one read by itself"
    served.breaks_at = b""
    await served.busy()
    served.breaks_at = frame()
    await served.turn(frame(), frame(OTHER), frame())
    assert served.general == [PLAIN, PLAIN, OTHER, PLAIN], "and many that were kept"
    assert all(len(peer.received()) == 1 and peer.channel.is_open for peer in served.peers[:3])
    assert "as the test wants it" in caplog.text


async def test_without_anything_for_the_fast_path_all_take_the_general_one(served: Served310) -> None:
    await served.busy()
    await served.turn(frame(OTHER), frame(OTHER))
    assert (served.calls, served.general) == ([2], [OTHER, OTHER])


async def test_connections_with_nothing_for_the_fast_path_are_looked_at_now_and_then(served: Served310) -> None:
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


async def test_what_was_kept_is_as_old_as_the_first_of_it() -> None:
    served, clock = Served310(), ManualClock()
    router = TimedRouter(clock.monotonic)
    router.add(OTHER, served._handle)
    router.fast_path = served.fast_path
    served.peers = [Peer(router, ("192.0.2.5", 4000 + number), TimedChannel) for number in range(MANY + 1)]
    await served.busy()
    served.peers[0].channel.data_received(frame())
    clock.advance(0.004)
    served.peers[2].channel.data_received(frame(OTHER))
    clock.advance(0.002)
    await asyncio.sleep(0)
    assert served.calls == [2], "they are kept all the same"
    times = {kind.request_name: found for kind, found in router.times()}
    assert times == {str(OTHER): Distribution((0, 0, 0, 1, *[0] * 6), 6)}


async def test_topics_are_learnt_from_what_was_not_served(served: Served310) -> None:
    await served.turn(frame(OTHER))
    await served.busy()
    await served.turn(frame(OTHER), frame())
    assert served.learnt == [frame(OTHER)] * 2


@needs_compiled
async def test_the_fast_path_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ROCKETLINE_FAST_PATH", raising=False)
    for number, (switched_on, wanted, is_there) in enumerate(
        [(True, "", True), (False, "", False), (True, "off", False)]
    ):
        monkeypatch.setenv("ROCKETLINE_FAST_PATH", wanted)
        config = BrokerConfig(port=0, store_root=str(tmp_path / str(number)), store=SMALL, fast_path=switched_on)
        async with Broker(config) as broker:
            assert (broker._router.fast_path is not None) == is_there
