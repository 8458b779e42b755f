"""The nodes of an expression tree, and the kinds of their values.

Properties are text and literals have a type, so the kind of every value is known at compile time; only whether it is null is
not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class ValueKind(Enum):
    TEXT = auto()
    INT32 = auto()
    INT64 = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    NULL = auto()


NUMBERS = frozenset((ValueKind.INT32, ValueKind.INT64, ValueKind.DOUBLE))

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class Property:
    name: str


@dataclass(frozen=True, slots=True)
class Negated:
    """Minus a value: null unless that is a number."""

    inner: Node


@dataclass(frozen=True, slots=True)
class Truth:
    """A property where a boolean is expected. A text is never true: null when missing, otherwise false."""

    inner: Property


@dataclass(frozen=True, slots=True)
class Not:
    inner: Node


@dataclass(frozen=True, slots=True)
class AllOf:
    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class IsNull:
    inner: Node


@dataclass(frozen=True, slots=True)
class Ordered:
    """One of `> >= < <=`."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class OneOf:
    inner: Property
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class TextTest:
    """CONTAINS, STARTSWITH or ENDSWITH."""

    test: str
    inner: Node
    search: str
    negated: bool


Node = Literal | Property | Negated | Truth | Not | AllOf | AnyOf | Equal | IsNull | Ordered | OneOf | TextTest


def kind_of(node: Node) -> ValueKind:
    """The kind of a node's value if that is not null; NULL if it always is."""
    match node:
        case Literal():
            return node.kind
        case Property():
            return ValueKind.TEXT
        case Negated():
            inner = kind_of(node.inner)
            return inner if inner in NUMBERS else ValueKind.NULL
        case _:
            return ValueKind.BOOLEAN


def is_boolean(node: Node) -> bool:
    """Whether a node may be used as a condition; the literals NULL, TRUE and FALSE may."""
    if isinstance(node, Literal):
        return node.kind in (ValueKind.BOOLEAN, ValueKind.NULL)
    return not isinstance(node, (Property, Negated))
