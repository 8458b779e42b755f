"""What connections may send to, where a broker has a guard.

The guard decides, on the general path: a send that it lets pass makes a grant, for its account, connection, code and topic.
While the grant holds, compiled code checks of each further send that it is signed by the same account
(`native/fastpath/grants.c`), or that it has no signature where a certificate names the account. Any other send takes the
general path, and the guard is asked again. A grant ends with any change of accounts, rights or topics.

An account may have a second password for a while. What is signed with that one takes the general path.
"""

from __future__ import annotations

from hashlib import sha1
from typing import NamedTuple

from rocketline._impl import compiled_only
from rocketline.auth.guard import AccessGuard
from rocketline.auth.signatures import MAX_AGE_MS
from rocketline.broker.fastpath.state import ConnectionState
from rocketline.clock import Clock
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.signing import ACCESS_KEY, SIGNED_CODE, SIGNED_MS
from rocketline.transport import Channel

_hmac_key = compiled_only("hmac_key")

Place = tuple[str, bytes, tuple[tuple[str, int], ...]]
"""A topic: its name, the form records have, and the keys of its queues."""
Read = tuple[bytes, bytes, Channel]
"""What was read, the host it came from as records have it, and the connection."""

MAX_PLACES = 1024
"""Topics that are remembered of a connection; with more, all are forgotten, and soon known again."""
ANY_TIME = 0, 0
_BLOCK_BYTES = 64


class Grant(NamedTuple):
    """What one account may send to on one connection."""

    account: bytes | None
    """None: the one of the connection's certificate, and sends are not signed."""
    key: bytes | None
    """Its password, prepared for HMAC: as secret as the password itself."""
    is_dated: bool
    """Signatures say when and for which request they were made, as that of the first send did."""
    sends: dict[str, Place]
    batches: dict[str, Place]
    since: object
    """The state of accounts, rights and topics it belongs to."""

    def __repr__(self) -> str:
        return f"Grant(account={self.account!r})"

    def places(self, code: int) -> dict[str, Place]:
        return self.batches if code == RequestCode.SEND_BATCH_MESSAGE else self.sends


class Grants:
    """The grants of all connections of a broker."""

    def __init__(self, guard: AccessGuard, clock: Clock) -> None:
        self._guard = guard
        self._clock = clock
        self._version = guard.version
        self._since = object()

    def end_all(self) -> None:
        """Topics changed."""
        self._since = object()

    def signing_times(self) -> tuple[int, int]:
        """From when to when a signature may be that says when it was made."""
        now_ms = self._clock.now_ms()
        return max(0, now_ms - MAX_AGE_MS), now_ms + MAX_AGE_MS

    def added_to(self, reads: list[Read]) -> list[tuple[bytes, bytes, Channel, Grant | None]]:
        """Reads with the grants of their connections; None for a connection without one."""
        if self._guard.version != self._version:
            self._version = self._guard.version
            self.end_all()
        return [(data, host, channel, self._valid(channel)) for data, host, channel in reads]

    def _valid(self, channel: Channel) -> Grant | None:
        state: ConnectionState = channel.fast  # type: ignore[assignment]
        grant = state.grant
        return grant if grant is not None and grant.since is self._since else None

    def ask(self, channel: Channel, request: Command, place: Place) -> None:
        """Remember a topic if the guard lets this send to it pass, now."""
        if self._guard.version != self._version:
            return  # the next read begins anew
        user = self._guard.grant(channel, request)
        if user is None:
            return
        fields = request.ext or {}
        who: tuple[bytes | None, bytes | None, bool] = None, None, False
        if fields.get(ACCESS_KEY):
            who = user.name.encode(), hmac_key(user.password), SIGNED_CODE in fields and SIGNED_MS in fields
        grant = self._valid(channel)
        if grant is None or grant[:3] != who:
            grant = Grant(*who, {}, {}, self._since)
            channel.fast.grant = grant  # type: ignore[union-attr]
        places = grant.places(request.code)
        if len(places) >= MAX_PLACES:
            places.clear()
        places[place[0]] = place


def hmac_key(password: str) -> bytes:
    """A password as the compiled code needs it: the keyed hash before any message."""
    secret = password.encode()
    key: bytes = _hmac_key(sha1(secret).digest() if len(secret) > _BLOCK_BYTES else secret)  # noqa: S324 (the protocol's)
    return key
