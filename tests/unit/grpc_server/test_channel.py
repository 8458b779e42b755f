"""A connection without a socket: when calls are over, who gets room, and which slow peers are sent away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.scripted_peer import Peer, WireTransport

from rocketline.grpc import answering, room
from rocketline.grpc.calls import Call, Served
from rocketline.http2 import ErrorCode
from rocketline.http2.frames import DATA, INITIAL_WINDOW_SIZE, RST_STREAM, WINDOW_UPDATE
from rocketline.proxy.proto import SERVICE, pb, schema

METHODS = schema.methods(SERVICE)
MIB = 1 << 20


def answer_of(size: int) -> list[Any]:
    found = pb.ReceiveMessageResponse()
    found.message.body = bytes(size)
    return [found]


class Receives:
    """A method whose answers are made when the test says so."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[Sequence[Any]]] = []
        self.lost: list[int] = []
        self.calls: list[Call] = []

    async def serve(self, call: Call, request: Any) -> Sequence[Any]:
        self.calls.append(call)
        call.on_lost = self.lost.append
        future: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return await future

    async def answer(self, number: int, size: int) -> None:
        self.futures[number].set_result(answer_of(size))
        await turns()

    def peer(self, **settings: Any) -> Peer:
        return Peer(Served(METHODS["ReceiveMessage"], server_stream=self.serve), **settings)


async def turns(count: int = 5) -> None:
    """Let everything happen that is ready."""
    for _ in range(count):
        await asyncio.sleep(0)


def sending_peer(done: Callable[[], Any] = pb.SendMessageResponse, **settings: Any) -> Peer:
    async def serve(call: Call, request: Any) -> Any:
        return done()

    return Peer(Served(METHODS["SendMessage"], unary=serve), **settings)


def send_request(size: int) -> Any:
    return pb.SendMessageRequest(messages=[pb.Message(body=bytes(size))])


async def test_a_call_is_over_when_its_answer_has_left() -> None:
    receives = Receives()
    peer = receives.peer()
    stream = peer.request(pb.ReceiveMessageRequest(), timeout="1H")
    await receives.answer(0, 200_000)
    (call,) = receives.calls
    assert not call.is_over
    peer.give_room(stream, MIB)
    assert call.is_over
    assert call.timer is None
    assert peer.channel.stream_count == 0
    assert receives.lost == []


@pytest.mark.parametrize("is_at_once", [True, False], ids=["answered at once", "answered later"])
async def test_an_answer_that_found_no_room_in_time_is_given_up(is_at_once: bool) -> None:
    """The peer hears nothing that it could take for a second answer, and the method hears what was not sent."""
    receives = Receives()
    peer = receives.peer()
    stream = peer.request(pb.ReceiveMessageRequest(), timeout="10S")
    if is_at_once:
        receives.futures[0].set_result(answer_of(200_000))
    await turns()
    if not is_at_once:
        await receives.answer(0, 200_000)
    sent = sum(len(payload) for kind, _, _, payload in peer.frames() if kind == DATA)
    (call,) = receives.calls
    assert call.timer is not None
    call.timer.cancel()
    peer.channel._too_late(call)
    await turns()
    assert peer.frames() == [(RST_STREAM, 0, stream, int(ErrorCode.CANCEL).to_bytes(4, "big"))]
    assert call.is_over
    assert receives.lost == [len(answer_of(200_000)[0].SerializeToString()) + 5 - sent]
    peer.give_room(0, MIB)
    assert peer.frames() == []


async def test_room_comes_back_from_calls_whose_answers_had_to_wait() -> None:
    """More than may be given at once, in all: calls whose answer waits must give back what they had."""
    peer = sending_peer(peer_settings={INITIAL_WINDOW_SIZE: 0})
    sent = send_request(4 * MIB)
    for _ in range(2 + room.MAX_GRANTED_BYTES // (4 * MIB)):
        stream = peer.request(sent)
        peer.give_room(stream, 1000)
    assert peer.unsent == {}
    assert peer.channel._room.granted_bytes == 0


async def test_a_call_that_waits_for_room_is_given_it_once() -> None:
    """A call that waits goes on sending what it still has room for."""
    receives = Receives()
    served = Served(METHODS["SendMessage"], unary=receives.serve)
    peer = Peer(served)
    sent, count = send_request(4 * MIB), 6 + room.MAX_GRANTED_BYTES // (4 * MIB)
    for _ in range(count):
        peer.begin(sent)
    peer.flow()
    for number in range(count):
        receives.futures[number].set_result(pb.SendMessageResponse())
        await turns()
        peer.flow()
    peer.frames()
    assert peer.unsent == {}
    assert all(int.from_bytes(payload, "big") for kind, _, _, payload in peer.seen if kind == WINDOW_UPDATE)


async def test_ended_calls_keep_nothing_of_their_message() -> None:
    receives = Receives()
    peer = Peer(Served(METHODS["SendMessage"], unary=receives.serve))
    peer.begin(send_request(4 * MIB))
    peer.channel._room._granted = room.MAX_GRANTED_BYTES
    peer.flow()
    call = next(iter(peer.channel._http2.streams.values())).owner
    assert peer.channel._room.waiting_count == 1
    peer.reset(1)
    assert (peer.channel._room.waiting_count, call.reader) == (0, None)


class Listening:
    """The server's side of a two-way stream that only counts."""

    def __init__(self) -> None:
        self.count = 0

    def received(self, message: Any) -> None:
        self.count += 1

    def ended(self) -> None: ...

    def lost(self) -> None: ...


async def test_a_stream_takes_any_number_of_messages_of_any_size() -> None:
    listening = Listening()
    peer = Peer(Served(METHODS["Telemetry"], bidirectional=lambda stream: listening))
    command = pb.TelemetryCommand()
    stream = peer.begin(command, ends=False)
    sizes = [20_000, 30_000, 2 * MIB, 7, 60_000, 2 * MIB] * 10
    for size in sizes:
        command.settings.user_agent.platform = "x" * size
        peer.add(stream, command)
    peer.flow()
    assert (peer.unsent, listening.count) == ({}, 1 + len(sizes))
    assert peer.channel._room.granted_bytes == 0


async def test_a_message_and_the_end_of_its_side_in_a_frame_of_its_own() -> None:
    receives = Receives()
    peer = receives.peer()
    stream = peer.begin(pb.ReceiveMessageRequest(), ends=False)
    peer.flow()
    peer.end(stream)
    await receives.answer(0, 10)
    assert [kind for kind, _, _, _ in peer.frames() if kind in (DATA, RST_STREAM)] == [DATA]


async def test_who_takes_answers_slowly_is_kept_and_who_takes_none_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    receives = Receives()
    peer = receives.peer()
    now = 1000.0
    monkeypatch.setattr(peer.channel, "now", lambda: now)
    peer.request(pb.ReceiveMessageRequest())
    await receives.answer(0, MIB)
    for _ in range(5):
        now += answering.QUEUE_STALL_S
        peer.give_room(0, 1000)
        peer.give_room(1, 1000)
        peer.channel.sweep()
    assert not peer.transport.is_aborted
    now += answering.QUEUE_STALL_S + 1
    peer.channel.sweep()
    assert peer.transport.is_aborted


async def test_who_reads_slowly_is_kept_and_who_does_not_read_is_not() -> None:
    peer = sending_peer()
    transport: WireTransport = peer.transport
    transport.unread_bytes = 9 * MIB
    peer.channel.pause_writing()
    transport.unread_bytes = 8 * MIB
    peer.channel._look_at_stall()
    assert not transport.is_aborted
    peer.channel._look_at_stall()
    assert transport.is_aborted


async def test_a_peer_is_behind_also_with_what_was_not_written_yet() -> None:
    """Many long polls may be answered in one turn of the loop."""
    receives = Receives()
    peer = receives.peer(peer_settings={INITIAL_WINDOW_SIZE: 1 << 30})
    peer.give_room(0, 1 << 30)
    for _ in range(3):
        peer.request(pb.ReceiveMessageRequest())
    behind = []
    for future, call in zip(receives.futures, receives.calls, strict=True):
        future.set_result(answer_of(5 * MIB))
        future.add_done_callback(lambda _, call=call: behind.append(call.channel.is_behind))
    await turns()
    assert behind == [False, True, True]
