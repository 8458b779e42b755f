"""Proof that whoever connects to the HA port is a replica.

A replica asks for a ticket over the remoting port, where accounts and TLS apply (request 906), and shows it on the HA port,
once. Members of a group with elections have tokens of their own instead, which their record holds.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from secrets import token_bytes

from rocketline.protocol.replication_frames import PROOF_BYTES, Hello

LIFE_S = 30.0
MAX_TICKETS = 1000
"""That nobody has shown yet; the oldest goes."""


class Tickets:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._given: dict[bytes, tuple[int, float]] = {}
        self._tokens: dict[int, bytes] = {}

    def give(self, member: int) -> bytes:
        """A ticket for a member, to be shown soon."""
        while len(self._given) >= MAX_TICKETS:
            del self._given[next(iter(self._given))]
        ticket = token_bytes(PROOF_BYTES)
        self._given[ticket] = member, self._monotonic() + LIFE_S
        return ticket

    def know(self, tokens: Mapping[int, str]) -> None:
        """The tokens of all members of the group."""
        self._tokens = {member: token.encode() for member, token in tokens.items()}

    def is_proved(self, hello: Hello) -> bool:
        token = self._tokens.get(hello.member)
        if token is not None:
            return hmac.compare_digest(token, hello.proof)
        member, until = self._given.pop(hello.proof, (None, 0.0))
        return member == hello.member and self._monotonic() < until
