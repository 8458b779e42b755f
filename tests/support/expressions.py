"""Random SQL92 expressions and message properties: mostly valid, often odd, sometimes broken."""

from __future__ import annotations

from random import Random

PROPERTIES = ("a", "b", "price", "region", "_x", "$y", "TAGS", "A")
TEXTS = ("", "abc", "ab", "c", "1", "1.5", "it's", "日本", "true", "TRUE", "False", "🚀x", "a b", "NaN", "-1", " 5 ")
NUMBERS = (
    "0", "1", "2", "5", "10", "100", "007", "3L", "0L", "2147483647", "2147483648", "9223372036854775807",
    "9223372036854775808", "99999999999999999999", "0.0", "1.5", "5.", ".5", "1e1", "1E-3", "1e400", "1e-400", "0.00",
    "4.9e-324", "1.0", "10.0", "2147483648.0", "9007199254740993", "9007199254740993.0", "1.e2", "01.5",
)  # fmt: skip
VALUES = (*TEXTS,
    "0", "00", "-0", "+5", "5", "10", "100", "2147483647", "2147483648", "-2147483648", "-2147483649", "5d", "5f", "1_0",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e1", "1.", ".5", "0x1p3", "0X.8P1d", "0x10",
    "Infinity", "-Infinity", "-NaN", "inf", "nan", "-0.0", "0.0", "1e400", "-1e400", "٣", "５", "𝟓", "+", "-", "--1", "1 ",
    "\t10\n", "3.0", "100.0", "9007199254740993", "1e-400", "5L", "0" * 30 + "7", "1" * 40, "\u00a05", "0x1p99999",
)  # fmt: skip
SPACES = (" ", " ", " ", "  ", "\t", "\n", " /* c */ ", " -- c\n", "/**/ ", " /* ** / */ ")
JUNK = (
    "#",
    "!",
    "==",
    "!=",
    "LIKE",
    "'",
    '"',
    ")",
    "(",
    ",",
    "NOT",
    "IS",
    "a",
    "%",
    "--",
    "/*",
    "*/",
    ";",
    "1",
    "AND",
    "\u3000",
)


class Expressions:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def expression(self) -> str:
        words = self._condition(self._random.randrange(4))
        if self._random.random() < 0.2:
            self._break(words)
        return "".join(word + self._space() for word in words).rstrip(" ")

    def properties(self) -> dict[str, str]:
        random = self._random
        return {name: random.choice(VALUES) for name in PROPERTIES if random.random() < 0.7}

    def _space(self) -> str:
        return " " if self._random.random() < 0.85 else self._random.choice(SPACES)

    def _break(self, words: list[str]) -> None:
        random = self._random
        at = random.randrange(len(words) + 1)
        change = random.randrange(4)
        if change == 0 and at < len(words):
            del words[at]
        elif change == 1 and at < len(words) - 1:
            words[at], words[at + 1] = words[at + 1], words[at]
        elif change == 2:
            words.append(random.choice(JUNK))
        else:
            words.insert(at, random.choice(JUNK))

    def _condition(self, depth: int) -> list[str]:
        random = self._random
        if depth == 0 or random.random() < 0.3:
            return self._test()
        shape = random.randrange(6)
        if shape <= 2:
            return [*self._condition(depth - 1), self._case(("AND", "OR")[shape % 2]), *self._condition(depth - 1)]
        if shape == 3:
            return [self._case("NOT"), *self._condition(depth - 1)]
        if shape == 4:
            return ["(", *self._condition(depth - 1), ")"]
        return ["(", *self._condition(depth - 1), ")", random.choice(("=", "<>")), *self._operand()]

    def _test(self) -> list[str]:
        random = self._random
        left = self._operand()
        shape = random.randrange(10)
        negation = [self._case("NOT")] if random.random() < 0.4 else []
        if shape <= 2:
            return [*left, random.choice(("=", "<>")), *self._operand()]
        if shape <= 4:
            return [*left, random.choice((">", ">=", "<", "<=")), *self._operand()]
        if shape == 5:
            return [*left, *negation, self._case("BETWEEN"), *self._number(), self._case("AND"), *self._number()]
        if shape == 6:
            texts = [self._text() for _ in range(random.randrange(1, 7))]
            return [*left, *negation, self._case("IN"), "(", *", ".join(texts).split(" "), ")"]
        if shape == 7:
            return [*left, self._case("IS"), *negation, self._case("NULL")]
        if shape == 8:
            search = random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
            return [*left, *negation, self._case(search), self._text()]
        return left

    def _operand(self) -> list[str]:
        random = self._random
        shape = random.randrange(12)
        if shape <= 6:
            return [random.choice(PROPERTIES)]
        if shape <= 8:
            return self._number()
        if shape == 9:
            return [self._text()]
        if shape == 10:
            return [self._case(random.choice(("TRUE", "FALSE", "NULL")))]
        return [random.choice(("-", "+", "-")), *self._operand()]

    def _number(self) -> list[str]:
        sign = [self._random.choice("+-")] if self._random.random() < 0.15 else []
        return [*sign, self._random.choice(NUMBERS)]

    def _text(self) -> str:
        return "'" + self._random.choice(TEXTS).replace("'", "''") + "'"

    def _case(self, word: str) -> str:
        return self._random.choice((word, word, word.lower(), word.title()))
