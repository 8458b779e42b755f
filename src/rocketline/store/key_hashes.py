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
from itertools import compress

from rocketline.protocol.hashing import index_key_hash, java_string_hash

_LANES = 4096
_HEADS_KEPT = 65536


def _repeated(pattern: str) -> int:
    return int.from_bytes(bytes.fromhex(pattern) * _LANES, "big")


_EACH_8 = _repeated("00FF00FF00FF00FF")
_EACH_16 = _repeated("0000FFFF0000FFFF")
_EACH_32 = _repeated("00000000FFFFFFFF")
_EACH_31 = _repeated("000000007FFFFFFF")
_ONES = _repeated("0000000000000001")


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
        for start in range(0, len(shares), _LANES):
            found += _hashes(raw[start * 8 : (start + _LANES) * 8], shares[start : start + _LANES])
        return found

    def _with_odd_ones(self, pairs: Sequence[tuple[str, str]]) -> array[int]:
        """Keys that end with letters beyond ASCII are done one by one."""
        is_plain = [key[-8:].isascii() for _, key in pairs]
        plain = iter(self.of(list(compress(pairs, is_plain))))
        return array("I", [next(plain) if good else index_key_hash(*pair) for good, pair in zip(is_plain, pairs)])

    def _share(self, topic: str, key: str) -> int:
        """What all but the last eight characters add to the hash."""
        if self._kept >= _HEADS_KEPT:
            self._heads.clear()
            self._kept = 0
        share: int = java_string_hash(f"{topic}#{key[:-8]}") * 31 ** min(len(key), 8) & 0xFFFFFFFF
        self._heads.setdefault(topic, {})[key[:-8] if len(key) >= 8 else len(key)] = share
        self._kept += 1
        return share


def _hashes(text: bytes, shares: list[int]) -> array[int]:
    """The hash of each eight bytes, with the share of what comes before them."""
    unused = 64 * _LANES - 8 * len(text)
    each = _EACH_8 >> unused
    lanes = int.from_bytes(text, "big")
    lanes = (lanes >> 8 & each) * 31 + (lanes & each)
    each = _EACH_16 >> unused
    lanes = (lanes >> 16 & each) * 31**2 + (lanes & each)
    each = _EACH_32 >> unused
    lanes = (lanes >> 32 & each) * 31**4 + (lanes & each)
    lanes = (lanes & each) + _side_by_side(shares) & each
    # Java's absolute value, in which the lowest number counts as 0: flip the bits of negative ones and add one.
    negative = lanes >> 31 & _ONES >> unused
    lanes = (lanes ^ negative * 0xFFFFFFFF) + negative & _EACH_31 >> unused
    halves = array("I", lanes.to_bytes(len(text), "big"))
    if sys.byteorder == "little":
        halves.byteswap()
    return halves[1::2]


def _side_by_side(numbers: list[int]) -> int:
    lanes = array("Q", numbers)
    if sys.byteorder == "little":
        lanes.byteswap()
    return int.from_bytes(lanes.tobytes(), "big")
