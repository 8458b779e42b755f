"""A redis server to compare with: Debian's redis-server with its append-only file, one stream as the backlog.

appendfsync is everysec, its default, and the closest to async flush.
"""

from __future__ import annotations

import socket
from pathlib import Path

from bench.server_side import ServerSide
from bench.sides import SideFailed

PER_WRITE = 1000


class RedisSide(ServerSide):
    def arguments(self, port: int, directory: Path) -> list[str]:
        where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
        return [*where, "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]

    def greet(self) -> None:
        self.call([b"PING"])

    def fill(self, stream: str, count: int, body: bytes) -> None:
        """The entries 1-1 to 1-COUNT."""
        name = stream.encode()
        for start in range(1, count + 1, PER_WRITE):
            numbers = range(start, min(start + PER_WRITE, count + 1))
            self.call(*([b"XADD", name, b"1-%d" % number, b"body", body] for number in numbers))

    def length(self, stream: str) -> int:
        """How many entries the stream has."""
        host, _, port = self.broker.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(_encode([b"XLEN", stream.encode()]))
            with connection.makefile("rb") as answers:
                line = answers.readline()
        if line[:1] != b":":
            raise SideFailed(f"redis at {self.broker} answered {line!r}")
        return int(line[1:])

    def new_group(self, stream: str, group: str) -> None:
        self.call([b"XGROUP", b"CREATE", stream.encode(), group.encode(), b"0"])

    def call(self, *commands: list[bytes]) -> None:
        """Commands whose answers are one line each, or a text; SideFailed when one is an error."""
        host, _, port = self.broker.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"".join(map(_encode, commands)))
            with connection.makefile("rb") as answers:
                for _ in commands:
                    line = answers.readline()
                    if not line or line[:1] == b"-":
                        raise SideFailed(f"redis at {self.broker} answered {line!r}")
                    if line[:1] == b"$":
                        answers.readline()


def _encode(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
