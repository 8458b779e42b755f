"""One request and its answer on the socket of a thread: looked out for or slept for, whole or in pieces, late or never."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.support.capabilities import needs_thread_signals
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import FakeCluster
from tests.unit.client.test_blocking import threaded_cluster
from tests.unit.client.test_direct import producer_of, warmed_up

from rocketline.client.producer import direct
from rocketline.client.producer.direct import DirectConnection
from rocketline.errors import ConnectionLost, RequestTimeout
from rocketline.message import Message
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import RESPONSE, Command
from rocketline.protocol.connection import Connection, frame_bytes

REQUEST = frame_bytes(Command(RequestCode.SEND_MESSAGE_V2, {"b": "T"}, b"body"))


def answer(opaque: int, remark: str = "") -> bytes:
    return frame_bytes(Command(0, {"queueId": "1"}, opaque=opaque, flag=RESPONSE, remark=remark))


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with threaded_cluster() as made:
        made.add_topic("T", 2)
        yield made


@pytest.fixture
def ends() -> Iterator[tuple[DirectConnection, socket.socket]]:
    """A connection, and the broker's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = DirectConnection(f"127.0.0.1:{server.getsockname()[1]}", PATIENCE_S)
        peer, _ = server.accept()
        peer.settimeout(PATIENCE_S)
        with peer:
            yield connection, peer
        connection.close()


def call(connection: DirectConnection, opaque: int, *, alone: bool = True, timeout_s: float = PATIENCE_S) -> Command:
    return connection.call(REQUEST, opaque, direct.monotonic(), timeout_s, alone=alone)


@contextmanager
def broker(serve: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def read_requests(peer: socket.socket, count: int = 1) -> list[Command]:
    frames, found = Connection(), list[Command]()
    while len(found) < count:
        found += frames.receive(peer.recv(65536))
    return found


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Notes who looks out for an answer."""
    found: list[threading.Thread] = []
    poll = DirectConnection._poll

    def noting(connection: DirectConnection) -> bytes | None:
        found.append(threading.current_thread())
        return poll(connection)

    monkeypatch.setattr(DirectConnection, "_poll", noting)
    return found


@pytest.mark.parametrize("alone", [True, False])
def test_an_answer_is_the_one_to_this_request(ends: tuple[DirectConnection, socket.socket], alone: bool) -> None:
    connection, peer = ends
    request_of_broker = frame_bytes(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {}, opaque=3))
    peer.sendall(answer(2, "late") + request_of_broker + answer(3, "mine"))
    assert call(connection, 3, alone=alone).remark == "mine"
    (request,) = read_requests(peer)
    assert request.body == b"body"


@pytest.mark.parametrize("alone", [True, False])
def test_an_answer_in_pieces_is_put_together(ends: tuple[DirectConnection, socket.socket], alone: bool) -> None:
    connection, peer = ends
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def serve() -> None:
        read_requests(peer)
        frame = answer(1, "x" * 3 * direct.READ_BYTES)
        for start in range(0, 40, 8):
            peer.sendall(frame[start : start + 8])
        peer.sendall(frame[40:])

    with broker(serve):
        assert call(connection, 1, alone=alone).remark == "x" * 3 * direct.READ_BYTES


@pytest.mark.parametrize("alone", [True, False])
def test_silence_ends_with_the_time_limit(ends: tuple[DirectConnection, socket.socket], alone: bool) -> None:
    connection, peer = ends
    peer.sendall(answer(1))
    with pytest.raises(RequestTimeout, match=r"did not answer request 310 within 0\.01 s"):
        call(connection, 2, alone=alone, timeout_s=0.01)


def test_a_time_limit_may_be_longer_than_one_sleep(
    ends: tuple[DirectConnection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, peer = ends
    monkeypatch.setattr(direct, "LONGEST_SLEEP_S", 0.001)
    sleeps: list[float] = []
    sleep = DirectConnection._sleep

    def noting(connection: DirectConnection, left_s: float) -> bool:
        sleeps.append(left_s)
        if len(sleeps) == 3:
            peer.sendall(answer(1))
        return sleep(connection, left_s)

    monkeypatch.setattr(DirectConnection, "_sleep", noting)
    assert call(connection, 1, alone=False, timeout_s=1e9).opaque == 1
    assert len(sleeps) >= 3


def test_what_came_before_the_thread_ran_again_is_taken(ends: tuple[DirectConnection, socket.socket]) -> None:
    connection, peer = ends
    peer.sendall(answer(1))
    long_ago = direct.monotonic() - 5.0
    assert connection.call(REQUEST, 1, long_ago, 3.0, alone=False).opaque == 1


@pytest.mark.parametrize("alone", [True, False])
def test_a_closed_connection_is_lost(ends: tuple[DirectConnection, socket.socket], alone: bool) -> None:
    connection, peer = ends
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLost, match="closed the connection before answering"):
        call(connection, 1, alone=alone)


@pytest.mark.parametrize("alone", [True, False])
def test_nonsense_is_told(ends: tuple[DirectConnection, socket.socket], alone: bool) -> None:
    connection, peer = ends
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ConnectionLost, match="is it a broker's address"):
        call(connection, 1, alone=alone)


def test_a_large_request_waits_for_the_broker_to_read(ends: tuple[DirectConnection, socket.socket]) -> None:
    connection, peer = ends
    body = b"x" * (16 * 1024 * 1024 - 1000)
    large = frame_bytes(Command(RequestCode.SEND_MESSAGE_V2, {"b": "T"}, body))

    def serve() -> None:
        (request,) = read_requests(peer)
        peer.sendall(answer(1, str(len(request.body))))
        read_requests(peer)
        peer.sendall(answer(2))

    with broker(serve):
        found = connection.call(large, 1, direct.monotonic(), PATIENCE_S, alone=False)
        assert found.remark == str(len(body))
        assert call(connection, 2).opaque == 2, "the socket is as before"


def test_a_broker_that_does_not_read_is_given_up(ends: tuple[DirectConnection, socket.socket]) -> None:
    connection, _ = ends
    large = frame_bytes(Command(RequestCode.SEND_MESSAGE_V2, {}, b"x" * (16 * 1024 * 1024 - 1000)))
    with pytest.raises(RequestTimeout):
        connection.call(large, 1, direct.monotonic(), 0.01, alone=False)


def test_answers_that_come_late_are_slept_for_until_one_is_tried_again(
    ends: tuple[DirectConnection, socket.socket], looks: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, peer = ends
    monkeypatch.setattr(direct, "POLL_S", 0.0)
    sleep = DirectConnection._sleep
    slow: list[int] = []

    def answering(connection: DirectConnection, left_s: float) -> bool:
        peer.sendall(answer(slow[-1]))
        return sleep(connection, left_s)

    monkeypatch.setattr(DirectConnection, "_sleep", answering)

    def quick_call(opaque: int) -> None:
        peer.sendall(answer(opaque))
        call(connection, opaque)

    def slow_call(opaque: int) -> None:
        slow.append(opaque)
        call(connection, opaque)

    for opaque in range(direct.MISS_COSTS + 1):
        quick_call(opaque)
    slow_call(100)
    assert len(looks) == direct.MISS_COSTS + 2, "one miss is forgiven"
    slow_call(101)
    looks.clear()
    for opaque in range(direct.REST_READS):
        slow_call(opaque)
    assert not looks
    quick_call(102)
    assert len(looks) == 1


def test_credit_does_not_add_up_without_end(ends: tuple[DirectConnection, socket.socket]) -> None:
    connection, peer = ends
    for opaque in range(direct.MOST_CREDIT + 5):
        peer.sendall(answer(opaque))
        call(connection, opaque)
    assert connection._credit == direct.MOST_CREDIT


def test_a_thread_looks_out_only_while_no_other_sends(cluster: FakeCluster, looks: list[threading.Thread]) -> None:
    asked = threading.Event()

    def slow(request: Command) -> None:
        if request.body == b"first":
            asked.set()

    with producer_of(cluster) as producer:
        warmed_up(producer)
        cluster.broker.on[RequestCode.SEND_MESSAGE_V2] = slow
        thread = threading.Thread(target=producer.send, args=[Message("T", b"first")])
        thread.start()
        assert asked.wait(PATIENCE_S)
        del cluster.broker.on[RequestCode.SEND_MESSAGE_V2]
        looks.clear()
        here = threading.current_thread()
        for connection in producer._direct._all:  # type: ignore[union-attr]
            connection._credit = 1
        for _ in range(3):
            producer.send(Message("T", b"second"))
        assert here not in looks
        for connection in list(direct._sending):
            connection.end()
        thread.join(PATIENCE_S)
        producer.send(Message("T", b"third"))
        assert here in looks
    assert not direct._sending


@contextmanager
def nudged(thread: int) -> Iterator[None]:
    """A signal that comes just before a thread begins to wait for a lock is noticed only with the next one: send those,
    which mean nothing."""
    over = threading.Event()

    def nudge() -> None:
        while not over.wait(0.01):
            signal.pthread_kill(thread, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    nudging = threading.Thread(target=nudge)
    nudging.start()
    try:
        yield
    finally:
        over.set()
        nudging.join()
        signal.signal(signal.SIGUSR1, before)


@needs_thread_signals
@pytest.mark.parametrize("credit", [0, -100], ids=["looking out", "asleep"])
def test_ctrl_c_ends_the_wait_and_the_connection(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    credit: int,
) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only")
    monkeypatch.setattr(direct, "POLL_S", PATIENCE_S)
    with producer_of(cluster) as producer:
        warmed_up(producer)
        (connection,) = producer._direct._all  # type: ignore[union-attr]
        connection._credit = credit
        main = threading.main_thread().ident
        assert main is not None

        def interrupt(request: Command) -> None:
            signal.pthread_kill(main, signal.SIGINT)

        cluster.broker.on[RequestCode.SEND_MESSAGE_V2] = interrupt
        with pytest.raises(KeyboardInterrupt), nudged(main):
            producer.send(Message("T", b"x"), timeout=PATIENCE_S)
        del cluster.broker.on[RequestCode.SEND_MESSAGE_V2]
        assert connection not in producer._direct._all and not direct._sending  # type: ignore[union-attr]
        assert producer.send(Message("T", b"y")).message_id


def test_a_forked_child_does_not_count_the_threads_of_its_parent(
    ends: tuple[DirectConnection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "_opened", set())
    direct._sending.add(ends[0])
    direct._disown()
    assert not direct._sending
