"""Java's `String.hashCode`: the hash RocketMQ stores for tags and keys, over UTF-16 code units."""

from __future__ import annotations

from array import array
from functools import lru_cache
from operator import mul
from sys import byteorder

from rocketline._impl import compiled

_UTF16 = "utf-16-le" if byteorder == "little" else "utf-16-be"
_POWERS: dict[int, tuple[int, ...]] = {}
_LONGEST_AT_ONCE = 512
"""Longer strings are hashed in pieces, because computing the powers takes longer than using them."""
_LONGEST_TAG = 256
_LONGEST_PREFIX = 512
"""Longer ones may be anything a peer thinks of, and are not remembered."""


def _powers(count: int) -> tuple[int, ...]:
    """31^(count-1) ... 31^0, each modulo 2^32: the factors of the characters of a string or piece."""
    powers = _POWERS[count] = tuple(pow(31, exponent, 1 << 32) for exponent in range(count - 1, -1, -1))
    return powers


def _long_hash(units: bytes | array[int]) -> int:
    total = 0
    for start in range(0, len(units), _LONGEST_AT_ONCE):
        piece = units[start : start + _LONGEST_AT_ONCE]
        count = len(piece)
        share = sum(map(mul, piece, _POWERS.get(count) or _powers(count)))
        total = total * pow(31, count, 1 << 32) + share & 0xFFFFFFFF
    return total


@compiled
def java_string_hash(text: str) -> int:
    """The hash of a text as Java computes it.

    >>> java_string_hash("TagA")
    2598919
    """
    if text.isascii():
        units: bytes | array[int] = text.encode("ascii")
    else:
        units = array("H", text.encode(_UTF16, "surrogatepass"))
    count = len(units)
    if count > _LONGEST_AT_ONCE:
        total = _long_hash(units)
    else:
        total = sum(map(mul, units, _POWERS.get(count) or _powers(count))) & 0xFFFFFFFF
    return total - 0x100000000 if total & 0x80000000 else total


_short_tag_hash = lru_cache(maxsize=4096)(java_string_hash)


def tag_hash(tag: str) -> int:
    """The tags code of a message; cached, because many messages share few tags, except for very long tags."""
    return _short_tag_hash(tag) if len(tag) <= _LONGEST_TAG else java_string_hash(tag)


@lru_cache(maxsize=65536)
def _prefix_hash(prefix: str) -> int:
    return java_string_hash(prefix)


def joined_hash(prefix: str, text: str) -> int:
    """`java_string_hash(prefix + text)`, the hash of the prefix is cached."""
    if not text.isascii() or len(prefix) > _LONGEST_PREFIX:
        return java_string_hash(prefix + text)
    total = _prefix_hash(prefix) * pow(31, len(text), 1 << 32) + java_string_hash(text)
    total &= 0xFFFFFFFF
    return total - 0x100000000 if total & 0x80000000 else total


@compiled
def index_key_hash(topic: str, key: str) -> int:
    """The hash under which the key index files `topic#key`; never negative, Java's one exception included."""
    # Unique ids of one producer differ only in their end, a time and a counter, for a minute at a time.
    value = abs(joined_hash(f"{topic}#{key[:-8]}", key[-8:]))
    return 0 if value == 0x80000000 else value
