"""A broker with a transient pool: what is sent becomes readable with a commit, and code 2 says that no buffer is free."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.unit.broker.parts import (
    PATIENCE_S,
    GatedDisk,
    MakeParts,
    Parts,
    eventually,
    pull_request,
    send_request,
)

from rocketline.broker import Broker, BrokerConfig
from rocketline.broker.handler_wiring import send_handlers
from rocketline.broker.handlers.busy import REMARK
from rocketline.broker.handlers.send_back import SendBackHandlers
from rocketline.errors import RequestRejected
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import ONEWAY, Command
from rocketline.protocol.headers import ConsumerSendMsgBackHeader
from rocketline.protocol.headers.read import SUBSCRIPTION, SUSPEND
from rocketline.protocol.records import BatchItem, decode_messages, encode_batch
from rocketline.store.config import FlushConfig, FlushDiskType, StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.testing.disks import MemoryDisk
from rocketline.transport import RemotingClient

SEGMENT = 8192


class StalledCommits(GatedDisk):
    """Writes of the log wait at the gate; the tables are written all the same."""

    def __init__(self, inner: Disk) -> None:
        super().__init__(inner, "write")

    def check(self, operation: str, path: Path) -> None:
        if operation != "write" or "commitlog" in str(path):
            super().check(operation, path)


def busy_parts(make_parts: MakeParts, **settings: object) -> Parts:
    """Two buffers, both in use, and a commit that does not come to an end."""
    disk = StalledCommits(MemoryDisk())
    parts = make_parts(disk=disk, transient_pool_size=2, log_segment_bytes=SEGMENT, **settings)
    parts.put_topic("orders")
    disk.gate.clear()
    while parts.store.free_buffers:
        assert parts.peer().ask(send_request(body=bytes(3000))).code == ResponseCode.SUCCESS
    return parts


def send_back(log_offset: int) -> Command:
    header = ConsumerSendMsgBackHeader(
        log_offset=log_offset,  # type: ignore[arg-type]
        group="readers",
        delay_level=0,
        origin_msg_id="",
        origin_topic="orders",
        max_reconsume_times=16,
    )
    return Command(RequestCode.CONSUMER_SEND_MSG_BACK, header.encode())


def all_sends() -> list[Command]:
    return [
        send_request(code=RequestCode.SEND_MESSAGE),
        send_request(code=RequestCode.SEND_MESSAGE_V2),
        send_request(
            code=RequestCode.SEND_BATCH_MESSAGE, body=encode_batch([BatchItem(0, b"in a batch", b"")]), batch=True
        ),
        send_back(0),
    ]


async def test_all_that_would_be_stored_is_answered_with_2_while_no_buffer_is_free(make_parts: MakeParts) -> None:
    parts = busy_parts(make_parts)
    end = parts.store.log_next_offset
    assert REMARK.startswith("[REJECTREQUEST]system busy, start flow control for a while"), "as Apache says it"
    for request in all_sends():
        answer = parts.peer().ask(request)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, REMARK)
    peer = parts.peer()
    peer.send(send_request(flag=0), Command(RequestCode.SEND_MESSAGE_V2, send_request().ext, b"x", flag=ONEWAY))
    assert len(peer.received()) == 1, "one-way sends are dropped in silence"
    assert parts.store.log_next_offset == end
    assert isinstance(parts.disk, GatedDisk)
    parts.disk.gate.set()
    await eventually(lambda: parts.store.free_buffers == 1)
    assert parts.store.committed_offset >= SEGMENT
    parts.dispatch()
    for request in all_sends():
        answer = parts.peer().ask(request)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_reading_goes_on_while_sends_are_refused(make_parts: MakeParts) -> None:
    parts = busy_parts(make_parts)
    answer = parts.peer().ask(pull_request())
    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_a_refused_roll_is_2_as_well(make_parts: MakeParts) -> None:
    """The last buffer may go between the look at the pool and the append; here the look is left out."""
    parts = busy_parts(make_parts, fail_without_buffer=True)
    end = parts.store.log_next_offset
    answer = send_handlers(parts).send(parts.peer().channel, send_request(body=bytes(7000)))
    assert isinstance(answer, Command)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "no free buffer" in (answer.remark or "")
    assert parts.store.log_next_offset == end


async def test_a_message_handed_back_at_a_refused_roll_is_2_as_well(make_parts: MakeParts) -> None:
    disk = StalledCommits(MemoryDisk())
    parts = make_parts(disk=disk, transient_pool_size=2, log_segment_bytes=SEGMENT, fail_without_buffer=True)
    parts.peer().ask(send_request(body=bytes(7000)))
    parts.store.flush_now()
    disk.gate.clear()
    parts.peer().ask(send_request(body=bytes(7000)))
    assert parts.store.free_buffers == 0
    backs = SendBackHandlers(
        parts.store,
        parts.topics,
        parts.groups,
        parts.delays,
        lambda: None,
        None,
        writable=True,
        random=Random(1),
        statistics=parts.statistics,
    )
    with pytest.raises(RequestRejected, match="no free buffer") as refused:
        backs.send_back(parts.peer().channel, send_back(0))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY


async def test_without_a_pool_nobody_is_in_the_way(parts: Parts) -> None:
    handler = parts.router._handlers[RequestCode.SEND_MESSAGE_V2]
    assert handler.__qualname__ == "SendHandlers.send"


@pytest.mark.parametrize("kind", FlushDiskType)
async def test_a_held_pull_is_answered_when_the_message_is_committed(tmp_path: Path, kind: FlushDiskType) -> None:
    store = StoreConfig(
        log_segment_bytes=1 << 20,
        queue_segment_bytes=2000,
        index_slots=100,
        index_entries=500,
        transient_pool=True,
        transient_pool_size=2,
        flush=FlushConfig(disk_type=kind),
    )
    disk = StalledCommits(MemoryDisk())
    config = replace(BrokerConfig(port=0, store_root=str(tmp_path / "data")), store=store)
    async with Broker(config, disk=disk) as broker, RemotingClient() as client:

        async def ask(request: Command) -> Command:
            return await client.call(broker.address, request, PATIENCE_S)

        disk.gate.clear()
        held = asyncio.ensure_future(ask(pull_request("BenchmarkTest", sys_flag=SUBSCRIPTION | SUSPEND)))
        sent = asyncio.ensure_future(ask(send_request("BenchmarkTest", body=b"later")))
        await eventually(disk.reached.is_set)
        assert not held.done()
        assert sent.done() is (kind is FlushDiskType.ASYNC_FLUSH)
        disk.gate.set()
        assert (await sent).code == ResponseCode.SUCCESS
        assert [message.body for message in decode_messages((await held).body)] == [b"later"]
