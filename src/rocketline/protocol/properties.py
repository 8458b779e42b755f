"""Message properties as one string: `name 0x01 value 0x02`, repeated.

Readers are as lenient as RocketMQ's: the last 0x02 may be missing, only the first 0x01 of an item splits it, and an item
without name or without value is dropped, so an empty value cannot be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketline._impl import compiled

NAME_END = "\x01"
VALUE_END = "\x02"

MAX_PROPERTIES_BYTES = 32767


@compiled
def decode_properties(text: str) -> dict[str, str]:
    """The properties in a string.

    >>> decode_properties("TAGS\\x01a\\x02KEYS\\x01k1 k2\\x02")
    {'TAGS': 'a', 'KEYS': 'k1 k2'}
    """
    result = {}
    for item in text.split(VALUE_END):
        name, _, value = item.partition(NAME_END)
        if name and value:
            result[name] = value
    return result


def property_in(name: str) -> Callable[[str], str | None]:
    """A function that reads one property from encoded ones without decoding the others.

    >>> property_in("KEYS")("TAGS\\x01a\\x02KEYS\\x01k1 k2\\x02")
    'k1 k2'
    """
    first = f"{name}\x01"
    later = f"\x02{first}"
    width = len(later)

    def read(encoded: str) -> str | None:
        # The last one with a value counts, as when all are decoded into a dict.
        at = encoded.rfind(later)
        while at >= 0:
            at += width
            stop = encoded.find("\x02", at)
            if value := encoded[at:stop] if stop >= 0 else encoded[at:]:
                return value
            at = encoded.rfind(later, 0, at - 1)
        if encoded.startswith(first):
            return encoded[width - 1 :].partition("\x02")[0] or None
        return None

    return read


def encode_properties(properties: Mapping[str, str]) -> str:
    """The properties as one string.

    >>> encode_properties({"TAGS": "a"})
    'TAGS\\x01a\\x02'
    """
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def with_what_fits(
    properties: Mapping[str, str], added: Mapping[str, str], limit: int = MAX_PROPERTIES_BYTES
) -> dict[str, str]:
    """The properties, and those of the added ones for which there is room, in order.

    >>> with_what_fits({"KEYS": "k"}, {"TAGS": "x" * 9, "WAIT": "no"}, limit=16)
    {'KEYS': 'k', 'WAIT': 'no'}
    """
    fitting = dict(properties)
    size = len(encode_properties(fitting).encode())
    for name, value in added.items():
        more = _pair_bytes(name, value) - (_pair_bytes(name, fitting[name]) if name in fitting else 0)
        if size + more <= limit:
            fitting[name] = value
            size += more
    return fitting


def _pair_bytes(name: str, value: str) -> int:
    return len(encode_properties({name: value}).encode())


def property_problem(name: str, value: str) -> str | None:
    """Why this pair cannot be sent as a property, or None when it can."""
    if not name or not value:
        return f"property {name!r} has an empty name or value, which RocketMQ silently drops"
    for text in (name, value):
        if NAME_END in text or VALUE_END in text:
            return (
                f"property {name!r} contains the separator U+0001 or U+0002, which ends names and values in RocketMQ: "
                "leave it out, or encode the value (as base64, say)"
            )
    return None
