"""Sessions of people who are logged in: kept here, in memory; a browser has only a random id."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.console.access import Person

IDLE_S = 3600.0
LIFE_S = 12 * 3600.0
MAX_SESSIONS = 1000
ID_BYTES = 32


@dataclass
class Session:
    person: Person
    created_s: float
    seen_s: float
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(ID_BYTES), repr=False)
    """What the tokens of this session's forms are made from."""
    ended: bool = False

    def form_token(self) -> str:
        """A token for forms. It differs every time, so that compression of a page gives nothing away."""
        pad = secrets.token_bytes(ID_BYTES)
        return (pad + _xor(pad, self.secret)).hex()

    def accepts(self, token: str) -> bool:
        try:
            given = bytes.fromhex(token)
        except ValueError:
            return False
        if len(given) != 2 * ID_BYTES:
            return False
        return hmac.compare_digest(_xor(given[:ID_BYTES], given[ID_BYTES:]), self.secret)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other))


class Sessions:
    def __init__(self, clock: Clock = SYSTEM_CLOCK, on_end: Callable[[Person], None] = lambda person: None) -> None:
        self._clock = clock
        self._on_end = on_end
        self._by_hash: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._by_hash)

    def begin(self, person: Person) -> str:
        """Start a session; the id goes into a cookie. The one that was idle longest makes room."""
        now = self._clock.monotonic()
        self.forget_ended()
        if len(self._by_hash) >= MAX_SESSIONS:
            self._end(min(self._by_hash, key=lambda key: self._by_hash[key].seen_s))
        session_id = secrets.token_urlsafe(ID_BYTES)
        self._by_hash[_hash(session_id)] = Session(person, now, now)
        return session_id

    def find(self, session_id: str) -> Session | None:
        session = self._by_hash.get(_hash(session_id))
        now = self._clock.monotonic()
        if session is None or self._is_over(session, now):
            return None
        session.seen_s = now
        return session

    def is_alive(self, session: Session) -> bool:
        """Whether a session goes on; asking does not make it last longer."""
        return not session.ended and not self._is_over(session, self._clock.monotonic())

    def end(self, session_id: str) -> None:
        self._end(_hash(session_id))

    def forget_ended(self) -> None:
        """Forget sessions whose time is over, and with them the secrets of their people."""
        now = self._clock.monotonic()
        for key in [key for key, session in self._by_hash.items() if self._is_over(session, now)]:
            self._end(key)

    def _end(self, key: bytes) -> None:
        session = self._by_hash.pop(key, None)
        if session is not None:
            session.ended = True
            self._on_end(session.person)

    def _is_over(self, session: Session, now: float) -> bool:
        return now - session.seen_s > IDLE_S or now - session.created_s > LIFE_S


def _hash(session_id: str) -> bytes:
    """The table has hashes, so that no timing of a lookup tells an id."""
    return hashlib.sha256(session_id.encode()).digest()
