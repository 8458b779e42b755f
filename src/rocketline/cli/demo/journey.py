"""Sends many messages to consumers while their group changes, and checks that none was lost, changed or misplaced.

Checked at the end: every acknowledged message was consumed at least once, no message was consumed that was not sent, and the
queues, read from their beginning, have consecutive offsets with each message at the acknowledged place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

from rocketline.cli.demo.ledger import Ledger
from rocketline.client import ConsumeFrom, Producer, PullConsumer, PushConsumer, RetryLater, SendReceipt
from rocketline.errors import RocketlineError, RouteNotFound
from rocketline.message import Message, MessageQueue, MessageView

Tell = Callable[[str], None]

RETRY_LEVEL = 1
"""One second, the shortest delay."""

MAX_PROBLEMS = 20
FEW_DUPLICATES = 20
MOST_DUPLICATES = 0.005
"""Planned changes of a group repeat next to nothing. A machine that stands still for seconds may repeat a few."""
OPEN_LIMIT_S = 10.0
READ_LIMIT_S = 10.0
AUDIT_GROUP = "journey_audit"


@dataclass(frozen=True)
class JourneyPlan:
    """Numbers, names and limits of a journey."""

    messages: int = 20_000
    producers: int = 8
    consumers: int = 4
    topic: str = "journey"
    group: str = "journey_readers"
    queues: int = 8
    body_bytes: int = 128
    in_flight: int = 32
    """Requests of one producer that wait for their answer at once."""
    batch: int = 1
    """Messages in one request."""
    fail_every: int = 0
    """The first delivery of every N-th message fails; 0: none."""
    patience_s: float = 30.0
    """How long nothing may arrive before the rest counts as lost."""


@dataclass
class JourneyReport:
    """Times and problems of a journey; the counts are in the ledger."""

    produce_s: float = 0.0
    total_s: float = 0.0
    problems: list[str] = field(default_factory=list)


async def run_journey(
    namesrv: str, plan: JourneyPlan, ledger: Ledger, tell: Tell = lambda event: None
) -> JourneyReport:
    """Send and consume all messages of the ledger; `tell` is called with a line for each event."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    report = JourneyReport()
    await open_topic(namesrv, plan, ledger)
    async with Readers(namesrv, plan, ledger, tell) as readers:
        members = asyncio.create_task(readers.change_members())
        try:
            report.problems += await send_all(namesrv, plan, ledger, readers.changed)
            report.produce_s = loop.time() - started
            await readers.until_all_arrived()
            if ledger.all_arrived:
                await members
        finally:
            members.cancel()
            await asyncio.gather(members, return_exceptions=True)
    report.total_s = loop.time() - started
    report.problems += problems_in(ledger)
    return report


async def open_topic(namesrv: str, plan: JourneyPlan, ledger: Ledger) -> None:
    """Send message 0 and wait until the name server knows the topic.

    Brokers create a topic with its first message; consumers that started before look for it only twice a minute.
    """
    await _produce(namesrv, "journey_opener", range(1), plan, ledger)
    async with PullConsumer(namesrv, group=AUDIT_GROUP) as consumer, asyncio.timeout(OPEN_LIMIT_S):
        while True:
            try:
                await consumer.queues(plan.topic)
                return
            except RouteNotFound:
                await asyncio.sleep(0.05)


def problems_in(ledger: Ledger) -> list[str]:
    """The problems that the ledger shows."""
    problems = []
    lost = ledger.lost()
    if lost:
        problems.append(f"{len(lost)} acknowledged messages were never consumed, the first is number {lost[0]}")
    if ledger.invented:
        problems.append(f"{ledger.invented} messages were consumed that were not sent")
    if ledger.duplicates > max(FEW_DUPLICATES, ledger.consumed * MOST_DUPLICATES):
        problems.append(f"{ledger.duplicates} of {ledger.consumed} messages came twice while the group changed")
    if ledger.acknowledged < ledger.messages:
        problems.append(f"{ledger.messages - ledger.acknowledged} of {ledger.messages} messages were not acknowledged")
    return problems


async def send_all(namesrv: str, plan: JourneyPlan, ledger: Ledger, changed: asyncio.Event) -> list[str]:
    """Send all messages after message 0, shared out between the producers; returns the sends that failed finally.

    The last third waits until the group has changed, so that the change falls into the journey on fast machines too.
    """
    shares = [range(1 + first, plan.messages, plan.producers) for first in range(plan.producers)]
    failures = await asyncio.gather(
        *(
            _produce(namesrv, f"journey_producer_{number}", share, plan, ledger, changed)
            for number, share in enumerate(shares)
        )
    )
    return [problem for problems in failures for problem in problems][:MAX_PROBLEMS]


async def _produce(
    namesrv: str, group: str, share: range, plan: JourneyPlan, ledger: Ledger, changed: asyncio.Event | None = None
) -> list[str]:
    requests = _requests(share, plan.batch)
    failures: list[str] = []

    async def send_some(producer: Producer) -> None:
        # The concurrent sends of a producer share one iterator, so each request is sent once.
        for numbers in requests:
            if changed is not None and numbers[0] > plan.messages * 2 // 3:
                await _wait_for(changed, plan.patience_s)
            messages = [Message(plan.topic, ledger.send(number), keys=[str(number)]) for number in numbers]
            try:
                receipts = await _send(producer, messages)
            except RocketlineError as error:
                failures.append(f"{group}: {error}")
                continue
            for number, receipt in zip(numbers, receipts):
                ledger.acknowledge(number, receipt.queue, receipt.queue_offset)

    async with Producer(namesrv, group=group, timeout=10.0, topic_queue_count=plan.queues) as producer:
        await asyncio.gather(*(send_some(producer) for _ in range(plan.in_flight)))
    return failures


async def _wait_for(event: asyncio.Event, limit_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()


async def _send(producer: Producer, messages: list[Message]) -> Sequence[SendReceipt]:
    if len(messages) == 1:
        return [await producer.send(messages[0])]
    return await producer.send_batch(messages)


def _requests(share: range, batch: int) -> Iterator[range]:
    """
    >>> list(_requests(range(0, 10, 2), 2))
    [range(0, 4, 2), range(4, 8, 2), range(8, 10, 2)]
    """
    for start in range(0, len(share), batch):
        yield share[start : start + batch]


class Readers:
    """The consumers of a journey: one group whose members change on the way. An async context manager."""

    def __init__(self, namesrv: str, plan: JourneyPlan, ledger: Ledger, tell: Tell) -> None:
        self._namesrv = namesrv
        self._plan = plan
        self._ledger = ledger
        self._tell = tell
        self.changed = asyncio.Event()
        """Set when one consumer has left and another has joined."""
        self._moved = asyncio.Event()
        self._members: list[AsyncExitStack] = []

    async def __aenter__(self) -> Readers:
        for _ in range(self._plan.consumers):
            await self._join()
        return self

    async def __aexit__(self, *_: object) -> None:
        while self._members:
            await self._leave()

    async def change_members(self) -> None:
        """One leaves after a third of the messages, another joins after half of them."""
        try:
            if self._plan.consumers > 1:
                await self._change_members()
        finally:
            self.changed.set()

    async def _change_members(self) -> None:
        await self._until(self._plan.messages // 3)
        await self._leave()
        self._tell(f"a consumer left after {self._ledger.consumed:,} messages, {len(self._members)} go on")
        await self._until(self._plan.messages // 2)
        await self._join()
        self._tell(
            f"a consumer joined after {self._ledger.consumed:,} messages, now {len(self._members)} share the queues"
        )

    async def until_all_arrived(self) -> None:
        """Wait until all acknowledged messages arrived, or none did for `patience_s`."""
        while not self._ledger.all_arrived:
            self._moved.clear()
            try:
                async with asyncio.timeout(self._plan.patience_s):
                    await self._moved.wait()
            except TimeoutError:
                self._tell(f"nothing arrived for {self._plan.patience_s:g} s, giving up")
                return

    async def _until(self, consumed: int) -> None:
        while self._ledger.consumed < consumed:
            self._moved.clear()
            await self._moved.wait()

    async def _join(self) -> None:
        plan = self._plan
        member = AsyncExitStack()
        consumer = await member.enter_async_context(
            PushConsumer(self._namesrv, group=plan.group, from_where=ConsumeFrom.FIRST)
        )
        consumer.subscribe(plan.topic, "*", self._handle)
        await consumer.start()
        self._members.append(member)

    async def _leave(self) -> None:
        await self._members.pop(0).aclose()

    async def _handle(self, message: MessageView) -> None:
        plan, ledger = self._plan, self._ledger
        if plan.fail_every and not message.reconsume_times:
            number = ledger.number_of(message.body)
            if number is not None and number % plan.fail_every == 0:
                ledger.retried += 1
                raise RetryLater("the first delivery fails on purpose", delay_level=RETRY_LEVEL)
        ledger.arrive(message.body)
        self._moved.set()


async def read_back(namesrv: str, topic: str, ledger: Ledger) -> tuple[int, list[str]]:
    """(number of messages in all queues of a topic, problems), read from the beginning and not as a group."""
    found: dict[tuple[MessageQueue, int], int] = {}
    problems: list[str] = []
    async with PullConsumer(namesrv, group=AUDIT_GROUP, from_where=ConsumeFrom.FIRST, auto_commit=False) as consumer:
        queues = await consumer.queues(topic)
        expected: dict[MessageQueue, int] = {queue: await consumer.begin_offset(queue) for queue in queues}
        ends = {queue: await consumer.end_offset(queue) for queue in queues}
        consumer.assign(queues)
        while behind := [queue for queue in queues if expected[queue] < ends[queue]]:
            messages = await consumer.poll(max_messages=1000, timeout=READ_LIMIT_S)
            if not messages:
                problems += [
                    f"{queue}: nothing at {expected[queue]}, though it ends at {ends[queue]}" for queue in behind
                ]
                break
            for message in messages:
                problems += _check_stored(message, expected, ledger, found)
    return len(found), (problems + _misplaced(ledger, found))[:MAX_PROBLEMS]


def _check_stored(
    message: MessageView,
    expected: dict[MessageQueue, int],
    ledger: Ledger,
    found: dict[tuple[MessageQueue, int], int],
) -> list[str]:
    problems = []
    queue, offset = message.queue, message.queue_offset
    if offset != expected[queue]:
        problems.append(f"{queue}: offset {offset} came where {expected[queue]} was expected")
    expected[queue] = offset + 1
    number = ledger.number_of(message.body)
    if number is None:
        problems.append(f"{queue}: the message at offset {offset} was not sent")
    else:
        found[queue, offset] = number
    return problems


def _misplaced(ledger: Ledger, found: dict[tuple[MessageQueue, int], int]) -> list[str]:
    places = ((number, ledger.place_of(number)) for number in range(ledger.messages))
    return [
        f"message {number} is not at {place[0]} offset {place[1]}, as acknowledged"
        for number, place in places
        if place is not None and found.get(place) != number
    ]
