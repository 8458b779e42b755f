"""Members of one group that say different things about what the group reads.

RocketMQ keeps one subscription per group and lets the newest heartbeat replace it. Members that subscribe to other
topics, or to the same ones with other expressions, take the messages of each other's tags away unread, and nothing in
the protocol tells. So what each member said is remembered here, and a difference is put into words for the broker's log
and for the answer to the heartbeat.
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

Wish = tuple[str, str, str]
"""Topic, kind of expression, expression."""


class Opinion(NamedTuple):
    """What a member thinks its group does."""

    model: str
    wishes: frozenset[Wish]


class Disagreements:
    """The opinions of one group's members."""

    __slots__ = ("_group", "_opinions", "_told", "_variants")

    def __init__(self, group: str) -> None:
        self._group = group
        self._opinions: dict[Channel, tuple[str, Opinion]] = {}
        self._variants: Counter[Opinion] = Counter()
        self._told: dict[Channel, str] = {}

    def note(self, member: Channel, client_id: str, data: ConsumerData) -> None:
        """A heartbeat's opinion. Pull consumers have none, each reads the queues it was told to; nor have members that
        subscribe to nothing yet."""
        if data.consume_type == CONSUME_ACTIVELY or not data.subscription_data_set:
            self.forget(member)
            return
        opinion = Opinion(data.message_model, frozenset(map(_wish, data.subscription_data_set)))
        known = self._opinions.get(member)
        if known is None or known[1] != opinion:
            self.forget(member)
            self._variants[opinion] += 1
        self._opinions[member] = client_id, opinion

    def forget(self, member: Channel) -> None:
        self._told.pop(member, None)
        known = self._opinions.pop(member, None)
        if known is not None:
            self._variants[known[1]] -= 1
            if not self._variants[known[1]]:
                del self._variants[known[1]]

    def about(self, member: Channel) -> str | None:
        """In which way somebody else contradicts a member; None when all agree."""
        if len(self._variants) < 2 or member not in self._opinions:
            self._told.pop(member, None)
            return None
        client_id, own = self._opinions[member]
        other_id, other = next((who, opinion) for who, opinion in self._opinions.values() if opinion != own)
        return (
            f"{CONFLICT} in group {self._group}: {_short(client_id)} {_difference(own, other)} and {_short(other_id)} "
            f"{_difference(other, own)}; all members of a group must subscribe alike, or they lose messages"
        )

    def is_news(self, member: Channel, text: str) -> bool:
        """Whether this was not yet said about a member; it counts as said now."""
        if self._told.get(member) == text:
            return False
        self._told[member] = text
        return True


def _wish(subscription: SubscriptionData) -> Wish:
    expression = subscription.sub_string
    if subscription.expression_type == TAG and subscription.tags_set:
        expression = " || ".join(sorted(subscription.tags_set))
    return subscription.topic, subscription.expression_type, expression


def _difference(own: Opinion, other: Opinion) -> str:
    only_here = sorted(own.wishes - other.wishes)
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
    """Texts of clients go into logs and answers: no longer than a line can hold, and without line ends."""
    shown = text if len(text) <= LONGEST else text[:LONGEST] + "..."
    return shown if shown.isprintable() else "".join(char if char.isprintable() else "?" for char in shown)
