"""A message that always fails, on virtual time: down every step of the ladder of delays, and then among the dead letters.

A real push consumer and a real broker's parts; nearly five hours pass in a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from tests.support.virtual import VirtualLoop
from tests.unit.broker.parts import LEVELS_MS
from tests.unit.client.ordered_group import GROUP, TOPIC, OrderedGroup, on_virtual_time

from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, PullSettings, PushConsumer, RetryLater
from rocketline.message import MessageView
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.headers import ConsumerSendMsgBackHeader

LADDER_S = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
DLQ = f"%DLQ%{GROUP}"
NETWORK_S = 0.1
"""More than the virtual network and the consumer need to bring a message that is due."""
CALM = {
    "timing": ClientTiming(
        route_refresh_s=900.0, heartbeat_s=900.0, persist_s=900.0, rebalance_s=900.0, pull_idle_s=7200.0
    ),
    "pull": PullSettings(suspend_s=1800.0, timeout_s=3600.0),
    "ordered": False,
}
"""Few timers and long polls, so that hours are a moment."""


class Failing:
    """A handler that raises for its first so many calls, and notes when it was called with what."""

    def __init__(self, loop: VirtualLoop, failures: int = 1000, delay_level: int | None = None) -> None:
        self._loop = loop
        self._failures = failures
        self._delay_level = delay_level
        self.calls: list[tuple[float, MessageView]] = []

    async def __call__(self, message: MessageView) -> None:
        self.calls.append((self._loop.time(), message))
        if len(self.calls) <= self._failures:
            if self._delay_level is not None:
                raise RetryLater(delay_level=self._delay_level)
            raise ValueError("never")

    @property
    def messages(self) -> list[MessageView]:
        return [message for _, message in self.calls]

    def pauses(self) -> list[float]:
        return [after - before for (before, _), (after, _) in pairwise(self.calls)]


@asynccontextmanager
async def delivering(group: OrderedGroup) -> AsyncIterator[None]:
    """The broker lets out what is due, as long as this lasts."""
    task = asyncio.create_task(group.broker.delays.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def dead_letters(group: OrderedGroup, limit_s: float) -> list[MessageView]:
    """What a consumer of the dead-letter topic gets, once there is such a topic."""
    found: list[MessageView] = []

    async def keep(message: MessageView) -> None:
        found.append(message)

    async with asyncio.timeout(limit_s):
        while group.broker.topics.get(DLQ) is None:
            await asyncio.sleep(60)
    first = ConsumeFrom.FIRST
    async with PushConsumer(
        "127.0.0.1:9876", group="undertakers", from_where=first, options=ClientOptions(clock=group.clock)
    ) as consumer:
        consumer.subscribe(DLQ, "*", keep)
        await consumer.start()
        await asyncio.sleep(60)
    return found


def assert_pauses(handler: Failing, expected_s: list[float]) -> None:
    pauses = handler.pauses()
    assert [round(pause) for pause in pauses] == expected_s
    assert all(due <= pause < due + NETWORK_S for due, pause in zip(expected_s, pauses)), pauses


@on_virtual_time
async def test_a_message_walks_all_levels_to_the_dead_letters(group: OrderedGroup) -> None:
    handler = Failing(group.loop)
    async with delivering(group):
        await group.join(handler, **CALM)
        group.send()
        [letter] = await dead_letters(group, 24 * 3600.0)

    assert [level / 1000 for level in LEVELS_MS[2:]] == LADDER_S
    assert_pauses(handler, LADDER_S)
    first, *again = handler.messages
    assert [message.reconsume_times for message in handler.messages] == list(range(17))
    assert {(message.topic, message.body, message.message_id) for message in again} == {(TOPIC, b"x", first.message_id)}
    for number, message in enumerate(again):
        assert message.properties["DELAY"] == str(3 + number)
        assert message.properties["ORIGIN_MESSAGE_ID"] == first.offset_id
        assert message.properties["RETRY_TOPIC"] == TOPIC
    assert (letter.reconsume_times, letter.body, letter.born_ms) == (17, b"x", first.born_ms)
    assert letter.properties["ORIGIN_MESSAGE_ID"] == first.offset_id
    assert letter.properties["RETRY_TOPIC"] == TOPIC
    assert letter.properties["UNIQ_KEY"] == first.properties["UNIQ_KEY"]


@on_virtual_time
async def test_what_the_ladder_leaves_behind(group: OrderedGroup) -> None:
    """Topics that can be read and written, one request for each failure, and offsets past everything."""
    handler = Failing(group.loop)
    async with delivering(group):
        member = await group.join(handler, **CALM)
        group.send()
        await dead_letters(group, 24 * 3600.0)
        await group.leave(member)

    topics = group.broker.topics
    for name in (DLQ, f"%RETRY%{GROUP}"):
        topic = topics.require(name)
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    sent_back = [
        ConsumerSendMsgBackHeader.decode(request) for _, request in group.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    ]
    assert [header.log_offset for header in sent_back] == [message.log_offset for message in handler.messages]
    assert {(header.delay_level, header.max_reconsume_times, header.origin_topic) for header in sent_back} == {
        (0, 16, TOPIC)
    }
    store, offsets = group.broker.store, group.broker.offsets
    assert store.max_offset(f"%RETRY%{GROUP}", 0) == 16
    assert offsets.get(GROUP, f"%RETRY%{GROUP}", 0) == 16
    assert offsets.get(GROUP, TOPIC, 0) == 1
    assert [store.max_offset("SCHEDULE_TOPIC_XXXX", level) for level in range(18)] == [0, 0, *[1] * 16]
    assert group.broker.delays.snapshot().offset_table == dict.fromkeys(range(3, 19), 1)


@on_virtual_time
async def test_a_message_that_succeeds_in_the_end_is_no_dead_letter(group: OrderedGroup) -> None:
    handler = Failing(group.loop, failures=5)
    async with delivering(group):
        await group.join(handler, **CALM)
        group.send()
        await asyncio.sleep(12 * 3600)
    assert_pauses(handler, LADDER_S[:5])
    assert group.broker.topics.get(DLQ) is None


@pytest.mark.parametrize(
    ("options", "delay_level", "pauses_s"),
    [
        ({"max_reconsume_times": 3}, None, LADDER_S[:3]),
        ({"max_reconsume_times": 0}, None, []),
        ({"max_reconsume_times": 4}, 2, [5, 5, 5, 5]),
        ({}, -1, []),
    ],
    ids=["a limit of three", "no second chance", "a level the handler chose", "given up by the handler"],
)
@on_virtual_time
async def test_the_consumer_shortens_the_ladder(
    group: OrderedGroup, options: dict[str, int], delay_level: int | None, pauses_s: list[float]
) -> None:
    handler = Failing(group.loop, delay_level=delay_level)
    async with delivering(group):
        await group.join(handler, **CALM, **options)
        group.send()
        [letter] = await dead_letters(group, 3600.0)
    assert_pauses(handler, pauses_s)
    assert letter.reconsume_times == len(pauses_s) + 1


@on_virtual_time
async def test_other_messages_are_not_held_up(group: OrderedGroup) -> None:
    """While one walks the ladder, those behind it come at once, once, and are committed."""
    seen: list[int] = []

    async def handle(message: MessageView) -> None:
        if message.reconsume_times:
            raise ValueError("still bad")
        seen.append(message.queue_offset)
        if message.queue_offset == 0:
            raise ValueError("bad")

    async with delivering(group):
        await group.join(handle, ordered=False)
        for _ in range(10):
            group.send()
        await asyncio.sleep(9)  # before the first retry
        assert sorted(seen) == list(range(10))
        assert group.broker.offsets.get(GROUP, TOPIC, 0) == 10
        await asyncio.sleep(600)
    assert sorted(seen) == list(range(10))
