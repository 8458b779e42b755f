"""One subscribed topic of a consumer."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rocketline.errors import InvalidExpression, InvalidMessage
from rocketline.message import MessageView
from rocketline.protocol.bodies import SQL92, TAG, SubscriptionData
from rocketline.protocol.names import topic_problem
from rocketline.protocol.subscription import TextTest, build_subscription, text_test


@dataclass(frozen=True, slots=True)
class Sql:
    """A SQL92 expression over message properties, which the broker evaluates: `Sql("price > 10 AND region = 'eu'")`."""

    text: str

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise InvalidExpression("an SQL92 expression is empty; subscribe to '*' for all messages")


class Subscription:
    """A topic, what of it is wanted, and since when.

    Heartbeats announce `data`, whose version grows with each new assignment of queues; pulls carry the `version` of the
    expression itself. So a pull is never ahead of what the broker was told and refused for it.
    """

    __slots__ = ("accepts", "data", "topic", "version")

    def __init__(self, topic: str, expression: str | Sql, version_ms: int) -> None:
        problem = topic_problem(topic)
        if problem:
            raise InvalidMessage(problem)
        kind, text = (SQL92, expression.text) if isinstance(expression, Sql) else (TAG, expression)
        self.topic = topic
        self.data: SubscriptionData = build_subscription(topic, text, kind, version_ms)
        self.version = version_ms
        self.accepts: TextTest | None = text_test(self.data)

    @property
    def expression(self) -> str:
        return self.data.sub_string

    @property
    def is_sql(self) -> bool:
        return self.data.expression_type == SQL92

    def announce_anew(self, now_ms: int) -> None:
        """Give the next heartbeat a newer version."""
        newer = max(now_ms, self.data.sub_version + 1)
        self.data = msgspec.structs.replace(self.data, sub_version=newer)

    def wanted(self, messages: list[MessageView]) -> list[MessageView]:
        """Those of a pull that we asked for: the broker compares hashes of tags, which may be equal by chance."""
        accepts = self.accepts
        return messages if accepts is None else [message for message in messages if accepts(message.tag)]

    def selects_like(self, other: Subscription) -> bool:
        return (self.is_sql, self.expression) == (other.is_sql, other.expression)
