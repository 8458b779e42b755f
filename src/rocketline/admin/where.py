"""Conditions with which people look for messages: SQL92 over properties and over members of a JSON body, and plain text.

    amount > 100 AND body.region = 'eu' AND body.items.0.price IS NOT NULL AND size > 1024

A name is a property of the message. `body.a.b` is a member of a body that is JSON; a number is a place in a list. `size` is
the length of the body; `tag` and `keys` are what they say. A property with such a name comes first.

A condition is data: it is compiled to functions of ours, never to code. Unlike a broker's filter it may not be followed by
anything, and `>` compares fractions too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from rocketline.errors import BAD_ITEM, FilterFailed
from rocketline.filtering.sql92.closures import compile_tree
from rocketline.filtering.sql92.parser import parse_strictly
from rocketline.filtering.sql92.tree import AllOf, AnyOf, Literal, Node, Not, Ordered, ValueKind
from rocketline.message import KEYS, TAGS, MessageView
from rocketline.protocol.subscription import build_subscription, text_test

Accepts = Callable[[MessageView], bool]

MAX_JSON_BYTES = 8 << 20
"""Larger bodies have no members."""
EXACT_DOUBLE = 1 << 53
_NOT_DECODED: Any = object()


class _Subject:
    """A message under a condition; its body is decoded when a condition asks for a member."""

    __slots__ = ("_members", "message")

    def __init__(self, message: MessageView) -> None:
        self.message = message
        self._members: Any = _NOT_DECODED

    @property
    def members(self) -> Any:
        if self._members is _NOT_DECODED:
            self._members = _decoded(self.message.body)
        return self._members


def _decoded(body: bytes) -> Any:
    if len(body) > MAX_JSON_BYTES:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def compile_where(text: str) -> Accepts:
    """The function of a condition; InvalidExpression says what is wrong with it and where.

    >>> message = MessageView("T", b'{"region": "eu", "items": [{"price": 2.5}]}', {"amount": "150"}, *[0] * 4, "", 0, "")
    >>> compile_where("amount > 100 AND body.region = 'eu' AND body.items.0.price < 3")(message)
    True
    """
    evaluate = compile_tree(_with_fractions(parse_strictly(text)), _reader)

    def accepts(message: MessageView) -> bool:
        try:
            return evaluate(_Subject(message)) is True
        except (FilterFailed, *BAD_ITEM):
            return False

    return accepts


def _with_fractions(node: Node) -> Node:
    """Order by doubles: for a broker `amount > 100` is false when the amount is 150.5."""
    match node:
        case AllOf(terms) | AnyOf(terms):
            return replace(node, terms=tuple(map(_with_fractions, terms)))
        case Not(inner):
            return Not(_with_fractions(inner))
        case Ordered(sign, left, right):
            return Ordered(sign, _as_double(left), _as_double(right))
        case _:
            return node


def _as_double(node: Node) -> Node:
    if isinstance(node, Literal) and isinstance(node.value, int) and 0 < node.value < EXACT_DOUBLE:
        return Literal(float(node.value), ValueKind.DOUBLE)
    if isinstance(node, Literal) and node.kind is ValueKind.INT32 and node.value == 0:
        return Literal(0.0, ValueKind.DOUBLE)
    return node


def _reader(name: str) -> Callable[[_Subject], str | None]:
    """The function that reads what a name stands for."""
    other = _other_reader(name)

    def read(subject: _Subject) -> str | None:
        value = subject.message.properties.get(name)
        return other(subject) if value is None else value

    return read


def _other_reader(name: str) -> Callable[[_Subject], str | None]:
    first, *path = name.split(".")
    if first == "body" and path:
        return lambda subject: _member(subject.members, path)
    if name == "size":
        return lambda subject: str(len(subject.message.body))
    property_name = {"tag": TAGS, "keys": KEYS}.get(name)
    if property_name is not None:
        return lambda subject: subject.message.properties.get(property_name)
    return lambda subject: None


def _member(value: Any, path: list[str]) -> str | None:
    """A member as the text that a property with its value would have; None for what is absent, null or no single value."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and len(step) < 10 and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int, float)) else None


def compile_search(tag: str = "*", where: str = "", text: str = "") -> Accepts | None:
    """The function of all conditions together; None when every message passes."""
    tests: list[Accepts] = []
    tag_test = text_test(build_subscription("", tag or "*"))
    if tag_test is not None:
        tests.append(lambda message: tag_test(message.tag))
    if text:
        tests.append(_contains(text))
    if where.strip():
        tests.append(compile_where(where))
    if not tests:
        return None
    return lambda message: all(test(message) for test in tests)


def _contains(text: str) -> Accepts:
    """Whether a text is in the body, the ids or a property, in upper or lower case."""
    wanted = text.casefold()

    def accepts(message: MessageView) -> bool:
        if any(wanted in value.casefold() for value in message.properties.values()):
            return True
        return wanted in message.offset_id.casefold() or wanted in message.body.decode("utf-8", "replace").casefold()

    return accepts
