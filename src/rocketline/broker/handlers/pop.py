"""Pop mode: pop messages (200050), peek at them (200052), notify when there are some (200054), count waiting pops (200055).

A request that finds something, or does not want to wait, is answered at once. The others are held, without a task each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import partial
from itertools import count

from rocketline.broker.pop.popping import Pop
from rocketline.broker.pop.pops import Pops
from rocketline.broker.pop.waiters import WaitKey
from rocketline.broker.replication.roles import Roles
from rocketline.broker.selection import Selection, Selections
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import READ, Topics
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.protocol.bodies import TopicConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    NotificationHeader,
    NotificationResponseHeader,
    PeekMessageHeader,
    PollingInfoHeader,
    PollingInfoResponseHeader,
    PopMessageHeader,
    PopMessageResponseHeader,
)
from rocketline.protocol.headers.pop import ANY_QUEUE
from rocketline.protocol.names import dlq_topic, topic_problem
from rocketline.protocol.pop_info import (
    MAX_POP_MESSAGES,
    ORDER_REVIVE_QUEUE,
    encode_message_offsets,
    encode_order_counts,
    encode_start_offsets,
)
from rocketline.store.message_store import MessageStore, ReadStatus
from rocketline.transport import Channel, Handler, Reply

LATE_MS = 500
"""A request that is older than it wanted to wait, by more than this, is not worth answering."""
ANSWER_BEFORE_MS = 50
"""Held requests are answered so long before their client gives up."""
MAX_POLL_MS = 300_000

_FOUND = ReadStatus.FOUND.name
_NOTHING = ReadStatus.NO_MESSAGE_IN_QUEUE.name
_OLD_OFFSET = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY)


@wired
class PopHandlers:
    pops: Pops
    store: MessageStore
    topics: Topics
    groups: Groups
    selections: Selections
    statistics: BrokerStatistics
    clock: Clock
    readable: bool
    has_timers: bool
    max_invisible_ms: int
    roles: Roles
    _numbers: Iterator[int] = field(init=False, default_factory=count)

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    # 200050

    def pop(self, channel: Channel, request: Command) -> Reply:
        header = PopMessageHeader.decode(request)
        now_ms = self.clock.now_ms()
        header.born_ms = header.born_ms or now_ms
        if now_ms - header.born_ms - header.poll_ms > LATE_MS:
            # Java's clients read the header of this code too, and fail without its fields.
            return request.reply(
                ResponseCode.POLLING_TIMEOUT,
                PopMessageResponseHeader(0, 0, 0, 0).encode(),
                remark="the request was born longer ago than it wants to wait: is the client's clock right?",
            )
        self._check_pop(header)
        selected = self.selections.of_expression(header.exp_type, header.exp)
        pop = self._run(header, selected)
        key = _key(header)
        if pop.count:
            if pop.rest:
                self.pops.waiters.wake_soon(key)
            return self._found(request, pop)
        wait_ms = _wait_ms(header.poll_ms, header.born_ms, now_ms)
        if wait_ms <= 0:
            return self._answer(request, pop, ResponseCode.POLLING_TIMEOUT)
        waiter = self.pops.waiters.hold(
            key,
            () if header.order else self.pops.popping.retry_topics(header.consumer_group, header.topic),
            wait_ms / 1000,
            partial(self._pop_again, request, header, selected),
            partial(self._pop_when_time_is_up, request, header, selected),
            selected,
        )
        if waiter is None:
            return self._answer(request, pop, ResponseCode.POLLING_FULL)
        self._wake_when_free(key, pop)
        return waiter

    def _check_pop(self, header: PopMessageHeader) -> None:
        if not 0 < header.max_msg_nums <= MAX_POP_MESSAGES:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"a pop takes between 1 and {MAX_POP_MESSAGES} messages, maxMsgNums is {header.max_msg_nums}: pop "
                f"message's num is greater than {MAX_POP_MESSAGES}, or none",
            )
        if not 0 < header.invisible_ms <= self.max_invisible_ms:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime {header.invisible_ms} ms is not between 1 and {self.max_invisible_ms} (timerMaxDelaySec)",
            )
        if not self.has_timers:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "pop message is forbidden because timerWheelEnable is false"
            )
        self._check(header.consumer_group, header.topic, header.queue_id)
        for name in (
            *self.pops.popping.retry_topics(header.consumer_group, header.topic),
            dlq_topic(header.consumer_group),
        ):
            # Where its messages may have to go. A topic is a folder, and folders have names of 255 characters.
            if problem := topic_problem(name):
                raise RequestRejected(
                    ResponseCode.INVALID_PARAMETER, f"redeliveries would go to {name[:80]}...: {problem}"
                )

    def _check(self, group_name: str, topic_name: str, queue_id: int) -> TopicConfig:
        if not self.readable:
            raise RequestRejected(ResponseCode.NO_PERMISSION, "the broker pop message is forbidden")
        topic = self.topics.get(topic_name)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic_name}] not exist, apply first please!")
        if not topic.perm & READ:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"the topic[{topic_name}] pop message is forbidden")
        if queue_id >= topic.read_queue_nums:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        self.groups.require_readable(group_name)
        if not self.groups.may_read(group_name, topic_name):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"the consumer group[{group_name}] is forbidden to read this topic"
            )
        return topic

    def _run(self, header: PopMessageHeader, selected: Selection) -> Pop:
        # Also for requests that were held: this broker may not be what it was when they came.
        self.roles.require_giving()
        ordered = bool(header.order)
        pop = Pop(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            wanted=header.max_msg_nums,
            invisible_ms=header.invisible_ms,
            init_mode=header.init_mode,
            is_ordered=ordered,
            attempt_id=header.attempt_id,
            selected=selected,
            # Never before a message it takes was stored: that would look like a check point of an earlier topic.
            pop_ms=max(self.clock.now_ms(), self.store.last_store_ms),
            revive_queue_id=ORDER_REVIVE_QUEUE
            if ordered
            else next(self._numbers) % self.pops.config.revive_queue_count,
        )
        started = self.clock.monotonic()
        self.pops.popping.run(pop)
        if pop.count:
            self.statistics.got(pop.group, pop.topic, pop.count, pop.size, self.clock.monotonic() - started)
        return pop

    def _pop_again(
        self, request: Command, header: PopMessageHeader, selected: Selection
    ) -> tuple[Command | None, bool]:
        pop = self._run(header, selected)
        if pop.count:
            return self._found(request, pop), pop.rest > 0
        self._wake_when_free(_key(header), pop)
        return None, False

    def _wake_when_free(self, key: WaitKey, pop: Pop) -> None:
        """No event tells when a queue popped in order becomes free because its messages are visible again: a timer does."""
        if pop.blocked_ms:
            self.pops.waiters.wake_later(key, pop.blocked_ms / 1000)

    def _pop_when_time_is_up(self, request: Command, header: PopMessageHeader, selected: Selection) -> Command:
        if self.topics.get(header.topic) is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist any more")
        pop = self._run(header, selected)
        return self._found(request, pop) if pop.count else self._answer(request, pop, ResponseCode.POLLING_TIMEOUT)

    def _found(self, request: Command, pop: Pop) -> Command:
        return self._answer(request, pop, ResponseCode.SUCCESS)

    @staticmethod
    def _answer(request: Command, pop: Pop, code: ResponseCode) -> Command:
        ext = PopMessageResponseHeader(
            pop_ms=pop.pop_ms,
            invisible_ms=pop.invisible_ms,
            revive_queue_id=pop.revive_queue_id,
            rest_num=pop.rest,
            start_offset_info=encode_start_offsets(pop.starts),
            msg_offset_info=encode_message_offsets(pop.offsets),
            order_count_info=encode_order_counts(pop.order_counts) if pop.is_ordered else None,
        ).encode()
        return request.reply(code, ext, remark=_FOUND if pop.count else _NOTHING, chunks=pop.chunks or None)

    # 200054 and 200055

    def notification(self, channel: Channel, request: Command) -> Reply:
        header = NotificationHeader.decode(request)
        now_ms = self.clock.now_ms()
        self._check(header.consumer_group, header.topic, header.queue_id)
        if self._has_messages(header):
            return _notified(request, found=True)
        wait_ms = _wait_ms(header.poll_ms, header.born_ms or now_ms, now_ms)
        if wait_ms <= 0:
            return _notified(request, found=False)
        waiter = self.pops.notifications.hold(
            _key(header),
            self.pops.popping.retry_topics(header.consumer_group, header.topic),
            wait_ms / 1000,
            partial(self._look_again, request, header),
            lambda: _notified(request, found=self._has_messages(header)),
        )
        return _notified(request, found=False, full=True) if waiter is None else waiter

    def _look_again(self, request: Command, header: NotificationHeader) -> tuple[Command | None, bool]:
        return (_notified(request, found=True), True) if self._has_messages(header) else (None, False)

    def _has_messages(self, header: NotificationHeader) -> bool:
        popping, group, topic = self.pops.popping, header.consumer_group, header.topic
        queue_ids = popping.queue_ids(topic, 0) if header.queue_id < 0 else (header.queue_id,)
        if any(self._has_more(header, topic, queue_id) for queue_id in queue_ids):
            return True
        return any(
            self._has_more(header, retry, queue_id)
            for retry in popping.retry_topics(group, topic)
            for queue_id in popping.queue_ids(retry, 0)
        )

    def _has_more(self, header: NotificationHeader, topic: str, queue_id: int) -> bool:
        popping, group = self.pops.popping, header.consumer_group
        if header.order and popping.ordered.blocked_ms(header.topic, group, queue_id, header.attempt_id):
            return False
        return self.store.max_offset(topic, queue_id) > popping.peek_position(group, topic, queue_id)

    def polling_info(self, channel: Channel, request: Command) -> Reply:
        header = PollingInfoHeader.decode(request)
        self._check(header.consumer_group, header.topic, header.queue_id)
        waiting = self.pops.waiters.count(_key(header))
        return request.reply(ResponseCode.SUCCESS, PollingInfoResponseHeader(waiting).encode())

    # 200052

    def peek(self, channel: Channel, request: Command) -> Reply:
        header = PeekMessageHeader.decode(request)
        if not 0 < header.max_msg_nums <= MAX_POP_MESSAGES:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"maxMsgNums {header.max_msg_nums} is not between 1 and {MAX_POP_MESSAGES}",
            )
        self._check(header.consumer_group, header.topic, header.queue_id)
        store, group = self.store, header.consumer_group
        rest = found = size = 0
        chunks: list[memoryview] = []
        for topic, queue_id in self._places(header):
            position = self.pops.popping.peek_position(group, topic, queue_id)
            rest += max(0, store.max_offset(topic, queue_id) - position)
            if found < header.max_msg_nums:
                result = store.read(topic, queue_id, position, header.max_msg_nums - found)
                if result.status in _OLD_OFFSET:
                    result = store.read(topic, queue_id, result.next_queue_offset, header.max_msg_nums - found)
                chunks += result.chunks
                found += result.message_count
                size += result.total_bytes
        ext = PopMessageResponseHeader(0, 0, 0, rest).encode()
        if not found:
            return request.reply(ResponseCode.PULL_NOT_FOUND, ext, remark=_NOTHING)
        self.statistics.got(group, header.topic, found, size)
        return request.reply(ResponseCode.SUCCESS, ext, remark=_FOUND, chunks=chunks)

    def _places(self, header: PeekMessageHeader) -> list[tuple[str, int]]:
        """Topics and queues in the order a pop could read them."""
        popping = self.pops.popping
        turn = popping.random.randrange(100)
        queue_ids = popping.queue_ids(header.topic, turn) if header.queue_id < 0 else (header.queue_id,)
        normal = [(header.topic, queue_id) for queue_id in queue_ids]
        retry = popping.retry_topics(header.consumer_group, header.topic)[0]
        again = [(retry, queue_id) for queue_id in popping.queue_ids(retry, turn)]
        return again + normal if turn < popping.config.retry_first_percent else normal + again


def _key(header: PopMessageHeader | NotificationHeader | PollingInfoHeader) -> WaitKey:
    return header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE)


def _wait_ms(poll_ms: int, born_ms: int, now_ms: int) -> int:
    """How long to hold a request; never longer than it asks for, wherever its client's clock stands."""
    if poll_ms <= 0:
        return 0
    return min(born_ms + poll_ms - ANSWER_BEFORE_MS - now_ms, poll_ms, MAX_POLL_MS)


def _notified(request: Command, *, found: bool, full: bool = False) -> Command:
    return request.reply(ResponseCode.SUCCESS, NotificationResponseHeader(found, full).encode())
