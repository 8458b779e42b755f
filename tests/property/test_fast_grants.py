"""With accounts, the fast path of sends stores and answers what the general path does, and nothing that a guard refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_fast_sends import batch, left_by, others, plain_command, reads_of, send_commands, served_fast
from tests.support.compiled import few, needs_compiled, thorough
from tests.unit.broker.parts import Parts, Peer, Setup

from rocketline.auth import needs
from rocketline.auth.account_files import NoFiles
from rocketline.auth.accounts import Accounts
from rocketline.auth.config import AuthConfig, ReplayProtection
from rocketline.auth.guard import AccessGuard
from rocketline.auth.model import Acl, Action, Decision, Entry, Pattern, ResourceKind, Target, User, UserStatus
from rocketline.auth.signatures import MAX_AGE_MS
from rocketline.broker.fastpath import fast_path_of, grants
from rocketline.broker.fastpath.path import MANY_CONNECTIONS as MANY
from rocketline.broker.handler_wiring import pull_handlers, send_handlers
from rocketline.broker.selection import Selections
from rocketline.errors import RequestRejected
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import ROCKETMQ, Command
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.protocol.message_ids import UniqueIds
from rocketline.protocol.records import BatchItem
from rocketline.protocol.signing import SIGNED_CODE, SIGNED_FIELDS, SIGNED_MS, Credentials, field_list

pytestmark = needs_compiled

ALICE, BOB = Credentials("alice", "secret of alice"), Credentials("bob", "b" * 70)
LIAR = Credentials("alice", "another secret")
NOW_MS = Setup().clock.now_ms()


def pub(topic: str, decision: Decision = Decision.ALLOW) -> Acl:
    return Acl((Entry(Target(ResourceKind.TOPIC, Pattern.LITERAL, topic), (Action.PUB,), decision),))


class Guarded(Parts):
    """A broker with accounts: alice may send to `plain` and `other`, bob to `other` alone."""

    def __init__(self, setup: Setup | None = None, fast: bool = True, **settings: Any) -> None:
        super().__init__(setup or Setup(log_segment_bytes=64 << 10, timer_slots=120))
        self.put_topic("plain")
        self.put_topic("other", 1)
        self.people = Accounts(NoFiles())
        for user in (ALICE, BOB):
            self.people.create_user(User(user.access_key, user.secret_key))
            self.people.put_entries(user.access_key, pub("other"))
        self.people.put_entries("alice", pub("plain"))
        self.guard = AccessGuard(
            self.people,
            AuthConfig(enabled=True, **settings),
            needs.BROKER,
            needs.Server(),
            lambda code: code in self.router.codes,
            self.clock,
        )
        self.router.guard = self.guard
        selections = Selections(self.filters, sql_enabled=False, filters_retries=False)
        sends, pulls = send_handlers(self), pull_handlers(self, selections)
        self.router.fast_path = fast_path_of(sends, pulls, self.setup.limits, None, self.guard) if fast else None


def signed(command: Command, by: Credentials = ALICE) -> bytes:
    by.sign(command)
    return frame_bytes(command)


def plain(number: int, by: Credentials = ALICE, topic: str = "plain", queue_id: int = 0) -> bytes:
    return signed(plain_command(number, topic, queue_id), by)


def codes_of(peer: Peer) -> dict[int, int]:
    return {answer.opaque: answer.code for answer in peer.received()}


EVENTS: dict[str, Callable[[Guarded], object]] = {
    "revoked": lambda parts: parts.people.put_entries("alice", pub("plain", Decision.DENY)),
    "granted": lambda parts: parts.people.put_entries("bob", pub("plain")),
    "deleted": lambda parts: parts.people.delete_user("alice", lambda user: None),
    "disabled": lambda parts: parts.people.update_user("alice", lambda u: replace(u, status=UserStatus.DISABLE)),
    "another secret": lambda parts: parts.people.update_user("alice", lambda u: replace(u, password=LIAR.secret_key)),
    "two secrets": lambda parts: parts.people.update_user(
        "alice", lambda u: replace(u, second_password=LIAR.secret_key, second_until_ms=NOW_MS + 10)
    ),
    "topic": lambda parts: parts.put_topic("plain", 4, perm=4),
    "later": lambda parts: parts.clock.advance(MAX_AGE_MS / 1000),
}


@st.composite
def signed_sends(draw: st.DrawFn) -> bytes:
    command = draw(send_commands())
    more = draw(
        st.sampled_from(
            [{}, {}, {}, {"x": "1"}, {"_UNIQUE_KEY_QUERY": "true"}, {"SecurityToken": "t"}, {"_rl_x": "1"}, {"ü": "1"}]
        )
    )
    code, at_ms = draw(st.sampled_from([(None, None), (None, None), (0, 0), (0, 0), (1, 0), (0, -MAX_AGE_MS - 100)]))
    if code is not None:
        more = more | {SIGNED_CODE: str(command.code + code), SIGNED_MS: str(NOW_MS + (at_ms or 0))}
    command.ext = (command.ext or {}) | more
    by = draw(st.sampled_from([ALICE, ALICE, ALICE, ALICE, BOB, LIAR, None]))
    if by is not None:
        listed = draw(st.sampled_from([True, True, True, code is None, False]))
        if listed and (code is not None or draw(st.integers(0, 9)) == 0):
            command.ext[SIGNED_FIELDS] = field_list(command.ext | {"AccessKey": by.access_key})
        by.sign(command)
    change = draw(st.sampled_from([None] * 12 + ["body", "AccessKey", "Signature", "a", "b", "swap", "added", "list"]))
    if change == "body":
        command.body += b"!"
    elif change == "added" and command.ext:
        command.ext.setdefault("n", "")
    elif change == "list" and command.ext:
        command.ext.pop(SIGNED_FIELDS, None)
    elif change == "swap" and command.ext:  # the values are signed, and not their names
        command.ext["f"], command.ext["h"] = command.ext.get("h", ""), command.ext.get("f", "")
    elif change is not None and command.ext:
        command.ext[change] = draw(st.sampled_from(["", "other", "bob", command.ext.get(change, "").lower()]))
    return frame_bytes(command)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    frame = bytearray(draw(signed_sends()))
    frame[draw(st.integers(8, len(frame) - 1))] ^= draw(st.integers(1, 255))
    return bytes(frame)


@st.composite
def twice(draw: st.DrawFn) -> bytes:
    """A send with a field twice."""
    frame = plain(1)
    name = draw(st.sampled_from(["b", "AccessKey", "Signature", "i", "x"]))
    text = frame[8:-1].replace(b'"extFields":{', b'"extFields":{"%s":"other",' % name.encode())
    return (len(text) + 5).to_bytes(4) + len(text).to_bytes(4) + text + frame[-1:]


frames = signed_sends() | signed_sends() | signed_sends() | signed_sends() | others | damaged() | twice()
turns = st.lists(
    st.tuples(
        st.lists(frames, min_size=1, max_size=8),
        st.lists(st.integers(0), max_size=2),
        st.sampled_from([*EVENTS, *[""] * 8]),
    ),
    min_size=1,
    max_size=4,
)


async def run(steps: Sequence[bytes | str], fast: bool, **settings: Any) -> dict[str, Any]:
    parts = Guarded(fast=fast, **settings)
    served = served_fast(parts)
    try:
        peer = parts.peer()
        for step in steps:
            parts.clock.advance(0.001)
            if isinstance(step, str):
                with suppress(RequestRejected):  # an account that was deleted before
                    EVENTS[step](parts)
            elif peer.channel.is_open:
                peer.channel.data_received(step)
                parts.dispatch()
        await asyncio.sleep(0)
        parts.dispatch()
        assert fast or served == [0]
        return left_by(parts, peer) | {"refused": parts.guard.refusals.counts}
    finally:
        parts.close()
        await asyncio.sleep(0)


def left_by_each_path(steps: Sequence[bytes | str], **settings: Any) -> list[dict[str, Any]]:
    left = []
    for fast in (False, True):
        with patch.object(UniqueIds, "next", side_effect=(f"{number:032X}" for number in count())):
            left.append(asyncio.run(run(steps, fast, **settings)))
    return left


def steps_of(turns: Sequence[tuple[list[bytes], list[int], str]]) -> list[bytes | str]:
    steps: list[bytes | str] = [plain(9), plain(9)]
    for number, (frames, cuts, event) in enumerate(turns):
        steps += reads_of(frames, cuts)
        steps += [event] if event else []
        steps += [plain(number), plain(number)]
    return steps


@thorough
@given(turns)
def test_both_paths_leave_the_same(turns: list[tuple[list[bytes], list[int], str]]) -> None:
    general, fast = left_by_each_path(steps_of(turns))
    assert fast == general


@few
@given(turns, st.sampled_from([{"replay_protection": ReplayProtection.DEMAND}, {"authorization_whitelist": "310"}]))
def test_both_paths_leave_the_same_with_other_settings(
    turns: list[tuple[list[bytes], list[int], str]], settings: dict[str, Any]
) -> None:
    general, fast = left_by_each_path(steps_of(turns), **settings)
    assert fast == general


async def test_sends_of_an_account_with_the_right_take_the_fast_path() -> None:
    """Whatever their length, and however many come at once; signed with a time or without."""
    parts = Guarded(Setup(timer_slots=120))
    random = Random(1)
    for by in (ALICE, BOB):
        peer, served, sent = parts.peer(), served_fast(parts), 0
        peer.channel.data_received(plain(0, by, "other"))
        assert served == [0], "the first of a connection is not known yet"
        for number in range(40):
            read = b""
            for _ in range(random.randrange(1, 12)):
                command = plain_command(sent, "other")
                command.body = random.randbytes(number * 5 + random.choice([0, 0, 0, random.randrange(5000)]))
                command.encoding = random.choice([command.encoding, ROCKETMQ])
                if random.random() < 0.5:
                    fields = {SIGNED_CODE: "310", SIGNED_MS: str(parts.clock.now_ms() + random.randrange(-9999, 9999))}
                    command.ext = (command.ext or {}) | fields
                    sent_fields = command.ext | {"AccessKey": by.access_key}
                    if command.encoding == ROCKETMQ:
                        sent_fields = {name: value for name, value in sent_fields.items() if value}
                    command.ext[SIGNED_FIELDS] = field_list(sent_fields)
                read += signed(command, by)
                sent += 1
            peer.channel.data_received(read)
        assert served == [sent]
        assert set(codes_of(peer).values()) == {0}
    parts.close()


async def test_a_grant_is_for_one_account_one_topic_and_one_code() -> None:
    """The whitelist is for single sends, so bob may send to `plain`, and no batch."""
    parts = Guarded(authorization_whitelist="310")
    peer, served = parts.peer(), served_fast(parts)
    steps = [
        (plain(0, BOB), 0, False),
        (plain(1, BOB), 0, True),
        (signed(_batch_to("plain", 2), BOB), 16, False),
        (signed(_batch_to("other", 3), BOB), 0, False),
        (signed(_batch_to("other", 4), BOB), 0, True),
        (plain(5, ALICE), 0, False),
        (plain(6, LIAR), 16, False),
        (plain(7, ALICE), 0, True),
    ]
    for frame, code, is_fast in steps:
        before = served[0]
        peer.channel.data_received(frame)
        assert (list(codes_of(peer).values()), served[0] - before) == ([code], is_fast)
    parts.close()


def _batch_to(topic: str, number: int) -> Command:
    (command,) = Connection().receive(batch(number, [BatchItem(0, b"x", b"")]))
    command.ext = (command.ext or {}) | {"b": topic}
    return command


async def test_the_account_of_a_certificate_needs_no_signature() -> None:
    parts = Guarded()
    peer, served = parts.peer(), served_fast(parts)
    peer.channel.identity = "alice"
    for number in range(3):
        peer.channel.data_received(frame_bytes(plain_command(number)))
    assert served == [2]
    peer.channel.data_received(plain(3, BOB))
    parts.people.put_entries("alice", pub("plain", Decision.DENY))
    peer.channel.data_received(frame_bytes(plain_command(4)))
    assert served == [2]
    assert codes_of(peer) == {0: 0, 1: 0, 2: 0, 3: 16, 4: 16}, "who signs is who signed"
    parts.close()


async def test_a_change_counts_for_all_connections_and_for_reads_that_are_kept() -> None:
    parts = Guarded()
    peers = [parts.peer(("192.0.2.5", 40000 + number)) for number in range(2 * MANY)]
    served = served_fast(parts)
    for turn in range(4):
        for number, peer in enumerate(peers):
            peer.channel.data_received(plain(turn, (ALICE, LIAR)[number == 1 and turn == 3], queue_id=number % 4))
        if turn == 3:
            assert served == [2 * 2 * MANY], "the reads of this turn are kept"
            parts.people.update_user("alice", lambda u: replace(u, password=LIAR.secret_key))
        await asyncio.sleep(0)
    expected = {0: 0, 1: 0, 2: 0, 3: int(ResponseCode.NO_PERMISSION)}
    assert [codes_of(peer) for peer in peers] == [expected, expected | {3: 0}, *[expected] * (2 * MANY - 2)]
    assert sum(len(parts.messages("plain", queue_id)) for queue_id in range(4)) == 3 * 2 * MANY + 1
    parts.close()


async def test_what_is_remembered_of_a_connection_is_bounded_and_says_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grants, "MAX_PLACES", 1)
    parts = Guarded()
    peer, served = parts.peer(), served_fast(parts)
    for topic in ("plain", "other", "other"):
        peer.channel.data_received(plain(0, ALICE, topic))
    grant = peer.channel.fast.grant  # type: ignore[union-attr]
    assert (served, list(grant.sends)) == ([1], ["other"])
    assert repr(grant) == "Grant(account=b'alice')"
    parts.close()
