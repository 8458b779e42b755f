"""Plain sends of one or several reads: stored and answered in one compiled step (`native/fastpath/serve_sends.c`).

A send is plain when its topic is known here, its queue exists, and its properties ask for nothing: no delay, no transaction,
no retry topic. Topics become known by the first send to them, which the general path serves; all are forgotten when any
topic changes. Where the broker has a guard, each connection has its own known topics (`grants.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rocketline._impl import compiled_only
from rocketline.broker.fastpath.answers import SendAnswerParts, send_answer_parts
from rocketline.broker.fastpath.grants import ANY_TIME, Grants, Place, Read
from rocketline.broker.fastpath.late_answers import LateAnswers
from rocketline.broker.handlers.send import SendHandlers
from rocketline.broker.loop_delay import LoopDelay
from rocketline.errors import RemoteProtocolError, RequestRejected
from rocketline.protocol.bodies import TopicConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
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

ServedReads = tuple[Sequence[bytes | None], Sequence[tuple[int, int]]]
"""For each read the answers to write now, None where nothing was served; which reads have more in them, and from where."""


class FastSendContext(NamedTuple):
    """What `serve_sends` needs to know beside the reads and the room in the log."""

    max_frame_bytes: int
    max_header_bytes: int
    places: dict[str, Place] | None
    """Topics that may be sent to, by name. None: there is a guard, and only what was granted counts."""
    waits: bool
    """Answers wait for disk or replicas: a send that does not want to wait is not plain."""
    added_properties: bytes
    """What the broker adds to every message."""
    store_host: bytes
    max_body_bytes: int
    max_record_bytes: int
    answer: SendAnswerParts


class FastSends:
    def __init__(
        self, handlers: SendHandlers, limits: Limits, loop_delay: LoopDelay | None, grants: Grants | None
    ) -> None:
        parts = self._parts = handlers.parts
        self._store = parts.store
        self._topics = parts.topics
        self._table: dict[str, TopicConfig] | None = None
        self._places: dict[str, Place] = {}
        self._grants = grants
        self._loop_delay = loop_delay
        self._late = LateAnswers(parts.durability) if parts.waits else None
        context = FastSendContext(
            limits.max_frame_bytes,
            limits.max_header_bytes,
            self._places if grants is None else None,
            parts.waits,
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
        granted: Sequence[object] = reads
        times = ANY_TIME
        if self._grants is not None:
            granted, times = self._grants.added_to(reads), self._grants.signing_times()
        size = sum([len(read[0]) for read in reads])
        room = self._store.reserve(size + min(2 * size, MAX_GROWTH_BYTES) + SPARE_BYTES)
        if room is None:
            return None
        try:
            served = _serve_sends(granted, self._context, room, times)
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
            if self._grants is not None:
                self._grants.end_all()
        if not self._places or not topics.writable or (self._late is not None and self._late.are_many):
            return False
        return self._loop_delay is None or not self._loop_delay.over_limit_ms()

    def learn(self, channel: Channel, data: bytes) -> None:
        """A read was not served: if it begins with a send, make its topic known for the next ones."""
        body_at, end = 8 + int.from_bytes(data[5:8], "big"), 4 + int.from_bytes(data[:4], "big")
        if not 8 < body_at <= end <= len(data) or self._topics.table is not self._table:
            return
        try:
            request = decode_header(data[4], data[8:body_at], b"")
            place = self._place_of(request)
        except (RemoteProtocolError, RequestRejected):
            return  # the general path answers it
        if place is not None and self._grants is not None:
            request.body = data[body_at:end]
            self._grants.ask(channel, request, place)

    def _place_of(self, request: Command) -> Place | None:
        """The topic of a send; None when it is none that can be known here."""
        name = (request.ext or {}).get("b", "")
        if request.code not in (SEND, BATCH) or self._table is None or name not in self._table:
            return None
        if name not in self._places:
            topic = self._topics.for_send(name, "", 0)
            magic, part = topic_part(name)
            count = max(topic.read_queue_nums, topic.write_queue_nums)
            if magic != MAGIC_V1 or count > MAX_QUEUES or name[0] == "%":
                return None
            self._places[name] = name, part, tuple([(name, queue_id) for queue_id in range(count)])
        return self._places[name]
