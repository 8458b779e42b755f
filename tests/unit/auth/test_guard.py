"""Who passes a guard, what the others are told, and what is remembered of them."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.auth.peers import peer

from rocketline.auth import brake, refusal_log
from rocketline.auth.accounts import Accounts
from rocketline.auth.config import AuthConfig, ReplayProtection
from rocketline.auth.guard import AccessGuard, Refused
from rocketline.auth.model import (
    Acl,
    Action,
    Decision,
    Entry,
    Pattern,
    ResourceKind,
    Target,
    User,
    UserStatus,
    UserType,
)
from rocketline.auth.needs import BROKER, CREATE, PUB, Server, topic_need
from rocketline.auth.refusal_log import Reason
from rocketline.clock import ManualClock
from rocketline.errors import RequestRejected
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import ONEWAY, Command
from rocketline.protocol.signing import SIGNED_CODE, Credentials
from rocketline.store.files.disk import RealDisk

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
SECRET = "amy-secret"


class Gate:
    """A guard, its accounts, and a clock that stands still."""

    def __init__(self, config: AuthConfig | None = None) -> None:
        self.clock = ManualClock()
        self.accounts = Accounts.open(None, RealDisk())
        self.accounts.create_user(User("amy", SECRET))
        self.accounts.create_user(User("root", "root-secret", UserType.SUPER))
        self.accounts.create_user(User("off", SECRET, status=UserStatus.DISABLE))
        server = Server("here", "traces")
        config = config or AuthConfig(enabled=True)
        self.guard = AccessGuard(self.accounts, config, BROKER, server, lambda code: code != 9999, self.clock)

    def allow(self, topic: str, *actions: Action, decision: Decision = Decision.ALLOW) -> None:
        entry = Entry(Target(ResourceKind.TOPIC, Pattern.LITERAL, topic), actions, decision)
        self.accounts.put_entries("amy", Acl((entry,)))

    def ask(self, request: Command, channel: Any = None) -> str:
        """What the answer says; "" when the request passes."""
        answer = self.guard.refusal(channel or peer(), request)
        if answer is None:
            return ""
        assert isinstance(answer, Command)
        assert (answer.code, answer.ext, answer.opaque) == (16, None, request.opaque)
        return answer.remark or "?"


@pytest.fixture
def gate() -> Gate:
    return Gate()


def send(topic: str = "orders", account: str = "amy", secret: str = SECRET) -> Command:
    request = Command(SEND, {"b": topic}, b"body", opaque=7)
    Credentials(account, secret).sign(request)
    return request


NO_RIGHT = "User:amy has no permission to access Topic:orders from 192.0.2.7, no matched policies."


@pytest.mark.parametrize(
    ("request_", "remark"),
    [
        (Command(SEND), "username cannot be null."),
        (Command(SEND, {}), "username cannot be null."),
        (Command(SEND, {"AccessKey": "", "Signature": "x"}), "username cannot be null."),
        (Command(SEND, {"accessKey": "amy", "Signature": "x"}), "username cannot be null."),
        (Command(9999), "username cannot be null."),
        (Command(SEND, {"AccessKey": "amy", "b": "orders"}), "check signature failed."),
        (send(account="bob"), "User:bob is not found."),
        (send(account="off"), "User:off is disabled."),
        (send(secret="wrong"), "check signature failed."),
        (send(), NO_RIGHT),
        (send(account="root", secret="root-secret"), ""),
    ],
)
async def test_who_passes(gate: Gate, request_: Command, remark: str) -> None:
    assert gate.ask(request_) == remark


async def test_rights(gate: Gate) -> None:
    gate.allow("orders", Action.PUB)
    assert gate.ask(send()) == ""
    assert gate.ask(send("other")) == NO_RIGHT.replace("orders", "other")
    assert gate.ask(send("traces")) == ""
    missing = Command(SEND, {})
    Credentials("amy", SECRET).sign(missing)
    assert gate.ask(missing) == NO_RIGHT.replace("orders", "null")
    gate.allow("orders", Action.PUB, decision=Decision.DENY)
    assert gate.ask(send()) == NO_RIGHT.replace("no matched policies", "the decision is deny")


async def test_a_number_without_handler_needs_only_a_signature(gate: Gate) -> None:
    request = Command(9999)
    Credentials("amy", SECRET).sign(request)
    assert gate.ask(request) == ""


async def test_a_certificate_stands_for_a_signature(gate: Gate) -> None:
    gate.allow("orders", Action.PUB)
    assert gate.ask(Command(SEND, {"b": "orders"}), peer(identity="amy")) == ""
    assert gate.ask(Command(SEND, {"b": "other"}), peer(identity="amy")) == NO_RIGHT.replace("orders", "other")
    assert gate.ask(Command(SEND, {"b": "orders"}), peer(identity="bob")) == "User:bob is not found."
    # A signature counts for more than the certificate.
    assert gate.ask(send(secret="wrong"), peer(identity="root")) == "check signature failed."


async def test_a_signature_for_another_request_is_refused(gate: Gate) -> None:
    request = Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders", SIGNED_CODE: "202"})
    Credentials("root", "root-secret").sign(request)
    assert "signed as another one" in gate.ask(request)
    assert gate.guard.refusals.counts == {Reason.REPLAYED: 1}


@pytest.mark.parametrize(("code", "is_open"), [(SEND, True), (26, True), (3001, False), (3004, False)])
async def test_without_authorization_only_accounts_need_rights(code: int, is_open: bool) -> None:
    gate = Gate(AuthConfig(enabled=True, authorization="false"))
    request = Command(code, {"b": "orders"})
    Credentials("amy", SECRET).sign(request)
    assert (gate.ask(request) == "") is is_open


async def test_changes_count_from_the_next_request_on(gate: Gate) -> None:
    assert gate.ask(send()) == NO_RIGHT
    before = gate.guard.version
    gate.allow("orders", Action.PUB)
    assert gate.guard.version != before
    assert gate.ask(send()) == ""
    gate.accounts.delete_user("amy", lambda user: None)
    assert gate.ask(send()) == "User:amy is not found."


async def test_a_held_pull_is_checked_again(gate: Gate) -> None:
    entries = tuple(
        Entry(Target(kind, Pattern.ANY, ""), (Action.SUB,), Decision.ALLOW)
        for kind in (ResourceKind.TOPIC, ResourceKind.GROUP)
    )
    gate.accounts.put_entries("amy", Acl(entries))
    pull = Command(PULL, {"topic": "orders", "consumerGroup": "g"})
    Credentials("amy", SECRET).sign(pull)
    answer, channel = pull.reply(0, body=b"messages"), peer()
    assert gate.ask(pull, channel) == ""
    gate.clock.advance(3600)  # a held request is not too old
    assert gate.guard.late_answer(channel, pull, answer) is answer
    gate.accounts.delete_user("amy", lambda user: None)
    late = gate.guard.late_answer(channel, pull, answer)
    assert late is not None
    assert (late.code, late.body, late.remark) == (16, b"", "User:amy is not found.")
    stored = send()
    assert gate.guard.late_answer(channel, stored, answer) is answer  # what is stored is stored


async def test_rights_that_only_a_handler_knows_of(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    gate.guard.require(peer(), send(account="root"), topic_need("orders", PUB))
    gate.guard.require(peer(), send(), topic_need("traces", CREATE))
    with pytest.raises(RequestRejected, match="Topic:orders from"):
        gate.guard.require(peer(), send(), topic_need("orders", CREATE))
    assert gate.guard.refusals.counts == {Reason.NO_RIGHT: 1}


async def test_only_names_that_can_exist_are_remembered(gate: Gate) -> None:
    gate.allow("orders", Action.PUB)
    for length in (255, 256, 60_000):
        assert gate.ask(send("t" * length))
    assert [len(need.resource.name) for _, need, _ in gate.guard._remembered] == [255]


async def test_who_needs_no_account_is_nobody_unless_he_signed() -> None:
    gate = Gate(AuthConfig(enabled=True, authentication_whitelist="906", authorization_whitelist="906"))
    unsigned = Command(RequestCode.EXCHANGE_BROKER_HA_INFO, {"AccessKey": "root"})
    signed = Command(RequestCode.EXCHANGE_BROKER_HA_INFO, {})
    Credentials("root", "root-secret").sign(signed)
    assert (gate.ask(unsigned), gate.ask(signed)) == ("", "")
    assert gate.guard.caller(peer(), unsigned) is None
    assert gate.guard.caller_name(peer(), signed) == "root"


async def test_the_fast_path_asks_without_a_trace(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rocketline.audit")
    gate.allow("orders", Action.PUB)
    user = gate.guard.grant(peer(), send())
    assert user is not None and user.name == "amy"
    assert gate.guard.grant(peer(), send("other")) is None
    assert gate.guard.grant(peer(), send(secret="wrong")) is None
    assert not gate.guard.refusals.counts
    assert not caplog.records


async def test_passwords_are_shown_to_super_users_of_this_machine_only() -> None:
    revealing = Gate(AuthConfig(enabled=True, reveals_passwords=True)).guard
    root, amy = Command(3004, {"AccessKey": "root"}), Command(3004, {"AccessKey": "amy"})
    assert revealing.sees_passwords(peer("127.0.0.1"), root)
    assert not revealing.sees_passwords(peer("127.0.0.1"), amy)
    assert not revealing.sees_passwords(peer("192.0.2.7"), root)
    assert not Gate().guard.sees_passwords(peer("127.0.0.1"), root)


# Guessing


@pytest.mark.parametrize(
    ("ip", "is_encrypted", "passes"),
    [("192.0.2.7", False, False), ("192.0.2.7", True, True), ("127.0.0.1", False, True)],
)
async def test_a_text_that_can_be_sent_again_is_taken_where_nobody_reads_it(
    ip: str, is_encrypted: bool, passes: bool
) -> None:
    """What is signed in another protocol says nothing about its request. Servers that demand that take it in private."""
    signature = hmac.digest(SECRET.encode(), b"20260101T000000Z", "sha1")
    demanding = Gate(AuthConfig(enabled=True, replay_protection=ReplayProtection.DEMAND))
    channel = peer(ip)
    channel.is_encrypted = is_encrypted
    for guard in (Gate().guard, *((demanding.guard,) if passes else ())):
        assert guard.sign_in(channel, "amy", b"20260101T000000Z", signature).name == "amy"
    if not passes:
        with pytest.raises(Refused, match="by TLS"):
            demanding.guard.sign_in(channel, "amy", b"20260101T000000Z", signature)


async def test_a_connection_that_guesses_is_closed(gate: Gate) -> None:
    channel, other = peer(), peer()
    for _ in range(brake.MAX_GUESSES):
        assert not channel.is_closed
        assert gate.ask(send(secret="wrong"), channel) == "check signature failed."
        await asyncio.sleep(0)
    assert channel.is_closed
    for _ in range(3 * brake.MAX_GUESSES):
        gate.ask(send(), other)  # lacks a right, and guesses nothing
        gate.ask(Command(SEND), other)
        await asyncio.sleep(0)
    assert not other.is_closed


async def test_an_address_that_guesses_is_answered_late(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "DELAY_S", 0.01)
    for _ in range(brake.MAX_GUESSES_A_MINUTE):
        assert gate.ask(send(account="bob"), peer()) == "User:bob is not found."
    late = gate.guard.refusal(peer(), send(account="bob"))
    assert isinstance(late, Awaitable)
    answer = await late
    assert answer is not None
    assert answer.remark == "User:bob is not found."
    assert gate.ask(send(account="bob"), peer("192.0.2.8")) == "User:bob is not found."
    oneway = send(account="bob")
    oneway.flag = ONEWAY
    assert isinstance(gate.guard.refusal(peer(), oneway), Command)
    gate.clock.advance(brake.WINDOW_S)
    assert gate.ask(send(account="bob"), peer()) == "User:bob is not found."


async def test_a_right_guess_is_no_faster_than_others(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "DELAY_S", 0.01)
    signed_before, right = peer(), send()
    gate.allow("orders", Action.PUB)
    assert gate.ask(right, signed_before) == ""
    for _ in range(brake.MAX_GUESSES_A_MINUTE):
        gate.ask(send(secret="wrong"), peer())  # each on a connection of its own
    assert gate.ask(right, peer()) == ""  # one signature is checked ...
    for guess in (right, send(secret="wrong")):  # ... and all others look alike
        late = gate.guard.refusal(peer(), guess)
        assert isinstance(late, Awaitable)
        answer = await late
        assert answer is not None
        assert (answer.remark or "").startswith("too many wrong signatures came from 192.0.2.7")
    assert gate.guard.refusals.counts[Reason.WRONG_SIGNATURE] == brake.MAX_GUESSES_A_MINUTE
    # Nobody else notices: who signed well before, other accounts, other addresses.
    assert gate.ask(right, signed_before) == ""
    assert gate.ask(send(account="root", secret="root-secret"), peer()) == ""
    assert gate.ask(right, peer("192.0.2.8")) == ""
    gate.clock.advance(brake.CHECK_PAUSE_S)
    assert gate.ask(right, peer()) == ""
    gate.clock.advance(brake.WINDOW_S)
    assert [gate.ask(right, peer()) for _ in range(3)] == ["", "", ""]


async def test_a_network_of_64_bits_counts_as_one_address(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "DELAY_S", 0.01)
    for number in range(brake.MAX_GUESSES_A_MINUTE):
        assert gate.ask(send(account="bob"), peer(f"2001:db8:0:1::{number:x}"))
    assert isinstance(gate.guard.refusal(peer("2001:db8:0:1:ffff::1"), send(account="bob")), Awaitable)
    assert gate.ask(send(account="bob"), peer("2001:db8:0:2::1")) == "User:bob is not found."


async def test_late_answers_are_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "MAX_LATE", 1)
    for _ in range(brake.MAX_GUESSES_A_MINUTE):
        gate.ask(send(account="bob"), peer())
    late = gate.guard.refusal(peer(), send(account="bob"))
    assert isinstance(late, asyncio.Future)
    one_too_many = peer()
    assert gate.ask(send(account="bob"), one_too_many) == "User:bob is not found."
    await asyncio.sleep(0)
    assert one_too_many.is_closed
    late.cancel()  # its connection ended
    await asyncio.sleep(0)
    next_late = gate.guard.refusal(peer(), send(account="bob"))
    assert isinstance(next_late, asyncio.Future)
    next_late.cancel()


# The audit log


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.name == "rocketline.audit"]


async def test_refusals_are_told_once_in_ten_seconds(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rocketline.audit")
    channel = peer()
    for _ in range(5):
        gate.ask(send(), channel)
    assert told(caplog) == [
        {
            "who": "192.0.2.7:5000", "access_key": "amy", "what": "SEND_MESSAGE_V2", "resource": "Topic:orders",
            "result": "REFUSED", "reason": "no_right", "why": NO_RIGHT, "count": 1,
        }
    ]  # fmt: skip
    gate.clock.advance(refusal_log.PAUSE_S)
    gate.allow("orders", Action.PUB, decision=Decision.DENY)
    gate.ask(send(), peer("192.0.2.8", identity="amy"))
    assert [(line["reason"], line["count"], line.get("entry")) for line in told(caplog)[1:]] == [
        ("no_right", 4, None),
        ("denied", 1, "Topic:orders"),
    ]
    assert SECRET not in caplog.text
    assert send().ext["Signature"] not in caplog.text  # type: ignore[index]


async def test_counts_are_written_without_another_refusal(
    gate: Gate, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "rocketline.audit")
    monkeypatch.setattr(refusal_log, "PAUSE_S", 0.01)
    for _ in range(5):
        gate.ask(send(), peer())
    gate.clock.advance(1)
    async with asyncio.timeout(PATIENCE_S):
        while len(told(caplog)) < 2:
            await asyncio.sleep(0.001)
    assert [line["count"] for line in told(caplog)] == [1, 4]
    for _ in range(3):
        gate.ask(send(), peer())
    gate.guard.refusals.close()
    assert [line["count"] for line in told(caplog)[2:]] == [1, 2]


async def test_many_names_fill_no_disk(
    gate: Gate, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "rocketline.audit")
    monkeypatch.setattr(refusal_log, "MAX_KEPT", 10)
    for number in range(50):
        gate.ask(Command(SEND, {"AccessKey": f"name{number}"}), peer())
    assert len(told(caplog)) == 10
    gate.clock.advance(refusal_log.PAUSE_S)
    gate.ask(Command(SEND), peer())
    assert [line["count"] for line in told(caplog)[10:]] == [40, 1]
    assert gate.guard.refusals.counts[Reason.UNKNOWN_ACCOUNT] == 50
