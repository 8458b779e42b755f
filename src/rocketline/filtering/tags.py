"""TAG expressions: `*`, or tags joined by `||`; a message has one tag or none.

Brokers compare only the 32-bit Java hash of a tag, so other tags with the same hash pass; consumers compare the text again.
"""

from __future__ import annotations

from rocketline.errors import InvalidExpression, InvalidMessage
from rocketline.protocol.subscription import build_subscription, tag_test, text_test


class TagFilter:
    """A compiled TAG expression.

    `accept_tags` tests a stored tags code, `accept_text` a message's tag; each is None when all messages pass.
    """

    __slots__ = ("accept_tags", "accept_text", "tags", "text")

    def __init__(self, text: str | None) -> None:
        try:
            subscription = build_subscription("", text)
        except InvalidMessage as error:
            raise InvalidExpression(str(error)) from error
        self.text = subscription.sub_string
        self.tags = frozenset(subscription.tags_set)
        self.accept_tags = tag_test(subscription)
        self.accept_text = text_test(subscription)
