"""Logging in: by a link with a token that works once, by name and password, or with an account of the cluster."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import Counter, OrderedDict
from dataclasses import dataclass

from rocketline.admin import Admin
from rocketline.admin.proof import Proof, open_broker, prove_account
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.console.access import Person, Role
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.problems import Problem
from rocketline.console.users import UsersFile
from rocketline.errors import ConfigError, RocketlineError
from rocketline.protocol.signing import Credentials

FREE_FAILURES = 5
WINDOW_S = 15 * 60.0
FIRST_WAIT_S = 5.0
MAX_WAIT_S = 300.0
MAX_REMEMBERED = 10_000
LINK_PAUSE_S = 10.0
CHECKS_AT_ONCE = 2
"""Each takes 16 MiB and 50 ms of a core."""
MAX_CHECKS = 16
MAX_CHECKS_OF_ADDRESS = 4


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

    def forgive(self, name: str, address: str) -> None:
        """The last attempt was none: whether it was right is not known."""
        found = self._table.get((name, address))
        if found is not None:
            found.count, found.free_at_s = max(0, found.count - 1), 0.0

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
        self._slots = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._checking: Counter[str] = Counter()
        """By address."""

    async def checked(self, name: str, password: str, address: str) -> Person | None:
        """The person, or None; Problem 429 when there were too many failures, or too many are being checked."""
        wait_s = self.throttle.wait_s(name, address)
        if wait_s > 0:
            raise Problem(429, "too_many_logins", retry_after_s=int(wait_s) + 1)
        if self._checking[address] >= MAX_CHECKS_OF_ADDRESS or self._checking.total() >= MAX_CHECKS:
            raise Problem(429, "busy", retry_after_s=2)
        # An attempt counts before it is checked: otherwise many at once would all be free.
        self.throttle.failed(name, address)
        self._checking[address] += 1
        try:
            async with self._slots:
                person = await self._check(name, password)
        except BaseException:
            self.throttle.forgive(name, address)
            raise
        finally:
            self._checking -= Counter([address])
        if person is not None:
            self.throttle.passed(name, address)
        return person

    async def _check(self, name: str, password: str) -> Person | None:
        if self.users is not None:
            return await asyncio.to_thread(self.users.checked, name, password)
        return await self._by_broker(name, password)

    async def _by_broker(self, name: str, password: str) -> Person | None:
        """Whether a cluster takes this account. What it may do there, the brokers decide at each request.

        Only clusters that know it may be entered, and no cluster may take just anybody. What no broker guards is for
        accounts that are super users wherever they are known.
        """
        if not name.isprintable() or not name or not password:
            return None
        answers = await asyncio.gather(*(self._proof(place, name, password) for place in self._config.clusters))
        proofs = {place: answer for place, answer in answers if isinstance(answer, Proof)}
        for place, proof in proofs.items():
            if proof.open_at:
                raise Problem(403, "no_access_control", f"{place} {proof.open_at}")
        known = {place: proof for place, proof in proofs.items() if proof.is_known}
        if not known:
            silent = [answer for _, answer in answers if isinstance(answer, RocketlineError)]
            if silent:
                raise Problem(504, "silent", str(silent[0])) from silent[0]
            return None
        return Person(
            name, Role.ADMIN, "broker", Credentials(name, password), secrets.token_hex(16), frozenset(known),
            sees_console=all(proof.is_super for proof in known.values()),
        )  # fmt: skip

    async def _proof(self, place: ClusterPlace, name: str, password: str) -> tuple[str, Proof | RocketlineError]:
        async with Admin(place.namesrv, tls=place.access.get("tls", False)) as admin:
            try:
                return place.name, await prove_account(admin, name, password)
            except RocketlineError as error:
                return place.name, error

    async def check_start(self) -> None:
        """ConfigError when people are to log in with accounts of a cluster that asks for none, if that can be seen now."""
        if not self._config.broker_login:
            return
        for place in self._config.clusters:
            async with Admin(place.namesrv, **place.access) as admin:
                try:
                    open_at = await open_broker(admin, await admin.brokers(), f"rocketline-{secrets.token_hex(8)}")
                except RocketlineError:
                    continue  # looked at again at every login
            if open_at:
                raise ConfigError(
                    f"--login broker: {open_at} of cluster {place.name} takes any account, so anybody could log in. Switch "
                    "access control on there (authenticationEnabled=true), or use --users FILE"
                )

    def stays(self, person: Person) -> bool:
        """Whether somebody who was let in may stay."""
        if person.how in ("password", "token"):
            return self.users is not None and self.users.still_has(person)
        return True
