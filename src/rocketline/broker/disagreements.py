"""Members of one group whose heartbeats contradict each other about what the group reads.

RocketMQ keeps one subscription per group and lets the newest heartbeat replace it. Members that subscribe to other
topics, or to the same ones with other expressions, drop each other's messages unread, and nothing in the protocol reports
it. So the subscriptions of each member are kept here, and a difference is described in the broker's log and in the answer
to the heartbeat.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from rocketline.protocol.bodies import TAG, ConsumerData, SubscriptionData
from rocketline.protocol.subscription import CONFLICT
from rocketline.transport import Channel

CONSUME_ACTIVELY = "CONSUME_ACTIVELY"

SHOWN = 5
LONGEST = 100
"""How many differences are listed, and how many characters of each."""

DeclaredTopic = tuple[str, str, str]
"""Topic, kind of expression, expression."""


class Declaration(NamedTuple):
    """What a member says its group does."""

    model: str
    topics: frozenset[DeclaredTopic]


class Disagreements:
    """The declarations of one group's members."""

    __slots__ = ("_declared", "_group", "_told", "_variants")

    def __init__(self, group: str) -> None:
        self._group = group
        self._declared: dict[Channel, tuple[str, Declaration]] = {}
        self._variants: Counter[Declaration] = Counter()
        self._told: dict[Channel, str] = {}

    def note(self, member: Channel, client_id: str, data: ConsumerData) -> None:
        """Note what a heartbeat declares. Pull consumers, which read the queues they are told to, and members without a
        subscription declare nothing."""
        if data.consume_type == CONSUME_ACTIVELY or not data.subscription_data_set:
            self.forget(member)
            return
        declared = Declaration(data.message_model, frozenset(map(_declared_topic, data.subscription_data_set)))
        known = self._declared.get(member)
        if known is None or known[1] != declared:
            self.forget(member)
            self._variants[declared] += 1
        self._declared[member] = client_id, declared

    def forget(self, member: Channel) -> None:
        self._told.pop(member, None)
        known = self._declared.pop(member, None)
        if known is not None:
            self._variants[known[1]] -= 1
            if not self._variants[known[1]]:
                del self._variants[known[1]]

    def about(self, member: Channel) -> str | None:
        """How another member contradicts this one; None when all agree."""
        if len(self._variants) < 2 or member not in self._declared:
            self._told.pop(member, None)
            return None
        client_id, own = self._declared[member]
        other_id, other = next((who, declared) for who, declared in self._declared.values() if declared != own)
        return (
            f"{CONFLICT} in group {self._group}: {_short(client_id)} {_difference(own, other)} and {_short(other_id)} "
            f"{_difference(other, own)}; all members of a group must subscribe alike, or they lose messages"
        )

    def is_news(self, member: Channel, text: str) -> bool:
        """Whether this was not reported for a member before; from now on it was."""
        if self._told.get(member) == text:
            return False
        self._told[member] = text
        return True


def _declared_topic(subscription: SubscriptionData) -> DeclaredTopic:
    expression = subscription.sub_string
    if subscription.expression_type == TAG and subscription.tags_set:
        expression = " || ".join(sorted(subscription.tags_set))
    return subscription.topic, subscription.expression_type, expression


def _difference(own: Declaration, other: Declaration) -> str:
    only_here = sorted(own.topics - other.topics)
    if own.model != other.model:
        return f"consumes {_short(own.model)}"
    if not only_here:
        return "subscribes to nothing of that"
    shown = [
        f"{_short(topic)} with {_short(kind)} '{_short(expression)}'" for topic, kind, expression in only_here[:SHOWN]
    ]
    more = [f"{len(only_here) - SHOWN} more"] if len(only_here) > SHOWN else []
    return "subscribes to " + ", ".join(shown + more)


def _short(text: str) -> str:
    """Make a client's text fit for logs and answers: of limited length and without line ends."""
    shown = text if len(text) <= LONGEST else text[:LONGEST] + "..."
    return shown if shown.isprintable() else "".join(char if char.isprintable() else "?" for char in shown)
