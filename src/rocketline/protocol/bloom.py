"""The bloom filter behind the bitmaps of extended consume queues, with RocketMQ's parameters and hash.

A group that filters a topic has a few bit positions, computed from `group#topic`. When a group's filter accepts a message,
the group's bits are set in the message's bitmap. A group whose bits are not all set does not want the message.
Bit p of a bitmap is `1 << p % 8` of byte `p // 8`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, e, log

from rocketline.errors import ConfigError

_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


@dataclass(frozen=True)
class BloomFilter:
    """The number of bits of a bitmap, and how many of them each group has.

    >>> bloom = BloomFilter.for_error_rate(20, 32)
    >>> bloom.positions("g#T")
    (90, 68, 28)
    """

    bit_count: int
    hash_count: int

    @classmethod
    def for_error_rate(cls, percent: int, expected_count: int) -> BloomFilter:
        """A filter that wrongly accepts at most `percent` of other groups when `expected_count` groups use it."""
        if not 1 <= percent < 100:
            raise ConfigError(f"maxErrorRateOfBloomFilter={percent} must be from 1 to 99")
        if expected_count < 1:
            raise ConfigError(f"expectConsumerNumUseFilter={expected_count} must be above zero")
        # The order of divisions is Java's: it gives the same last digit before rounding up.
        rate = percent / 100
        bits = ceil(expected_count * (log(1 / rate) / log(2)) * (log(e) / log(2)))
        return cls(bit_count=-(-bits // 8) * 8, hash_count=ceil(log(rate) / log(0.5)))

    @property
    def bitmap_bytes(self) -> int:
        return self.bit_count // 8

    def positions(self, key: str) -> tuple[int, ...]:
        """The bit positions of `group#topic`; some may be equal."""
        hashed = murmur3_64(key.encode("utf-8", "replace"))
        low, high = hashed & 0xFFFFFFFF, hashed >> 32
        found = []
        for number in range(1, self.hash_count + 1):
            combined = (low + number * high) & 0xFFFFFFFF
            if combined & 0x80000000:  # negative in Java, which flips all its bits
                combined ^= 0xFFFFFFFF
            found.append(combined % self.bit_count)
        return tuple(found)


def set_bits(bitmap: bytearray, positions: Iterable[int]) -> None:
    for position in positions:
        bitmap[position >> 3] |= 1 << (position & 7)


def has_bits(bitmap: bytes | bytearray | memoryview, positions: Iterable[int]) -> bool:
    """Whether all of the bits are set; the bitmap must be as long as the filter's."""
    return all(bitmap[position >> 3] >> (position & 7) & 1 for position in positions)


def murmur3_64(data: bytes) -> int:
    """The first 64 bits of murmur3_128 (x64, seed 0).

    >>> hex(murmur3_64(b"hello"))
    '0xcbd8a7b341bd9b02'
    """
    h1 = h2 = 0
    whole = len(data) & ~15
    for at in range(0, whole, 16):
        h1 ^= _mixed(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mixed(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    h2 ^= _mixed(int.from_bytes(data[whole + 8 :], "little"), _C2, 33, _C1) ^ len(data)
    h1 ^= _mixed(int.from_bytes(data[whole : whole + 8], "little"), _C1, 31, _C2) ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_finished(h1) + _finished(h2)) & _MASK


def _mixed(word: int, first: int, turn: int, second: int) -> int:
    return _rotated(word * first & _MASK, turn) * second & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
