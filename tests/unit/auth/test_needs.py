"""Every request code has a row, and every row refuses who lacks the right and admits who has exactly that."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.support.request_table import NOT_ANSWERED_CODES, served_by
from tests.unit.auth.peers import peer

from rocketline.auth.accounts import Accounts
from rocketline.auth.config import AuthConfig
from rocketline.auth.guard import AccessGuard
from rocketline.auth.model import (
    EVERYTHING,
    Acl,
    Action,
    Decision,
    Entry,
    Level,
    Need,
    Needs,
    Pattern,
    Target,
    User,
    UserType,
)
from rocketline.auth.needs import ACCOUNT_CODES, BROKER, NAME_SERVER, Server, Table
from rocketline.clock import ManualClock
from rocketline.errors import ConfigError
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.signing import Credentials
from rocketline.store.files.disk import RealDisk

OWN = Server("here", "traces", {"old"}.__contains__)
FIELDS = {
    "topic": "t", "b": "t", "consumerGroup": "cg", "group": "g", "groupName": "gn", "compareGroup": "cmp",
    "filterGroups": "f1,f2", "destGroup": "dg", "srcGroup": "sg", "producerGroup": "pg", "topicList": "t1;t2",
}  # fmt: skip
BODIES = {
    18: b'{"topicConfigList":[{"topicName":"t1"},{"topicName":"t2"}]}',
    34: b'{"clientID":"c","consumerDataSet":[{"groupName":"cg","subscriptionDataSet":'
    b'[{"topic":"t"},{"topic":"%RETRY%cg"}]}],"producerDataSet":[{"groupName":"pg"}]}',
    41: b'{"consumerGroup":"cg","clientId":"c","mqSet":[{"topic":"t","brokerName":"b","queueId":0}]}',
    42: b'{"consumerGroup":"cg","clientId":"c","mqSet":[{"topic":"t","brokerName":"b","queueId":0}]}',
    46: b'{"clientId":"c","group":"g","subscriptionData":{"topic":"t"}}',
    200: b'{"groupName":"new"}',
    225: b'{"groupConfigList":[{"groupName":"new"},{"groupName":"old"}]}',
    400: b'{"topic":"t","consumerGroup":"cg","clientId":"c"}',
    401: b'{"topic":"t","consumerGroup":"cg"}',
    200151: b'{"brokerName":"b","acks":[{"c":"cg","t":"t","r":"1","so":0,"q":0,"rq":0,"pt":0,"it":0,"b":"AQ=="}]}',
}

SERVED_BY_BROKERS = {
    "any account": {37},
    "a super user": {25, 906, 908},
    "Topic:t Pub": {10, 310, 320, 324, 325, 370},
    "Group:g Sub": {36},
    "Topic:t Sub, Group:cg Sub": {11, 361, 200052},
    "Group:cg Sub, Topic:t Sub": {34, 41, 42, 309, 400, 200050, 200051, 200053, 200054, 200151},
    "Group:g Sub, Topic:t Sub": {46},
    "Group:cg Sub": {35},
    "Group:cg Sub/Get": {38},
    "Topic:t Sub/Get": {12, 29, 30, 31, 33},
    "Topic:t Sub/Get, Group:cg Sub/Get": {14},
    "Topic:t Sub/Update, Group:cg Sub/Update": {15},
    "Topic:t Create": {17, 513},
    "Topic:t1 Create, Topic:t2 Create": {18},
    "Topic:t Delete": {215},
    "Topic:t Update": {323},
    "Topic:t Get": {32, 202, 300, 351},
    "Group:new Create": {200},
    "Group:new Create, Group:old Update": {225},
    "Group:gn Delete": {207},
    "Group:cg Update": {401},
    "Group:cg Get": {203, 307},
    "Group:g Get": {343, 352},
    "Group:cg Get, Topic:t1 Get, Topic:t2 Get, Topic:t Get": {208},
    "Group:f1 Get, Group:f2 Get, Group:cmp Get, Topic:t Get": {308},
    "Group:g Get, Topic:t Get": {345},
    "Group:cg Get, Topic:t Get": {200055},
    "Topic:t Get, Group:g Get": {223, 303},
    "Topic:t Get, Group:cg Get": {321},
    "Group:g Update, Topic:t Update": {222, 353},
    "Group:dg Update, Topic:t Update": {314},
    "Cluster:here Get": {
        21, 26, 28, 43, 45, 60, 61, 201, 204, 305, 315, 317, 328, 402, 907, 1004, 1005, 1006, 1007, 3004, 3005, 3009,
        3010,
    },
    "Cluster:here Update": {306, 316, 329, 1002, 1008, 1011, 3001, 3002, 3003, 3006, 3007, 3008},
}  # fmt: skip


def request_of(code: int) -> Command:
    return Command(code, dict(FIELDS), BODIES.get(code, b""))


def text_of(needs: Needs) -> str:
    if isinstance(needs, Level):
        return needs.value
    words = ("/".join(action.name.capitalize() for action in need.actions) for need in needs)
    return ", ".join(f"{need.resource} {actions}" for need, actions in zip(needs, words))


def right_for(need: Need) -> Entry:
    """An entry that meets a need, and nothing else."""
    kind, name = need.resource
    return Entry(Target(kind, Pattern.LITERAL, name), need.actions[:1], Decision.ALLOW)


class Walk:
    """A guard of its own, and somebody who has some rights."""

    def __init__(self, table: Table) -> None:
        self.accounts = Accounts.open(None, RealDisk())
        self.accounts.create_user(User("amy", "secret"))
        config = AuthConfig(enabled=True)
        self.guard = AccessGuard(self.accounts, config, table, OWN, lambda code: True, ManualClock())

    def passes(self, code: int, rights: Iterable[Entry] = ()) -> bool:
        self.accounts.delete_user("amy", lambda user: None)
        self.accounts.create_user(User("amy", "secret"))
        self.accounts.put_entries("amy", Acl(tuple(rights)))
        return self._passes(code)

    def passes_as_super(self, code: int) -> bool:
        self.accounts.delete_user("amy", lambda user: None)
        self.accounts.create_user(User("amy", "secret", UserType.SUPER))
        return self._passes(code)

    def _passes(self, code: int) -> bool:
        request = request_of(code)
        Credentials("amy", "secret").sign(request)
        return self.guard.grant(peer(), request) is not None


def holes(table: Table, codes: Iterable[int]) -> dict[int, str]:
    """What is wrong with the rows of some codes; nothing when each asks for something, and for nothing more."""
    walk = Walk(table)
    wrong = {}
    for code in codes:
        rule = table.get(code)
        if rule is None:
            wrong[code] = "no row"
            continue
        needs = rule(request_of(code), OWN)
        if isinstance(needs, Level):
            if walk.passes(code) != (needs is Level.ACCOUNT) or not walk.passes_as_super(code):
                wrong[code] = f"not for {needs.value}"
            continue
        rights = [right_for(need) for need in needs]
        if walk.passes(code):
            wrong[code] = "asks for nothing"
        elif not walk.passes(code, rights):
            wrong[code] = "refuses who has the rights"
        for missing in range(len(rights)):
            if walk.passes(code, rights[:missing] + rights[missing + 1 :]):
                wrong[code] = f"does not ask for {needs[missing]}"
    return wrong


def test_every_request_a_broker_serves_asks_for_exactly_its_rights() -> None:
    assert holes(BROKER, served_by("broker")) == {}


def test_every_request_a_name_server_serves_asks_for_exactly_its_rights() -> None:
    assert holes(NAME_SERVER, served_by("name server")) == {}


def rows_of(table: Table) -> dict[str, set[int]]:
    """What is asked for, with the requests that a broker serves for it."""
    found: dict[str, set[int]] = {}
    for code in served_by("broker"):
        rule = table.get(code)
        found.setdefault(text_of(rule(request_of(code), OWN)) if rule else "no row", set()).add(code)
    return found


def test_the_rows_of_what_a_broker_serves() -> None:
    assert rows_of(BROKER) == SERVED_BY_BROKERS


def test_a_hole_is_found() -> None:
    forgotten = {code: rule for code, rule in BROKER.items() if code != 361}
    assert holes(forgotten, served_by("broker")) == {361: "no row"}
    everything = Entry(EVERYTHING, (Action.ALL,), Decision.ALLOW)
    assert not Walk(forgotten).passes(361, [everything])
    assert not Walk(forgotten).passes_as_super(361)
    too_little: Table = {**BROKER, 11: BROKER[29]}
    for table in (forgotten, too_little):
        assert rows_of(table) != SERVED_BY_BROKERS


def test_every_number_that_rocketmq_knows_has_a_row() -> None:
    assert {int(code) for code in RequestCode} - BROKER.keys() == set()
    assert set(NOT_ANSWERED_CODES) - BROKER.keys() == set()
    assert BROKER.keys() >= ACCOUNT_CODES <= NAME_SERVER.keys()


@pytest.mark.parametrize(
    ("code", "fields", "text"),
    [
        (10, {"topic": "%RETRY%g1", "producerGroup": "x"}, "Group:g1 Sub"),
        (310, {"b": "%DLQ%g1"}, "Topic:%DLQ%g1 Pub"),
        (310, {"b": "traces"}, "any account"),
        (325, {"b": "here_REPLY_TOPIC"}, "any account"),
        (324, {"topic": "here_REPLY_TOPIC"}, "any account"),
        (324, {"b": "here_REPLY_TOPIC"}, "Topic: Pub"),
        (325, {"b": "there_REPLY_TOPIC"}, "Topic:there_REPLY_TOPIC Pub"),
        (310, {}, "Topic: Pub"),
        (310, {"topic": "t"}, "Topic: Pub"),
        (11, {"topic": "%RETRY%g1", "consumerGroup": "g1"}, "Group:g1 Sub"),
        (11, {"topic": "%RETRY%other", "consumerGroup": "g1"}, "Group:other Sub, Group:g1 Sub"),
        (11, {"topic": "t"}, "Topic:t Sub, Group: Sub"),
        (35, {"producerGroup": "p"}, "any account"),
        (208, {"consumerGroup": "g"}, "Group:g Get, Topic: Get"),
        (208, {"consumerGroup": "g", "topic": " t "}, "Group:g Get, Topic:t Get"),
        (314, {"destGroup": "g", "srcGroup": "h"}, "Group:g Update, Topic: Update"),
        (200051, {"consumerGroup": "g", "topic": "%RETRY%g_t"}, "Group:g Sub, Topic:t Sub"),
        (200053, {"consumerGroup": "g", "topic": "%RETRY%g+t"}, "Group:g Sub, Topic:t Sub"),
        (200051, {"consumerGroup": "g", "topic": "%RETRY%h_t"}, "Group:g Sub, Group:h_t Sub"),
        (200051, {"topic": "%RETRY%_t"}, "Group: Sub, Group:_t Sub"),
        (200050, {"consumerGroup": "g", "topic": "%RETRY%g_t"}, "Group:g Sub, Group:g_t Sub"),
    ],
)
def test_names_in_odd_places(code: int, fields: dict[str, str], text: str) -> None:
    assert text_of(BROKER[code](Command(code, fields), OWN)) == text


@pytest.mark.parametrize("code", sorted({18, 34, 41, 42, 46, 200, 225, 400, 401, 200151}))
def test_a_body_that_cannot_be_read_is_refused(code: int) -> None:
    walk = Walk(BROKER)
    request = Command(code, {}, b"{")
    Credentials("amy", "secret").sign(request)
    answer = walk.guard.refusal(peer(), request)
    assert isinstance(answer, Command)
    assert (answer.code, answer.remark, answer.ext) == (16, "parse authorization context error.", None)


def test_a_whitelist_never_opens_requests_about_accounts() -> None:
    config = AuthConfig(enabled=True, authentication_whitelist="26,3001", authorization_whitelist="26, 3001")
    guard = AccessGuard(Accounts.open(None, RealDisk()), config, BROKER, OWN, lambda code: True, ManualClock())
    assert guard.refusal(peer(), request_of(26)) is None
    assert guard.refusal(peer(), request_of(3001)) is not None
    with pytest.raises(ConfigError, match="commas"):
        AuthConfig(authentication_whitelist="ten")
