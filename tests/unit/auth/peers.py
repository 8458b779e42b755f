"""A connection as a guard sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Peer:
    is_encrypted = False
    strangers = None

    def __init__(self, ip: str, identity: str) -> None:
        self.remote = f"{ip}:5000"
        self.remote_ip = ip
        self.identity = self.certificate = identity
        self.on_close: list[Callable[[Any], None]] = []
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def peer(ip: str = "192.0.2.7", identity: str = "") -> Any:
    return Peer(ip, identity)
