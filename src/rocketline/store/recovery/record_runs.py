"""Reading a log back: many plainly sound records at a time, each with little more than one unpack.

It stops at the first record that is not clearly sound, and the caller reads that one on the general path: so a run may end
too early, but never contains a record that is not sound. The last parts of records of one producer differ only in the unique
id; so what topic and properties mean is cached by their bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from rocketline._impl import compiled
from rocketline.message import KEYS, TAGS, UNIQ_KEY
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES
from rocketline.protocol.record_layout import BORN_IPV6, MAGIC_V1, MIN_RECORD_BYTES, STORE_IPV6
from rocketline.protocol.records import crc32

SECTOR_BYTES = 512

ParseProperties = Callable[[str], dict[str, str]]
Row = tuple[int, int, str, int, int, int, int, int, dict[str, str]]
"""The fields of a LogEntry, without the cost of making one."""

RecordTail = tuple[str, dict[str, str], int]
"""Topic, properties and tags code, from the end of a record."""

_HOSTS = BORN_IPV6 | STORE_IPV6
# Fields of the fixed part: size, magic, CRC, queue id, queue offset, log offset, system flag, store time, body length.
_SHAPES = {
    born | store: struct.Struct(f">iiii4xqqi8x{20 if born else 8}xq{20 if store else 8}x12xi")
    for born in (0, BORN_IPV6)
    for store in (0, STORE_IPV6)
}
_PLAIN = _SHAPES[0]

_ID_MARK = f"{UNIQ_KEY}\x01".encode()
_ID_BYTES = 32
_MAX_CACHED = 4096
_MAX_CACHED_BYTES = 512


@compiled
def read_run(chunk: bytes, position: int, chunk_at: int, rows: list[Row], check_crc: bool) -> int:
    """Add the plainly sound records from `position` on, with the properties that queues and index use; where it stopped.

    In Python that is at once: `RunReader` reads them.
    """
    return position


class FastLogReader:
    """Reads chunks of one log."""

    def __init__(self, check_crc: bool, parse_properties: ParseProperties | None) -> None:
        """Rows have the properties that queues and index use, unless `parse_properties` returns others."""
        self._check_crc = check_crc
        self._parse_properties = parse_properties or index_properties
        self._caches = parse_properties is None
        self._tails: dict[bytes, RecordTail] = {}
        self._tag_codes: dict[str, int] = {}

    def read(self, chunk: bytes, position: int, chunk_at: int, rows: list[Row]) -> int:
        """Add the sound records from `position` on; returns where the next one begins.

        The first byte of the chunk is the first of a sector, and has the log offset `chunk_at`.
        """
        if self._caches:
            position = read_run(chunk, position, chunk_at, rows, self._check_crc)
        length = len(chunk)
        last = length - MIN_RECORD_BYTES
        check_crc, unpack, magic_wanted, hosts = self._check_crc, _PLAIN.unpack_from, MAGIC_V1, _HOSTS
        cached, id_mark, id_name = self._tails.get, _ID_MARK, UNIQ_KEY
        find, add, view = chunk.find, rows.append, memoryview(chunk)
        while position <= last:
            size, magic, crc, queue_id, queue_offset, log_offset, sys_flag, store_ms, body_bytes = unpack(
                chunk, position
            )
            body_at = position + 88
            if sys_flag & hosts:
                shape = _SHAPES[sys_flag & hosts]
                body_at = position + shape.size
                if body_at > length:
                    break
                *_, store_ms, body_bytes = shape.unpack_from(chunk, position)
            end = position + size
            topic_at = body_at + body_bytes
            if magic != magic_wanted or log_offset != chunk_at + position or body_bytes < 0:
                break
            if not topic_at < end <= length or (check_crc and crc32(view[body_at:topic_at]) & 0x7FFFFFFF != crc):
                break
            id_at = find(id_mark, topic_at, end) + 9
            ending = cached(chunk[topic_at:id_at] + chunk[id_at + 32 : end]) if id_at > 8 else None
            if ending is not None and (unique := chunk[id_at : id_at + 32]).isalnum():
                topic, others, tags_code = ending
                properties = {id_name: unique.decode(), **others} if others else {id_name: unique.decode()}
            else:
                ending = self._parse_tail(chunk[topic_at:end], id_at - topic_at)
                if ending is None:
                    break
                topic, properties, tags_code = ending
            if end >> 9 != topic_at >> 9 and _lacks_sector(chunk, topic_at, end):
                break
            add((log_offset, size, topic, queue_id, queue_offset, tags_code, store_ms, sys_flag, properties))
            position = end
        return position

    def _parse_tail(self, raw: bytes, id_at: int) -> RecordTail | None:
        """Parse a record from its topic on; the result is cached without the unique id at `id_at`, if it may come again."""
        properties_at = raw[0] + 3
        rest = len(raw) - properties_at
        # Topic and properties never end in a zero, unless the record was not written completely.
        if not 0 <= rest <= MAX_PROPERTIES_BYTES or not raw[-1 if rest else -3]:
            return None
        if int.from_bytes(raw[properties_at - 2 : properties_at], "big") != rest:
            return None
        try:
            topic = raw[1 : properties_at - 2].decode()
        except UnicodeDecodeError:
            return None
        properties = self._parse_properties(raw[properties_at:].decode("utf-8", "replace")) if rest else {}
        tags = properties.get(TAGS)
        tags_code = self._tags_code(tags) if tags else 0
        # Records with keys are not cached: keys differ from message to message.
        if self._caches and KEYS not in properties and _is_plain(raw, properties_at, id_at):
            if len(self._tails) >= _MAX_CACHED:
                self._tails.clear()
            others = {name: value for name, value in properties.items() if name != UNIQ_KEY}
            self._tails[raw[:id_at] + raw[id_at + _ID_BYTES :]] = topic, others, tags_code
        return topic, properties, tags_code

    def _tags_code(self, tags: str) -> int:
        code = self._tag_codes.get(tags)
        if code is None:
            if len(self._tag_codes) >= _MAX_CACHED:
                self._tag_codes.clear()
            code = self._tag_codes[tags] = tag_hash(tags)
        return code


def _is_plain(raw: bytes, properties_at: int, id_at: int) -> bool:
    """Whether another id of the same length in its place would change nothing else."""
    id_end = id_at + _ID_BYTES
    mark_at = id_at - len(_ID_MARK)
    return (
        properties_at <= mark_at
        and len(raw) <= _MAX_CACHED_BYTES
        and (mark_at == properties_at or raw[mark_at - 1] == 2)
        and raw[id_at:id_end].isalnum()
        and raw[id_end : id_end + 1] == b"\x02"
        and raw.count(_ID_MARK) == 1
    )


def _lacks_sector(chunk: bytes, topic_at: int, end: int) -> bool:
    properties_bytes = end - topic_at - 3 - chunk[topic_at]
    # Mostly at most one sector begins after topic_at; if its first byte is not zero, it was written.
    if properties_bytes and end - topic_at <= SECTOR_BYTES and chunk[(end - 1) & -SECTOR_BYTES]:
        return False
    return has_lost_sector(chunk, 0, topic_at + 1, end, properties_bytes)


def has_lost_sector(buffer: bytes | memoryview, buffer_at: int, text_at: int, end: int, properties_bytes: int) -> bool:
    """Whether a disk sector that begins inside topic or properties holds only zeros of the record.

    A power failure loses some sectors and keeps others. Lost sectors that begin before topic and properties show in a wrong
    checksum or in wrong lengths. `buffer` begins at `buffer_at` in its file.
    """
    # Without properties the last two bytes are zeros: the length of the properties.
    last = end if properties_bytes else end - 2
    first = text_at + -(buffer_at + text_at) % SECTOR_BYTES
    for sector in range(first, last, SECTOR_BYTES):
        if buffer[sector] == 0 and not any(buffer[sector : min(sector + SECTOR_BYTES, end)]):
            return True
    return False


def index_properties(text: str) -> dict[str, str]:
    """The properties of a record that consume queue and key index use, parsed as leniently as `decode_properties` does.

    >>> index_properties("WAIT\\x01true\\x02KEYS\\x01a b\\x02TAGS\\x01red\\x02")
    {'KEYS': 'a b', 'TAGS': 'red'}
    """
    return dict(_find_used("\x02" + text))


_find_used = re.compile(f"\x02({UNIQ_KEY}|{KEYS}|{TAGS})\x01([^\x02]+)").findall
