"""Every request code on our broker, over the wire: who is refused, and who is not.

What each asks for is in tests/support/access/rights.py, a second table beside the product's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from tests.interop.access.conftest import SETTINGS
from tests.support.access.cases import NO_ACCOUNT, said
from tests.support.access.frames import Account, Peer, ask, frame, signed
from tests.support.access.rights import (
    BY_HANDLER,
    DOOMED_GROUP,
    DOOMED_TOPIC,
    NEW_GROUP,
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
from tests.support.request_table import requests, served_by

from rocketline.auth import needs
from rocketline.auth.needs import ACCOUNT_CODES
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
        """What is wrong with the rights that a request asks for. Super users come last: they change things."""
        if row.rights is None:
            end = self.ask(row, self.who_has(("*", "All")))
            found = [] if "is no super user" in end else [f"{row.code}: {end} for an account with all rights"]
        else:
            found = [*self._lacking(row, row.rights), *self._having(row, row.rights)]
        end = self.ask(row, ROOT)
        if end == "not served":
            return []
        return found if end == "passed" else [*found, f"{row.code}: {end} for a super user"]

    def _lacking(self, row: Row, rights: tuple[Right, ...]) -> Iterator[str]:
        for without in rights:
            end = self.ask(row, self.who_has(*(right for right in rights if right != without)))
            if f" has no permission to access {without[0]} from " not in end:
                yield f"{row.code}: {end} without {without}"

    def _having(self, row: Row, rights: tuple[Right, ...]) -> Iterator[str]:
        for action in ("", *row.other_actions):
            end = self.ask(row, self.who_has(*((resource, action or usual) for resource, usual in rights)))
            if end != "passed":
                yield f"{row.code}: {end} with all rights, {action}"

    def restore(self) -> None:
        """What requests changed."""
        self.side.create_topic(DOOMED_TOPIC)
        self.side.create_group(DOOMED_GROUP)
        self.side.order(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": NEW_GROUP})


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
        if row.rights == () or walk.ask(row, ROOT) == "not served":
            continue
        walk.restore()
        with monkeypatch.context() as patch:
            if plant == "a hole":
                patch.setitem(needs.BROKER, row.code, needs.ACCOUNT)
            else:
                patch.delitem(needs.BROKER, row.code)
            assert walk.problems(row), row.code
        tried += 1
    assert tried > 70


# The name server


NAMES_FOR_ALL = (105, 106, 206, 224, 304, 311, 312, 313, 901)
"""Routes, and who is there."""


def _ask_names(walk: Walk, code: int, fields: dict[str, str], who: Account) -> str:
    answer = ask(walk.side.namesrv, signed(who, code, fields))
    if answer.code == NOT_SERVED:
        return "not served"
    return "refused" if answer.code == 16 and is_refusal(answer.remark) else "passed"


def test_a_name_server_gives_routes_to_accounts_and_the_rest_to_super_users(walk: Walk) -> None:
    who = walk.who_has(("*", "All"))
    walk.side.await_route(who, "TBW102")
    served = served_by("name server") - ACCOUNT_CODES  # it has the accounts of the broker, who changes them
    known = {item.code: item.valid() for item in requests()}
    for code in sorted(every_code()):
        end = tuple(_ask_names(walk, code, known.get(code, {}), asker) for asker in (who, ROOT))
        expected = "not served" if code not in served else "passed" if code in NAMES_FOR_ALL else "refused"
        assert end == (expected, "passed" if code in served else "not served"), code
    assert len(served) > 20


def test_a_name_server_serves_nobody_without_an_account(walk: Walk) -> None:
    with Peer(walk.side.namesrv) as peer:
        for code in sorted(every_code()):
            assert said(peer.ask(frame(code, {}))) == NO_ACCOUNT, code
