"""The answer to a send that was stored, as a ready frame.

It is the one answer a broker writes once per message, so it is filled into a form instead of going through the general
encoder; it says the same. Only success, and only ids that need no escaping: for anything else `frame` says None and the
caller takes the general road.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import msgspec

from rocketline._impl import quick
from rocketline.protocol.command import JSON, RESPONSE, ROCKETMQ, VERSION, Command
from rocketline.protocol.header_codec import encode_header
from rocketline.protocol.message_ids import offset_ids

_PREFIX = struct.Struct(">II")
_OPAQUE = struct.Struct(">i")
_FIELD = struct.Struct(">i")
_OPAQUE_AT = 5
MAX_IDS = 8192
"""In one ready frame."""
_FIXED_BYTES = 21
_fill: Callable[[bytes, bytes, int, int, int, int, str], bytes | None] | None = quick("stored_frame")


class StoredAnswer:
    """Makes answers for one broker: its host, region and trace switch are the same in all of them."""

    def __init__(self, store_host: bytes, region: str, trace_on: bool) -> None:
        self._host = store_host.hex().upper()
        always = {"MSG_REGION": region, "TRACE_ON": "true" if trace_on else "false"}
        fields = msgspec.json.encode(always).decode()
        self._head = f'{{"code":0,"extFields":{fields[:-1]},"msgId":"{self._host}'
        self._tail = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
        self._json_parts = self._head.encode(), self._tail.encode()
        self._form = (
            _literal(self._json_parts[0])
            + b'%016X","queueId":"%d","queueOffset":"%d","transactionId":"%b"},'
            + b'"flag":%d,"language":"PYTHON","opaque":%%d' % RESPONSE
            + _literal(self._json_parts[1])
        )
        binary = encode_header(Command(0, always, flag=RESPONSE, encoding=ROCKETMQ))
        self._binary_start = binary[:_OPAQUE_AT]
        self._binary_flags = binary[_OPAQUE_AT + 4 : _FIXED_BYTES - 4]
        self._binary_fields = binary[_FIXED_BYTES:]
        self.parts = *self._json_parts, self._binary_start, self._binary_flags, self._binary_fields, self._host.encode()
        """What all answers have in common, for the compiled twin: of the JSON form, of the binary one, and of their ids."""

    def frame(
        self, request: Command, log_offset: int, queue_id: int, queue_offset: int, unique_id: str
    ) -> bytes | None:
        """The frame that tells the sender where its message is; None when it needs the general encoder."""
        if _fill is not None and request.encoding == JSON:
            return _fill(*self._json_parts, request.opaque, log_offset, queue_id, queue_offset, unique_id)
        if not unique_id.isalnum() or not unique_id.isascii():
            return None
        return self.single(request.encoding, request.opaque, log_offset, queue_id, queue_offset, unique_id.encode())

    def single(
        self, encoding: int, opaque: int, log_offset: int, queue_id: int, queue_offset: int, unique_id: bytes
    ) -> bytes:
        """The same for a request that is not a command yet, with an id of ASCII letters and digits."""
        if encoding != JSON:
            return self._binary_frame(opaque, f"{self._host}{log_offset:016X}", queue_id, queue_offset, unique_id)
        header = self._form % (log_offset, queue_id, queue_offset, unique_id, opaque)
        size = len(header)
        return _PREFIX.pack(4 + size, size) + header

    def batch_frame(
        self, request: Command, log_offsets: tuple[int, ...], queue_id: int, queue_offset: int, unique_id: str
    ) -> bytes | None:
        """The same for a batch, with the ids of all its messages; the batch itself mostly has none, "" then."""
        if len(log_offsets) > MAX_IDS or (unique_id and not (unique_id.isalnum() and unique_id.isascii())):
            return None
        return self.batch(request.encoding, request.opaque, log_offsets, queue_id, queue_offset, unique_id)

    def batch(
        self, encoding: int, opaque: int, log_offsets: tuple[int, ...], queue_id: int, queue_offset: int, unique_id: str
    ) -> bytes:
        """The same, as `single`."""
        ids = offset_ids(self._host, log_offsets)
        if encoding != JSON:
            return self._binary_frame(opaque, ids, queue_id, queue_offset, unique_id.encode())
        unique = f',"transactionId":"{unique_id}"' if unique_id else ""
        header = (
            f'{self._head}{ids[len(self._host) :]}","queueId":"{queue_id}","queueOffset":"{queue_offset}"{unique}}},'
            f'"flag":{RESPONSE},"language":"PYTHON","opaque":{opaque}{self._tail}'
        ).encode()
        size = len(header)
        return _PREFIX.pack(4 + size, size) + header

    def _binary_frame(self, opaque: int, ids: str, queue_id: int, queue_offset: int, unique: bytes) -> bytes:
        message_id = ids.encode()
        queue, offset = b"%d" % queue_id, b"%d" % queue_offset
        fields = b"".join(
            (
                self._binary_fields,
                b"\0\x05msgId", _FIELD.pack(len(message_id)), message_id,
                b"\0\x07queueId", _FIELD.pack(len(queue)), queue,
                b"\0\x0bqueueOffset", _FIELD.pack(len(offset)), offset,
                *((b"\0\x0dtransactionId", _FIELD.pack(len(unique)), unique) if unique else ()),
            )
        )  # fmt: skip
        size = _FIXED_BYTES + len(fields)
        return b"".join(
            (
                _PREFIX.pack(4 + size, ROCKETMQ << 24 | size),
                self._binary_start, _OPAQUE.pack(opaque), self._binary_flags, _FIELD.pack(len(fields)), fields,
            )
        )  # fmt: skip


def _literal(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
