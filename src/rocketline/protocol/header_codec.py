"""Headers of frames: JSON text or RocketMQ's binary layout, told apart by the frame's type byte.

    binary:  code 2  language 1  version 2  opaque 4  flag 4  remark 4+n  ext 4+n
             ext = repeated: key length 2, key, value length 4, value

Reading is lenient where Java is (numbers as values, duplicate keys, fastjson's loose syntax) and strict where
leniency would let a peer confuse us (lengths, ranges, nesting). A JSON header is read strictly and fast first, and by the
tolerant reader only when that fails.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from rocketline.errors import LocalProtocolError, RemoteProtocolError
from rocketline.protocol.command import JSON, LANGUAGES, ROCKETMQ, Command, Int32
from rocketline.protocol.fastjson import FastJsonError, parse

_MAX_LOOSE_HEADER = 256 * 1024
"""Longest JSON header that is read tolerantly, which is slow; a standard one may be longer."""


class Received(Command):
    """A command as its JSON header says it: what the header leaves out is what Java takes then."""

    version: Int32 = 0
    language: str = "JAVA"


class _JsonHeaderOut(msgspec.Struct):
    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    version: int
    serializeTypeCurrentRPC: str = "JSON"  # noqa: N815


_read_json = msgspec.json.Decoder(Received).decode
_write_json = msgspec.json.Encoder().encode
_UNSET = msgspec.UNSET
_MEMBERS = frozenset({"code", "opaque", "flag", "version", "language", "remark", "extFields"})

_FIXED = struct.Struct(">hBhiii")
_INT = struct.Struct(">i")
_KEY = struct.Struct(">h")
_KEY_TEXTS = {bytes((letter,)): chr(letter) for letter in b"abcdefghijklmnopqrstuvwxyz"}
"""The one-letter fields of a send, decoded once and for all."""

_LANGUAGE_NUMBERS = {name: number for number, name in enumerate(LANGUAGES)}


def decode_header(encoding: int, header: bytes, body: bytes) -> Command:
    """The command of one frame; RemoteProtocolError when its header makes no sense."""
    if encoding == JSON:
        return _decode_json(header, body)
    if encoding == ROCKETMQ:
        return _decode_binary(header, body)
    raise RemoteProtocolError(f"unknown header encoding {encoding}")


def encode_header(command: Command) -> bytes:
    return _encode_json(command) if command.encoding == JSON else _encode_binary(command)


def _decode_json(header: bytes, body: bytes) -> Command:
    nulls: tuple[str, ...] = ()
    try:
        command: Command = _read_json(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        command, nulls = _read_tolerant(header)
    # What is no member of a header is ours to say, whatever the peer wrote.
    command.nulls = nulls
    command.body = body
    command.encoding = JSON
    command.chunks = None
    return command


def _read_tolerant(header: bytes) -> tuple[Command, tuple[str, ...]]:
    """The command, and the names of its fields that are null."""
    try:
        value = parse(header, max_loose_chars=_MAX_LOOSE_HEADER)
    except FastJsonError as error:
        raise RemoteProtocolError(f"header is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"header is a {type(value).__name__}, not an object")
    value = {name: item for name, item in value.items() if name in _MEMBERS and item is not None}
    language = value.get("language", 0)
    if isinstance(language, int):
        value["language"] = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    nulls: tuple[str, ...] = ()
    if isinstance(fields := value.get("extFields"), dict):
        value["extFields"] = {str(name): _as_text(item) for name, item in fields.items() if item is not None}
        nulls = tuple(str(name) for name, item in fields.items() if item is None)
    try:
        return msgspec.convert(value, Received, strict=False), nulls
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"header does not fit: {error}") from error


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return msgspec.json.encode(value).decode()


def _encode_json(command: Command) -> bytes:
    return _write_json(
        _JsonHeaderOut(
            command.code,
            _UNSET if command.ext is None else command.ext,
            command.flag,
            command.language,
            command.opaque,
            _UNSET if command.remark is None else command.remark,
            command.version,
        )
    )


def _decode_binary(header: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
        position = _FIXED.size
        remark = _text(header, position, remark_bytes) if remark_bytes else None
        position += remark_bytes
        ext_bytes = _INT.unpack_from(header, position)[0]
        ext, nulls = _decode_ext(header, position + 4, ext_bytes) if ext_bytes else ({}, ())
    except struct.error as error:
        raise RemoteProtocolError(f"binary header of {len(header)} bytes is cut short: {error}") from error
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Command(code, ext, body, opaque, flag, remark, version, name, ROCKETMQ, nulls=nulls)


def _text(header: bytes, start: int, size: int) -> str:
    if size < 0 or start + size > len(header):
        raise RemoteProtocolError(f"a string of {size} bytes does not fit in a header of {len(header)}")
    return header[start : start + size].decode("utf-8", "replace")  # as Java does


def _decode_ext(header: bytes, position: int, size: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """The fields, and the names of those that are null."""
    end = position + size
    if size < 0 or end > len(header):
        raise RemoteProtocolError(f"header fields of {size} bytes do not fit in a header of {len(header)}")
    ext: dict[str, str] = {}
    nulls: list[str] = []
    read_key_bytes, read_value_bytes, known = _KEY.unpack_from, _INT.unpack_from, _KEY_TEXTS.get
    while position < end:
        key_bytes = read_key_bytes(header, position)[0]
        value_at = position + 6 + key_bytes
        raw_key = header[position + 2 : value_at - 4]
        value_bytes = read_value_bytes(header, value_at - 4)[0]
        position = value_at + value_bytes
        if key_bytes < 0 or value_bytes < 0 or position > end:
            raise RemoteProtocolError(
                f"a header field of {key_bytes} and {value_bytes} bytes does not fit in a header of {len(header)}"
            )
        if not key_bytes:  # a zero length reads as null in Java
            continue
        if not value_bytes:
            nulls.append(raw_key.decode("utf-8", "replace"))
        else:
            # Text that is not UTF-8 is replaced, as Java does.
            ext[known(raw_key) or raw_key.decode("utf-8", "replace")] = header[value_at:position].decode(
                "utf-8", "replace"
            )
    return ext, tuple(nulls)


def _encode_binary(command: Command) -> bytes:
    if not -0x8000 <= command.code < 0x8000:
        raise LocalProtocolError(f"code {command.code} does not fit the binary header (16 bits): use JSON")
    remark = command.remark.encode() if command.remark else b""
    language = _LANGUAGE_NUMBERS.get(command.language, _LANGUAGE_NUMBERS["OTHER"])
    parts: list[bytes] = []
    try:
        for key, value in (command.ext or {}).items():
            if key and value:
                raw_key, raw_value = key.encode(), value.encode()
                parts += (_KEY.pack(len(raw_key)), raw_key, _INT.pack(len(raw_value)), raw_value)
        fixed = _FIXED.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
    except struct.error as error:
        raise LocalProtocolError(f"command {command.code} does not fit the binary header: {error}") from error
    ext = b"".join(parts)
    return b"".join((fixed, remark, _INT.pack(len(ext)), ext))
