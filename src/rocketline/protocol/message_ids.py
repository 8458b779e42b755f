"""The two ids a message has.

The *unique id* is made by the producer before sending (property UNIQ_KEY): upper-case hex of

    ip (4 or 16)  pid & 0xFFFF (2)  per-process value (4)  ms since the local start of month (4)  counter (2)

The *offset id* is made by the broker that stored it: upper-case hex of

    store ip (4 or 16)  port (4)  commit-log offset (8)
"""

from __future__ import annotations

import os
import struct
from datetime import datetime
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from itertools import count

from rocketline._impl import compiled
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ProtocolError
from rocketline.message import LogOffset
from rocketline.system.forks import in_forked_child

_PORT = struct.Struct(">i")
_OFFSET = struct.Struct(">q")


@lru_cache(maxsize=65536)
def encode_host(ip: str, port: int) -> bytes:
    """Address as stored in a record: 4 or 16 address bytes, then the port in 4."""
    address = ip_address(ip.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.packed + _PORT.pack(port)


@lru_cache(maxsize=65536)
def decode_host(host: bytes) -> str:
    """`ip:port` of 8 or 20 stored bytes."""
    ip = ip_address(host[:-4])
    port = _PORT.unpack(host[-4:])[0]
    return f"[{ip}]:{port}" if isinstance(ip, IPv6Address) else f"{ip}:{port}"


def offset_id(store_host: bytes, log_offset: int) -> str:
    """The offset id of a stored message.

    >>> offset_id(encode_host("127.0.0.1", 20911), 90490)
    '7F000001000051AF000000000001617A'
    """
    return (store_host + _OFFSET.pack(log_offset)).hex().upper()


@compiled
def offset_ids(host: str, log_offsets: tuple[int, ...]) -> str:
    """The offset ids of several messages, separated by commas; `host` is the store host in upper-case hex.

    >>> offset_ids("7F000001000051AF", (90490, 90691))
    '7F000001000051AF000000000001617A,7F000001000051AF0000000000016243'
    """
    if len(log_offsets) == 1:
        return f"{host}{log_offsets[0] & 0xFFFFFFFFFFFFFFFF:016X}"
    digits = struct.pack(f">{len(log_offsets)}q", *log_offsets).hex(",", 8).upper()
    return f"{host}{digits.replace(',', f',{host}')}" if digits else ""


def parse_offset_id(text: str) -> tuple[str, LogOffset]:
    """(`ip:port`, log offset) of an offset id; ProtocolError for any other text."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28):
        raise ProtocolError(f"{text!r} is not an offset message id: 32 or 56 hex digits expected")
    return decode_host(raw[:-8]), LogOffset(_OFFSET.unpack(raw[-8:])[0])


_this_process = object()
"""A forked child gets another object: comparing objects is cheaper than a system call for the pid for each message."""


def _in_child() -> None:
    global _this_process
    _this_process = object()


in_forked_child(_in_child)


class UniqueIds:
    """Makes unique ids; a forked child makes different ones (it has another pid and another random value)."""

    def __init__(self, ip: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._ip = ip_address(ip.partition("%")[0]).packed
        self._clock = clock
        self._process: object = None
        self._prefix = ""
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._counter = count()

    def next(self, now_ms: int | None = None) -> str:
        """Another id; `now_ms` is the time, if the caller has just read the clock."""
        if self._process is not _this_process:
            self._restart()
        if now_ms is None:
            now_ms = self._clock.now_ms()
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_of(now_ms)
        return f"{self._prefix}{(now_ms - self._month_start_ms) << 16 | next(self._counter) & 0xFFFF:012X}"

    def _restart(self) -> None:
        self._process = _this_process
        head = self._ip + (os.getpid() & 0xFFFF).to_bytes(2, "big") + os.urandom(4)
        self._prefix = head.hex().upper()
        self._counter = count()


def _month_of(now_ms: int) -> tuple[int, int]:
    start = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = divmod(start.year * 12 + start.month, 12)
    end = start.replace(year=year, month=month + 1)
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)
