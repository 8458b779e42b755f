"""Raw frames, signed or not, and a socket that sends them.

The signature is computed here a second time, from its rule alone: a mistake in the product's own signing would be in both
the signature and its check.
"""

from __future__ import annotations

import hmac
import json
import socket
import struct
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.patience import PATIENCE_S

from rocketline.protocol.command import ONEWAY, ROCKETMQ, VERSION, Command
from rocketline.protocol.connection import Connection

Fields = Mapping[str, Any]
"""Header fields; a value that is no text goes into JSON as what it is."""


@dataclass(frozen=True)
class Account:
    name: str
    secret: str = field(repr=False)

    def sign(self, fields: Fields, body: bytes = b"", *, unsigned: tuple[str, ...] = ()) -> dict[str, Any]:
        """The fields with account and signature; `unsigned` are fields that the signature leaves out."""
        named = {**fields, "AccessKey": self.name}
        names = sorted((name for name in named if name not in unsigned), key=lambda name: name.encode("utf-16-be"))
        content = "".join(_text(named[name]) for name in names).encode() + body
        return {**named, "Signature": b64encode(hmac.digest(self.secret.encode(), content, "sha1")).decode()}


def frame(
    code: int, fields: Fields | None = None, body: bytes = b"", *, flag: int = 0, version: int = VERSION
) -> bytes:
    """A request with a JSON header; without `fields` it has no extFields at all."""
    header: dict[str, Any] = {"code": code, "flag": flag, "language": "JAVA", "opaque": 1, "version": version}
    if fields is not None:
        header["extFields"] = dict(fields)
    return _framed(0, json.dumps(header).encode(), body)


def binary_frame(code: int, fields: Mapping[str, str], body: bytes = b"") -> bytes:
    """A request with a binary header; a value may be empty, which the product itself never writes."""
    ext = b"".join(
        struct.pack(">h", len(name.encode())) + name.encode() + struct.pack(">i", len(value.encode())) + value.encode()
        for name, value in fields.items()
    )
    return _framed(ROCKETMQ, struct.pack(">hBhiiii", code, 0, VERSION, 1, 0, 0, len(ext)) + ext, body)


def signed(account: Account, code: int, fields: Fields | None = None, body: bytes = b"", *, flag: int = 0) -> bytes:
    return frame(code, account.sign(fields or {}, body), body, flag=flag)


def oneway(account: Account | None, code: int, fields: Fields, body: bytes = b"") -> bytes:
    return frame(code, account.sign(fields, body) if account else fields, body, flag=ONEWAY)


class Peer:
    """One connection to a server; a context manager."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._connection = Connection()
        self._answers: deque[Command] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def write(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def read(self) -> Command:
        """The next answer; requests of the server are passed over. ConnectionError when it closes."""
        while not self._answers:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._answers += [command for command in self._connection.receive(data) if command.is_response]
        return self._answers.popleft()

    def ask(self, frame: bytes) -> Command:
        self.write(frame)
        return self.read()

    def is_closed(self) -> bool:
        """Wait until the server closes the connection; False when it sends something instead."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True


def ask(address: str, request: bytes) -> Command:
    """One request on a connection of its own."""
    with Peer(address) as peer:
        return peer.ask(request)


def _text(value: object) -> str:
    """A value as servers sign it: as its JSON text."""
    return value if isinstance(value, str) else json.dumps(value)


def _framed(encoding: int, header: bytes, body: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), encoding << 24 | len(header)) + header + body
