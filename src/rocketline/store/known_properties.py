"""What queues, index and a sender's answer need of properties, without taking most of them apart.

Messages of one producer have the same properties, but for their unique id: what the others say is remembered by the text
around it. Keys differ from message to message, so where there are some nothing is remembered.
"""

from __future__ import annotations

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
from rocketline.store.index.key_hashes import END_BYTES

Said = tuple[bool, int, tuple[bytes, ...]]
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

    def find_id(self, raw: bytes) -> tuple[bytes, int, Said] | None:
        """How the unique id begins, up to its last eight bytes, where it ends, and what the others say; None unless they say
        the same with any other id in its place."""
        head, _, rest = raw.partition(_ID_MARK)
        unique, _, tail = rest.partition(b"\x02")
        if len(unique) < END_BYTES:
            return None
        said = self._known.get((head, tail))
        if said is None:
            self._learn(raw, head, unique, tail)
            said = self._known.get((head, tail))
        return None if said is None else (unique[:-END_BYTES], len(head) + len(_ID_MARK) + len(unique), said)

    def _learn(self, raw: bytes, head: bytes, unique: bytes, tail: bytes) -> tuple[bytes, Said]:
        properties = decode_properties(raw.decode("utf-8", "replace"))
        found = properties.get(UNIQ_KEY, "").encode()
        tags = properties.get(TAGS)
        keys = properties.get(KEYS, "").split()
        if tags:
            keys.append(f"T#{tags}")
        is_plain = _SPECIAL.isdisjoint(properties) and not (self._waits and properties.get(WAIT, "true") != "true")
        said = is_plain, tag_hash(tags) if tags else 0, tuple(map(str.encode, keys)) if keys else ()
        # Only where any other id in its place would be the id, and the only one.
        if found == unique != b"" and KEYS not in properties and head[-1:] in (b"", b"\x02") and _ID_MARK not in tail:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if len(raw) <= _REMEMBERED_BYTES:
                self._known[head, tail] = said
        return found, said
