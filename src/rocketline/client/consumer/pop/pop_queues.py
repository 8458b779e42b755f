"""The queues of a push consumer when brokers share them out: some are pulled, some are popped.

The rebalancer sees them as one set. A queue whose way of reading changes is dropped in the old way and added in the new
one. While a topic is pulled, the group's pop retry topic for it is subscribed to as well: what failed in pop mode lies
there, and only pops find it by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence

from rocketline.client.consumer.group.assignment_query import AssignmentQuery
from rocketline.client.consumer.group.hand_over import FormerOwner
from rocketline.client.consumer.group.subscription import Subscription
from rocketline.client.consumer.pop.pop_loop import PopLoop
from rocketline.client.consumer.push.assigned_queues import AssignedQueues, Receiver
from rocketline.client.consumer.push.pull_loop import PullLoop
from rocketline.client.tasks import OwnedTasks
from rocketline.errors import RocketlineError
from rocketline.message import RETRY_PREFIX, MessageQueue, MessageView
from rocketline.protocol.bodies import POP, PULL
from rocketline.protocol.namespaces import Namespace
from rocketline.protocol.pop_info import pop_retry_topic

NewLoop = Callable[[MessageQueue, Subscription, OwnedTasks], PopLoop]


class PopQueues:
    """Pop loops by queue."""

    def __init__(self, subscriptions: MutableMapping[str, Subscription], new_loop: NewLoop) -> None:
        self._subscriptions = subscriptions
        self._new_loop = new_loop
        self._loops: dict[MessageQueue, PopLoop] = {}
        self._popping = OwnedTasks()
        self._settling = OwnedTasks()

    def loops(self) -> list[PopLoop]:
        return list(self._loops.values())

    def owned(self) -> set[MessageQueue]:
        return set(self._loops)

    def add(self, queue: MessageQueue) -> None:
        subscription = self._subscriptions.get(queue.topic)
        if subscription is not None and queue not in self._loops:
            loop = self._loops[queue] = self._new_loop(queue, subscription, self._settling)
            self._popping.start(loop.run(), f"pop {queue}")

    def drop(self, queue: MessageQueue) -> None:
        """Pop no more; what the running pop brings is still delivered."""
        if (loop := self._loops.pop(queue, None)) is not None:
            loop.ended = True

    def resubscribe(self, group: str, topic: str) -> None:
        """Let running loops use the topic's new subscription; with a topic, its pop retry topic is left too."""
        if topic not in self._subscriptions:
            self._subscriptions.pop(pop_retry_topic(group, topic), None)
        for queue, loop in self._loops.items():
            if queue.topic == topic:
                loop.subscription = self._subscriptions.get(topic, loop.subscription)

    async def stop_popping(self) -> None:
        await self._popping.cancel()

    async def settle(self, timeout_s: float) -> None:
        """Wait for the last acknowledgements."""
        await self._settling.drain(timeout_s)


class BrokerSharedQueues:
    """What the rebalancer keeps: pulled and popped queues, as the brokers say."""

    def __init__(
        self,
        query: AssignmentQuery,
        group: str,
        subscriptions: MutableMapping[str, Subscription],
        pulled: AssignedQueues,
        popped: PopQueues,
        wake: Callable[[], None],
    ) -> None:
        """`wake` asks for another round, when there is another topic to be shared out."""
        self._query = query
        self._group = group
        self._subscriptions = subscriptions
        self._pulled = pulled
        self._popped = popped
        self._wake = wake
        self._modes: dict[MessageQueue, str] = {}

    async def share(self, topic: str) -> Collection[MessageQueue] | None:
        """Our queues of a topic; None: keep what we have."""
        modes = await self._query(topic)
        if modes is None:
            return None
        for queue in [queue for queue in self._modes if queue.topic == topic]:
            del self._modes[queue]
        self._modes |= modes
        for queue in sorted(modes):
            if modes[queue] == POP and queue in self._pulled.owned():
                await self._pulled.drop_queue(queue)
            elif modes[queue] == PULL:
                self._popped.drop(queue)
        self._subscribe_retries(topic, set(modes.values()))
        return list(modes)

    def _subscribe_retries(self, topic: str, modes: set[str]) -> None:
        if topic.startswith(RETRY_PREFIX) or len(modes) != 1:
            return
        retries = pop_retry_topic(self._group, topic)
        if PULL in modes and topic in self._subscriptions and retries not in self._subscriptions:
            self._subscriptions[retries] = Subscription(retries, "*", self._subscriptions[topic].version)
            self._wake()
        elif POP in modes and self._subscriptions.pop(retries, None) is not None:
            self._wake()

    @property
    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def owned(self) -> set[MessageQueue]:
        return self._pulled.owned() | self._popped.owned()

    async def commit_progress(self) -> None:
        await self._pulled.commit_progress()

    async def add_queue(self, queue: MessageQueue, former: FormerOwner | None) -> bool:
        if self._modes.get(queue) != POP:
            return await self._pulled.add_queue(queue, former)
        self._popped.add(queue)
        return True

    async def drop_queue(self, queue: MessageQueue) -> None:
        self._popped.drop(queue)
        if queue in self._pulled.owned():
            await self._pulled.drop_queue(queue)

    async def before_drop(self, queues: Sequence[MessageQueue]) -> None:
        """Nothing to do here."""

    async def after_add(self, queues: Sequence[MessageQueue]) -> None:
        """Nothing to do here."""

    def assignment_changed(self, topic: str) -> None:
        self._pulled.assignment_changed(topic)

    def after_round(self, problems: Mapping[str, RocketlineError]) -> None:
        """Nothing to do here."""


class PopRetryNames:
    """Between pull loops and delivery: messages pulled from a pop retry topic get the topic they were sent to."""

    def __init__(self, delivery: Receiver, group: str, namespace: Namespace) -> None:
        self._delivery = delivery
        self._start = pop_retry_topic(group, "")
        self._namespace = namespace

    def submit(self, loop: PullLoop, messages: list[MessageView]) -> None:
        topic = loop.queue.topic
        if topic.startswith(self._start):
            for message in messages:
                message.topic = self._namespace.unwrap(topic[len(self._start) :])
        self._delivery.submit(loop, messages)

    async def finish_running(self, loop: PullLoop) -> None:
        await self._delivery.finish_running(loop)
