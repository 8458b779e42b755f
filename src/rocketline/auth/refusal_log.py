"""Requests that did not pass: counted by reason, and told in the audit log.

One line for each account, address and reason in ten seconds, with the number of requests that it stands for: a client that
tries for ever fills no disk. No line has a secret or a signature.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rocketline.auth.model import Need, Verdict
from rocketline.auth.words import target_text
from rocketline.clock import Clock
from rocketline.protocol.codes import RequestCode, code_name
from rocketline.protocol.command import Command
from rocketline.transport import Channel
from rocketline.transport.audit import shortened, who_sent, write_line

PAUSE_S = 10.0
MAX_KEPT = 1000
"""Combinations of account, address and reason. Beyond that, new ones are only counted."""

_Key = tuple[str, str, str]


class Reason(StrEnum):
    """Why requests are refused, as metrics and the audit log say it."""

    NO_ACCOUNT = "no_account"
    UNKNOWN_ACCOUNT = "unknown_account"
    DISABLED_ACCOUNT = "disabled_account"
    WRONG_SIGNATURE = "wrong_signature"
    REPLAYED = "replayed"
    UNPROTECTED = "unprotected"
    """Signed so that it could be replayed."""
    TOO_MANY_GUESSES = "too_many_guesses"
    NO_RIGHT = "no_right"
    DENIED = "denied"
    NOT_SUPER = "not_super"
    UNREADABLE = "unreadable"
    NO_ROW = "no_row"
    NOT_FROM_THERE = "not_from_there"
    """Of operators, by a server without accounts."""


@dataclass
class _Kept:
    said_at: float
    fields: dict[str, Any]
    unsaid: int = 0


class RefusalLog:
    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[Reason] = Counter()
        self._clock = clock
        self._kept: dict[_Key, _Kept] = {}
        """The one that was said first comes first."""
        self._untold = 0
        self._timer: asyncio.TimerHandle | None = None

    def note(
        self,
        channel: Channel,
        request: Command,
        reason: Reason,
        remark: str,
        need: Need | None = None,
        verdict: Verdict | None = None,
    ) -> None:
        """Write a line about a refused request, or count it for a later one."""
        self.counts[reason] += 1
        now = self._clock.monotonic()
        self._say_old(now)
        sender = who_sent(channel, request)
        key = sender["access_key"], channel.remote_ip, reason
        kept = self._kept.get(key)
        if kept is not None:
            kept.unsaid += 1
            self._wake_later()
            return
        if len(self._kept) >= MAX_KEPT:
            self._untold += 1
            self._wake_later()
            return
        fields = {
            **sender,
            "what": code_name(RequestCode, request.code).upper(),
            **({"resource": shortened(str(need.resource))} if need is not None else {}),
            "result": "REFUSED",
            "reason": reason,
            **({"entry": target_text(verdict.entry.target)} if verdict is not None and verdict.entry else {}),
            "why": shortened(remark),
        }
        self._kept[key] = _Kept(now, fields)
        write_line(fields | {"count": 1})

    def close(self) -> None:
        """Write what was only counted."""
        if self._timer is not None:
            self._timer.cancel()
        self._say_old(math.inf)

    def _wake_later(self) -> None:
        """Nobody may be refused again who would have the rest written."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._say_old(self._clock.monotonic())
        if self._untold or any(kept.unsaid for kept in self._kept.values()):
            self._wake_later()

    def _say_old(self, now: float) -> None:
        """Write what was only counted, once its ten seconds are over."""
        while self._kept:
            key = next(iter(self._kept))
            kept = self._kept[key]
            if now - kept.said_at < PAUSE_S:
                return
            del self._kept[key]
            if kept.unsaid:
                write_line(kept.fields | {"count": kept.unsaid})
        if self._untold:
            write_line({"what": "REQUESTS", "result": "REFUSED", "reason": "many", "count": self._untold})
            self._untold = 0
