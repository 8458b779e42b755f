"""Answers with everything filled in but the numbers. They say what the general encoder says (`protocol/header_codec.py`)."""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from rocketline.protocol.command import JSON, RESPONSE, ROCKETMQ, VERSION, Command
from rocketline.protocol.header_codec import encode_header

_PREFIX = struct.Struct(">II")
_INT = struct.Struct(">i")
_HOLE = "%d"
_NEXT, _MIN, _MAX = b"\0\x0fnextBeginOffset", b"\0\x09minOffset", b"\0\x09maxOffset"
_OPAQUE_AT = 5
_FIELDS_AT = 21
"""In a binary header without a remark."""


class SendAnswerParts(NamedTuple):
    """What all answers to stored sends of one broker have in common."""

    json_head: bytes
    """Up to the log offset in the first message id."""
    json_tail: bytes
    """From behind the number of the request."""
    binary_start: bytes
    """Up to the number of the request."""
    binary_flags: bytes
    """From there to the length of the fields."""
    binary_fields: bytes
    """Fields that are always there."""
    host: bytes
    """First part of message ids, in hex."""


def send_answer_parts(store_host: bytes, region: str, trace_on: bool) -> SendAnswerParts:
    host = store_host.hex().upper()
    always = {"MSG_REGION": region, "TRACE_ON": "true" if trace_on else "false"}
    fields = msgspec.json.encode(always).decode()
    binary = encode_header(Command(0, always, flag=RESPONSE, encoding=ROCKETMQ))
    return SendAnswerParts(
        f'{{"code":0,"extFields":{fields[:-1]},"msgId":"{host}'.encode(),
        f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'.encode(),
        binary[:_OPAQUE_AT],
        binary[_OPAQUE_AT + _INT.size : _FIELDS_AT - _INT.size],
        binary[_FIELDS_AT:],
        host.encode(),
    )


class PullAnswerForm:
    """Makes heads with one code and remark, of answers that suggest the master for the next pull."""

    def __init__(self, code: int, remark: str) -> None:
        always = {"suggestWhichBrokerId": "0"}
        offsets = {"nextBeginOffset": _HOLE, "minOffset": _HOLE, "maxOffset": _HOLE}
        json = encode_header(Command(code, always | offsets, flag=RESPONSE, remark=remark))
        self._json = json.replace(b'"opaque":0', b'"opaque":%d')
        binary = encode_header(Command(code, always, flag=RESPONSE, remark=remark, encoding=ROCKETMQ))
        fields_at = binary.index(b"\0\x14suggest") - _INT.size
        self._start = binary[:_OPAQUE_AT]
        self._flags = binary[_OPAQUE_AT + _INT.size : fields_at]
        self._fields = binary[fields_at + _INT.size :]

    def head(
        self, encoding: int, opaque: int, next_offset: int, min_offset: int, max_offset: int, body_bytes: int
    ) -> bytes:
        """The frame up to its body, which has so many bytes."""
        if encoding == JSON:
            header = self._json % (next_offset, min_offset, max_offset, opaque)
        else:
            header = self._binary(opaque, b"%d" % next_offset, b"%d" % min_offset, b"%d" % max_offset)
        return _PREFIX.pack(4 + len(header) + body_bytes, encoding << 24 | len(header)) + header

    def _binary(self, opaque: int, next_offset: bytes, min_offset: bytes, max_offset: bytes) -> bytes:
        size = _INT.pack
        fields = b"".join(
            (
                self._fields,
                _NEXT, size(len(next_offset)), next_offset,
                _MIN, size(len(min_offset)), min_offset,
                _MAX, size(len(max_offset)), max_offset,
            )
        )  # fmt: skip
        return b"".join((self._start, size(opaque), self._flags, size(len(fields)), fields))
