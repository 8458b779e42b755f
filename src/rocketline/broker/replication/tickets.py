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
MAX_ADDRESS = 300


class Tickets:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._given: dict[bytes, tuple[int, float]] = {}
        self._tokens: dict[int, bytes] = {}
        self._addresses: dict[int, str] = {}

    def give(self, member: int) -> bytes:
        """A ticket for a member, to be shown soon."""
        while len(self._given) >= MAX_TICKETS:
            del self._given[next(iter(self._given))]
        ticket = token_bytes(PROOF_BYTES)
        self._given[ticket] = member, self._monotonic() + LIFE_S
        return ticket

    def know(self, tokens: Mapping[int, str], addresses: Mapping[int, str]) -> None:
        """The tokens of all members of the group, and where clients find them."""
        self._tokens = {member: token.encode() for member, token in tokens.items()}
        self._addresses = dict(addresses)

    def note_address(self, member: int, address: str) -> None:
        """Where a member says that clients find it: only shown to operators."""
        while len(self._addresses) >= MAX_TICKETS:
            del self._addresses[next(iter(self._addresses))]
        self._addresses[member] = address if len(address) <= MAX_ADDRESS else ""

    def address_of(self, member: object) -> str:
        """Where clients find a member; empty: it did not say."""
        return self._addresses.get(member, "") if isinstance(member, int) else ""

    def is_proved(self, hello: Hello) -> bool:
        token = self._tokens.get(hello.member)
        if token is not None:
            return hmac.compare_digest(token, hello.proof)
        member, until = self._given.pop(hello.proof, (None, 0.0))
        return member == hello.member and self._monotonic() < until
