"""One subscribed topic of a consumer."""

from __future__ import annotations

import msgspec

from rocketline.errors import InvalidMessage
from rocketline.protocol.bodies import TAG, SubscriptionData
from rocketline.protocol.names import topic_problem
from rocketline.protocol.subscription import TextTest, build_subscription, text_test


class Subscription:
    """A topic, what of it is wanted, and since when.

    Heartbeats announce `data`, whose version grows with each new assignment of queues; pulls carry the `version` of the
    expression itself. So a pull is never ahead of what the broker was told and refused for it.
    """

    __slots__ = ("accepts", "data", "topic", "version")

    def __init__(self, topic: str, expression: str, version_ms: int) -> None:
        problem = topic_problem(topic)
        if problem:
            raise InvalidMessage(problem)
        self.topic = topic
        self.data: SubscriptionData = build_subscription(topic, expression, TAG, version_ms)
        self.version = version_ms
        self.accepts: TextTest | None = text_test(self.data)

    @property
    def expression(self) -> str:
        return self.data.sub_string

    def announce_anew(self, now_ms: int) -> None:
        """Give the next heartbeat a newer version."""
        newer = max(now_ms, self.data.sub_version + 1)
        self.data = msgspec.structs.replace(self.data, sub_version=newer)
