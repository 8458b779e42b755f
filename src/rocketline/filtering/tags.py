"""TAG expressions: `*`, or tags joined by `||`; a message has one tag or none.

Brokers know only the 32-bit Java hash of a message's tag and so let a few strangers pass; consumers compare the text again.
"""

from __future__ import annotations

from rocketline.errors import InvalidExpression, InvalidMessage
from rocketline.protocol.subscription import build_subscription, tag_test, text_test


class TagFilter:
    """A compiled TAG expression.

    `accept_tags` tests a stored tags code, `accept_text` a message's tag; either is None when everything passes.
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
