"""Message traces of a client, sent to a trace topic in the background.

A send or a run of a handler leaves records in a bounded queue and goes on at once. One task sends what has gathered
when ten entries wait or five seconds have passed, one message per user topic and at most 128 kB each. Nothing here
ever delays, fails or repeats what is traced: records that find the queue full, or no broker that takes them, are
counted and lost, with one warning per series of failures.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from rocketline.client.hooks import ConsumeContext, SendContext
from rocketline.client.producer.outgoing import RequestMaker
from rocketline.client.producer.receipts import SendStatus
from rocketline.client.producer.send_options import SendOptions
from rocketline.client.producer.sender import Sender
from rocketline.client.session import ClientSession
from rocketline.client.tasks import OwnedTasks
from rocketline.errors import RocketlineError
from rocketline.message import DELAY, KEYS, Message, MessageView
from rocketline.protocol.namespaces import TRACE_TOPIC, without_any_namespace
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES
from rocketline.protocol.trace import Pub, SubAfter, SubBefore, TracedMessage, TraceRecord, encode_trace, trace_keys

log = logging.getLogger(__name__)

ENOUGH = 10
"""Entries that are sent without waiting longer."""
MOST_WAITING = 2048
MAX_BODY_CHARS = 128_000
MAX_KEYS_CHARS = MAX_PROPERTIES_BYTES // 2

MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"

# Where the hooks keep what they need from before to after.
PUB_MS = "trace.pub_ms"
REQUEST = "trace.request"

_sequence = count(1)


@dataclass
class TraceCounts:
    """Counts of entries; one entry is a send, or the start or end of a handler call."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0


@dataclass(slots=True)
class _Entry:
    topic: str
    records: Sequence[TraceRecord]


class TraceSender:
    """Gathers the traces of one client and sends them; `start`, `add` as often as needed, `stop`."""

    def __init__(self, session: ClientSession, group: str, kind: str, topic: str = TRACE_TOPIC) -> None:
        """`kind` is PRODUCE or CONSUME, and part of the name by which brokers know the sender."""
        self.counts = TraceCounts()
        self.topic = topic
        self._session = session
        self._group = f"_INNER_TRACE_PRODUCER-{group}-{kind}-{next(_sequence)}"
        options = SendOptions(timeout_s=session.timing.trace_send_s, max_message_bytes=MAX_BODY_CHARS * 4)
        self._maker = RequestMaker(self._group, options, session.unique_ids.next, session.clock.now_ms)
        self._sender = Sender(session, options)
        self._waiting: deque[_Entry] = deque()
        self._enough = asyncio.Event()
        self._tasks = OwnedTasks()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._complained = False

    def start(self) -> None:
        self._task = self._tasks.start(self._run(), f"trace of {self._group}")

    def add(self, topic: str, records: Sequence[TraceRecord]) -> None:
        """Queue records about a message of `topic` for sending."""
        if len(self._waiting) >= MOST_WAITING or self._stopping:
            self.counts.dropped += 1
            return
        self._waiting.append(_Entry(topic, records))
        if len(self._waiting) >= ENOUGH:
            self._enough.set()

    async def stop(self) -> None:
        """Send what is left, within the time limit of one send."""
        self._stopping = True
        self._enough.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=self._maker.options.timeout_s)
        await self._tasks.cancel()
        self.counts.dropped += len(self._waiting)
        self._waiting.clear()

    async def _run(self) -> None:
        works = True
        while not self._stopping:
            await self._wait(patient=not works)
            works = await self._send_waiting()
        await self._send_waiting()

    async def _wait(self, *, patient: bool) -> None:
        """Until there is enough, or time is up; after a failure always the whole time, to spare a
        failing broker."""
        try:
            async with asyncio.timeout(self._session.timing.trace_s):
                await self._enough.wait()
                while patient and not self._stopping:
                    self._enough.clear()
                    await self._enough.wait()
        except TimeoutError:
            pass

    async def _send_waiting(self) -> bool:
        """Whether everything was taken. Once something is refused the rest is not tried: each try may take its whole
        time limit."""
        entries, self._waiting = self._waiting, deque()
        self._enough.clear()
        unsent = len(entries)
        try:
            for part in _parts(entries):
                if not await self._send(part):
                    return False
                self.counts.sent += part.entries
                unsent -= part.entries
            return True
        finally:
            self.counts.failed += unsent

    async def _send(self, part: _Part) -> bool:
        body = "".join(part.texts).encode("utf-8", "replace")
        try:
            outgoing = self._maker.pack(Message(self.topic, body, keys=part.keys))
            await self._sender.send(outgoing, self._maker.options.timeout_s)
        except Exception as error:
            if not self._complained:
                unforeseen = None if isinstance(error, RocketlineError) else error
                log.warning("traces of %s cannot be sent to topic %s and are lost: %s", self._group, self.topic, error,
                            exc_info=unforeseen)  # fmt: skip
            self._complained = True
            return False
        if self._complained:
            log.info("traces of %s are taken again by topic %s", self._group, self.topic)
        self._complained = False
        return True


class _Part:
    """What goes into one trace message."""

    __slots__ = ("_chars", "_key_chars", "_keys", "entries", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.entries = 0
        self._keys: dict[str, None] = {}
        self._chars = 0
        self._key_chars = 0

    def add(self, entry: _Entry) -> None:
        self.entries += 1
        for record in entry.records:
            text = encode_trace(record)
            self.texts.append(text)
            self._chars += len(text)
            for key in trace_keys(record):
                if key not in self._keys and self._key_chars + len(key) < MAX_KEYS_CHARS:
                    self._keys[key] = None
                    self._key_chars += len(key) + 1

    @property
    def keys(self) -> list[str]:
        return list(self._keys)

    @property
    def full(self) -> bool:
        return self._chars >= MAX_BODY_CHARS or self._key_chars >= MAX_KEYS_CHARS // 2


def _parts(entries: Iterable[_Entry]) -> Iterator[_Part]:
    """Messages for the entries, none with traces of two topics."""
    open_parts: dict[str, _Part] = {}
    for entry in entries:
        part = open_parts.setdefault(entry.topic, _Part())
        part.add(entry)
        if part.full:
            yield open_parts.pop(entry.topic)
    yield from open_parts.values()


class ProducerTrace(TraceSender):
    """Traces what a producer sends."""

    def __init__(self, session: ClientSession, group: str, topic: str = TRACE_TOPIC) -> None:
        super().__init__(session, group, "PRODUCE", topic)

    def before(self, context: SendContext) -> None:
        context.props[PUB_MS] = self._session.clock.now_ms()

    def after(self, context: SendContext) -> None:
        """One record for each message that was stored; Java's client joins those of a batch into one."""
        topic = without_any_namespace(context.messages[0].topic)
        if not context.receipts or topic.startswith(self.topic) or not context.receipts[0].trace_on:
            return
        group = without_any_namespace(context.group)
        broker = self._session.master_of(context.receipts[0].queue.broker_name)
        address = broker.address if broker is not None else ""
        records = [
            Pub(
                context.props[PUB_MS],
                receipt.region,
                group,
                topic,
                receipt.message_id,
                message.tag,
                " ".join(message.keys) or None,
                address,
                len(message.body),
                round(context.duration_s * 1000),
                TracedMessage.DELAYED if message.delay_level or DELAY in message.properties else TracedMessage.NORMAL,
                receipt.offset_id,
                receipt.status is SendStatus.OK,
            )
            for message, receipt in zip(context.messages, context.receipts)
        ]
        self.add(topic, records)


class ConsumerTrace(TraceSender):
    """Traces what a consumer's handlers get and what they make of it."""

    def __init__(self, session: ClientSession, group: str, topic: str = TRACE_TOPIC) -> None:
        super().__init__(session, group, "CONSUME", topic)

    def before(self, context: ConsumeContext) -> None:
        traced = [message for message in context.messages if message.properties.get(TRACE_ON) != "false"]
        region = traced[-1].properties.get(MSG_REGION) if traced else None
        if region is None:
            return  # no region, no trace: nobody reads traces of such a broker
        request_id = self._session.unique_ids.next()
        context.props[REQUEST] = (request_id, traced)
        now_ms, group = self._session.clock.now_ms(), without_any_namespace(context.group)
        self.add(
            _topic(traced[0]),
            [
                SubBefore(now_ms, region, group, request_id, m.message_id, m.reconsume_times, m.properties.get(KEYS))
                for m in traced
            ],
        )

    def after(self, context: ConsumeContext) -> None:
        if REQUEST not in context.props or context.outcome is None:
            return
        request_id, traced = context.props[REQUEST]
        cost_ms = round(context.duration_s * 1000) // len(context.messages)
        now_ms, group = self._session.clock.now_ms(), without_any_namespace(context.group)
        self.add(
            _topic(traced[0]),
            [
                SubAfter(
                    request_id,
                    message.message_id,
                    cost_ms,
                    context.success,
                    message.properties.get(KEYS),
                    context.outcome,
                    now_ms,
                    group,
                )
                for message in traced
            ],
        )


def _topic(message: MessageView) -> str:
    return without_any_namespace(message.topic)
