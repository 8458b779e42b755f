"""Logging in: by a link with a token that works once, by name and password, or with an account of the cluster."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from rocketline.admin import Admin
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.console.access import Person, Role
from rocketline.console.config import ConsoleConfig
from rocketline.console.problems import Problem
from rocketline.console.users import UsersFile
from rocketline.errors import BrokerError, RocketlineError
from rocketline.protocol.signing import Credentials

FREE_FAILURES = 5
WINDOW_S = 15 * 60.0
FIRST_WAIT_S = 5.0
MAX_WAIT_S = 300.0
MAX_REMEMBERED = 10_000
LINK_PAUSE_S = 10.0


@dataclass
class _Failures:
    count: int = 0
    last_s: float = 0.0
    free_at_s: float = 0.0


class Throttle:
    """After some failures of an account at an address, each further one makes the next attempt wait longer."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._table: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def wait_s(self, name: str, address: str) -> float:
        found = self._table.get((name, address))
        return max(0.0, found.free_at_s - self._clock.monotonic()) if found else 0.0

    def failed(self, name: str, address: str) -> None:
        now = self._clock.monotonic()
        found = self._table.pop((name, address), None)
        if found is None or now - found.last_s > WINDOW_S:
            found = _Failures()
        found.count, found.last_s = found.count + 1, now
        if found.count >= FREE_FAILURES:
            found.free_at_s = now + min(MAX_WAIT_S, FIRST_WAIT_S * 2 ** (found.count - FREE_FAILURES))
        self._table[name, address] = found
        while len(self._table) > MAX_REMEMBERED:
            self._table.popitem(last=False)

    def passed(self, name: str, address: str) -> None:
        self._table.pop((name, address), None)


class OneTimeLink:
    """The token of a link; used once, it is worth nothing."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._token = secrets.token_urlsafe(32)
        self._made_s = clock.monotonic() - LINK_PAUSE_S

    @property
    def token(self) -> str:
        return self._token

    def take(self, given: str) -> Person | None:
        if not self._token or not hmac.compare_digest(given.encode(), self._token.encode()):
            return None
        self._token = ""
        return Person("local", Role.ADMIN)

    def renew(self) -> bool:
        """Make another token, not more often than every `LINK_PAUSE_S` seconds; the one before is void."""
        now = self._clock.monotonic()
        if now - self._made_s < LINK_PAUSE_S:
            return False
        self._token, self._made_s = secrets.token_urlsafe(32), now
        return True


class Logins:
    def __init__(self, config: ConsoleConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config = config
        self.users = UsersFile(config.users) if config.users is not None else None
        self.link = None if config.has_people else OneTimeLink(clock)
        self.throttle = Throttle(clock)

    async def checked(self, name: str, password: str, address: str) -> Person | None:
        """The person, or None; Problem 429 when there were too many failures."""
        wait_s = self.throttle.wait_s(name, address)
        if wait_s > 0:
            raise Problem(429, "too_many_logins", retry_after_s=int(wait_s) + 1)
        if self.users is not None:
            person = await asyncio.to_thread(self.users.checked, name, password)
        else:
            person = await self._by_broker(name, password)
        if person is None:
            self.throttle.failed(name, address)
        else:
            self.throttle.passed(name, address)
        return person

    async def _by_broker(self, name: str, password: str) -> Person | None:
        """Whether the first cluster takes this account. What it may do there, its brokers decide at each request."""
        account = Credentials(name, password)
        place = self._config.clusters[0]
        async with Admin(place.namesrv, credentials=account, tls=place.access.get("tls", False)) as admin:
            try:
                brokers = await admin.brokers()
                await admin.gather(broker.runtime_info() for broker in brokers[:1])
            except BrokerError as error:
                if not _is_known_account(error):
                    return None
            except RocketlineError as error:
                raise Problem(504, "silent", str(error)) from error
        return Person(name, Role.ADMIN, "broker", account)

    def stays(self, person: Person) -> bool:
        """Whether somebody with a session is still let in."""
        return person.how != "password" or (self.users is not None and self.users.still_has(person))


def _is_known_account(error: BrokerError) -> bool:
    """Whether a refusal is about rights and not about the account: then the account and its password are right."""
    return error.code == 16 and "permission" in error.remark.lower()
