"""Which queue a message goes to.

Pure: queues in, one of them out. Unless the caller chooses, queues are taken in turn, each topic with a counter of its own
(with a shared one, a producer that alternates between two topics would use every second queue only). A retry goes to
another broker than the one that just failed, when there is another; with a `BrokerHealth`, healthy brokers come
first, then those that can at least be reached.

The caller chooses with `queue=`: a queue, or a function of (queues, message) such as those at the end. Messages with a
sharding key go by its hash, exactly as those of Java's SelectMessageQueueByHash, so that both keep one order between them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

from rocketline.client.producer.broker_health import BrokerHealth
from rocketline.errors import InvalidMessage
from rocketline.message import Message, MessageQueue
from rocketline.protocol.hashing import java_string_hash
from rocketline.protocol.namespaces import Namespace

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
Selector = Callable[[Sequence[MessageQueue]], MessageQueue]
"""The same for a message that is known."""
QueueChoice = MessageQueue | Selector
"""A queue, or what selects one."""


class QueuesInTurn:
    """The round-robin position in the queues of one topic."""

    __slots__ = ("_next",)

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def choose(self, queues: Sequence[MessageQueue], avoid_broker: str | None = None) -> MessageQueue:
        """The next queue, if possible on another broker than `avoid_broker`.

        >>> turns = QueuesInTurn()
        >>> queues = [MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)]
        >>> [str(turns.choose(queues)) for _ in range(4)]
        ['T@a:0', 'T@a:1', 'T@b:0', 'T@a:0']
        >>> str(turns.choose(queues, avoid_broker="a"))
        'T@b:0'
        """
        position = self._next
        self._next = position + 1
        if avoid_broker is not None:
            count = len(queues)
            for step in range(count):
                queue = queues[(position + step) % count]
                if queue.broker_name != avoid_broker:
                    self._next = position + step + 1
                    return queue
        return queues[position % len(queues)]

    def choose_healthy(
        self, queues: Sequence[MessageQueue], health: BrokerHealth, avoid_broker: str | None = None
    ) -> MessageQueue:
        """Like `choose`, preferably on a healthy broker, else on one that can be reached."""
        if not health.all_healthy:
            others = [queue for queue in queues if queue.broker_name != avoid_broker]
            for is_good in (health.is_available, health.is_reachable):
                good = [queue for queue in others if is_good(queue.broker_name)]
                if good:
                    return self.choose(good)
        return self.choose(queues, avoid_broker)


def queue_choice(
    message: Message, queue: MessageQueue | QueueSelector | None, namespace: Namespace
) -> QueueChoice | None:
    """What the caller of a send has chosen, as it is called on the wire: a queue, or what selects one, or neither."""
    if queue is None:
        if message.sharding_key is None:
            return None
        queue = by_sharding_key
    if isinstance(queue, MessageQueue):
        if namespace.wrap(queue.topic) != namespace.wrap(message.topic):
            raise InvalidMessage(f"the message is for topic {message.topic!r}, the queue is {queue}")
        return namespace.wrap_queue(queue)
    select = queue
    if not namespace:
        return lambda queues: select(queues, message)
    return lambda queues: namespace.wrap_queue(select([namespace.unwrap_queue(q) for q in queues], message))


def by_hash(key: object) -> QueueSelector:
    """The queue of a key's text: all messages with one key are in one queue, in order, while the queues stay the same.

    >>> queues = [MessageQueue("T", "a", number) for number in range(4)]
    >>> by_hash("order-7")(queues, Message("T", b"")).queue_id
    0
    """
    code = java_string_hash(str(key))
    return lambda queues, _: queues[_remainder(code, len(queues))]


def by_sharding_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """The queue of the message's sharding key; used without being asked for when it has one."""
    return queues[_remainder(java_string_hash(message.sharding_key or ""), len(queues))]


def _remainder(code: int, count: int) -> int:
    """As Java's Math.abs(code % count): the remainder has the sign of `code` before."""
    return abs(code) % count


def at_random(chance: random.Random | None = None) -> QueueSelector:
    """Any queue."""
    choose = (chance or random.Random()).choice
    return lambda queues, _: choose(queues)


def in_machine_rooms(rooms: Collection[str]) -> QueueSelector:
    """Queues in turn, on brokers of these machine rooms (`room1@broker-a` is in `room1`); on all when none is there."""
    here, turns = frozenset(rooms), QueuesInTurn()

    def select(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
        near = [queue for queue in queues if queue.broker_name.partition("@")[0] in here]
        return turns.choose(near or queues)

    return select
