"""Requests to a broker, byte for byte as wanted: what Apache's own client would refuse to send or would not show.

A `Wire` also keeps a note of everything the broker acknowledged.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

from tests.support.patience import PATIENCE_S

from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import Record, decode_record
from rocketline.transport import RemotingClient

QUEUES = 4


@dataclass(frozen=True, slots=True)
class Acknowledged:
    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    body: bytes
    keys: str = ""


class Wire:
    """Calls of one broker; an async context manager."""

    def __init__(self, address: str) -> None:
        self.acknowledged: list[Acknowledged] = []
        self._address = address
        self._client = RemotingClient()
        self._sent = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, code: int, **ext: str) -> Command:
        return await self._call(Command(code, ext))

    async def send(self, topic: str, body: bytes, queue_id: int = 0, **properties: str) -> Acknowledged:
        self._sent += 1
        unique = f"{time.time_ns():032X}"[:24] + f"{self._sent:08X}"
        text = encode_properties({"UNIQ_KEY": unique, **properties})
        header = SendMessageHeader(
            "producers", topic, "TBW102", QUEUES, queue_id, 0, time.time_ns() // 1_000_000, 7, text
        )
        answer = await self._call(Command(RequestCode.SEND_MESSAGE_V2, header.encode(), body))
        assert answer.ext is not None
        log_offset = parse_offset_id(answer.ext["msgId"])[1]
        place = (topic, queue_id, int(answer.ext["queueOffset"]), log_offset)
        known = Acknowledged(*place, body, properties.get("KEYS", ""))
        self.acknowledged.append(known)
        return known

    async def record_at(self, log_offset: int) -> Record:
        answer = await self.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=str(log_offset))
        return decode_record(answer.body, 0, len(answer.body), check_crc=True)

    async def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        place = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **place, commitOffset=str(offset))

    async def committed(self, group: str, topic: str, queue_id: int) -> int:
        place = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, **place)
        assert answer.ext is not None
        return int(answer.ext["offset"])

    async def _call(self, command: Command) -> Command:
        answer = await self._client.call(self._address, command, PATIENCE_S)
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer
