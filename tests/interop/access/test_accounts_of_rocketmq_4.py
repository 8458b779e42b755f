"""Accounts of RocketMQ 4: Apache's broker and ours take them over from the same file, and decide the same."""

from __future__ import annotations

import json

import pytest
from tests.interop.access.conftest import OLD_ACCOUNTS, Sides
from tests.support.access.cases import PASSED, Said, denied, no_right, said
from tests.support.access.frames import Account, signed
from tests.support.access.world import G1, G2, GET_ACL, GET_USER, ORDERS, OTHER, ROOT, heartbeat, pull, send

pytestmark = pytest.mark.interop

SHOP, BOSS, GUEST, READER = (
    Account(name, f"{name}-secret") for name in ("old-shop", "old-boss", "old-guest", "old-reader")
)
TOPIC_DENIED = f"Topic:{OTHER}"


@pytest.mark.parametrize("who", [SHOP, BOSS, GUEST, READER], ids=lambda who: who.name)
def test_accounts_and_rights(sides: Sides, who: Account) -> None:
    assert who.name in OLD_ACCOUNTS
    users = [json.loads(side.ask(signed(ROOT, GET_USER, {"username": who.name})).body) for side in sides]
    assert users[0].pop("password") == who.secret
    assert users[1] == users[0]
    rights = [side.ask(signed(ROOT, GET_ACL, {"subject": f"User:{who.name}"})) for side in sides]
    theirs, ours = (json.loads(answer.body) if answer.body else None for answer in rights)
    assert ours == theirs


DECISIONS: list[tuple[str, bytes, Said]] = [
    ("send with PUB", send(SHOP, ORDERS), PASSED),
    ("send with DENY", send(SHOP, OTHER), denied(SHOP, TOPIC_DENIED)),
    ("read with SUB", pull(SHOP, ORDERS, G1), PASSED),
    ("join another group", heartbeat(SHOP, G2, ORDERS), denied(SHOP, f"Group:{G2}")),
    ("an admin", send(BOSS, OTHER), PASSED),
    ("an admin, unsigned", send(Account(BOSS.name, "wrong"), OTHER), Said(16, "check signature failed.")),
    ("by the default of topics", send(GUEST, OTHER), PASSED),
    ("read by the default of groups", pull(GUEST, OTHER, G1), denied(GUEST, f"Group:{G1}")),
    ("send with SUB", send(READER, ORDERS), no_right(READER, f"Topic:{ORDERS}")),
    ("nothing said of it", send(READER, OTHER), no_right(READER, TOPIC_DENIED)),
]


@pytest.mark.parametrize(("frame", "expected"), [row[1:] for row in DECISIONS], ids=[row[0] for row in DECISIONS])
def test_decisions(sides: Sides, frame: bytes, expected: Said) -> None:
    assert [said(side.ask(frame)) for side in sides] == [expected, expected]
