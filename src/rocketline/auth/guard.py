"""The guard of a server with accounts: asked before every request, and again before a held one is answered.

A request passes when its account exists and is enabled, its signature is right, and the account has what the request needs
(`needs.py`). Otherwise the answer is 16, with RocketMQ's words. Requests about accounts always need a super user or rights
on the cluster, whatever is switched off.

Decisions are remembered while the accounts stay as they are. `version` says when that ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketline.auth.accounts import Accounts
from rocketline.auth.brake import Brake
from rocketline.auth.config import AuthConfig, ReplayProtection, codes_in
from rocketline.auth.model import Level, Need, Needs, User, UserStatus, UserType, Verdict
from rocketline.auth.needs import ACCOUNT_CODES, NOT_SENT, Rule, Server, Table, is_for_every_account
from rocketline.auth.refusal_log import Reason, RefusalLog
from rocketline.auth.signatures import Signatures
from rocketline.auth.words import lacking_text
from rocketline.clock import Clock
from rocketline.errors import ProtocolError, RequestRejected
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import ONEWAY, Command
from rocketline.protocol.signing import ACCESS_KEY
from rocketline.system.sockets import is_loopback
from rocketline.transport import Channel, Reply
from rocketline.transport.timed_router import HELD

MAX_REMEMBERED = 50_000
"""Decisions."""
MAX_REMEMBERED_NAME = 255
"""Characters. A longer name is of no topic and no group, and is not remembered."""

NO_RIGHTS_REMARK = "Authorization failed. Please verify your access rights and try again."

Require = Callable[[Channel, Command, Need], None]
"""Raises RequestRejected when the sender of a request lacks a right that only its handler knows of."""


def require_nothing(channel: Channel, request: Command, need: Need) -> None:
    """For a server without accounts."""


def is_private(channel: Channel) -> bool:
    """Whether nobody on the way can read what is sent on a connection."""
    return channel.is_encrypted or is_loopback(channel.remote_ip)


GUESSES = frozenset({Reason.UNKNOWN_ACCOUNT, Reason.WRONG_SIGNATURE, Reason.REPLAYED})
"""What somebody gets who tries names and passwords."""


class Refused(RequestRejected):
    """A request that does not pass."""

    def __init__(
        self,
        reason: Reason,
        remark: str,
        need: Need | None = None,
        verdict: Verdict | None = None,
        *,
        account: str = "",
    ) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.reason = reason
        self.account = account
        """Who the sender says he is, where he may be guessing."""
        self.need = need
        self.verdict = verdict


class AccessGuard:
    """Asks every request for its account and its rights."""

    def __init__(
        self,
        accounts: Accounts,
        config: AuthConfig,
        table: Table,
        server: Server,
        serves: Callable[[int], bool],
        clock: Clock,
    ) -> None:
        """`serves` says whether there is a handler for a code: requests without one are told so once they are signed."""
        self._accounts = accounts
        self._authorizes = config.authorizes
        self._reveals = config.reveals_passwords
        self._table = table
        self._server = server
        self._serves = serves
        self._clock = clock
        self._own = config.credentials
        self._demands = config.replay_protection is ReplayProtection.DEMAND
        self._signatures = Signatures(demands_replay_fields=self._demands)
        # Whoever may make accounts may do everything: those requests are in no whitelist.
        self._needs_no_account = codes_in(config.authentication_whitelist) - ACCOUNT_CODES
        self._needs_no_right = codes_in(config.authorization_whitelist) - ACCOUNT_CODES
        self._remembered: dict[tuple[str, Need, str], Verdict] = {}
        self._remembered_version = accounts.version
        self._brake = Brake(clock)
        self.refusals = RefusalLog(clock)

    @property
    def version(self) -> int:
        """Changes when what was granted may have to be asked for again."""
        return self._accounts.version

    # For the router

    def refusal(self, channel: Channel, request: Command) -> Reply:
        try:
            user = self._check(channel, request)
        except Refused as refused:
            return self.refuse(channel, request, refused)
        if user is not None and channel.strangers is not None:
            channel.now_known()
        return None

    def late_answer(self, channel: Channel, request: Command, answer: Command | None) -> Command | None:
        """What was stored is stored; but a held pull must not give messages to somebody who lost the right."""
        if request.code not in HELD or answer is None:
            return answer
        try:
            self._check(channel, request, is_late=True)
        except Refused as refused:
            self._note(channel, request, refused)
            return _answer(request, refused)
        return answer

    # For handlers and the fast path

    def require(self, channel: Channel, request: Command, need: Need) -> None:
        """Refuse a request that passed, for a need that only its handler knows of."""
        if not self._counts_rights(request.code) or is_for_every_account(need, self._server):
            return
        user = self.caller(channel, request)
        try:
            if user is None:
                raise Refused(Reason.NO_ACCOUNT, NO_RIGHTS_REMARK)
            self._authorize(user, (need,), channel.remote_ip)
        except Refused as refused:
            self._note(channel, request, refused)
            raise

    def caller(self, channel: Channel, request: Command) -> User | None:
        """The account of a request that passed; None for one that needed none, and is not signed by the account it names."""
        if request.code in self._needs_no_account:
            return self._authenticate(channel, request, is_late=True)
        return self._accounts.user((request.ext or {}).get(ACCESS_KEY) or channel.identity)

    def caller_name(self, channel: Channel, request: Command) -> str:
        """The name of that account; "" when there is none."""
        user = self.caller(channel, request)
        return "" if user is None else user.name

    def may(self, account: str, need: Need, ip: str) -> bool:
        """Whether an account has a right now, for what a server does of its own accord."""
        user = self._accounts.user(account)
        if user is None or user.status is UserStatus.DISABLE:
            return False
        return not self._authorizes or self._decide(user, need, ip).is_allowed

    def own_account(self) -> str:
        """The account that this server signs its own requests with; "" when it has none."""
        own = self._own() if callable(self._own) else self._own
        return "" if own is None else own.access_key

    def sees_passwords(self, channel: Channel, request: Command) -> bool:
        """Whether an answer may have passwords in it: for a super user, where nobody else can read it."""
        user = self.caller(channel, request)
        return self._reveals and user is not None and user.type is UserType.SUPER and is_private(channel)

    def grant(self, channel: Channel, request: Command) -> User | None:
        """The account of a request that would pass; None when it would not, about which nothing is noted."""
        try:
            return self._check(channel, request)
        except Refused:
            return None

    def sign_in(self, channel: Channel, name: str, signed: bytes, signature: bytes) -> User:
        """The account that signed a text, for protocols with signatures of their own; raises Refused.

        Such a text says nothing about its request, so who records it could send any other."""
        user = self._account(name)
        if self._demands and not is_private(channel):
            raise Refused(
                Reason.UNPROTECTED, "this server demands replay protection, which gRPC has none of: connect by TLS."
            )
        self._slow_down(channel, name)
        if not self._signatures.is_text_signed(user, signed, signature, self._clock.now_ms()):
            raise Refused(Reason.WRONG_SIGNATURE, "check signature failed.", account=name)
        self._brake.note_good(channel, name)
        return user

    # The checks

    def _check(self, channel: Channel, request: Command, *, is_late: bool = False) -> User | None:
        """The account of a request that passes, None if it needs none; raises Refused."""
        user = self._authenticate(channel, request, is_late)
        code = request.code
        if not self._serves(code) or not self._counts_rights(code):
            return user
        if user is None:
            raise Refused(Reason.NO_ACCOUNT, NO_RIGHTS_REMARK)
        rule = self._table.get(code)
        if rule is None:
            raise Refused(Reason.NO_ROW, f"request {code} is for nobody: nothing says which right it needs.")
        if user.type is not UserType.SUPER:
            self._authorize(user, self._needs_of(rule, request), channel.remote_ip)
        return user

    def _authenticate(self, channel: Channel, request: Command, is_late: bool) -> User | None:
        try:
            return self._signer(channel, request, is_late)
        except Refused as refused:
            if request.code not in self._needs_no_account:
                raise
            if refused.reason in GUESSES and not is_late:
                self._brake.note_guess(channel, refused.account)
            return None

    def _signer(self, channel: Channel, request: Command, is_late: bool) -> User:
        """The account of a request: who signed it, or whom the certificate of the connection names."""
        signed = (request.ext or {}).get(ACCESS_KEY, "")
        user = self._account(signed or channel.identity)
        if signed:
            now_ms = self._clock.now_ms()
            if not is_late:
                self._slow_down(channel, signed)
            if not self._signatures.is_signed(user, request, now_ms):
                raise Refused(Reason.WRONG_SIGNATURE, "check signature failed.", account=signed)
            # A held request is old by now, and came in time.
            if not is_late and (problem := self._signatures.replay_problem(request, now_ms)):
                raise Refused(Reason.REPLAYED, problem, account=signed)
            self._brake.note_good(channel, signed)
        return user

    def _slow_down(self, channel: Channel, name: str) -> None:
        """Refuse to look at a signature that may be one guess of many."""
        if not self._brake.may_check(channel, name):
            raise Refused(
                Reason.TOO_MANY_GUESSES,
                f"too many wrong signatures came from {channel.remote_ip}: those for User:{name} are hardly checked now. "
                "Try again in a minute.",
            )

    def _account(self, name: str) -> User:
        """The account of a name, if it may be used."""
        if not name:
            raise Refused(Reason.NO_ACCOUNT, "username cannot be null.")
        user = self._accounts.user(name)
        if user is None:
            raise Refused(Reason.UNKNOWN_ACCOUNT, f"User:{name} is not found.", account=name)
        if user.status is UserStatus.DISABLE:
            raise Refused(Reason.DISABLED_ACCOUNT, f"User:{name} is disabled.")
        return user

    def _counts_rights(self, code: int) -> bool:
        return code not in self._needs_no_right and (self._authorizes or code in ACCOUNT_CODES)

    def _needs_of(self, rule: Rule, request: Command) -> Needs:
        try:
            return rule(request, self._server)
        except ProtocolError:
            raise Refused(Reason.UNREADABLE, "parse authorization context error.") from None

    def _authorize(self, user: User, needs: Needs, ip: str) -> None:
        if user.type is UserType.SUPER or needs is Level.ACCOUNT:
            return
        if isinstance(needs, Level):
            raise Refused(Reason.NOT_SUPER, f"User:{user.name} is no super user, and only those may do this.")
        for need in needs:
            verdict = self._decide(user, need, ip)
            if not verdict.is_allowed:
                raise _lacking(user, need, ip, verdict)

    def _decide(self, user: User, need: Need, ip: str) -> Verdict:
        remembered = self._remembered
        if self._remembered_version != self._accounts.version or len(remembered) >= MAX_REMEMBERED:
            remembered.clear()
            self._remembered_version = self._accounts.version
        key = user.name, need, ip
        verdict = remembered.get(key)
        if verdict is None:
            verdict = self._accounts.decide(user, need, ip)
            if len(need.resource.name) <= MAX_REMEMBERED_NAME:
                remembered[key] = verdict
        return verdict

    # What follows a refusal

    def refuse(self, channel: Channel, request: Command, refused: Refused) -> Reply:
        """The answer to a request that does not pass; for who guesses much it comes late."""
        self._note(channel, request, refused)
        answer = _answer(request, refused)
        if refused.reason is Reason.TOO_MANY_GUESSES:
            pace = self._brake.late_or_closed()
        elif refused.reason in GUESSES:
            pace = self._brake.note_guess(channel, refused.account)
        else:
            return answer
        if pace.closes:
            # After the answers of this read are written.
            asyncio.get_running_loop().call_soon(channel.close)
        if not pace.is_late or request.flag & ONEWAY:
            return answer
        return self._brake.later(answer)

    def _note(self, channel: Channel, request: Command, refused: Refused) -> None:
        self.refusals.note(channel, request, refused.reason, refused.remark, refused.need, refused.verdict)


def _answer(request: Command, refused: Refused) -> Command:
    answer = request.reply(refused.code, remark=refused.remark)
    answer.ext = None
    return answer


def _lacking(user: User, need: Need, ip: str, verdict: Verdict) -> Refused:
    kind, name = need.resource
    # A name that was not sent is called as RocketMQ calls it.
    resource = f"{kind.name.capitalize()}:null" if name == NOT_SENT else str(need.resource)
    start = f"{lacking_text(user.name)}{resource} from {ip}"
    if verdict.entry is None:
        return Refused(Reason.NO_RIGHT, f"{start}, no matched policies.", need, verdict)
    return Refused(Reason.DENIED, f"{start}, the decision is deny.", need, verdict)
