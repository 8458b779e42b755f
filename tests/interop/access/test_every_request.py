"""Every request code on our broker, over the wire: nobody without an account, no account without the right, every super user.

What each asks for is in tests/support/access/rights.py, a second table beside the product's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from tests.interop.access.conftest import SETTINGS
from tests.support.access.cases import NO_ACCOUNT, said
from tests.support.access.frames import Account, Peer, frame, signed
from tests.support.access.rights import (
    BY_HANDLER,
    DOOMED_GROUP,
    DOOMED_TOPIC,
    NOT_FOR_BROKERS,
    G,
    Right,
    Row,
    T,
    every_code,
    is_refusal,
    rows,
)
from tests.support.access.world import ROOT, Side, account, allow

from rocketline.auth import needs
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.testing import LocalCluster

NOT_SERVED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class Walk:
    """A broker, and accounts with exactly the rights that are wanted."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._accounts: dict[tuple[Right, ...], Account] = {}
        self._numbers = count()

    def who_has(self, *rights: Right) -> Account:
        if rights not in self._accounts:
            who = account(f"walker{next(self._numbers)}")
            self._accounts[rights] = self.side.admit(who, *(allow(resource, action) for resource, action in rights))
        return self._accounts[rights]

    def ask(self, row: Row, who: Account) -> str:
        """How a request ends: `passed`, `not served`, or the remark of a refusal."""
        answer = self.side.ask(signed(who, row.code, row.fields, row.body))
        if answer.code == NOT_SERVED:
            return "not served"
        return answer.remark or "" if answer.code == 16 and is_refusal(answer.remark) else "passed"

    def problems(self, row: Row) -> list[str]:
        """What is wrong with the rights that a request asks for."""
        if row.rights is None:
            ends = {"anybody": self.ask(row, self.who_has(("*", "All"))), "root": self.ask(row, ROOT)}
            return [] if "is no super user" in ends["anybody"] and ends["root"] == "passed" else [f"{row.code}: {ends}"]
        found = [] if self.ask(row, ROOT) in ("passed", "not served") else [f"{row.code}: refused to a super user"]
        if self.ask(row, ROOT) == "not served":
            return found
        for without in row.rights:
            rest = tuple(right for right in row.rights if right != without)
            end = self.ask(row, self.who_has(*rest))
            if f" has no permission to access {without[0]} from " not in end:
                found.append(f"{row.code}: {end} without {without}")
        for action in ("", *row.other_actions):
            end = self.ask(row, self.who_has(*((resource, action or usual) for resource, usual in row.rights)))
            if end != "passed":
                found.append(f"{row.code}: {end} with all rights")
        return found

    def restore(self) -> None:
        """What requests of super users deleted."""
        self.side.create_topic(DOOMED_TOPIC)
        self.side.create_group(DOOMED_GROUP)


@pytest.fixture(scope="module")
def walk() -> Iterator[Walk]:
    with LocalCluster(config=SETTINGS) as cluster:
        side = Side(cluster.namesrv, cluster.brokers[0].address)
        side.create_topic(T)
        side.create_group(G)
        yield Walk(side)


def test_there_is_a_row_for_every_code() -> None:
    written = [row.code for row in rows()]
    assert len(written) == len(set(written)), "two rows"
    assert set(RequestCode) - set(written) == {*BY_HANDLER, *NOT_FOR_BROKERS}


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row.code))
def test_a_request_asks_for_its_rights(walk: Walk, row: Row) -> None:
    walk.restore()
    assert walk.problems(row) == []


def test_nobody_gets_in_without_an_account(walk: Walk) -> None:
    asked = {row.code: row for row in rows()}
    with Peer(walk.side.broker) as peer:
        for code in sorted(every_code() | {0, -1, 7777, 2**31 - 1}):
            row = asked.get(code, Row(code, ()))
            assert said(peer.ask(frame(code, row.fields, row.body))) == NO_ACCOUNT, code


def test_what_nobody_serves_is_told_to_accounts_only(walk: Walk) -> None:
    who = walk.who_has()
    served = {row.code for row in rows()} | set(BY_HANDLER)
    with Peer(walk.side.broker) as peer:
        for code in sorted((every_code() | {0, -1, 7777}) - served):
            assert peer.ask(signed(who, code)).code == NOT_SERVED, code


@pytest.mark.parametrize("plant", ["a hole", "no row"])
def test_this_walk_notices_a_mistake_in_the_products_table(
    walk: Walk, monkeypatch: pytest.MonkeyPatch, plant: str
) -> None:
    walk.restore()
    tried = 0
    for row in rows():
        if row.rights == () or walk.ask(row, walk.who_has()) == "not served":
            continue
        with monkeypatch.context() as patch:
            if plant == "a hole":
                patch.setitem(needs.BROKER, row.code, needs.ACCOUNT)
            else:
                patch.delitem(needs.BROKER, row.code)
            assert walk.problems(row), row.code
        walk.restore()
        tried += 1
    assert tried > 70
