"""Taking queues over from members that are still there.

When members come or go, a queue changes hands between two that run. Each learns of the change by itself, and a new owner
that begins at once reads an offset that the former owner is still moving: everything in between comes twice. So a new
owner first has the broker ask the former one which queues it holds (307, which Java's members answer too), and waits until
this one is not among them. A former owner holds a queue until its last progress is committed. When members change again
during the wait, the queue is left to the next round: it may be somebody else's by then, who has begun to read it.

Nobody is asked when the former owner has left the group: it committed before, or never will. The wait is bounded: for a
member that does not let go, for as long as handlers may take to end, and a second; where the broker refuses the question,
for that second alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rocketline.client.consumer.group.assignment import Strategy
from rocketline.client.session import ClientSession
from rocketline.errors import BrokerError, NoPermission, RocketlineError
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import parse_queue_key
from rocketline.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.2
"""Pauses between two questions to a member that still holds a queue, as parts of `rebalance_soon_s`."""


class FormerOwner:
    """Another member of the group, that had queues before this round."""

    def __init__(self, session: ClientSession, group: str, client_id: str, news: asyncio.Event) -> None:
        """`news` is set when members have changed again."""
        self._session = session
        self._news = news
        self._group = group
        self.client_id = client_id
        self._asking = asyncio.Lock()
        self._held: frozenset[MessageQueue] = frozenset()
        self._answers = 0

    async def let_go(self, queue: MessageQueue) -> bool:
        """Returns when this member does not hold a queue any more, or has had enough time to let it go; False when
        there are news while it still holds the queue."""
        timing = self._session.timing
        limit_s = timing.hand_over_s + timing.rebalance_soon_s
        pause_s = timing.rebalance_soon_s * FIRST_PAUSE
        try:
            async with asyncio.timeout(limit_s):
                while await self._holds(queue):
                    if self._news.is_set():
                        return False
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, timing.rebalance_soon_s * LONGEST_PAUSE)
        except TimeoutError:
            log.info("group %s takes %s over, though %s still had it after %g s", self._group, queue, self.client_id,
                     limit_s)  # fmt: skip
        return True

    async def _holds(self, queue: MessageQueue) -> bool:
        """One answer serves all queues that wait for it."""
        answers = self._answers
        async with self._asking:
            if answers == self._answers:
                self._held = await self._ask(queue)
                self._answers += 1
        return queue in self._held

    async def _ask(self, queue: MessageQueue) -> frozenset[MessageQueue]:
        try:
            broker = await self._session.broker_of(queue)
            info = await broker.running_info(self._group, self.client_id)
            return frozenset(map(parse_queue_key, info.mq_table))
        except RocketlineError as error:
            log.debug("group %s does not learn what %s holds: %s", self._group, self.client_id, error)
            if _is_refusal(error):
                await asyncio.sleep(self._session.timing.rebalance_soon_s)
            return frozenset()


def _is_refusal(error: RocketlineError) -> bool:
    """Whether nothing is known of the member. Code 1 says that it has left; without an answer it is not waited for again."""
    is_gone = isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_ERROR
    return isinstance(error, NoPermission) or (isinstance(error, BrokerError) and not is_gone)


class LastShares:
    """How the queues of each topic were shared out when this member last took its share."""

    def __init__(self, group: str, own_id: str, strategy: Strategy) -> None:
        self._group = group
        self._own_id = own_id
        self._strategy = strategy
        self._known: dict[str, tuple[list[MessageQueue], list[str]]] = {}

    def note(self, topic: str, queues: list[MessageQueue], members: list[str]) -> None:
        """Everything that is ours by this share is being read."""
        self._known[topic] = queues, members

    def owners(
        self, topic: str, queues: list[MessageQueue], members: list[str], wanted: Sequence[MessageQueue]
    ) -> dict[MessageQueue, str]:
        """The members, still there, that had the wanted queues before. A member that is new itself assumes that they
        were shared out without it."""
        others = [member for member in members if member != self._own_id]
        queues, members = self._known.get(topic, (queues, others))
        owners: dict[MessageQueue, str] = {}
        for member in others if wanted else ():
            if member in members:
                share = set(self._strategy(self._group, member, queues, members))
                owners.update((queue, member) for queue in wanted if queue in share)
        return owners
