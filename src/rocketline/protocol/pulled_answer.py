"""The head of an answer to a pull: everything of its frame but the messages.

It is filled into a form instead of going through the general encoder, and says the same.
"""

from __future__ import annotations

import struct

from rocketline.protocol.command import JSON, RESPONSE, ROCKETMQ, Command
from rocketline.protocol.header_codec import encode_header

_PREFIX = struct.Struct(">II")
_INT = struct.Struct(">i")
_HOLE = "%d"
_NEXT, _MIN, _MAX = b"\0\x0fnextBeginOffset", b"\0\x09minOffset", b"\0\x09maxOffset"
_OPAQUE_AT = 5


class PulledAnswer:
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
