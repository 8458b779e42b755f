"""The records of plain sends that are taken together: noted one by one, then written to the log at once.

What queues and index are to list of them is noted on the way (`Filing`), so that none has to be read again. What does not
fit is not noted, and nothing has changed then.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, chain, count, repeat

from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES
from rocketline.protocol.records import BORN_IPV6, HEAD_BYTES, MAGIC_V1, PACK_HEAD, STORE_IPV6, crc32
from rocketline.store.batch_records import looks_lost
from rocketline.store.commit_log import Place
from rocketline.store.known_properties import KnownProperties, Said
from rocketline.store.plain_batches import ITEM_BYTES, PlainBatch
from rocketline.store.stretch import Filing, QueueShare

_HOSTS = BORN_IPV6 | STORE_IPV6
_pack_short = struct.Struct(">h").pack
# Of the fixed part of a record, what the messages of one batch share: it is made once.
_SHARED = {
    born | store: struct.Struct(f">iq{20 if born else 8}sq{20 if store else 8}siq")
    for born in (0, BORN_IPV6)
    for store in (0, STORE_IPV6)
}
_AROUND_SHARED = {hosts: struct.Struct(f">iiiiiqq{shared.size}si") for hosts, shared in _SHARED.items()}


class PlainRecords:
    """Of one call after the other, for one log."""

    def __init__(self, store_host: bytes, max_bytes: tuple[int, int], known: KnownProperties) -> None:
        """`max_bytes`: of a body, and of a record."""
        self._max_body_bytes, self._max_record_bytes = max_bytes
        self._store_host = store_host
        self._store_flag = STORE_IPV6 if len(store_host) > 8 else 0
        self._known = known
        self.begin(0, 0, 0)

    def begin(self, limit: int, wrote: int, store_ms: int) -> None:
        """The next record goes to `wrote`, none goes beyond `limit`."""
        self.wrote = wrote
        self.filing = Filing(store_ms)
        self._limit = limit
        self._store_ms = store_ms
        self._parts: list[bytes] = []

    def write_to(self, view: memoryview, position: int) -> None:
        records = b"".join(self._parts)
        view[position : position + len(records)] = records
        self._parts = []  # they are as large as what was read, and the next call may be long in coming

    def put(
        self,
        header: SendMessageHeader,
        place: Place,
        share: QueueShare,
        born_host: bytes,
        body: bytes,
        raw: bytes,
        unique_id: str,
        said: Said,
    ) -> bool:
        """One message of a queue, with its properties as they are stored, and what they say."""
        topic, topic_part, _ = place
        hosts = self._store_flag if len(born_host) == 8 else self._store_flag | BORN_IPV6
        sys_flag = header.sys_flag & ~_HOSTS | hosts
        log_offset, number, body_bytes, raw_bytes = self.wrote, share.number, len(body), len(raw)
        size = HEAD_BYTES[hosts] + body_bytes + len(topic_part) + 2 + raw_bytes
        if body_bytes > self._max_body_bytes or raw_bytes > MAX_PROPERTIES_BYTES or (b"\0" in raw and looks_lost(raw)):
            return False
        if size > self._max_record_bytes or log_offset + size > self._limit:
            return False
        head = PACK_HEAD[hosts](
            size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, header.queue_id, header.flag, number, log_offset, sys_flag,
            header.born_ms, born_host, self._store_ms, self._store_host, header.reconsume_times, 0, body_bytes,
        )  # fmt: skip
        self._parts += (head, body, topic_part, _pack_short(raw_bytes), raw)
        _, tags_code, keys = said
        share.records.append((log_offset, size, tags_code, sys_flag, raw))
        share.number = number + 1
        filing = self.filing
        filing.keys.append(f"{topic}#{unique_id}")
        filing.owners.append(log_offset)
        if keys:
            filing.keys += [f"{topic}#{key}" for key in keys]
            filing.owners += [log_offset] * len(keys)
        filing.last_bytes = size
        self.wrote = log_offset + size
        return True

    def put_batch(
        self, header: SendMessageHeader, place: Place, share: QueueShare, born_host: bytes, batch: PlainBatch
    ) -> list[int] | None:
        """The messages of a batch, whose properties are stored as they are; their log offsets, None without room."""
        topic, topic_part, _ = place
        hosts = self._store_flag if len(born_host) == 8 else self._store_flag | BORN_IPV6
        sys_flag = header.sys_flag & ~_HOSTS | hosts
        besides = HEAD_BYTES[hosts] + len(topic_part) + 2 - ITEM_BYTES
        item_sizes, flags, body_sizes, bodies, properties_sizes, properties = batch
        sizes = [size + besides for size in item_sizes]
        *log_offsets, end = accumulate(sizes, initial=self.wrote)
        if sum(body_sizes) > self._max_body_bytes or end > self._limit:
            return None
        shared = _SHARED[hosts].pack(
            sys_flag, header.born_ms, born_host, self._store_ms, self._store_host, header.reconsume_times, 0
        )
        heads = map(
            _AROUND_SHARED[hosts].pack, sizes, repeat(MAGIC_V1), [crc32(body) & 0x7FFFFFFF for body in bodies],
            repeat(header.queue_id), flags, count(share.number), log_offsets, repeat(shared), body_sizes,
        )  # fmt: skip
        lengths = map(_pack_short, properties_sizes)
        self._parts += chain.from_iterable(zip(heads, bodies, repeat(topic_part), lengths, properties))
        tags_codes = self._note_keys(topic, properties, log_offsets)
        share.records += zip(log_offsets, sizes, tags_codes, repeat(sys_flag), properties)
        share.number += len(sizes)
        self.filing.last_bytes = sizes[-1]
        self.wrote = end
        return log_offsets

    def _note_keys(self, topic: str, properties: Sequence[bytes], log_offsets: list[int]) -> list[int]:
        """Note what messages are filed under; their tags codes."""
        names, owners, look = self.filing.keys, self.filing.owners, self._known.look
        alike = self._known.look_alike(properties)
        if alike is not None:
            unique_ids, (_, tags_code, keys) = alike
            others = [f"{topic}#{key}" for key in keys]
            names += [name for unique_id in unique_ids for name in (f"{topic}#{unique_id}", *others)]
            owners += [log_offset for log_offset in log_offsets for _ in range(1 + len(others))]
            return [tags_code] * len(log_offsets)
        tags_codes: list[int] = []
        for raw, log_offset in zip(properties, log_offsets):
            unique, (_, tags_code, keys) = look(raw)
            tags_codes.append(tags_code)
            if unique:
                names.append(f"{topic}#{unique.decode('utf-8', 'replace')}")
                owners.append(log_offset)
            if keys:
                names += [f"{topic}#{key}" for key in keys]
                owners += [log_offset] * len(keys)
        return tags_codes
