"""Parses tokens to a tree, with the checks that Apache makes at compile time.

Precedence, low to high: OR; AND; `= <> IS [NOT] NULL`; `> >= < <=` BETWEEN, IN, CONTAINS, STARTSWITH, ENDSWITH;
`+ - NOT`. So `NOT a = 1` is `(NOT a) = 1`. What follows a complete expression is ignored, as by Apache: `a LIKE 'x'` is `a`.

Depth, operands and lists are limited, because the broker evaluates an expression of a consumer for every message.
"""

from __future__ import annotations

from math import isinf

from rocketline.errors import InvalidExpression
from rocketline.filtering.sql92.lexer import DECIMAL, END, INTEGER, PROPERTY, TEXT, Lexer, Token, problem
from rocketline.filtering.sql92.tree import (
    NUMBERS,
    AllOf,
    AnyOf,
    Equal,
    IsNull,
    Literal,
    Negated,
    Node,
    Not,
    OneOf,
    Ordered,
    Property,
    TextTest,
    Truth,
    ValueKind,
    is_boolean,
)

MAX_DEPTH = 64
"""Most brackets and signs inside each other."""
MAX_OPERANDS = 2048
MAX_LIST = 4096

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1
_WORDS = {
    "TRUE": Literal(True, ValueKind.BOOLEAN),
    "FALSE": Literal(False, ValueKind.BOOLEAN),
    "NULL": Literal(None, ValueKind.NULL),
}
_ORDERS = (">", ">=", "<", "<=")
_SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_PREFIXES = ("+", "-", "NOT")


def parse(text: str) -> Node:
    """The tree of an expression; InvalidExpression when Apache would not compile it either, or when it is too large."""
    return _Parser(text).whole()


def parse_strictly(text: str) -> Node:
    """As `parse`, for expressions that no broker sees: names may have dots (`body.region`), and what follows a complete
    expression is an error."""
    parser = _Parser(text, dotted=True)
    tree = parser.whole()
    parser.end()
    return tree


class _Parser:
    def __init__(self, text: str, *, dotted: bool = False) -> None:
        self._text = text
        self._lexer = Lexer(text, dotted=dotted)
        self._token = self._lexer.next()
        self._depth = 0
        self._operands = 0

    def whole(self) -> Node:
        start = self._token
        return self._condition(self._either(), start)

    def end(self) -> None:
        if self._token.kind != END:
            raise self._unexpected("AND, OR or the end")

    def _either(self) -> Node:
        start = self._token
        left = self._both()
        if self._token.kind != "OR":
            return left
        terms = [self._condition(left, start)]
        while self._token.kind == "OR":
            self._advance()
            start = self._token
            terms.append(self._condition(self._both(), start))
        return AnyOf(tuple(terms))

    def _both(self) -> Node:
        start = self._token
        left = self._equality()
        if self._token.kind != "AND":
            return left
        terms = [self._condition(left, start)]
        while self._token.kind == "AND":
            self._advance()
            start = self._token
            terms.append(self._condition(self._equality(), start))
        return AllOf(tuple(terms))

    def _equality(self) -> Node:
        left = self._comparison()
        while (kind := self._token.kind) in ("=", "<>", "IS"):
            sign = self._advance()
            if kind == "IS":
                negated = self._skip("NOT")
                self._expect("NULL")
                test: Node = IsNull(left)
                left = Not(test) if negated else test
                continue
            right = self._comparison()
            self._check_equal(left, right, sign)
            left = Equal(left, right) if kind == "=" else Not(Equal(left, right))
        return left

    def _comparison(self) -> Node:
        left = self._signed()
        while (kind := self._token.kind) in _ORDERS or kind in _SEARCHES or kind in ("BETWEEN", "IN", "NOT"):
            sign = self._advance()
            if kind in _ORDERS:
                left = self._ordered(kind, left, self._signed(), sign)
                continue
            negated = kind == "NOT"
            if negated:
                kind, sign = self._token.kind, self._token
                if kind not in _SEARCHES and kind not in ("BETWEEN", "IN"):
                    raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH after NOT")
                self._advance()
            if kind == "BETWEEN":
                left = self._between(left, sign, negated)
            elif kind == "IN":
                left = self._one_of(left, sign, negated)
            else:
                left = TextTest(kind, left, self._string(), negated)
        return left

    def _between(self, left: Node, sign: Token, negated: bool) -> Node:
        low = self._signed()
        self._expect("AND")
        high = self._signed()
        if negated:
            return AnyOf((self._ordered("<", left, low, sign), self._ordered(">", left, high, sign)))
        both = AllOf((self._ordered(">=", left, low, sign), self._ordered("<=", left, high, sign)))
        # Apache checks only plain literals: `BETWEEN 5 AND -1` is allowed, and never true.
        if isinstance(low, Literal) and isinstance(high, Literal) and _is_above(low, high):
            raise problem(self._text, sign.position, f"nothing is between {low.value} and {high.value}")
        return both

    def _one_of(self, left: Node, sign: Token, negated: bool) -> Node:
        if not isinstance(left, Property):
            raise problem(self._text, sign.position, "IN needs a property on its left")
        self._expect("(")
        texts = [self._string()]
        while self._skip(","):
            if len(texts) == MAX_LIST:
                raise problem(self._text, self._token.position, f"a list may have at most {MAX_LIST} strings")
            texts.append(self._string())
        self._expect(")")
        return OneOf(left, frozenset(texts), negated)

    def _signed(self) -> Node:
        if self._token.kind not in _PREFIXES:
            return self._primary()
        prefix = self._token
        self._enter()
        self._advance()
        start = self._token
        inner = self._signed()
        self._depth -= 1
        if prefix.kind == "+":
            return inner
        if prefix.kind == "-":
            return Negated(inner)
        return Not(self._condition(inner, start))

    def _primary(self) -> Node:
        token = self._token
        if token.kind == "(":
            self._enter()
            self._advance()
            inner = self._either()
            self._expect(")")
            self._depth -= 1
            return inner
        node = self._literal(token)
        if node is None:
            raise self._unexpected("a property, a value or '('")
        self._operands += 1
        if self._operands > MAX_OPERANDS:
            raise problem(self._text, token.position, f"more than {MAX_OPERANDS} operands")
        self._advance()
        return node

    def _literal(self, token: Token) -> Node | None:
        if token.kind == PROPERTY:
            return Property(token.text)
        if token.kind == TEXT:
            return Literal(_unquoted(token.text), ValueKind.TEXT)
        if token.kind == INTEGER:
            return self._integer(token)
        if token.kind == DECIMAL:
            value = float(token.text)
            # Apache requires the smallest double above zero at least, so it refuses every form of 0.0 too.
            if isinf(value) or value == 0:
                raise problem(
                    self._text, token.position, "this number is zero or does not fit a double; write 0 for zero"
                )
            return Literal(value, ValueKind.DOUBLE)
        return _WORDS.get(token.kind)

    def _integer(self, token: Token) -> Literal:
        digits = token.text.rstrip("lL")
        value = int(digits) if len(digits) <= 19 else _INT64_MAX + 1
        if value > _INT64_MAX:
            raise problem(self._text, token.position, f"this number is above {_INT64_MAX}")
        return Literal(value, ValueKind.INT32 if value <= _INT32_MAX else ValueKind.INT64)

    def _string(self) -> str:
        token = self._token
        self._expect(TEXT)
        return _unquoted(token.text)

    def _condition(self, node: Node, start: Token) -> Node:
        if isinstance(node, Property):
            return Truth(node)
        if not is_boolean(node):
            raise problem(self._text, start.position, "this is a value, where a condition is needed")
        return node

    def _check_equal(self, left: Node, right: Node, sign: Token) -> None:
        for side in (left, right):
            if isinstance(side, Literal) and side.kind is ValueKind.NULL:
                raise problem(self._text, sign.position, "nothing equals NULL; write IS NULL or IS NOT NULL")
        if isinstance(left, Literal) and isinstance(right, Literal) and is_boolean(left) and not is_boolean(right):
            raise problem(self._text, sign.position, "TRUE and FALSE can only be compared with each other")

    def _ordered(self, sign: str, left: Node, right: Node, token: Token) -> Ordered:
        for side in (left, right):
            if is_boolean(side) or (isinstance(side, Literal) and side.kind not in NUMBERS):
                raise problem(self._text, token.position, f"{token.text} compares numbers and properties only")
        return Ordered(sign, left, right)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise problem(self._text, self._token.position, f"nested deeper than {MAX_DEPTH} levels")

    def _advance(self) -> Token:
        token, self._token = self._token, self._lexer.next()
        return token

    def _skip(self, kind: str) -> bool:
        if self._token.kind != kind:
            return False
        self._advance()
        return True

    def _expect(self, kind: str) -> None:
        if not self._skip(kind):
            raise self._unexpected(kind)

    def _unexpected(self, wanted: str) -> InvalidExpression:
        found = "the end" if self._token.kind == END else repr(self._token.text[:24])
        return problem(self._text, self._token.position, f"expected {wanted}, found {found}")


def _is_above(low: Literal, high: Literal) -> bool:
    first, second = low.value, high.value
    assert isinstance(first, (int, float))  # _ordered has made sure
    assert isinstance(second, (int, float))
    if ValueKind.DOUBLE in (low.kind, high.kind):
        return float(first) > float(second)
    return first > second


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
