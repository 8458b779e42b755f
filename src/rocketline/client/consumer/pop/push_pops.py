"""The pop side of a push consumer: its loops, its delivery and its receipts, made only when brokers share the queues out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping

from rocketline.client.consumer.group.consume_observer import ConsumeObserver
from rocketline.client.consumer.group.subscription import Subscription
from rocketline.client.consumer.pop.pop_delivery import PopDelivery
from rocketline.client.consumer.pop.pop_loop import DeadLetterSink, PopLoop, PopSettings
from rocketline.client.consumer.pop.pop_queues import PopQueues
from rocketline.client.consumer.pop.pop_receipts import Receipts
from rocketline.client.consumer.push.handlers import Handler
from rocketline.client.session import ClientSession
from rocketline.client.tasks import OwnedTasks
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import queue_key


class PushPops:
    """Pops what the rebalancer adds to `queues`, between `start` and `stop`."""

    def __init__(
        self,
        session: ClientSession,
        group: str,
        subscriptions: MutableMapping[str, Subscription],
        handler_of: Callable[[str], Handler | None],
        settings: PopSettings,
        dead_letters: DeadLetterSink,
        observer: ConsumeObserver,
        *,
        gate: asyncio.Event,
        retry_limit: int,
        concurrency: int,
        batch_size: int,
    ) -> None:
        self._session = session
        self._group = group
        self._settings = settings
        self._dead_letters = dead_letters
        self._observer = observer
        self._gate = gate
        self._retry_limit = retry_limit
        self._receipts = Receipts(session, group, lambda topic: observer.namespace.wrap(topic or ""))
        self._delivery = PopDelivery(
            group, handler_of, session.clock, concurrency=concurrency, batch_size=batch_size, observer=observer
        )
        self.queues = PopQueues(subscriptions, self._new_loop)

    def _new_loop(self, queue: MessageQueue, subscription: Subscription, settling: OwnedTasks) -> PopLoop:
        return PopLoop(
            self._session,
            self._group,
            queue,
            subscription,
            self._settings,
            self._receipts,
            self._delivery,
            dead_letters=self._dead_letters,
            retry_limit=self._retry_limit,
            gate=self._gate,
            observer=self._observer,
            tasks=settling,
        )

    def start(self) -> None:
        self._delivery.start()

    def resize(self, concurrency: int) -> None:
        self._delivery.resize(concurrency)

    async def stop(self, timeout_s: float) -> None:
        """No new pops, time for running handlers, then for their acknowledgements."""
        await self.queues.stop_popping()
        await self._delivery.stop(timeout_s)
        await self.queues.settle(self._session.timing.call_s)

    def describe(self) -> dict[str, dict[str, int]]:
        """What operators see of the popped queues."""
        return {
            queue_key(loop.queue): {"waitAckCount": loop.unacked, "lastPopTimestamp": loop.last_pop_ms}
            for loop in self.queues.loops()
        }
