"""Hashes of many index keys at once.

RocketMQ's hash is Java's, a polynomial in 31 over the characters, and Python needs a microsecond for one. But the last eight
characters of thousands of keys, laid side by side, are one very large number, and a few operations on that number treat all
of them at once, each in its own 64 bits:

    eight times 8 bits   a b c d e f g h
    four times 16 bits   31a+b  31c+d  31e+f  31g+h
    two times 32 bits    31^2(31a+b)+(31c+d)  ...
    one time 64 bits     the hash of the eight characters, to which what comes before them is added

What comes before the last eight is remembered: keys made by one program mostly begin alike.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress

from rocketline.protocol.hashing import index_key_hash, java_string_hash

LANES = 4096
"""At most so many at once."""
END_BYTES = 8
"""Of the end of each key."""
_HEADS_KEPT = 65536
_LONGEST_KEPT = 512


Masks = tuple[int, int, int, int, int]


def _repeated(pattern: str) -> int:
    return int.from_bytes(bytes.fromhex(pattern) * LANES, "big")


_ALL_MASKS: Masks = (
    _repeated("00FF00FF00FF00FF"),
    _repeated("0000FFFF0000FFFF"),
    _repeated("00000000FFFFFFFF"),
    _repeated("000000007FFFFFFF"),
    _repeated("0000000000000001"),
)


def _masks(count: int) -> Masks:
    unused = 64 * (LANES - count)
    each_8, each_16, each_32, each_31, ones = _ALL_MASKS
    return each_8 >> unused, each_16 >> unused, each_32 >> unused, each_31 >> unused, ones >> unused


_masks_of_few = lru_cache(maxsize=64)(_masks)
"""Making them takes longer than using them."""
_FEW = 256


class KeyHashes:
    """Remembers the beginnings of keys; `of` gives the hashes."""

    def __init__(self) -> None:
        self._heads: dict[str, dict[str | int, int]] = {}
        self._kept = 0

    def of(self, pairs: Sequence[tuple[str, str]]) -> array[int]:
        """`index_key_hash` of each (topic, key).

        >>> KeyHashes().of([("orders", "7F000001000018B4AAC2541A6F3C0000"), ("orders", "k1")]).tolist()
        [909904027, 390723708]
        """
        shares: list[int] = []
        tails: list[str] = []
        add_share, add_tail, heads = shares.append, tails.append, self._heads
        for topic, key in pairs:
            tail = key[-8:]
            # Of a short key the length is remembered, with zeros before it that add nothing.
            head: str | int = key[:-8]
            if len(tail) < 8:
                head, tail = len(tail), tail.rjust(8, "\0")
            try:
                add_share(heads[topic][head])
            except KeyError:
                add_share(self._share(topic, key))
            add_tail(tail)
        text = "".join(tails)
        if not text.isascii():
            return self._with_odd_ones(pairs)
        raw = text.encode("ascii")
        found = array("I")
        for start in range(0, len(shares), LANES):
            found += add_tails(raw[start * 8 : (start + LANES) * 8], shares[start : start + LANES])
        return found

    def _with_odd_ones(self, pairs: Sequence[tuple[str, str]]) -> array[int]:
        """Keys that end with letters beyond ASCII are done one by one."""
        is_plain = [key[-8:].isascii() for _, key in pairs]
        plain = iter(self.of(list(compress(pairs, is_plain))))
        return array("I", [next(plain) if good else index_key_hash(*pair) for good, pair in zip(is_plain, pairs)])

    def _share(self, topic: str, key: str) -> int:
        """What all but the last eight characters add to the hash."""
        share: int = java_string_hash(f"{topic}#{key[:-8]}") * 31 ** min(len(key), 8) & 0xFFFFFFFF
        if len(key) > _LONGEST_KEPT:
            return share
        if self._kept >= _HEADS_KEPT:
            self._heads.clear()
            self._kept = 0
        self._heads.setdefault(topic, {})[key[:-8] if len(key) >= 8 else len(key)] = share
        self._kept += 1
        return share


def add_tails(text: bytes, shares: list[int]) -> array[int]:
    """The hash of each eight bytes, with the share of what comes before them. At most `LANES`."""
    count = len(shares)
    each_8, each_16, each_32, each_31, ones = _masks_of_few(count) if count <= _FEW else _masks(count)
    lanes = int.from_bytes(text, "big")
    lanes = (lanes >> 8 & each_8) * 31 + (lanes & each_8)
    lanes = (lanes >> 16 & each_16) * 31**2 + (lanes & each_16)
    lanes = (lanes >> 32 & each_32) * 31**4 + (lanes & each_32)
    lanes = (lanes & each_32) + _side_by_side(shares) & each_32
    # Java's absolute value, in which the lowest number counts as 0: flip the bits of negative ones and add one.
    negative = lanes >> 31 & ones
    lanes = (lanes ^ negative * 0xFFFFFFFF) + negative & each_31
    halves = array("I", lanes.to_bytes(len(text), "big"))
    if sys.byteorder == "little":
        halves.byteswap()
    return halves[1::2]


def _side_by_side(numbers: list[int]) -> int:
    lanes = array("Q", numbers)
    if sys.byteorder == "little":
        lanes.byteswap()
    return int.from_bytes(lanes.tobytes(), "big")
