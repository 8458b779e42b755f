"""Plain pulls, from bytes to bytes.

A consumer sends the same request again and again, with three numbers that change: where to read, what it has done with, and
the request's own number. What stays is decoded and checked once and becomes a plan, found again by those very bytes
(`native/fastpath/take_pulls.c`). A pull with a plan costs a look at whether the plan still holds, the read, and the head of
the answer.

Plans hold until a topic or a group changes, and those of a subscription that came by heartbeat until it is another. A pull
at the end of its queue is held (`held_pull.py`), if it wants that. One whose plan is not plain, or which does not simply
find sound messages, or that none matches, or that none came yet, takes the general path (`handlers/pull.py`), which decides
everything else: refusing, moving, repairing. When all pulls of a connection go that way, it is looked at now and then only.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from rocketline._impl import compiled_only
from rocketline.broker.fastpath.answers import PullAnswerForm
from rocketline.broker.fastpath.held_pull import HeldPull
from rocketline.broker.fastpath.state import EVERY, MISSES, ConnectionState
from rocketline.broker.handlers.pull import MAX_SUSPEND_S, PullHandlers
from rocketline.broker.selection import Selection
from rocketline.protocol.bodies import TAG, SubscriptionData
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.connection import encode_frame
from rocketline.protocol.header_codec import decode_header
from rocketline.protocol.headers import PullMessageHeader
from rocketline.protocol.headers.read import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from rocketline.protocol.records import Buffer
from rocketline.protocol.subscription import TagTest
from rocketline.store.message_store import ReadResult, ReadStatus
from rocketline.transport import Channel, Limits
from rocketline.transport.router import FAILED, SUCCEEDED, failure

take_pulls = compiled_only("take_pulls")

MAX_PLANS = 16_384
MAX_PLANNED_BYTES = 4096
"""Of a header: a plan is kept under nearly all of it, and a peer may put in what it likes."""
MAX_JOINED_BYTES = 1 << 20
"""Answers of one read are gathered up to this; then the general path looks whether the peer still reads."""

_CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
PULL_STARTS = tuple(start for code in _CODES for start in (b'{"code":%d,' % code, code.to_bytes(2, "big")))
"""How the headers of pulls begin, as clients write them; they stand at HEADER_AT of a frame."""
HEADER_AT = 8
_AT_END = ReadStatus.OFFSET_OVERFLOW_ONE


class Plan(NamedTuple):
    """What pulls have in common that differ in their three numbers only."""

    key: Hashable
    code: int
    encoding: int
    is_plain: bool
    group: str
    topic: str
    queue_id: int
    queue: tuple[str, int]
    reader: str
    """TOPIC@GROUP, which is counted."""
    max_messages: int
    max_bytes: int
    selected: Selection
    test: TagTest | None
    commits: bool
    suspend_ms: int | None
    """How long it wants to wait for messages; None: not at all."""
    subscription: SubscriptionData | None
    """The one of the heartbeat, when the pull brings none."""


class FastPulls:
    def __init__(self, handlers: PullHandlers, limits: Limits) -> None:
        self._parts = handlers.parts
        self._handlers = handlers
        roles = handlers.parts.roles
        self._giver = roles if roles is not None and roles.is_coordinated else None
        """To be asked whether messages may be given out now; None: always."""
        self._limits = limits.max_frame_bytes, limits.max_header_bytes
        self._plans: dict[Hashable, Plan] = {}
        self._tables: tuple[object, object] = None, None
        self._found = _form(ResponseCode.SUCCESS, ReadStatus.FOUND)
        self._none = _form(ResponseCode.PULL_RETRY_IMMEDIATELY, ReadStatus.NO_MATCHED_MESSAGE)
        self._at_end = _form(ResponseCode.PULL_NOT_FOUND, ReadStatus.OFFSET_OVERFLOW_ONE)

    def serve(self, channel: Channel, state: ConnectionState, data: bytes) -> tuple[int, list[Buffer]] | None:
        """Serve the pulls that a read begins with, as long as they are plain: where the rest begins, and the answers to
        those that are not held. None when none was served."""
        misses = state.pull_misses
        if self._giver is not None and not self._giver.gives_out:
            return None
        if self._parts.offsets.has_resets or (misses >= MISSES and misses % EVERY):
            state.pull_misses = misses + 1
            return None
        self._follow_tables()
        asked, unknown = take_pulls(data, *self._limits, self._plans)
        out: list[Buffer] = []
        position = size = 0
        for plan, opaque, queue_offset, commit_offset, end in asked:
            if size > MAX_JOINED_BYTES or not self._is_usable(plan):
                break
            found = self._read(channel, plan, queue_offset, commit_offset, plan.suspend_ms is not None)
            if found is not None:
                size += self._answer(channel, plan, opaque, found, out)
            elif not self._hold(channel, plan, opaque, queue_offset, commit_offset, data[position:end]):
                break
            position = end
        else:
            if unknown is not None:
                self._learn(data, position, unknown)
        if position:
            state.pull_misses = 0
            return position, out
        if unknown is None or asked:
            state.pull_misses += 1
        return None

    def _answer(self, channel: Channel, plan: Plan, opaque: int, found: ReadResult, out: list[Buffer]) -> int:
        """Add the answer to a pull; the bytes of its messages."""
        _, next_offset, min_offset, max_offset, chunks, _, total, _ = found
        form, response = self._form_of(found)
        out.append(form.head(plan.encoding, opaque, next_offset, min_offset, max_offset, total))
        out += chunks
        router = channel.router
        router.note_served(channel, plan.code, response, 1, router.began)
        return total

    def _read(
        self, channel: Channel, plan: Plan, queue_offset: int, commit_offset: int, waits: bool
    ) -> ReadResult | None:
        """What a pull gets, counted and with its offset committed; None, and none of that: it needs the general path."""
        parts, offsets = self._parts, self._parts.offsets
        monotonic = parts.clock.monotonic
        started = monotonic()
        try:
            found = parts.store.read_verified(plan.queue, queue_offset, plan.max_messages, plan.max_bytes, plan.test)
        except Exception:  # the general path meets it again, and answers it
            return None
        if found is None or (waits and found.status is _AT_END):
            return None
        took_s = monotonic() - started
        if plan.commits and commit_offset >= 0:
            offsets.commit(channel.remote, plan.group, plan.topic, plan.queue_id, commit_offset)
        offsets.note_pulled_as(plan.reader, plan.queue_id, found.next_queue_offset)
        if found.message_count:
            parts.statistics.got_as(plan.reader, found.message_count, found.total_bytes, took_s)
        else:
            parts.statistics.missed += 1
        return found

    def _hold(
        self, channel: Channel, plan: Plan, opaque: int, queue_offset: int, commit_offset: int, frame: bytes
    ) -> bool:
        """Hold a pull; False when it does not want that, or may not, or is not at the end of its queue."""
        parts = self._parts
        if plan.suspend_ms is None or parts.waiters.is_full or not parts.store.is_at_end(plan.queue, queue_offset):
            return False
        held = HeldPull(self, channel, plan, opaque, queue_offset, frame)
        if not channel.hold(held):
            return False
        if plan.commits and commit_offset >= 0:
            parts.offsets.commit(channel.remote, plan.group, plan.topic, plan.queue_id, commit_offset)
        parts.offsets.note_pulled_as(plan.reader, plan.queue_id, queue_offset)
        parts.statistics.missed += 1
        parts.waiters.park(held, min(parts.suspend_s(plan.suspend_ms), MAX_SUSPEND_S))
        return True

    def answer(self, held: HeldPull) -> tuple[int, str, list[Buffer]]:
        """The code of the answer to a held pull, how it ended, and its frame."""
        channel, plan, found = held.channel, held.plan, None
        may_give = self._giver is None or self._giver.gives_out
        if may_give and not self._parts.offsets.has_resets and self._is_usable(plan):
            found = self._read(channel, plan, held.queue_offset, -1, False)
        if found is None:
            return self._answer_generally(held)
        _, next_offset, min_offset, max_offset, chunks, _, total, _ = found
        form, response = self._form_of(found)
        head = form.head(plan.encoding, held.opaque, next_offset, min_offset, max_offset, total)
        return response, SUCCEEDED, [head, *chunks]

    def _form_of(self, found: ReadResult) -> tuple[PullAnswerForm, int]:
        if found.message_count:
            return self._found
        return self._at_end if found.status is _AT_END else self._none

    def _answer_generally(self, held: HeldPull) -> tuple[int, str, list[Buffer]]:
        """For what is no simple read: the queue is another, or a record is not sound."""
        frame = held.frame
        request = decode_header(frame[4], frame[8 : _body_at(frame)], b"")
        try:
            reply = self._handlers.read_again(request, PullMessageHeader.decode(request), held.plan.selected)
        except Exception as error:
            reply = failure(held.channel, request, error)
            return getattr(error, "code", reply.code), FAILED, encode_frame(reply)
        return reply.code, SUCCEEDED, encode_frame(reply)

    def forget(self, held: HeldPull) -> None:
        """Remove a held pull from those that wait."""
        self._parts.waiters.forget(held)

    def _follow_tables(self) -> None:
        """Forget all plans when a topic or a group has changed."""
        topics, groups = self._parts.topics.table, self._parts.groups.version
        if self._tables[0] is not topics or self._tables[1] is not groups:
            self._plans.clear()
            self._tables = topics, groups

    def _is_usable(self, plan: Plan) -> bool:
        """Whether a plan is plain and its subscription still the one; a plan with another is forgotten."""
        if plan.subscription is None:
            return plan.is_plain
        live = self._parts.consumers.get(plan.group)
        if live is not None and live.subscriptions.get(plan.topic) is plan.subscription:
            return plan.is_plain
        self._plans.pop(plan.key, None)
        return False

    def _learn(self, data: bytes, position: int, key: Hashable) -> None:
        """Make a plan for the request at `position`, which the general path is going to serve."""
        body_at = _body_at(data, position)
        if body_at - position > MAX_PLANNED_BYTES:
            return
        try:
            request = decode_header(data[position + 4], data[position + 8 : body_at], b"")
            if request.code not in _CODES or request.flag:
                return  # it has the fields of a pull, and is none, or one that nobody waits for
            header = PullMessageHeader.decode(request)
            selected = self._handlers.admit(header)
        except Exception:  # the general path meets it again, and answers it
            return
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()  # consumers come and go; those that are here are soon known again
        subscription = self._subscription(header)
        test = selected.accept_tags
        max_messages, max_bytes = self._parts.store.limited(*self._handlers.asked_for(header))
        self._plans[key] = Plan(
            key=key,
            code=request.code,
            encoding=request.encoding,
            is_plain=self._is_plain(header, selected, subscription),
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            queue=(header.topic, header.queue_id),
            reader=f"{header.topic}@{header.consumer_group}",
            max_messages=max_messages,
            max_bytes=max_bytes,
            selected=selected,
            test=test if isinstance(test, TagTest) else None,
            commits=bool(header.sys_flag & COMMIT_OFFSET),
            suspend_ms=header.suspend_ms if header.sys_flag & SUSPEND else None,
            subscription=subscription,
        )

    def _subscription(self, header: PullMessageHeader) -> SubscriptionData | None:
        live = None if header.sys_flag & SUBSCRIPTION else self._parts.consumers.get(header.consumer_group)
        return None if live is None else live.subscriptions.get(header.topic)

    def _is_plain(self, header: PullMessageHeader, selected: Selection, subscription: SubscriptionData | None) -> bool:
        if selected.accept_record is not None or selected.accept_ext is not None:
            return False
        if subscription is None:
            return True
        # What else a pull without an expression depends on changes by other ways than tables and subscriptions.
        group = self._parts.groups.table[header.consumer_group]
        return subscription.expression_type == TAG and group.consume_broadcast_enable


def _body_at(data: bytes, position: int = 0) -> int:
    """Where the body of the frame at a position begins."""
    return position + 8 + int.from_bytes(data[position + 5 : position + 8], "big")


def _form(code: ResponseCode, status: ReadStatus) -> tuple[PullAnswerForm, int]:
    return PullAnswerForm(code, status.name), int(code)
