"""The pop side of a push consumer: its loops, its delivery and its receipts, made only when brokers share the queues out."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from functools import partial

from rocketline.client.consumer.group.subscription import Subscription
from rocketline.client.consumer.pop.pop_delivery import PopDelivery
from rocketline.client.consumer.pop.pop_loop import DeadLetterSink, PopLoop, PopReading, PopSettings
from rocketline.client.consumer.pop.pop_queues import PopQueues
from rocketline.client.consumer.pop.pop_receipts import Receipts
from rocketline.client.consumer.push.delivery import Handling
from rocketline.client.session import ClientSession
from rocketline.protocol.bodies import queue_key


class PushPops:
    """Pops what the rebalancer adds to `queues`, between `start` and `stop`."""

    def __init__(
        self,
        session: ClientSession,
        subscriptions: MutableMapping[str, Subscription],
        handling: Handling,
        settings: PopSettings,
        dead_letters: DeadLetterSink,
        *,
        gate: asyncio.Event,
        retry_limit: int,
    ) -> None:
        group, observer = handling.group, handling.observer
        self.receipts = Receipts(session, group, lambda topic: observer.namespace.wrap(topic or ""))
        self._session = session
        self._delivery = PopDelivery(handling)
        reading = PopReading(
            session, group, settings, self.receipts, self._delivery, dead_letters, retry_limit, gate, observer
        )
        self.queues = PopQueues(subscriptions, partial(PopLoop, reading))

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
