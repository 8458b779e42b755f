"""The records of plain sends that are taken together: noted one by one, then written to the log at once.

What queues and index are to list of them is noted on the way (`Filing`), so that none has to be read again. What does not
fit is not noted, and nothing has changed then.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat

from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES
from rocketline.protocol.records import BORN_IPV6, HEAD_BYTES, MAGIC_V1, PACK_HEAD, STORE_IPV6, crc32
from rocketline.store.index.key_hashes import END_BYTES
from rocketline.store.known_properties import KnownProperties, Said
from rocketline.store.log.appended_range import Filing, QueueShare
from rocketline.store.log.batch_records import looks_lost
from rocketline.store.log.commit_log import Place
from rocketline.store.plain_batches import ITEM_BYTES, AlikeBatch, PlainBatch

_HOSTS = BORN_IPV6 | STORE_IPV6
_ALONE = (b"",)
_pack_short = struct.Struct(">h").pack
_pack_two = struct.Struct(">ii").pack
_pack_int = struct.Struct(">i").pack
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
        unique: bytes,
        said: Said,
    ) -> bool:
        """One message of a queue, with its properties as they are stored, its unique id, and what the others say."""
        topic_part = place[1]
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
        share.runs.append((log_offset, size, tags_code, sys_flag, raw, _ALONE, b""))
        share.number = number + 1
        filing = self.filing
        filing.key_starts.append(share.key_start + unique[:-END_BYTES])
        filing.key_ends.append(unique[-END_BYTES:])
        filing.owners.append(log_offset)
        if keys:
            self._note_keys(share.key_start, keys, log_offset)
        filing.last_bytes = size
        self.wrote = log_offset + size
        return True

    def put_alike(
        self, header: SendMessageHeader, place: Place, share: QueueShare, born_host: bytes, batch: AlikeBatch
    ) -> Sequence[int] | None:
        """The messages of a batch, whose properties are stored as they are; their log offsets, None without room."""
        flag, bodies, before, ends, after, id_start, (_, tags_code, keys) = batch
        hosts, sys_flag, shared = self._shared(header, born_host)
        log_offset, number, count, body_bytes = self.wrote, share.number, len(bodies), len(bodies[0])
        properties_bytes = len(before) + END_BYTES + len(after)
        # Of every record what is between its body and the end of its id.
        start = place[1] + _pack_short(properties_bytes) + before
        size = HEAD_BYTES[hosts] + body_bytes + len(start) + END_BYTES + len(after)
        end = log_offset + size * count
        if body_bytes * count > self._max_body_bytes or end > self._limit:
            return None
        same = _pack_two(size, MAGIC_V1), _pack_two(header.queue_id, flag), shared + _pack_int(body_bytes), start, after
        log_offsets = range(log_offset, end, size)
        self._parts.append(_alike_records(same, bodies, ends, range(number, number + count), log_offsets))
        self._note_alike(share.key_start, id_start, ends, keys, log_offsets)
        share.runs.append((log_offset, size, tags_code, sys_flag, before, ends, after))
        share.number = number + count
        self.filing.last_bytes = size
        self.wrote = end
        return log_offsets

    def _shared(self, header: SendMessageHeader, born_host: bytes) -> tuple[int, int, bytes]:
        """Which hosts have how long an address, the system flag that says so, and what records of a batch share."""
        hosts = self._store_flag if len(born_host) == 8 else self._store_flag | BORN_IPV6
        sys_flag = header.sys_flag & ~_HOSTS | hosts
        return hosts, sys_flag, _SHARED[hosts].pack(
            sys_flag, header.born_ms, born_host, self._store_ms, self._store_host, header.reconsume_times, 0
        )  # fmt: skip

    def _note_alike(
        self, start: bytes, id_start: bytes, ends: Sequence[bytes], keys: Sequence[bytes], log_offsets: Sequence[int]
    ) -> None:
        """Note that messages are filed under their unique ids, each under the same keys besides."""
        filing, count, each = self.filing, len(ends), 1 + len(keys)
        names = [start + key for key in keys]
        key_ends = [b"", *[name[-END_BYTES:] for name in names]] * count
        key_ends[::each] = ends
        filing.key_starts += [start + id_start, *[name[:-END_BYTES] for name in names]] * count
        filing.key_ends += key_ends
        filing.owners += log_offsets if not keys else [at for at in log_offsets for _ in range(each)]

    def put_batch(
        self, header: SendMessageHeader, place: Place, share: QueueShare, born_host: bytes, batch: PlainBatch
    ) -> Sequence[int] | None:
        """As `put_alike`, for messages that are not."""
        topic_part = place[1]
        hosts, sys_flag, shared = self._shared(header, born_host)
        besides = HEAD_BYTES[hosts] + len(topic_part) + 2 - ITEM_BYTES
        item_sizes, flags, body_sizes, bodies, properties_sizes, properties = batch
        number, sizes = share.number, [size + besides for size in item_sizes]
        *log_offsets, end = accumulate(sizes, initial=self.wrote)
        if sum(body_sizes) > self._max_body_bytes or end > self._limit:
            return None
        heads = map(
            _AROUND_SHARED[hosts].pack, sizes, repeat(MAGIC_V1), [crc32(body) & 0x7FFFFFFF for body in bodies],
            repeat(header.queue_id), flags, range(number, number + len(sizes)), log_offsets, repeat(shared), body_sizes,
        )  # fmt: skip
        lengths = map(_pack_short, properties_sizes)
        self._parts += chain.from_iterable(zip(heads, bodies, repeat(topic_part), lengths, properties))
        tags_codes = self._note_each(share.key_start, properties, log_offsets)
        share.runs += zip(log_offsets, sizes, tags_codes, repeat(sys_flag), properties, repeat(_ALONE), repeat(b""))
        share.number = number + len(sizes)
        self.filing.last_bytes = sizes[-1]
        self.wrote = end
        return log_offsets

    def _note_each(self, start: bytes, properties: Sequence[bytes], log_offsets: Sequence[int]) -> list[int]:
        """Note what messages are filed under; their tags codes."""
        filing, look = self.filing, self._known.look
        starts, ends, owners = filing.key_starts, filing.key_ends, filing.owners
        tags_codes: list[int] = []
        for raw, log_offset in zip(properties, log_offsets):
            unique, (_, tags_code, keys) = look(raw)
            tags_codes.append(tags_code)
            if unique:
                starts.append(start + unique[:-END_BYTES])
                ends.append(unique[-END_BYTES:])
                owners.append(log_offset)
            if keys:
                self._note_keys(start, keys, log_offset)
        return tags_codes

    def _note_keys(self, start: bytes, keys: Sequence[bytes], log_offset: int) -> None:
        filing = self.filing
        for key in keys:
            name = start + key
            filing.key_starts.append(name[:-END_BYTES])
            filing.key_ends.append(name[-END_BYTES:])
            filing.owners.append(log_offset)


def _alike_records(
    same: tuple[bytes, bytes, bytes, bytes, bytes],
    bodies: Sequence[bytes],
    ends: Sequence[bytes],
    numbers: Sequence[int],
    log_offsets: Sequence[int],
) -> bytes:
    """The records of a batch; `same` is what all have first, behind the checksum, before the body, behind it, and last."""
    first, place, shared, start, after = same
    fields: list[int | bytes] = [first, 0, place, 0, 0, shared, b"", start, b"", after] * len(bodies)
    fields[1::10] = [crc32(body) & 0x7FFFFFFF for body in bodies]
    fields[3::10] = numbers
    fields[4::10] = log_offsets
    fields[6::10] = bodies
    fields[8::10] = ends
    return _pack_records(len(bodies), len(shared), len(bodies[0]), len(start), len(after))(*fields)


@lru_cache(maxsize=64)
def _pack_records(
    count: int, shared_bytes: int, body_bytes: int, start_bytes: int, after_bytes: int
) -> Callable[..., bytes]:
    """Packs all in one go: with a call for each it takes twice as long."""
    record = f"8si8sqq{shared_bytes}s{body_bytes}s{start_bytes}s{END_BYTES}s{after_bytes}s"
    return struct.Struct(">" + record * count).pack
