"""The answer to a send that was stored, as a ready frame.

It is the one answer a broker writes once per message, so it is filled into a text instead of going through the general
encoder; the bytes are the same. Only JSON, only success, and only ids that need no escaping: for anything else `frame` says
None and the caller takes the general road.
"""

from __future__ import annotations

import struct

import msgspec

from rocketline.protocol.command import JSON, RESPONSE, VERSION, Command

_PREFIX = struct.Struct(">II")


class StoredAnswer:
    """Makes answers for one broker: its host, region and trace switch are the same in all of them."""

    def __init__(self, store_host: bytes, region: str, trace_on: bool) -> None:
        fields = {"MSG_REGION": region, "TRACE_ON": "true" if trace_on else "false"}
        self._head = (
            f'{{"code":0,"extFields":{{{msgspec.json.encode(fields).decode()[1:-1]},"msgId":"{store_host.hex().upper()}'
        )
        self._tail = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'

    def frame(
        self, request: Command, log_offset: int, queue_id: int, queue_offset: int, unique_id: str
    ) -> bytes | None:
        """The frame that tells the sender where its message is; None when it needs the general encoder."""
        if request.encoding != JSON or not unique_id.isalnum() or not unique_id.isascii():
            return None
        header = (
            f'{self._head}{log_offset:016X}","queueId":"{queue_id}","queueOffset":"{queue_offset}",'
            f'"transactionId":"{unique_id}"}},"flag":{RESPONSE},"language":"PYTHON","opaque":{request.opaque}{self._tail}'
        ).encode()
        size = len(header)
        return _PREFIX.pack(4 + size, size) + header
