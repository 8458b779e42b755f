"""Subscriptions: which messages an expression selects, tested by hash on the broker and by text on the consumer.

A TAG expression is `*`, nothing, or tags joined by `||`. The broker compares 32-bit Java hashes, which may collide, so the
consumer compares the texts again. Other expression types are evaluated elsewhere (`filtering`); here they select all.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from rocketline.errors import InvalidMessage
from rocketline.protocol.bodies.heartbeat import MATCH_ALL, TAG, SubscriptionData
from rocketline.protocol.hashing import tag_hash

TextTest = Callable[[str | None], bool]

_INT32_MIN = -(1 << 31)
_INT32_MAX = (1 << 31) - 1
# What Java's String.trim removes.
_JAVA_BLANKS = "".join(map(chr, range(0x21)))

CONFLICT = "subscription conflict"
"""Start of the remark in a heartbeat's answer when members of a group subscribe differently; only our broker sends it."""


def build_subscription(
    topic: str, expression: str | None = MATCH_ALL, expression_type: str | None = TAG, version_ms: int = 0
) -> SubscriptionData:
    """The subscription of a topic; InvalidMessage when the expression holds only separators.

    >>> build_subscription("T", "TagA||TagB").code_set
    [2598919, 2598920]
    """
    if expression_type and expression_type != TAG:
        return SubscriptionData(topic, expression or "", expression_type=expression_type, sub_version=version_ms)
    if not expression or expression == MATCH_ALL:
        return SubscriptionData(topic, MATCH_ALL, sub_version=version_ms)
    tags = parse_tags(expression)
    return SubscriptionData(topic, expression, tags, sorted(tag_codes(tags)), version_ms)


def parse_tags(expression: str) -> list[str]:
    """The tags of an expression, each once, in order.

    >>> parse_tags(" created || paid||created")
    ['created', 'paid']
    """
    if not expression.replace("||", ""):
        raise InvalidMessage(f"subscription expression {expression!r} names no tag; '*' selects everything")
    trimmed = (part.strip(_JAVA_BLANKS) for part in expression.split("||"))
    return list(dict.fromkeys(tag for tag in trimmed if tag))


def tag_codes(tags: list[str]) -> frozenset[int]:
    """The tags codes of messages with these tags."""
    return frozenset(map(tag_hash, tags))


class TagTest:
    """Tests whether a stored tags code is one of the given codes."""

    __slots__ = ("codes", "packed")

    def __init__(self, codes: frozenset[int]) -> None:
        self.codes = codes
        self.packed = array("i", sorted(code for code in codes if _INT32_MIN <= code <= _INT32_MAX)).tobytes()
        """The codes in ascending order, for the compiled implementation."""

    def __call__(self, tags_code: int) -> bool:
        if _INT32_MIN <= tags_code <= _INT32_MAX:
            return tags_code in self.codes
        # Java casts to int. Only units that hold something else (a deliver time, an address) are wider.
        return ((tags_code & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000 in self.codes


def tag_test(subscription: SubscriptionData) -> TagTest | None:
    """The broker's test of a stored tags code; None when everything matches."""
    codes = frozenset(subscription.code_set)
    if not codes or subscription.sub_string == MATCH_ALL or subscription.expression_type != TAG:
        return None
    return TagTest(codes)


def text_test(subscription: SubscriptionData) -> TextTest | None:
    """The consumer's second test of a message's tag, which may be None; None when everything matches."""
    tags = frozenset(subscription.tags_set)
    if not tags or subscription.class_filter_mode or subscription.expression_type != TAG:
        return None
    return tags.__contains__
