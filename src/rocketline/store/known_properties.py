"""What queues, index and a sender's answer need of properties, without taking most of them apart.

Messages of one producer have the same properties, but for their unique id: what the others say is remembered by the text
around it. Keys differ from message to message, so where there are some nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketline.message import (
    DELAY,
    KEYS,
    POP_CK,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WAIT,
)
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.replies import CLUSTER
from rocketline.protocol.transactions import TRAN_MSG

Said = tuple[bool, int, tuple[str, ...]]
"""Of all properties but the unique id: whether none asks for anything, the tags code, and what they are filed under."""

_SPECIAL = frozenset(
    {
        POP_CK, CLUSTER, "MSG_REGION", "TRACE_ON", DELAY, TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TRAN_MSG,
        SHARDING_KEY,
    }
)  # fmt: skip
"""With one of these a broker does something else with a message, or counts it as another kind."""

_ID_MARK = f"{UNIQ_KEY}\x01".encode()
_REMEMBERED = 4096
_REMEMBERED_BYTES = 512


class KnownProperties:
    """`waits`: answers wait for the disk, and whoever does not want to says so in a property."""

    def __init__(self, waits: bool) -> None:
        self._waits = waits
        self._known: dict[tuple[bytes, bytes], Said] = {}

    def look(self, raw: bytes) -> tuple[bytes, Said]:
        """The unique id, empty when there is none, and what the others say."""
        head, _, rest = raw.partition(_ID_MARK)
        unique, _, tail = rest.partition(b"\x02")
        said = self._known.get((head, tail))
        return (unique, said) if said is not None else self._learn(raw, head, unique, tail)

    def look_alike(self, raws: Sequence[bytes]) -> tuple[list[str], Said] | None:
        """The unique ids of messages whose other properties are the same, and what these say; None when they are not."""
        first = raws[0]
        unique, said = self.look(first)
        start = first.find(_ID_MARK) + len(_ID_MARK)
        head, tail = first[:start], first[start + len(unique) :]
        if not unique or (head[: -len(_ID_MARK)], tail[1:]) not in self._known:
            return None
        end = -len(tail) or None
        ids = [raw[start:end] for raw in raws]
        joined = b"\x02".join(ids)
        if [head + each + tail for each in ids] != [*raws] or joined.count(b"\x02") >= len(ids) or b"" in ids:
            return None
        return joined.decode("utf-8", "replace").split("\x02"), said

    def _learn(self, raw: bytes, head: bytes, unique: bytes, tail: bytes) -> tuple[bytes, Said]:
        properties = decode_properties(raw.decode("utf-8", "replace"))
        found = properties.get(UNIQ_KEY, "").encode()
        tags = properties.get(TAGS)
        keys = properties.get(KEYS, "").split()
        if tags:
            keys.append(f"T#{tags}")
        is_plain = _SPECIAL.isdisjoint(properties) and not (self._waits and properties.get(WAIT, "true") != "true")
        said = is_plain, tag_hash(tags) if tags else 0, tuple(keys)
        # Only where any other id in its place would be the id, and the only one.
        if found == unique != b"" and KEYS not in properties and head[-1:] in (b"", b"\x02") and _ID_MARK not in tail:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if len(raw) <= _REMEMBERED_BYTES:
                self._known[head, tail] = said
        return found, said
