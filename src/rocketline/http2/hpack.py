"""HPACK, the compression of HTTP/2 headers (RFC 7541): a decoder for requests, and texts of our own answers.

The decoder has the dynamic table of one connection. What we send never uses a dynamic table: our answers have three fields,
which are encoded once for all connections.
"""

from __future__ import annotations

import re
from collections import deque

from rocketline._impl import compiled
from rocketline.errors import RemoteProtocolError
from rocketline.http2 import huffman

Field = tuple[bytes, bytes]

STATIC: tuple[Field, ...] = tuple(
    (name.encode(), value.encode())
    for name, _, value in (
        item.partition("=")
        for item in (
            ":authority", ":method=GET", ":method=POST", ":path=/", ":path=/index.html", ":scheme=http", ":scheme=https",
            ":status=200", ":status=204", ":status=206", ":status=304", ":status=400", ":status=404", ":status=500",
            "accept-charset", "accept-encoding=gzip, deflate", "accept-language", "accept-ranges", "accept",
            "access-control-allow-origin", "age", "allow", "authorization", "cache-control", "content-disposition",
            "content-encoding", "content-language", "content-length", "content-location", "content-range", "content-type",
            "cookie", "date", "etag", "expect", "expires", "from", "host", "if-match", "if-modified-since", "if-none-match",
            "if-range", "if-unmodified-since", "last-modified", "link", "location", "max-forwards", "proxy-authenticate",
            "proxy-authorization", "range", "referer", "refresh", "retry-after", "server", "set-cookie",
            "strict-transport-security", "transfer-encoding", "user-agent", "vary", "via", "www-authenticate",
        )
    )
)  # fmt: skip
_STATIC_COUNT = len(STATIC)
ENTRY_BYTES = 32
"""What an entry of a table counts besides its texts."""
MAX_TABLE_BYTES = 4096
"""The dynamic table that a peer may fill: the size that holds without a setting."""
_MAX_INTEGER = 1 << 24
NOT_A_NAME = b""
"""The name of a field whose value no field may have; as no field has it, the request is refused."""
_LINE_END = re.compile(rb"[\r\n\0]")


@compiled
def take_indexed(
    block: bytes, position: int, static: tuple[Field, ...], table: deque[Field], fields: list[Field], room: int
) -> tuple[int, int]:
    """Add the fields of a block from `position` on that are entries of the tables, up to any other: (where that is, the room
    that is left). Fields for which there is no room are counted and left out. What is wrong is left to the caller."""
    end = len(block)
    while position < end and block[position] & 0x80:
        try:
            index, following = _integer(block, position, 0x7F)
            if not index:
                break
            field = static[index - 1] if index <= len(static) else table[index - len(static) - 1]
        except (IndexError, RemoteProtocolError):
            break
        position = following
        room -= len(field[0]) + len(field[1]) + ENTRY_BYTES
        if room >= 0:
            fields.append(field)
    return position, room


class Decoder:
    """Header blocks of one connection, in order."""

    def __init__(self, max_list_bytes: int) -> None:
        """`max_list_bytes`: a longer list of fields is decoded, to keep the table right, and cut."""
        self._max_list_bytes = max_list_bytes
        self._table: deque[Field] = deque()
        self._table_bytes = 0
        self._max_table_bytes = MAX_TABLE_BYTES

    def decode(self, block: bytes) -> list[Field] | None:
        """The fields of a block; None when they are more than allowed. RemoteProtocolError when it is no block."""
        try:
            return self._decode(block)
        except IndexError:
            raise RemoteProtocolError(
                "a header block ends inside a field, or names an entry that is not there"
            ) from None

    def _decode(self, block: bytes) -> list[Field] | None:
        fields: list[Field] = []
        position, end, room = 0, len(block), self._max_list_bytes
        while True:
            position, room = take_indexed(block, position, STATIC, self._table, fields, room)
            if position == end:
                return fields if room >= 0 else None
            byte = block[position]
            if byte & 0x80:
                index, _ = _integer(block, position, 0x7F)
                raise RemoteProtocolError(f"a header block names entry {index} of the tables, which is not there")
            if byte & 0x40:  # a field that becomes an entry
                field, position = self._literal(block, position, 0x3F)
                self._add(field)
            elif byte & 0x20:
                if fields:
                    raise RemoteProtocolError("the size of the header table changes inside a block")
                size, position = _integer(block, position, 0x1F)
                self._resize(size)
                continue
            else:  # a field that does not
                field, position = self._literal(block, position, 0x0F)
            room -= len(field[0]) + len(field[1]) + ENTRY_BYTES
            if room >= 0:
                fields.append(field)

    def _literal(self, block: bytes, position: int, mask: int) -> tuple[Field, int]:
        index = block[position] & mask
        if index < mask:
            position += 1
        else:
            index, position = _integer(block, position, mask)
        if not index:
            name, position = _text(block, position)
        elif index <= _STATIC_COUNT:
            name = STATIC[index - 1][0]
        else:
            name = self._table[index - _STATIC_COUNT - 1][0]
        value, position = _text(block, position)
        if _LINE_END.search(value):
            name = NOT_A_NAME
        return (name, value), position

    def _add(self, field: Field) -> None:
        size = len(field[0]) + len(field[1]) + ENTRY_BYTES
        self._table.appendleft(field)
        self._table_bytes += size
        self._evict()

    def _resize(self, size: int) -> None:
        if size > MAX_TABLE_BYTES:
            raise RemoteProtocolError(f"a header table of {size} bytes is larger than the {MAX_TABLE_BYTES} allowed")
        self._max_table_bytes = size
        self._evict()

    def _evict(self) -> None:
        while self._table_bytes > self._max_table_bytes:
            name, value = self._table.pop()
            self._table_bytes -= len(name) + len(value) + ENTRY_BYTES


def _integer(block: bytes, position: int, mask: int) -> tuple[int, int]:
    number = block[position] & mask
    position += 1
    if number < mask:
        return number, position
    shift = 0
    while True:
        byte = block[position]
        position += 1
        number += (byte & 0x7F) << shift
        if number > _MAX_INTEGER or shift > 28:
            raise RemoteProtocolError("a number in a header block is too large")
        if not byte & 0x80:
            return number, position
        shift += 7


def _text(block: bytes, position: int) -> tuple[bytes, int]:
    first = block[position]
    length = first & 0x7F
    if length < 0x7F:
        position += 1
    else:
        length, position = _integer(block, position, 0x7F)
    end = position + length
    if end > len(block):
        raise RemoteProtocolError("a header block ends inside a text")
    text = block[position:end]
    return huffman.decode(text) if first & 0x80 else text, end


def encode_integer(number: int, mask: int, first: int = 0) -> bytes:
    """A number as HPACK writes it; `first` are the bits before it."""
    if number < mask:
        return bytes((first | number,))
    out = bytearray((first | mask,))
    number -= mask
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_field(name: bytes, value: bytes) -> bytes:
    """A field as a block has it, which becomes no entry of a table."""
    return b"\x00" + encode_integer(len(name), 0x7F) + name + encode_integer(len(value), 0x7F) + value


def encode_fields(*fields: Field) -> bytes:
    """A header block; `:status 200` is an entry of the static table."""
    return b"".join(b"\x88" if field == STATIC[7] else encode_field(*field) for field in fields)
