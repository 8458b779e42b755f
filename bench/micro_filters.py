"""Micro benchmarks of filters: the cost of a message that a read leaves out, and of compiling an expression.

"read" goes through a queue of 1 KiB messages from end to end with pulls of 32 messages; one message in a hundred has the tag
and the properties that are asked for. The figure is per message of the queue.
"""

from __future__ import annotations

from typing import Any

from bench.case import Work, case
from bench.micro_broker import _store, _unique

COUNT = 8000
RARE = 100
PROPERTIES = "UNIQ_KEY\x01{}\x02WAIT\x01true\x02TAGS\x01{}\x02region\x01eu\x02price\x01{}\x02"
EXPRESSION = "region = 'eu' AND price BETWEEN 1000 AND 2000"
LONG_EXPRESSION = " OR ".join(f"(region IN ('eu', 'us') AND price > {number})" for number in range(20))


def _filled() -> Any:
    from rocketline.protocol.message_ids import encode_host
    from rocketline.protocol.properties import decode_properties
    from rocketline.store.message_store import StoreMessage

    store, host = _store(), encode_host("127.0.0.1", 5555)
    for number in range(COUNT):
        is_rare = number % RARE == 0
        text = PROPERTIES.format(_unique(number), "rare" if is_rare else "common", 1500 if is_rare else number % 900)
        store.append(StoreMessage("bench", 0, b"x" * 1024, decode_properties(text), text.encode(), 0, 0, 1, host))
    store.dispatch()
    return store


def _reading(expected: int, **tests: Any) -> Work:
    store = _filled()

    def work() -> None:
        offset = found = 0
        while offset < COUNT:
            result = store.read("bench", 0, offset, 32, **tests)
            offset = result.next_queue_offset
            found += result.message_count
        if found != expected:
            raise AssertionError(f"{found} messages instead of {expected}")

    return work


@case("filter: read without", operations=COUNT)
def without() -> Work:
    return _reading(COUNT)


@case("filter: read by TAG, 1 %", operations=COUNT)
def by_tag() -> Work:
    from rocketline.filtering import TagFilter

    return _reading(COUNT // RARE, accept_tags=TagFilter("rare").accept_tags)


@case("filter: read by SQL92, 1 %", operations=COUNT)
def by_sql() -> Work:
    from rocketline.filtering import SqlFilter

    return _reading(COUNT // RARE, accept_record=SqlFilter(EXPRESSION).accept_record)


@case("filter: SQL92 on properties")
def on_properties() -> Work:
    from rocketline.filtering import SqlFilter

    compiled, properties = SqlFilter(EXPRESSION), {"region": "eu", "price": "500"}
    return lambda: compiled.matches(properties)


@case("filter: compile SQL92")
def compile_short() -> Work:
    from rocketline.filtering import SqlFilter

    return lambda: SqlFilter(EXPRESSION)


@case("filter: compile SQL92 of 20 conditions")
def compile_long() -> Work:
    from rocketline.filtering import SqlFilter

    return lambda: SqlFilter(LONG_EXPRESSION)
