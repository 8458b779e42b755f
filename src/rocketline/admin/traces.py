"""The trace of one message as a timeline: who sent it, where it was stored, and each attempt of each group to handle it.

Clients that trace write records into a topic of traces, under the id of the message as key. An attempt is written twice,
when it begins and when it ends, joined by a request id.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketline.admin.cluster import Admin
from rocketline.admin.messages import FOREVER_MS
from rocketline.admin.partial import Missing
from rocketline.errors import ProtocolError
from rocketline.message import MessageView
from rocketline.protocol.trace import EndTransaction, Pub, Recall, SubAfter, SubBefore, TraceRecord, decode_traces

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
MAX_RECORDS = 64
"""Messages that a broker gives by one key."""
OUTCOMES = ("success", "too slow", "exception", "no result", "later")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Sent:
    """A message was sent, or could not be."""

    group: str
    client: str
    """Address of the client that wrote the trace."""
    began_ms: int
    took_ms: int
    ok: bool
    kind: str
    topic: str
    tags: str | None
    keys: str | None
    store_host: str
    offset_id: str | None
    body_bytes: int


@dataclass(frozen=True)
class Attempt:
    """A member of a group handled the message; what its client did not trace is None."""

    group: str
    client: str
    began_ms: int | None
    took_ms: int | None
    ok: bool | None
    outcome: str
    retries: int | None

    @property
    def ended_ms(self) -> int | None:
        return None if self.began_ms is None or self.took_ms is None else self.began_ms + self.took_ms


@dataclass(frozen=True)
class Timeline:
    """All that traces say about one message, in order of time."""

    message_id: str
    sent: list[Sent] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    decided: list[EndTransaction] = field(default_factory=list)
    recalled: list[Recall] = field(default_factory=list)
    limited: bool = False
    """A broker gave as many records as it may: there may be more."""
    missing: tuple[Missing, ...] = ()

    @property
    def groups(self) -> list[str]:
        return sorted({attempt.group for attempt in self.attempts})

    @property
    def begin_ms(self) -> int | None:
        return min(self._times(), default=None)

    @property
    def end_ms(self) -> int | None:
        return max(self._times(), default=None)

    @property
    def silent_side(self) -> str:
        """Which side wrote no trace: `producer`, `consumers`, `both`, or nobody."""
        if self.sent:
            return "" if self.attempts else "consumers"
        return "producer" if self.attempts else "both"

    def _times(self) -> list[int]:
        begins = [item.began_ms for item in self.sent] + [item.timestamp_ms for item in (*self.decided, *self.recalled)]
        ends = [item.began_ms + item.took_ms for item in self.sent]
        attempts = [time for item in self.attempts for time in (item.began_ms, item.ended_ms) if time is not None]
        return begins + ends + attempts


async def trace_of(
    admin: Admin,
    message_id: str,
    *,
    trace_topic: str = TRACE_TOPIC,
    begin_ms: int = 0,
    end_ms: int = FOREVER_MS,
    most: int = MAX_RECORDS,
) -> Timeline:
    """The timeline of a message, empty when nobody traced it; RouteNotFound when there is no topic of traces."""
    answers = await admin.ask_each(
        await admin.brokers_of(trace_topic),
        lambda broker: broker.find(trace_topic, message_id, most, begin_ms, end_ms, unique=False),
    )
    found = [(trace, message) for _, some in answers.value for message in some for trace in _traces(message)]
    about = [(trace, message.born_host) for trace, message in found if trace.message_id == message_id]
    limited = any(len(some) >= most for _, some in answers.value)
    return _timeline(message_id, about, limited, answers.missing)


def _traces(message: MessageView) -> list[TraceRecord]:
    try:
        return decode_traces(message.body)
    except ProtocolError:
        return []  # anybody may send to the topic


def _timeline(
    message_id: str, found: list[tuple[TraceRecord, str]], limited: bool, missing: tuple[Missing, ...]
) -> Timeline:
    sent = [_sent(trace, client) for trace, client in found if isinstance(trace, Pub)]
    return Timeline(
        message_id,
        sorted(sent, key=lambda item: item.began_ms),
        sorted(_attempts(found), key=lambda item: (item.began_ms or 0, item.group)),
        sorted((trace for trace, _ in found if isinstance(trace, EndTransaction)), key=lambda item: item.timestamp_ms),
        sorted((trace for trace, _ in found if isinstance(trace, Recall)), key=lambda item: item.timestamp_ms),
        limited,
        missing,
    )


def _sent(trace: Pub, client: str) -> Sent:
    return Sent(
        trace.group,
        trace.client_host or client,
        trace.timestamp_ms,
        trace.cost_ms,
        trace.success,
        trace.kind.name.lower(),
        trace.topic,
        trace.tags,
        trace.keys,
        trace.store_host,
        trace.offset_id,
        trace.body_bytes,
    )


def _attempts(found: list[tuple[TraceRecord, str]]) -> list[Attempt]:
    begins: dict[str, tuple[SubBefore, str]] = {}
    ends: dict[str, tuple[SubAfter, str]] = {}
    for trace, client in found:
        if isinstance(trace, SubBefore):
            begins[trace.request_id] = (trace, client)
        elif isinstance(trace, SubAfter):
            ends[trace.request_id] = (trace, client)
    return [_attempt(begins.get(request), ends.get(request)) for request in begins | ends]


def _attempt(begin: tuple[SubBefore, str] | None, end: tuple[SubAfter, str] | None) -> Attempt:
    before, client = begin or (None, "")
    after, client = (end[0], client or end[1]) if end else (None, client)
    began_ms = before.timestamp_ms if before else None
    if after is not None and began_ms is None and after.timestamp_ms is not None:
        began_ms = after.timestamp_ms - after.cost_ms
    group = (before.group if before else None) or (after.group if after else None) or ""
    if after is None:
        return Attempt(group, client, began_ms, None, None, UNKNOWN, before.retry_times if before else None)
    outcome = OUTCOMES[after.outcome] if 0 <= after.outcome < len(OUTCOMES) else UNKNOWN
    if outcome == OUTCOMES[0] and not after.success:
        outcome = UNKNOWN
    return Attempt(
        group, client, began_ms, after.cost_ms, after.success, outcome, before.retry_times if before else None
    )
