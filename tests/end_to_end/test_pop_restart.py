"""Popped messages of a broker that is killed with SIGKILL again and again: what was acknowledged never comes again, and
everything else does, after its invisible time and with its attempts counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import ChildCluster
from rocketline.errors import TransportError
from rocketline.message import MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    AckMessageHeader,
    PopMessageHeader,
    PopMessageResponseHeader,
    SendMessageHeader,
)
from rocketline.protocol.pop_info import ReceiptHandle, parse_start_offsets, real_topic, topic_flag
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import decode_messages
from rocketline.transport import RemotingClient

COUNT = 300
INVISIBLE_MS = 6000
SPARE_S = 3.0
SMALL_FILES = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "mappedFileSizeConsumeQueue=20000")


class Consumer:
    """Pops, acknowledges about every other message, and notes both."""

    def __init__(self) -> None:
        self.client = RemotingClient()
        self.address = ""
        self.seen: Counter[bytes] = Counter()
        self.acked: set[bytes] = set()
        self.repeated: set[bytes] = set()
        """Seen after they were acknowledged."""

    async def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        return await self.client.call(self.address, Command(code, ext, body), PATIENCE_S)

    async def send(self, body: bytes) -> None:
        text = encode_properties({"UNIQ_KEY": f"U-{body.decode()}"})
        header = SendMessageHeader("producers", "orders", "TBW102", 4, int(body) % 4, 0, 1_600_000_000_000, 0, text)
        answer = await self.ask(RequestCode.SEND_MESSAGE_V2, header.encode(), body)
        assert answer.code == ResponseCode.SUCCESS, answer

    async def work(self, *, ack_all: bool = False) -> int:
        """One pop and its acknowledgements; how many messages it gave."""
        header = PopMessageHeader("readers", "orders", -1, 8, INVISIBLE_MS, 0)
        loop = asyncio.get_running_loop()
        hidden_until = loop.time() + INVISIBLE_MS / 1000
        answer = await self.ask(RequestCode.POP_MESSAGE, header.encode())
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT), answer
        messages = decode_messages(answer.body)
        for message in messages:
            if message.body in self.acked:
                self.repeated.add(message.body)
            self.seen[message.body] += 1
        for message in messages:
            if loop.time() > hidden_until - SPARE_S:
                break  # on a busy machine: these come again, and so may one whose acknowledgement was late
            if ack_all or self.seen[message.body] > 1 or int(message.body) % 2:
                await self._ack(message, _handle(message, answer))
        return len(messages)

    async def _ack(self, message: MessageView, handle: ReceiptHandle) -> None:
        topic = real_topic("readers", "orders", handle.flag)
        header = AckMessageHeader("readers", topic, handle.queue_id, str(handle), handle.queue_offset)
        answer = await self.ask(RequestCode.ACK_MESSAGE, header.encode())
        assert answer.code == ResponseCode.SUCCESS, answer
        self.acked.add(message.body)

    async def work_until_killed(self) -> None:
        try:
            while True:
                if not await self.work():
                    await asyncio.sleep(0.02)
        except TransportError:
            return


def _handle(message: MessageView, answer: Command) -> ReceiptHandle:
    if message.receipt_handle is not None:
        return ReceiptHandle.parse(message.receipt_handle)
    header = PopMessageResponseHeader.decode(answer)
    flag = topic_flag(message.topic)
    start = parse_start_offsets(header.start_offset_info)[flag, message.queue_id]
    return ReceiptHandle(
        start, header.pop_ms, header.invisible_ms, header.revive_queue_id, flag, "broker-a", message.queue_id,
        message.queue_offset,
    )  # fmt: skip


async def test_kill_9_loses_no_popped_message_and_repeats_none_that_was_acknowledged(tmp_path: Path) -> None:
    consumer = Consumer()
    for round_number in range(3):
        cluster = ChildCluster(["--data", str(tmp_path), *SMALL_FILES])
        await asyncio.to_thread(cluster.start)
        consumer.address = cluster.brokers["broker-a"]
        try:
            for number in range(COUNT // 3):
                await consumer.send(b"%d" % (round_number * COUNT // 3 + number))
            work = asyncio.create_task(consumer.work_until_killed())
            enough = len(consumer.seen) + 40
            async with asyncio.timeout(PATIENCE_S):
                while len(consumer.seen) < enough:
                    await asyncio.sleep(0.01)
            # Sometimes before the offsets were ever saved, sometimes in the middle of redeliveries.
            await asyncio.sleep(round_number * 3.5)
        finally:
            await asyncio.to_thread(cluster.kill)
        await work
    with ChildCluster(["--data", str(tmp_path), *SMALL_FILES]) as cluster:
        consumer.address = cluster.brokers["broker-a"]
        async with asyncio.timeout(PATIENCE_S):
            while len(consumer.acked) < COUNT:
                if not await consumer.work(ack_all=True):
                    await asyncio.sleep(0.1)
    await consumer.client.close()
    assert consumer.seen.keys() == {b"%d" % number for number in range(COUNT)}
    assert consumer.repeated == set()
