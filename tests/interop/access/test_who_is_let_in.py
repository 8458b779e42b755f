"""Signatures: which requests Apache's broker and ours take for an account's own, and what they say to the others."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.interop.access.conftest import Sides
from tests.support.access.cases import (
    BAD_SIGNATURE,
    NO_ACCOUNT,
    PASSED,
    Case,
    Said,
    check,
    denied,
    no_right,
    not_found,
    said,
)
from tests.support.access.frames import Account, Peer, binary_frame, frame, oneway, signed
from tests.support.access.world import (
    DELETE_USER,
    GET_USER,
    LIST_ACL,
    NOBODY,
    OFF,
    ORDERS,
    PUB,
    ROOT,
    UMLAUT,
    Rights,
    Side,
    account,
    allow,
    deny,
    send,
    send_fields,
)

from rocketline.protocol.codes import RequestCode

pytestmark = pytest.mark.interop

SEND = RequestCode.SEND_MESSAGE_V2
QUERY = RequestCode.QUERY_MESSAGE
FIELDS = send_fields(ORDERS)
SIGNED = PUB.sign(FIELDS, b"x")
ASKED = {"username": "w1", "AccessKey": "root", "Signature": "r7WPgR7s4gg9kraQ9Hv5No/aMTU="}
"""As `mqadmin` 5.4.0 signed it."""
KEYS = {"topic": ORDERS, "key": "no message has it", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(2**62)}
UNIQUE = {**KEYS, "_UNIQUE_KEY_QUERY": "true"}
NOT_SERVED = Said(3, "request type 7777 not supported")
NONE_FOUND = Said(22, "can not find message, maybe time range not correct")


def _sent(fields: dict[str, object] | None, body: bytes = b"x") -> bytes:
    return frame(SEND, fields, body)


def _without(name: str) -> dict[str, object]:
    return {key: value for key, value in SIGNED.items() if key != name}


def _query(version: int, *unsigned: str) -> bytes:
    return frame(QUERY, ROOT.sign(UNIQUE, unsigned=unsigned), version=version)


CASES = [
    Case("no header fields at all", _sent(None), NO_ACCOUNT),
    Case("empty header fields", _sent({}), NO_ACCOUNT),
    Case("no AccessKey", _sent(_without("AccessKey")), NO_ACCOUNT),
    Case("an empty AccessKey", _sent({**SIGNED, "AccessKey": ""}), NO_ACCOUNT),
    Case("accessKey in another case", _sent({**_without("AccessKey"), "accessKey": PUB.name}), NO_ACCOUNT),
    Case("an unknown account", send(account("who"), ORDERS), not_found("who")),
    Case("a disabled account", send(OFF, ORDERS), Said(16, "User:off is disabled.")),
    Case("another secret", send(Account(PUB.name, "wrong"), ORDERS), BAD_SIGNATURE),
    Case("no signature", _sent(_without("Signature")), BAD_SIGNATURE),
    Case("an empty signature", _sent({**SIGNED, "Signature": ""}), BAD_SIGNATURE),
    Case("another case", _sent({**SIGNED, "Signature": str(SIGNED["Signature"]).swapcase()}), BAD_SIGNATURE),
    Case("a newline at its end", _sent({**SIGNED, "Signature": f"{SIGNED['Signature']}\n"}), BAD_SIGNATURE),
    Case("a field more", _sent({**SIGNED, "z": "1"}), BAD_SIGNATURE),
    Case("a field less", _sent(_without("i")), BAD_SIGNATURE),
    Case("a field changed", _sent({**SIGNED, "e": "1"}), BAD_SIGNATURE),
    Case("another body", _sent(SIGNED, b"y"), BAD_SIGNATURE),
    Case("another account's name", _sent({**SIGNED, "AccessKey": ROOT.name}), BAD_SIGNATURE),
    Case("an unknown field, signed", _sent(PUB.sign({**FIELDS, "z": "1"}, b"x")), PASSED),
    Case("a token, signed", _sent(PUB.sign({**FIELDS, "SecurityToken": "t"}, b"x")), PASSED),
    Case("get user as mqadmin signs it", frame(GET_USER, ASKED), PASSED),
    Case("list ACL as mqadmin signs it", frame(LIST_ACL, {**ASKED, "username": "", "subjectFilter": "w1"}), PASSED),
    Case("letters beyond ASCII", send(UMLAUT, ORDERS, "Grüße €".encode(), i="KEYS\x01schön 😀\x02"), PASSED),
    Case("names in Java's order", _sent(PUB.sign({**FIELDS, "\uffff": "1", "\U00010000": "2"}, b"x")), PASSED),
    Case("a binary header", binary_frame(SEND, PUB.sign(FIELDS, b"x"), b"x"), PASSED),
    Case("a binary header, forged", binary_frame(SEND, {**SIGNED, "e": "1"}, b"x"), BAD_SIGNATURE),
    Case("an empty value in JSON", _sent(PUB.sign({**FIELDS, "n": ""}, b"x")), PASSED),
    Case(
        "an empty value in a binary header, signed as empty",
        binary_frame(SEND, PUB.sign({**FIELDS, "n": ""}, b"x"), b"x"),
        BAD_SIGNATURE,
        PASSED,
    ),
    Case(
        "an empty value in a binary header, signed as null",
        binary_frame(SEND, {**PUB.sign({**FIELDS, "n": "null"}, b"x"), "n": ""}, b"x"),
        PASSED,
    ),
    Case("null in JSON", _sent(PUB.sign({**FIELDS, "n": None}, b"x")), PASSED),
    Case("a number in JSON", _sent(PUB.sign({**FIELDS, "z": 7}, b"x")), PASSED),
    Case("a boolean in JSON", _sent(PUB.sign({**FIELDS, "z": True}, b"x")), PASSED),
    Case("null in JSON, not signed", _sent({**SIGNED, "z": None}), BAD_SIGNATURE, PASSED),
    Case("a query by unique key of version 399, key not signed", _query(399, "_UNIQUE_KEY_QUERY"), NONE_FOUND),
    Case("a query by unique key of version 399, key signed", _query(399), BAD_SIGNATURE),
    Case("a query by unique key of version 401, key not signed", _query(401, "_UNIQUE_KEY_QUERY"), BAD_SIGNATURE),
    Case("a query by unique key of version 401, key signed", _query(401), NONE_FOUND),
    Case("a query by unique key of version 493, key not signed", _query(493, "_UNIQUE_KEY_QUERY"), BAD_SIGNATURE),
    Case("a query by unique key of version 493, key signed", _query(493), NONE_FOUND),
    Case("a code that nobody serves, no account", frame(7777, {}), NO_ACCOUNT),
    Case("a code that nobody serves", signed(NOBODY, 7777), Said(3, " request type 7777 not supported"), NOT_SERVED),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_request(sides: Sides, case: Case) -> None:
    check(sides, case)


@pytest.mark.parametrize(
    "case", [case for case in CASES if (case.ours or case.theirs) == BAD_SIGNATURE], ids=lambda case: case.name
)
def test_a_connection_that_has_sent_well_is_not_trusted(ours: Side, case: Case) -> None:
    before = ours.mark(ORDERS)
    with Peer(ours.broker) as peer:
        for _ in range(3):
            assert said(peer.ask(send(PUB, ORDERS))) == PASSED
        assert said(peer.ask(case.frame)) == BAD_SIGNATURE
        assert said(peer.ask(send(PUB, ORDERS))) == PASSED
        together = send(PUB, ORDERS) + case.frame + send(PUB, ORDERS)
        assert [said(peer.ask(together)), said(peer.read()), said(peer.read())] == [PASSED, BAD_SIGNATURE, PASSED]
    assert ours.mark(ORDERS) == before + 7


def test_the_answers_of_one_read_are_each_for_their_own_request(ours: Side) -> None:
    """Two accounts through one connection, as a proxy would send them."""
    with Peer(ours.broker) as peer:
        frames = [send(who, ORDERS) for who in (PUB, UMLAUT, NOBODY, PUB)]
        peer.write(b"".join(frames))
        answers = [said(peer.read()) for _ in frames]
    assert answers == [PASSED, PASSED, no_right(NOBODY, f"Topic:{ORDERS}"), PASSED]


def test_the_same_bytes_twice(sides: Sides) -> None:
    for side in sides:
        with Peer(side.broker) as peer:
            assert [said(peer.ask(send(PUB, ORDERS))) for _ in range(2)] == [PASSED, PASSED]


def test_a_change_counts_from_the_next_request_on(sides: Sides) -> None:
    who = account("short-lived")
    for side in sides:
        side.admit(who, allow(f"Topic:{ORDERS}", "Pub"))
        with Peer(side.broker) as peer:
            assert said(peer.ask(send(who, ORDERS))) == PASSED
            side.grant(who, Rights((deny(f"Topic:{ORDERS}", "Pub"),)))
            assert said(peer.ask(send(who, ORDERS))) == denied(who, f"Topic:{ORDERS}")
            side.grant(who, Rights((allow(f"Topic:{ORDERS}", "Pub"),)))
            assert said(peer.ask(send(who, ORDERS))) == PASSED
            side.disable(who)
            assert said(peer.ask(send(who, ORDERS))) == Said(16, "User:short-lived is disabled.")
            side.order(DELETE_USER, {"username": who.name})
            assert said(peer.ask(send(who, ORDERS))) == not_found(who.name)


def test_one_way_requests_of_strangers_change_nothing(sides: Sides) -> None:
    for side in sides:
        before = side.mark(ORDERS)
        with Peer(side.broker) as peer:
            for who in (None, account("who"), NOBODY, Account(PUB.name, "wrong")):
                peer.write(oneway(who, SEND, FIELDS, b"x"))
            # Answers come in order: had one of them been answered, it would be read here.
            assert said(peer.ask(send(PUB, ORDERS))) == PASSED
        assert side.mark(ORDERS) == before + 2


REPLAYED = [
    (
        "fields of ours are signed fields like others",
        lambda now: {"_rl_time": str(now), "_rl_code": "310"},
        PASSED,
        PASSED,
    ),
    ("another code", lambda now: {"_rl_time": str(now), "_rl_code": "30"}, PASSED, Said(16)),
    ("yesterday", lambda now: {"_rl_time": str(now - 86_400_000), "_rl_code": "310"}, PASSED, Said(16)),
    ("tomorrow", lambda now: {"_rl_time": str(now + 86_400_000), "_rl_code": "310"}, PASSED, Said(16)),
    ("no number", lambda now: {"_rl_time": "soon", "_rl_code": "310"}, PASSED, Said(16)),
]


def test_fields_that_were_added_to_a_dated_request(sides: Sides) -> None:
    """A signature covers values alone, so a field without one may be added; not where the fields are listed."""
    for side, says in zip(sides, (0, 16)):
        now = str(time.time_ns() // 1_000_000)
        fields = {**send_fields(ORDERS), "_rl_time": now, "_rl_code": "310", "AccessKey": PUB.name}
        fields["_rl_fields"] = "".join(f"{name}:{len(fields[name])}," for name in sorted(fields))
        whole = PUB.sign(fields, b"x")
        assert side.ask(frame(SEND, whole, b"x")).code == 0
        assert side.ask(frame(SEND, {**whole, "x": ""}, b"x")).code == says
        without = {name: value for name, value in fields.items() if name != "_rl_fields"}
        assert side.ask(frame(SEND, PUB.sign(without, b"x"), b"x")).code == says


@pytest.mark.parametrize(
    ("fields", "says_apache", "says_ours"), [row[1:] for row in REPLAYED], ids=[row[0] for row in REPLAYED]
)
def test_requests_that_say_when_and_what_they_are_for(
    sides: Sides, fields: Callable[[int], dict[str, str]], says_apache: Said, says_ours: Said
) -> None:
    more = fields(time.time_ns() // 1_000_000)
    listed = {**send_fields(ORDERS), **more, "AccessKey": PUB.name}
    more["_rl_fields"] = "".join(f"{name}:{len(listed[name])}," for name in sorted(listed))
    frame = send(PUB, ORDERS, **more)
    assert said(sides.theirs.ask(frame)) == says_apache
    assert said(sides.ours.ask(frame)).code == says_ours.code
