"""What our broker promises on its own: messages that are named by their place, held requests, secrets, guesses."""

from __future__ import annotations

import json
import logging
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.access.conftest import SETTINGS
from tests.support.access.cases import BAD_SIGNATURE, PASSED, no_right, said
from tests.support.access.frames import Account, Peer, frame, signed
from tests.support.access.world import (
    CLUSTER,
    DELETE_USER,
    G1,
    G2,
    GET_USER,
    INNER,
    LIST_USER,
    NOBODY,
    OPERATOR,
    ORDERS,
    OTHER,
    PUB,
    PUB_ALL,
    RETRY_G1,
    RETRY_G2,
    ROOT,
    SUB_BOTH,
    SUB_GROUP,
    Rights,
    Side,
    account,
    allow,
    deny,
    long_send_fields,
    pull,
    send,
    send_back,
    send_fields,
)
from tests.support.patience import PATIENCE_MS

from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.testing import LocalCluster

pytestmark = pytest.mark.interop

COMMIT, ROLL_BACK = "8", "12"
TRANSACTION = "4"
"""Of sysFlag: a half message."""


def _place(answer: Command) -> int:
    """Where a message lies in the log."""
    assert answer.code == 0, answer
    return parse_offset_id((answer.ext or {})["msgId"])[1]


# Messages that are named by their place in the log


@dataclass(frozen=True)
class View:
    name: str
    fields: dict[str, str]
    entries: tuple[dict[str, object], ...]
    expected: str
    """The resource that is lacking; empty: it passes."""


VIEWS = [
    View("without rights", {}, (), ORDERS),
    View("with the right on another topic", {}, (allow(f"Topic:{OTHER}", "All"),), ORDERS),
    View("under the name of another topic", {"topic": OTHER}, (allow(f"Topic:{OTHER}", "All"),), ORDERS),
    View("with the right", {}, (allow(f"Topic:{ORDERS}", "Get"),), ""),
    View("with the right, and its topic", {"topic": ORDERS}, (allow(f"Topic:{ORDERS}", "Get"),), ""),
]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_a_message_is_viewed_with_the_right_on_its_own_topic(ours: Side, view: View) -> None:
    who = ours.admit(account(f"viewer-{VIEWS.index(view)}"), *view.entries)
    offset = _place(ours.ask(send(ROOT, ORDERS, b"for viewers")))
    answer = ours.ask(signed(who, RequestCode.VIEW_MESSAGE_BY_ID, {**view.fields, "offset": str(offset)}))
    assert said(answer) == (no_right(who, f"Topic:{view.expected}") if view.expected else PASSED)
    assert (b"for viewers" in answer.body) == (not view.expected)


def test_a_message_is_handed_back_with_the_right_on_its_own_topic(ours: Side) -> None:
    offset = _place(ours.ask(send(ROOT, OTHER)))
    before = ours.mark(RETRY_G1)
    for who in (SUB_GROUP, SUB_BOTH):
        assert said(ours.ask(send_back(who, G1, offset))) == no_right(who, f"Topic:{OTHER}")
    assert ours.mark(RETRY_G1) == before + 1
    offset = _place(ours.ask(send(ROOT, ORDERS)))
    assert said(ours.ask(send_back(SUB_BOTH, G1, offset))) == PASSED
    retried = _place(ours.ask(send(ROOT, RETRY_G1)))
    assert said(ours.ask(send_back(SUB_GROUP, G1, retried))) == PASSED


def _half(ours: Side, who: Account) -> Command:
    fields = {"f": TRANSACTION, "i": "TRAN_MSG\x01true\x02PGROUP\x01producers\x02"}
    return ours.ask(send(who, ORDERS, b"half", **fields))


def _end(half: Command, outcome: str, **more: str) -> dict[str, str]:
    ext = half.ext or {}
    place = {"tranStateTableOffset": ext["queueOffset"], "commitLogOffset": str(_place(half)), "msgId": ext["msgId"]}
    return {"producerGroup": "producers", "commitOrRollback": outcome, **place, **more}


@pytest.mark.parametrize("outcome", [COMMIT, ROLL_BACK])
@pytest.mark.parametrize("topic", [None, ORDERS, "RMQ_SYS_TRANS_HALF_TOPIC", OTHER])
def test_a_transaction_ends_with_the_right_on_the_topic_of_its_message(
    ours: Side, outcome: str, topic: str | None
) -> None:
    """Java's answers to checks name the topic of half messages, which no account has rights on."""
    stranger = account(f"stranger-{outcome}-{topic}")
    ours.admit(stranger, allow(f"Topic:{OTHER}", "All"), allow("Topic:RMQ_SYS_TRANS_HALF_TOPIC", "All"))
    half, before = _half(ours, PUB), ours.mark(ORDERS)
    fields = _end(half, outcome, **({} if topic is None else {"topic": topic}))
    assert said(ours.ask(signed(stranger, RequestCode.END_TRANSACTION, fields))) == no_right(
        stranger, f"Topic:{ORDERS}"
    )
    assert said(ours.ask(signed(PUB, RequestCode.END_TRANSACTION, fields))) == PASSED
    assert ours.mark(ORDERS) == before + (2 if outcome == COMMIT else 1)


def test_a_group_reads_no_other_groups_retries_as_itself(ours: Side) -> None:
    ours.ask(send(ROOT, RETRY_G2, b"of the other group"))
    answer = ours.ask(pull(SUB_GROUP, RETRY_G2, G1))
    assert (said(answer), answer.body) == (no_right(SUB_GROUP, f"Group:{G2}"), b"")


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_a_reply_is_no_way_into_a_foreign_topic(ours: Side, code: RequestCode) -> None:
    fields = (long_send_fields if code == RequestCode.SEND_REPLY_MESSAGE else send_fields)(ORDERS)
    before = ours.mark(ORDERS)
    assert said(ours.ask(signed(NOBODY, code, fields, b"x"))) == no_right(NOBODY, f"Topic:{ORDERS}")
    assert ours.mark(ORDERS) == before + 1


def test_a_topic_is_not_made_by_a_send_without_the_right(ours: Side) -> None:
    topic = "made-by-a-send"
    refused = said(ours.ask(send(PUB_ALL, topic)))
    assert refused.code == 16
    assert f"Topic:{topic}" in (refused.remark or "")
    shown = ours.ask(signed(ROOT, RequestCode.GET_TOPIC_CONFIG, {"topic": topic}))
    assert shown.code == 17
    maker = ours.admit(account("maker"), allow("Topic:made-*", "Pub", "Create"))
    assert said(ours.ask(send(maker, topic))) == PASSED


# Requests that wait


@pytest.mark.parametrize("change", ["deleted", "disabled", "denied", "another password"])
def test_a_held_pull_gives_nothing_to_who_lost_the_right(ours: Side, change: str) -> None:
    name = f"holder-{change.replace(' ', '-')}"
    who, topic = account(name), f"held-{change.replace(' ', '-')}"
    ours.create_topic(topic)
    ours.admit(who, allow(f"Topic:{topic}", "Sub"), allow(f"Group:{G1}", "Sub"))
    offset = ours.mark(topic) + 1
    with Peer(ours.broker) as peer:
        peer.write(pull(who, topic, G1, offset=offset, hold_ms=PATIENCE_MS))
        # Answered behind the pull, which is held by then.
        assert said(ours.ask(pull(who, topic, G1))) == PASSED
        match change:
            case "deleted":
                ours.order(DELETE_USER, {"username": name})
            case "disabled":
                ours.disable(who)
            case "denied":
                ours.grant(who, Rights((deny(f"Topic:{topic}", "Sub"),)))
            case _:
                ours.order(3002, {"username": name}, json.dumps({"username": name, "password": "new"}).encode())
        ours.mark(topic)
        answer = peer.read()
    assert answer.code == 16, answer
    assert not answer.body


def test_a_held_pull_is_answered_to_who_kept_the_right(ours: Side) -> None:
    offset = ours.mark(ORDERS) + 1
    with Peer(ours.broker) as peer:
        peer.write(pull(SUB_BOTH, ORDERS, G1, offset=offset, hold_ms=PATIENCE_MS))
        ours.admit(account("somebody-else"), allow("*", "All"))
        ours.mark(ORDERS)
        assert said(peer.read()) == PASSED


# Guesses, and other ways around


def test_a_connection_is_closed_after_some_wrong_signatures(ours: Side) -> None:
    with Peer(ours.broker) as peer:
        answers = []
        with pytest.raises(ConnectionError):
            for _ in range(100):
                answers.append(said(peer.ask(send(Account(PUB.name, "guess"), ORDERS))))
    assert set(answers) == {BAD_SIGNATURE}
    assert len(answers) == 10
    assert said(ours.ask(send(PUB, ORDERS))) == PASSED, "others are served"


def test_a_line_that_names_another_address_is_not_believed(ours: Side) -> None:
    who = ours.admit(account("far-away"), allow(f"Topic:{ORDERS}", "Pub", ips=["10.9.8.7"]))
    before = ours.mark(ORDERS)
    with Peer(ours.broker) as peer:
        peer.write(b"PROXY TCP4 10.9.8.7 127.0.0.1 4000 10911\r\n" + send(who, ORDERS))
        assert peer.is_closed()
    assert ours.mark(ORDERS) == before + 1


SWITCHES = ["authenticationEnabled=false", "authorizationEnabled=false", "authenticationWhitelist=3001"]
SWITCHES += ['initAuthenticationUser={"username":"x","password":"y"}', "rocketline.auth.revealPasswords=true"]


@pytest.mark.parametrize("switch", SWITCHES)
def test_access_control_is_not_switched_off_over_the_wire(ours: Side, switch: str) -> None:
    for who in (NOBODY, OPERATOR, ROOT):
        assert ours.ask(signed(who, RequestCode.UPDATE_BROKER_CONFIG, {}, f"{switch}\n".encode())).code == 16
    assert said(ours.ask(frame(RequestCode.GET_BROKER_CONFIG, {}))).code == 16


# Secrets


@pytest.fixture
def own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[tuple[Side, Path]]:
    """A broker of this test alone, in a folder that stays."""
    caplog.set_level(logging.DEBUG)
    with LocalCluster(config=SETTINGS, data=tmp_path) as cluster:
        yield Side(cluster.namesrv, cluster.brokers[0].address), tmp_path


def test_secrets_are_nowhere_but_in_the_file_of_users(own: tuple[Side, Path], caplog: pytest.LogCaptureFixture) -> None:
    side, folder = own
    who = account("keeper")
    side.create_topic(ORDERS)
    side.admit(who, allow(f"Topic:{ORDERS}", "Pub"), allow("Cluster:*", "Get"))
    guess = Account(who.name, "guessed secret")
    answers = [
        side.ask(request)
        for request in (
            send(who, ORDERS),
            send(who, OTHER),
            send(guess, ORDERS),
            *(
                signed(asker, code, {"username": name, "filter": ""})
                for asker in (ROOT, who)
                for code in (GET_USER, LIST_USER, RequestCode.GET_BROKER_CONFIG)
                for name in (ROOT.name, who.name)
            ),
        )
    ]
    assert [answer.code for answer in answers] == [0, 16, 16] + [0] * 12
    secrets = [person.secret for person in (ROOT, INNER, who, guess)]
    told = [f"{answer.remark} {answer.ext} {answer.body!r}" for answer in answers]
    assert _found(secrets, "".join(told)) == []
    assert caplog.text
    assert _found(secrets, caplog.text) == []
    signatures = re.findall(r"[A-Za-z0-9+/]{27}=", caplog.text)
    assert signatures == []
    files = [path for path in folder.rglob("*") if path.is_file()]
    holding = [path for path in files if _found([item.secret for item in (ROOT, INNER, who)], _text(path))]
    assert {path.name for path in holding} == {"users.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files if path.name in ("users.json", "acls.json")} == {0o600}


def _text(path: Path) -> str:
    return path.read_bytes().decode("latin-1")


def _found(secrets: list[str], text: str) -> list[str]:
    return [secret for secret in secrets if secret in text]


def test_an_operator_sees_users_without_their_passwords(ours: Side) -> None:
    answer = ours.ask(signed(OPERATOR, GET_USER, {"username": ROOT.name}))
    assert json.loads(answer.body) == {"userStatus": "enable", "userType": "Super", "username": ROOT.name}
    assert said(ours.ask(signed(NOBODY, GET_USER, {"username": NOBODY.name}))) == no_right(NOBODY, f"Cluster:{CLUSTER}")


def test_accounts_and_rights_outlive_the_broker(tmp_path: Path) -> None:
    who = account("old-friend")
    for round_number in range(2):
        with LocalCluster(config=SETTINGS, data=tmp_path) as cluster:
            side = Side(cluster.namesrv, cluster.brokers[0].address)
            if round_number == 0:
                side.create_topic(ORDERS)
                side.admit(who, allow(f"Topic:{ORDERS}", "Pub"))
            assert said(side.ask(send(who, ORDERS))) == PASSED
            assert said(side.ask(send(who, OTHER))) == no_right(who, f"Topic:{OTHER}")
            assert side.ask(frame(RequestCode.GET_BROKER_CONFIG, {})).code == 16
