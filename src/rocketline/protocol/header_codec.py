"""Headers of frames: JSON text or RocketMQ's binary layout, told apart by the frame's type byte.

    binary:  code 2  language 1  version 2  opaque 4  flag 4  remark 4+n  ext 4+n
             ext = repeated: key length 2, key, value length 4, value

Reading is lenient where Java is (numbers as values, duplicate keys, fastjson's loose syntax) and strict where
leniency would let a peer confuse us (lengths, ranges, nesting). A JSON header takes the strict, fast road first and the
tolerant reader only when that fails.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any

import msgspec

from rocketline.errors import LocalProtocolError, RemoteProtocolError
from rocketline.protocol.command import JSON, LANGUAGES, ROCKETMQ, Command
from rocketline.protocol.fastjson import FastJsonError, parse

_MAX_LOOSE_HEADER = 256 * 1024
"""Longest JSON header that is read tolerantly, which is slow; a standard one may be longer."""

_Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class _JsonHeader(msgspec.Struct):
    code: _Int32
    opaque: _Int32 = 0
    flag: _Int32 = 0
    version: _Int32 = 0
    language: str = "JAVA"
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 (the name on the wire)


class _JsonHeaderOut(msgspec.Struct):
    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    version: int
    serializeTypeCurrentRPC: str = "JSON"  # noqa: N815


_read_json = msgspec.json.Decoder(_JsonHeader).decode
_write_json = msgspec.json.Encoder().encode
_UNSET = msgspec.UNSET

_FIXED = struct.Struct(">hBhiii")
_INT = struct.Struct(">i")
_KEY = struct.Struct(">h")
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
    try:
        read = _read_json(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        read = _read_tolerant(header)
    return Command(
        read.code,
        read.extFields,
        body,
        opaque=read.opaque,
        flag=read.flag,
        remark=read.remark,
        version=read.version,
        language=read.language,
    )


def _read_tolerant(header: bytes) -> _JsonHeader:
    try:
        value = parse(header, max_loose_chars=_MAX_LOOSE_HEADER)
    except FastJsonError as error:
        raise RemoteProtocolError(f"header is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"header is a {type(value).__name__}, not an object")
    value = {name: item for name, item in value.items() if item is not None}
    language = value.get("language", 0)
    if isinstance(language, int):
        value["language"] = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    if isinstance(fields := value.get("extFields"), dict):
        value["extFields"] = {str(name): _as_text(item) for name, item in fields.items() if item is not None}
    try:
        return msgspec.convert(value, _JsonHeader, strict=False)
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
        ext = _decode_ext(header, position + 4, ext_bytes) if ext_bytes else {}
    except struct.error as error:
        raise RemoteProtocolError(f"binary header of {len(header)} bytes is cut short: {error}") from error
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return Command(
        code, ext, body, opaque=opaque, flag=flag, remark=remark, version=version, language=name, encoding=ROCKETMQ
    )


def _text(header: bytes, start: int, size: int) -> str:
    if size < 0 or start + size > len(header):
        raise RemoteProtocolError(f"a string of {size} bytes does not fit in a header of {len(header)}")
    return header[start : start + size].decode("utf-8", "replace")  # as Java does


def _decode_ext(header: bytes, position: int, size: int) -> dict[str, str]:
    end = position + size
    if size < 0 or end > len(header):
        raise RemoteProtocolError(f"header fields of {size} bytes do not fit in a header of {len(header)}")
    ext: dict[str, str] = {}
    while position < end:
        key_bytes = _KEY.unpack_from(header, position)[0]
        key = _text(header, position + 2, key_bytes)
        position += 2 + key_bytes
        value_bytes = _INT.unpack_from(header, position)[0]
        value = _text(header, position + 4, value_bytes)
        position += 4 + value_bytes
        if key and value:  # a zero length reads as null in Java, so such an entry does not exist
            ext[key] = value
    if position != end:
        raise RemoteProtocolError("header fields run over their own length")
    return ext


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
