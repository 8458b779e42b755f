"""Micro benchmarks of store and broker: the cost of one message in our own code, without sockets.

"serve" feeds whole frames to a channel, as a socket read would, and lets the dispatcher run: everything a broker does for
a message except reading and writing the socket.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from bench.case import Work, case
from bench.micro_protocol import BODY, SEND_FIELDS

PER_READ = 64
PER_BATCH = 32
PULLS = 8
PROPERTIES = "UNIQ_KEY\x01{}\x02WAIT\x01true\x02"


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rocketline-micro-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _unique(number: int) -> str:
    return f"7F0000012A1E14C214797DF6{number & 0xFFFFFFFF:08X}"


def _store() -> Any:
    from rocketline.protocol.message_ids import encode_host
    from rocketline.store.message_store import MessageStore, StoreConfig

    store = MessageStore(_folder(), StoreConfig(log_segment_bytes=64 << 20), encode_host("127.0.0.1", 10911))
    store.open()
    atexit.register(store.close)
    return store


def _message(number: int) -> Any:
    from rocketline.protocol.message_ids import encode_host
    from rocketline.store.message_store import StoreMessage

    unique = _unique(number)
    raw = PROPERTIES.format(unique).encode()
    host = encode_host("127.0.0.1", 5555)
    return StoreMessage("bench", number % 8, BODY, {"UNIQ_KEY": unique, "WAIT": "true"}, raw, 0, 0, 1, host)


@case("store: append", operations=PER_READ)
def append() -> Work:
    store = _store()
    messages = [_message(number) for number in range(PER_READ)]

    def work() -> None:
        for message in messages:
            store.append(message)
        store._log.entries.clear()

    return work


@case("store: append and dispatch", operations=PER_READ)
def append_and_dispatch() -> Work:
    store = _store()
    messages = [_message(number) for number in range(PER_READ)]

    def work() -> None:
        for message in messages:
            store.append(message)
        store.dispatch()

    return work


@case("store: batch of 32, append and dispatch", operations=PER_BATCH)
def batch() -> Work:
    from rocketline.protocol.records import BatchItem

    store = _store()
    common = _message(0)
    items = [BatchItem(0, BODY, PROPERTIES.format(_unique(number)).encode()) for number in range(PER_BATCH)]

    def work() -> None:
        store.append_batch(common, items)
        store.dispatch()

    return work


@case("store: read of 32 neighbours", operations=PER_BATCH)
def read() -> Work:
    from rocketline.protocol.records import BatchItem

    store = _store()
    items = [BatchItem(0, BODY, PROPERTIES.format(_unique(number)).encode()) for number in range(PER_BATCH)]
    store.append_batch(_message(0), items)
    store.dispatch()
    return lambda: store.read("bench", 0, 0, PER_BATCH)


class _DiscardingTransport(asyncio.Transport):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5555)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None: ...

    def writelines(self, list_of_data: Any) -> None: ...

    def is_closing(self) -> bool:
        return False


def _serving() -> tuple[asyncio.AbstractEventLoop, Any]:
    from rocketline.broker import Broker, BrokerConfig
    from rocketline.transport import Channel, Limits

    loop = asyncio.new_event_loop()
    broker = Broker(BrokerConfig(port=0, store_root=str(_folder())))

    async def start() -> Any:
        await broker.start()
        channel = Channel(broker._router, Limits())
        channel.connection_made(_DiscardingTransport())
        return channel

    def stop() -> None:
        loop.run_until_complete(broker.close())
        loop.close()

    channel = loop.run_until_complete(start())
    atexit.register(stop)
    return loop, channel


def _frames(encoding: int, batch: bool, number: count[int]) -> bytes:
    from rocketline.protocol.command import Command
    from rocketline.protocol.connection import frame_bytes
    from rocketline.protocol.records import BatchItem, encode_batch

    frames = []
    for _ in range(PER_READ // PER_BATCH if batch else PER_READ):
        fields = SEND_FIELDS | {"i": PROPERTIES.format(_unique(next(number))), "b": "bench"}
        body = BODY
        if batch:
            fields["m"] = "true"
            items = [BatchItem(0, BODY, PROPERTIES.format(_unique(next(number))).encode()) for _ in range(PER_BATCH)]
            body = encode_batch(items)
        frames.append(frame_bytes(Command(320 if batch else 310, fields, body, encoding=encoding)))
    return b"".join(frames)


def _serve(encoding: int, batch: bool = False) -> Work:
    loop, channel = _serving()
    data = _frames(encoding, batch, count())

    async def turn() -> None:
        channel.data_received(data)
        await asyncio.sleep(0)

    return lambda: loop.run_until_complete(turn())


@case("serve: JSON send, 64 in a read", operations=PER_READ)
def serve_json() -> Work:
    return _serve(0)


@case("serve: binary send, 64 in a read", operations=PER_READ)
def serve_binary() -> Work:
    return _serve(1)


@case("serve: batches of 32", operations=PER_READ)
def serve_batch() -> Work:
    return _serve(0, batch=True)


def _serve_pulls(subscription: str) -> Work:
    from rocketline.message import ConsumerOffset, QueueOffset
    from rocketline.protocol.command import Command
    from rocketline.protocol.connection import frame_bytes
    from rocketline.protocol.headers import PullMessageHeader
    from rocketline.protocol.headers.read import SUBSCRIPTION

    loop, channel = _serving()
    sends = _frames(0, True, count())

    async def turn(data: bytes) -> None:
        channel.data_received(data)
        await asyncio.sleep(0)

    for _ in range(PULLS):
        loop.run_until_complete(turn(sends))

    def pull(number: int) -> bytes:
        header = PullMessageHeader(
            consumer_group="readers",
            topic="bench",
            queue_id=int(SEND_FIELDS["e"]),
            queue_offset=QueueOffset(PER_BATCH * number),
            max_msg_nums=PER_BATCH,
            sys_flag=SUBSCRIPTION,
            commit_offset=ConsumerOffset(0),
            suspend_ms=0,
            sub_version=0,
            subscription=subscription,
        )
        return frame_bytes(Command(11, header.encode(), opaque=number))

    data = b"".join(pull(number) for number in range(PULLS))
    return lambda: loop.run_until_complete(turn(data))


@case("serve: pulls of 32", operations=PULLS)
def serve_pulls() -> Work:
    return _serve_pulls("*")


@case("serve: pulls for a tag that no message has", operations=PULLS)
def serve_tag_pulls() -> Work:
    return _serve_pulls("other")
