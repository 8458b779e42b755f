"""Plain sends of one or several reads: stored and answered in one compiled step (`native/fastpath/serve_sends.c`).

A send is plain when its topic is known here, its queue exists, and its properties ask for nothing: no delay, no transaction,
no retry topic. Topics become known by the first send to them, which the general path serves; all are forgotten when any
topic changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rocketline._impl import compiled_only
from rocketline.broker.fastpath.answers import SendAnswerParts, send_answer_parts
from rocketline.broker.fastpath.late_answers import LateAnswers
from rocketline.broker.handlers.send import SendHandlers
from rocketline.broker.loop_delay import LoopDelay
from rocketline.errors import RemoteProtocolError, RequestRejected
from rocketline.protocol.bodies import TopicConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.header_codec import decode_header
from rocketline.protocol.record_layout import MAGIC_V1
from rocketline.protocol.records import topic_part
from rocketline.transport import Channel, Limits

_serve_sends = compiled_only("serve_sends")

SEND, BATCH = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)
MAX_QUEUES = 1024
"""Topics with more queues take the general path: a key of each queue is kept here."""
SPARE_BYTES = 16 << 10
MAX_GROWTH_BYTES = 512 << 10
"""Records are longer than their frames, in a batch up to three times: so much more room is asked for, up to this."""

Read = tuple[bytes, bytes, Channel]
"""What was read, the host it came from as records have it, and the connection."""
ServedReads = tuple[Sequence[bytes | None], Sequence[tuple[int, int]]]
"""For each read the answers to write now, None where nothing was served; which reads have more in them, and from where."""
Place = tuple[str, bytes, tuple[tuple[str, int], ...]]
"""A topic: its name, the form records have, and the keys of its queues."""


class FastSendContext(NamedTuple):
    """What `serve_sends` needs to know beside the reads and the room in the log."""

    max_frame_bytes: int
    max_header_bytes: int
    places: dict[str, Place]
    """Topics that may be sent to, by name."""
    waits: bool
    """Answers wait for the disk: a send that does not want to wait is not plain."""
    added_properties: bytes
    """What the broker adds to every message."""
    store_host: bytes
    max_body_bytes: int
    max_record_bytes: int
    answer: SendAnswerParts


class FastSends:
    def __init__(self, handlers: SendHandlers, limits: Limits, loop_delay: LoopDelay | None) -> None:
        parts = self._parts = handlers.parts
        self._store = parts.store
        self._topics = parts.topics
        self._table: dict[str, TopicConfig] | None = None
        self._places: dict[str, Place] = {}
        self._loop_delay = loop_delay
        self._late = LateAnswers(parts.durability) if parts.sync_flush else None
        context = FastSendContext(
            limits.max_frame_bytes,
            limits.max_header_bytes,
            self._places,
            parts.sync_flush,
            handlers.added_properties,
            parts.store_host,
            parts.store.record_limits.body_bytes,
            parts.store.record_limits.record_bytes,
            send_answer_parts(parts.store_host, parts.region, parts.trace_on),
        )
        self._context = (*context[:-1], *context.answer)

    def serve(self, reads: list[Read]) -> ServedReads | None:
        """Serve the plain sends that reads begin with; None when there are none."""
        if not self._may_serve():
            return None
        size = sum([len(read[0]) for read in reads])
        room = self._store.reserve(size + min(2 * size, MAX_GROWTH_BYTES) + SPARE_BYTES)
        if room is None:
            return None
        try:
            served = _serve_sends(reads, self._context, room)
        except BaseException:
            self._store.abandon(room)
            raise
        if served is None:
            return None
        answers, rests, end, sends, batches, runs = served
        self._store.append_reserved(room, end, {run[0] for run in runs})
        self._parts.stored()
        for topic, count, size, times in runs:
            self._parts.statistics.put_each(topic, count, size, times)
        codes = [(SEND, sends), (BATCH, batches)]
        if self._late is not None:
            return self._late.keep(reads, answers, end, codes), rests
        channel = reads[0][2]
        for code, count in codes:
            if count:
                channel.router.note_served(channel, code, ResponseCode.SUCCESS, count, channel.router.began)
        return answers, rests

    def _may_serve(self) -> bool:
        """Whether topics are as they were, and the broker takes messages."""
        topics = self._topics
        if topics.table is not self._table:
            self._table = topics.table
            self._places.clear()
        if not self._places or not topics.writable or (self._late is not None and self._late.are_many):
            return False
        return self._loop_delay is None or not self._loop_delay.over_limit_ms()

    def learn(self, data: bytes) -> None:
        """A read was not served: if it begins with a send, make its topic known for the next ones."""
        body_at = 8 + int.from_bytes(data[5:8], "big")
        if not 8 < body_at <= len(data) or self._topics.table is not self._table:
            return
        try:
            request = decode_header(data[4], data[8:body_at], b"")
            name = (request.ext or {}).get("b", "")
            if request.code not in (SEND, BATCH) or name in self._places or name not in self._table:
                return
            topic = self._topics.for_send(name, "", 0)
        except (RemoteProtocolError, RequestRejected):
            return  # the general path answers it
        magic, part = topic_part(name)
        count = max(topic.read_queue_nums, topic.write_queue_nums)
        if magic == MAGIC_V1 and count <= MAX_QUEUES and name[0] != "%":
            self._places[name] = name, part, tuple([(name, queue_id) for queue_id in range(count)])
