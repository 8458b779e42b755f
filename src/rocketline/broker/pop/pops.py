"""Pop mode put together: its parts, what they do on their own, and what a broker has to tell them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from rocketline.async_table import OffLoop
from rocketline.broker.config import PopConfig
from rocketline.broker.pop.checkpoints import PopCheckpoints
from rocketline.broker.pop.in_flight import InFlight
from rocketline.broker.pop.modes import RequestModes
from rocketline.broker.pop.ordered import OrderedPops, OrderInfoTable
from rocketline.broker.pop.popping import Popping
from rocketline.broker.pop.recovering import move_offsets
from rocketline.broker.pop.redelivery import Redelivery
from rocketline.broker.pop.revive_log import ReviveLog, revive_topic
from rocketline.broker.pop.reviver import PopReviver
from rocketline.broker.pop.waiters import PopWaiters
from rocketline.broker.set_aside import SetAside
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.json_table import JsonTable
from rocketline.broker.tables.topics import Topics
from rocketline.broker.timer.timers import Timers
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.protocol.bodies import MessageRequestModeTable
from rocketline.store.message_store import MessageStore
from rocketline.store.queue.dispatcher import Arrivals


@wired
class PopNeeds:
    """What pop mode uses of the rest of a broker."""

    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    timers: Timers
    statistics: BrokerStatistics
    aside: SetAside
    clock: Clock
    random: Random
    stored: Callable[[], None]
    order_file: JsonTable[OrderInfoTable]
    mode_file: JsonTable[MessageRequestModeTable]
    store_host: bytes
    broker_name: str
    cluster: str
    off_loop: OffLoop | None = None


class Pops:
    def __init__(self, config: PopConfig, needs: PopNeeds) -> None:
        self.config = config
        self._needs = needs
        store, offsets, clock = needs.store, needs.offsets, needs.clock
        self.in_flight = InFlight(clock.now_ms())
        topic = revive_topic(needs.cluster)
        revive_log = ReviveLog(
            store, needs.timers, topic, config.revive_queue_count, needs.store_host, clock, needs.stored
        )
        self.checkpoints = PopCheckpoints(config, revive_log, offsets, clock, self.in_flight)
        self.ordered = OrderedPops(needs.order_file, clock)
        self.modes = RequestModes(needs.mode_file, config, needs.off_loop)
        self.popping = Popping(
            config=config,
            store=store,
            topics=needs.topics,
            offsets=offsets,
            checkpoints=self.checkpoints,
            ordered=self.ordered,
            in_flight=self.in_flight,
            random=needs.random,
            broker_name=needs.broker_name,
        )
        redelivery = Redelivery(
            store,
            needs.topics,
            needs.groups,
            offsets,
            needs.statistics,
            needs.aside,
            needs.stored,
            needs.store_host,
            config.retry_v2,
            started_ms=clock.now_ms(),
        )
        self.reviver = PopReviver(
            store,
            needs.topics,
            needs.groups,
            offsets,
            revive_log,
            redelivery,
            self.in_flight,
            clock,
            needs.timers.is_behind,
        )
        self.waiters = PopWaiters(config.max_waiting, config.max_waiting_per_queue)
        self.notifications = PopWaiters(config.max_waiting, config.max_waiting_per_queue)
        self._revive_topic = topic

    def load(self, *, after_crash: bool) -> None:
        """Take up what was saved; the store is open and the consumer offsets are loaded."""
        self.ordered.load()
        self.modes.load()
        if after_crash:
            move_offsets(self._needs.store, self._needs.offsets, self._revive_topic)
        self.reviver.load(after_crash=after_crash)

    def background(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """What runs as long as the broker is master. A replica keeps and delivers nothing: its master does."""
        return {"check points": self.checkpoints.run, "redeliveries": self.reviver.run}

    def wake_waiters(self, entries: Arrivals) -> None:
        """Messages became readable: those who wait for them are to try."""
        self.waiters.on_arrivals(entries)
        self.notifications.on_arrivals(entries)

    def answer_woken(self) -> None:
        self.waiters.answer_woken()
        self.notifications.answer_woken()

    def queue_free(self, topic: str, group: str, queue_id: int) -> None:
        """A queue that is popped in order may give messages again."""
        self.waiters.wake_queue(topic, group, queue_id)
        self.notifications.wake_queue(topic, group, queue_id)

    def topic_gone(self) -> None:
        """A topic was deleted: nothing waits for it any more."""
        topics = self._needs.topics

        def is_gone(queue: tuple[str, str, int]) -> bool:
            return topics.get(queue[0]) is None

        self.checkpoints.forget(is_gone)
        self.clean()
        self.waiters.answer_all()
        self.notifications.answer_all()

    def clean(self) -> None:
        """Forget what is popped in order, or counted as in flight, of topics and groups that are gone; and what was
        popped in order long ago."""
        topics, groups = self._needs.topics, self._needs.groups
        self.in_flight.forget(lambda queue: topics.get(queue[0]) is None or queue[1] not in groups.table)

        def queue_count(topic: str, group: str) -> int:
            config = topics.get(topic)
            return config.read_queue_nums if config is not None and group in groups.table else 0

        self.ordered.clean(queue_count)

    def close_waiters(self) -> None:
        self.waiters.close()
        self.notifications.close()
