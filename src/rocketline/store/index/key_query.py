"""Messages by key: the index names candidates by hash, the records themselves say which of them are meant."""

from __future__ import annotations

from rocketline.message import KEYS, TAGS, UNIQ_KEY
from rocketline.protocol.records import LogEntry, decode_record, log_entry
from rocketline.store.index.key_index import MAX_FOUND, KeyIndex
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.reading.read_result import QueryResult
from rocketline.store.reading.reader import Reader

_ROUNDS = 3


class KeyQuery:
    def __init__(self, log: CommitLog, index: KeyIndex, reader: Reader) -> None:
        self._log = log
        self._index = index
        self._reader = reader

    def find(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, index_type: str) -> QueryResult:
        """Newest messages with a key, oldest first; `index_type` "U": unique ids, "T": a tag, else: unique ids and keys."""
        index_key = f"T#{key}" if index_type == "T" else key
        records: list[memoryview] = []
        for _ in range(_ROUNDS):
            offsets = sorted(set(self._index.find(topic, index_key, begin_ms, end_ms, min(max_count, MAX_FOUND))))
            candidates = [self._reader.record_at(log_offset) for log_offset in offsets]
            records = [found for found in candidates if found and _has_key(found, topic, key, index_type)]
            if records or not offsets:
                break
            # Only strangers with the same hash: look at what is older than they are.
            end_ms = self._log.store_ms_at(offsets[0]) - 1
        return QueryResult(records, *self._index.updated)


def _has_key(record: memoryview, topic: str, key: str, index_type: str) -> bool:
    """The index knows only hashes; this is the message itself."""
    entry: LogEntry = log_entry(decode_record(record, 0, len(record)))
    if entry.topic != topic:
        return False
    if index_type == "T":
        return entry.properties.get(TAGS) == key
    if entry.properties.get(UNIQ_KEY) == key:
        return True
    return index_type != "U" and key in entry.properties.get(KEYS, "").split()
