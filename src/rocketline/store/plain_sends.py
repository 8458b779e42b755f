"""The lane of plain sends in Python: all at the start of a read go from their frames into the log, and to their answers.

It does for a send what the general road does (`broker/handlers/send.py`, `commit_log.py`), and only where nothing is special
about it: a topic that is known, a queue it has, properties that ask for nothing, room in what is reserved of the file. The
first frame of any other kind ends the run of its read. The records of a call are written together at its end, and nothing
counts before.

The compiled twin has the same (`native/lane.c`). It files what it wrote straight from the log; here it is quicker to note on
the way what is to be filed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from rocketline.protocol.codes import RequestCode
from rocketline.protocol.headers import SendMessageHeader, SendRequest, read_send
from rocketline.protocol.records import INNER_BATCH, NEED_UNWRAP, TRANSACTION_MASK
from rocketline.protocol.stored_answer import MAX_IDS, StoredAnswer
from rocketline.store.known_properties import KnownProperties
from rocketline.store.log.appended_range import Filing, QueueShare
from rocketline.store.log.commit_log import Place, Places, Read, Run, Sent
from rocketline.store.plain_batches import alike_batch, plain_batch
from rocketline.store.plain_records import PlainRecords

_SEND, _BATCH = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)
_NOT_FOR_CLIENTS = TRANSACTION_MASK | NEED_UNWRAP | INNER_BATCH
_SMALL_BYTES = 1024
"""Larger messages are counted one by one."""

_read_prefix = struct.Struct(">II").unpack_from


class PlainSends:
    """Serves plain sends for one router, into one log."""

    def __init__(
        self,
        limits: tuple[int, int],
        places: Places,
        waits: bool,
        queue_offsets: dict[tuple[str, int], int],
        added: bytes,
        store_host: bytes,
        max_bytes: tuple[int, int],
        answers: StoredAnswer,
    ) -> None:
        """`limits`: bytes of a frame and of its header; `max_bytes`: of a body and of a record."""
        self._max_frame_bytes, self._max_header_bytes = limits
        self._places = places
        self._queue_offsets = queue_offsets
        self._added = added
        self._answers = answers
        self._known = KnownProperties(waits)
        self._records = PlainRecords(store_host, max_bytes, self._known)
        self._small: dict[str, list[int]] = {}
        self._large: list[Run] = []
        self._served = [0, 0]

    def serve(
        self, reads: Sequence[Read], view: memoryview, base: int, limit: int, wrote: int, store_ms: int
    ) -> tuple[Sent | None, Filing | None]:
        """Store the sends that reads begin with; what is to be filed of them comes with it. None when there are none.

        `view` is the memory of the file of the log that begins at `base`; up to `limit` it may be written.
        """
        self._small, self._large, self._served = {}, [], [0, 0]
        records = self._records
        records.begin(limit, wrote, store_ms)
        answers: list[bytes | None] = []
        rests: list[tuple[int, int]] = []
        for number, (data, born_host, _) in enumerate(reads):
            found, position = self._serve_read(data, born_host)
            answers.append(found)
            if position < len(data):
                rests.append((number, position))
        if records.wrote == wrote:
            return None, None
        records.write_to(view, wrote - base)
        filing = records.filing
        for key, share in filing.shares.items():
            self._queue_offsets[key] = share.number
        runs = self._large
        for topic, (messages, size, times) in self._small.items():
            runs.append((topic, messages, size, times))
        sends, batches = self._served
        return (answers, rests, records.wrote, sends, batches, runs), filing

    def _serve_read(self, data: bytes, born_host: bytes) -> tuple[bytes | None, int]:
        """The answers to the sends a read begins with, and where the rest begins."""
        answers: list[bytes] = []
        position, available = 0, len(data)
        while available - position >= 8:
            length, word = _read_prefix(data, position)
            encoding, header_bytes = word >> 24, word & 0xFFFFFF
            body_at, end = position + 8 + header_bytes, position + 4 + length
            if not body_at <= end <= available or length + 4 > self._max_frame_bytes:
                break
            if header_bytes > self._max_header_bytes:
                break
            request = read_send(encoding, data[position + 8 : body_at])
            if request is None or request.flag:
                break
            answer = self._serve(encoding, request, data[body_at:end], born_host)
            if answer is None:
                break
            answers.append(answer)
            position = end
        return b"".join(answers) if answers else None, position

    def _serve(self, encoding: int, request: SendRequest, body: bytes, born_host: bytes) -> bytes | None:
        """The answer to a send that is stored; None when it is not plain, and nothing has changed."""
        header, code = request.header, request.code
        place = self._places.get(header.topic)
        queue_id, is_batch = header.queue_id, header.batch
        if place is None or not 0 <= queue_id < len(place[2]) or header.sys_flag & _NOT_FOR_CLIENTS:
            return None
        raw = header.properties.encode()
        unique, said = self._known.look(raw)
        # A message must have an id, or the broker makes one; a batch has none, its messages do.
        if not said[0] or not (unique.isalnum() or (is_batch and not unique)):
            return None
        if code != _SEND and not (is_batch and code == _BATCH):
            return None
        key = place[2][queue_id]
        records = self._records
        shares = records.filing.shares
        share = shares.get(key) or QueueShare(key, self._queue_offsets.get(key, 0))
        log_offset, first = records.wrote, share.number
        if is_batch:
            log_offsets = self._put_batch(header, place, share, born_host, body)
            if log_offsets is None:
                return None
            answer = self._answers.batch(encoding, request.opaque, tuple(log_offsets), queue_id, first, unique.decode())
        else:
            raw += self._added if raw[-1] == 2 else b"\x02" + self._added
            if not records.put(header, place, share, born_host, body, raw, unique, said):
                return None
            answer = self._answers.single(encoding, request.opaque, log_offset, queue_id, first, unique)
        shares[key] = share
        self._served[code == _BATCH] += 1
        self._count(place[0], share.number - first, records.wrote - log_offset)
        return answer

    def _put_batch(
        self, header: SendMessageHeader, place: Place, share: QueueShare, born_host: bytes, body: bytes
    ) -> Sequence[int] | None:
        """The log offsets of the messages of a batch; None when it is not plain, or there is no room for it."""
        alike = alike_batch(body, self._known)
        if alike is not None:
            return self._records.put_alike(header, place, share, born_host, alike)
        batch = plain_batch(body)
        if batch is None or len(batch.sizes) > MAX_IDS:
            return None
        return self._records.put_batch(header, place, share, born_host, batch)

    def _count(self, topic: str, messages: int, size: int) -> None:
        """For the statistics: requests of one topic together, unless their messages are large on the average."""
        counts = self._small.get(topic)
        if size > _SMALL_BYTES * messages:
            self._large.append((topic, messages, size, 1))
        elif counts is None:
            self._small[topic] = [messages, size, 1]
        else:
            counts[0] += messages
            counts[1] += size
            counts[2] += 1
