"""A stretch of a log whose records mostly differ in numbers and body only."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.records import encode_record, topic_part

_HOSTS = encode_host("127.0.0.1", 1), encode_host("::1", 1)
_IPV6 = (0, 0x30)


class AlikeRecords(NamedTuple):
    data: bytes
    base: int
    """Log offset of the first byte."""
    places: list[tuple[int, int, int]]
    """Log offset, size and number in the queue of each record."""


@st.composite
def alike_records(draw: st.DrawFn) -> AlikeRecords:
    base = draw(st.sampled_from([0, 1000, 1 << 40, (1 << 32) - 1500]))
    first = draw(st.sampled_from([7, 7, 250, (1 << 32) - 4]))
    names = draw(st.sampled_from(["t", "t", "t" * 40, "t" * 130]))
    body_bytes, properties_bytes = draw(st.sampled_from([(20, 30), (0, 50), (200, 0), (20_000, 5)]))
    odd = draw(st.sets(st.integers(0, 9), max_size=2))
    log = bytearray()
    places = []
    for number in range(draw(st.integers(1, 10) | st.integers(8, 12))):
        is_odd = number in odd
        shift = draw(st.sampled_from([0, 1, 5])) if is_odd else 0  # the size stays
        body = draw(st.binary(min_size=9, max_size=9)) * (1 + body_bytes // 9)
        version = draw(st.integers(0, 1)) if is_odd else 0
        name = draw(st.sampled_from([names, "u" * len(names)])) if is_odd else names
        magic, topic = topic_part(name)
        offset = base + len(log)
        flags = draw(st.sampled_from([0, 1, 8])) if is_odd else 0
        log += encode_record(
            magic, topic, draw(st.sampled_from([0, 1])) if is_odd else 0, first + number, offset,
            body[: max(0, body_bytes - shift)], b"p" * (properties_bytes + min(shift, body_bytes)), number % 3,
            flags | _IPV6[version], 1000 + number, _HOSTS[version], 2000 + number, _HOSTS[version], 0, 0,
        )  # fmt: skip
        places.append((offset, base + len(log) - offset, first + number))
    for place, change in draw(st.lists(st.tuples(st.integers(0, len(log) - 1), st.integers(1, 255)), max_size=2)):
        log[place] ^= change
    return AlikeRecords(bytes(log), base, places)
