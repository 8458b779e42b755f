"""One broker over the wire, in the few requests the harness needs."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence

from tests.support.patience import PATIENCE_S

from rocketline.client.remote_broker import PullAnswer, PullStatus, RemoteBroker
from rocketline.message import ConsumerOffset, MessageQueue, QueueOffset
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PullMessageHeader, SendMessageHeader, SendMessageResponseHeader
from rocketline.protocol.headers.read import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import BatchItem, encode_batch
from rocketline.transport import RemotingClient

from .ledger import Attempt, Ledger, Queue

_SIZE = struct.Struct(">i")


class Wire:
    """A connection to one broker."""

    def __init__(self, address: str, patience_s: float = PATIENCE_S) -> None:
        self._remoting = RemotingClient()
        self.broker = RemoteBroker(self._remoting, address, "broker-a", patience_s)
        self.last_refusal = ""
        self._patience_s = patience_s

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._remoting.close()

    async def send(self, ledger: Ledger, attempts: Sequence[Attempt]) -> int:
        """Send one message, or several as a batch; the broker's code. Whatever is not a success is noted as a maybe."""
        try:
            answer = await self.broker.call(_send_command(attempts), self._patience_s)
        except BaseException:
            for attempt in attempts:
                ledger.unanswered(attempt)
            raise
        if answer.code != ResponseCode.SUCCESS:
            self.last_refusal = f"{answer.code}: {answer.remark}"
            for attempt in attempts:
                ledger.unanswered(attempt)
            return answer.code
        at = time.monotonic()
        fields = SendMessageResponseHeader.decode(answer)
        for index, (attempt, place) in enumerate(zip(attempts, fields.msg_id.split(","), strict=True)):
            ledger.acknowledge(attempt, fields.queue_offset + index, parse_offset_id(place)[1], at)
        return answer.code

    async def pull(
        self, queue: Queue, offset: int, group: str, *, commit: int | None = None, wait_ms: int = 0
    ) -> PullAnswer:
        flags = SUBSCRIPTION | (COMMIT_OFFSET if commit is not None else 0) | (SUSPEND if wait_ms else 0)
        header = PullMessageHeader(
            group, queue[0], queue[1], QueueOffset(offset), 512, flags, ConsumerOffset(commit or 0), wait_ms, 0, "*",
            bulk=True,
        )  # fmt: skip
        return await self.broker.pull(header, self._patience_s)

    async def ends(self, queue: Queue) -> tuple[int, int]:
        """(min, max) offset of a queue."""
        place = MessageQueue(queue[0], "broker-a", queue[1])
        return await self.broker.min_offset(place), await self.broker.max_offset(place)

    async def committed(self, queue: Queue, group: str) -> int:
        return await self.broker.consumer_offset(group, MessageQueue(queue[0], "broker-a", queue[1]))

    async def read(self, queue: Queue, start: int, end: int, group: str) -> list[memoryview]:
        """The records of a queue from `start` to below `end`, as they were sent; stops where the broker has no more."""
        records: list[memoryview] = []
        while start < end:
            answer = await self.pull(queue, start, group)
            records.extend(split(answer.body))
            if answer.status in (PullStatus.NO_NEW, PullStatus.OFFSET_MOVED) or answer.next_offset <= start:
                break
            start = answer.next_offset
        return records


def split(body: bytes) -> Iterator[memoryview]:
    """The records of a pull's answer, unparsed."""
    view, position = memoryview(body), 0
    while position + 4 <= len(view):
        size = _SIZE.unpack_from(view, position)[0]
        if size <= 0:
            break
        yield view[position : position + size]
        position += size


def _send_command(attempts: Sequence[Attempt]) -> Command:
    first = attempts[0]
    properties = encode_properties(first.properties) if not first.in_batch else ""
    header = SendMessageHeader(
        f"producers-{first.producer}",
        first.queue[0],
        "TBW102",
        4,
        first.queue[1],
        0,
        1_700_000_000_000,
        0,
        properties,
        batch=first.in_batch,
    )
    if not first.in_batch:
        return Command(RequestCode.SEND_MESSAGE_V2, header.encode(), first.body)
    items = [BatchItem(0, each.body, encode_properties(each.properties).encode()) for each in attempts]
    return Command(RequestCode.SEND_BATCH_MESSAGE, header.encode(), encode_batch(items))
