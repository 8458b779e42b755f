"""Rights: which request asks for which, which entry decides, and what a refusal says; on Apache's broker and on ours."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from tests.interop.access.conftest import Sides
from tests.support.access.cases import PASSED, Case, Said, check, denied, no_right, said
from tests.support.access.frames import Account, Peer, signed
from tests.support.access.world import (
    DEAD,
    G1,
    G2,
    NOBODY,
    ORDERS,
    OTHER,
    PUB,
    PUB_ALL,
    RETRY_G1,
    RETRY_G2,
    SUB_BOTH,
    SUB_GROUP,
    SUB_TOPIC,
    Rights,
    account,
    allow,
    deny,
    heartbeat,
    pull,
    send,
    send_back,
)

from rocketline.protocol.codes import RequestCode

pytestmark = pytest.mark.interop

TRACES, SCHEDULE = "RMQ_SYS_TRACE_TOPIC", "SCHEDULE_TOPIC_XXXX"
UNREADABLE = Said(16, "parse authorization context error.")
FORBIDDEN = Said(16, f"Sending message to topic[{SCHEDULE}] is forbidden.")
FORBIDDEN_HERE = Said(16, f"sending to the system topic {SCHEDULE} is forbidden")


def _lock(who: Account, group: str, *topics: str) -> bytes:
    queues = [{"topic": topic, "brokerName": "broker-a", "queueId": 0} for topic in topics]
    body = {"clientId": "c", "consumerGroup": group, "mqSet": queues}
    return signed(who, RequestCode.LOCK_BATCH_MQ, {}, json.dumps(body).encode())


def _offset(who: Account, topic: str, group: str) -> bytes:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    return signed(who, RequestCode.QUERY_CONSUMER_OFFSET, fields)


def _commit(who: Account, topic: str, group: str) -> bytes:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "0"}
    return signed(who, RequestCode.UPDATE_CONSUMER_OFFSET, fields)


CASES = [
    Case("send to the own topic", send(PUB, ORDERS), PASSED),
    Case("send to another", send(PUB, OTHER), no_right(PUB, f"Topic:{OTHER}")),
    Case("read where one may only send", pull(PUB, ORDERS, G1), no_right(PUB, f"Topic:{ORDERS}")),
    Case("send where one may only read", send(SUB_BOTH, ORDERS), no_right(SUB_BOTH, f"Topic:{ORDERS}")),
    Case("join with the topic alone", heartbeat(SUB_TOPIC, G1, ORDERS), no_right(SUB_TOPIC, f"Group:{G1}")),
    Case("join with the group alone", heartbeat(SUB_GROUP, G1, ORDERS), no_right(SUB_GROUP, f"Topic:{ORDERS}")),
    Case("join with both", heartbeat(SUB_BOTH, G1, ORDERS), PASSED),
    Case("read with the topic alone", pull(SUB_TOPIC, ORDERS, G1), no_right(SUB_TOPIC, f"Group:{G1}")),
    Case("read with the group alone", pull(SUB_GROUP, ORDERS, G1), no_right(SUB_GROUP, f"Topic:{ORDERS}")),
    Case("read with both", pull(SUB_BOTH, ORDERS, G1), PASSED),
    Case("lock with the group alone", _lock(SUB_GROUP, G1, ORDERS), no_right(SUB_GROUP, f"Topic:{ORDERS}")),
    Case("lock with both", _lock(SUB_BOTH, G1, ORDERS), PASSED),
    Case("join with a foreign topic too", heartbeat(SUB_BOTH, G1, ORDERS, OTHER), no_right(SUB_BOTH, f"Topic:{OTHER}")),
    Case("a heartbeat that is no JSON", signed(SUB_BOTH, RequestCode.HEART_BEAT, {}, b"{{"), UNREADABLE),
    Case("a lock that is no JSON", signed(SUB_BOTH, RequestCode.LOCK_BATCH_MQ, {}, b"{{"), UNREADABLE),
    Case("send to the group's retry topic", send(SUB_GROUP, RETRY_G1), PASSED),
    Case("send to another group's", send(SUB_GROUP, RETRY_G2), no_right(SUB_GROUP, f"Group:{G2}")),
    Case("hand a message back", send_back(SUB_BOTH, G1), PASSED),
    Case("hand it to another group", send_back(SUB_BOTH, G2), no_right(SUB_BOTH, f"Group:{G2}")),
    Case("note how far the retries are read", _commit(SUB_GROUP, RETRY_G1, G1), PASSED),
    Case("how far the retries are read", _offset(SUB_GROUP, RETRY_G1, G1), PASSED),
    Case("read the group's retries", pull(SUB_GROUP, RETRY_G1, G1), PASSED),
    Case("read another group's as it", pull(SUB_GROUP, RETRY_G2, G2), no_right(SUB_GROUP, f"Group:{G2}")),
    Case("read dead letters", pull(SUB_GROUP, DEAD, G1), no_right(SUB_GROUP, f"Topic:{DEAD}")),
    Case("send dead letters", send(SUB_GROUP, DEAD), no_right(SUB_GROUP, f"Topic:{DEAD}")),
    Case("traces, by whom may send everywhere", send(PUB_ALL, TRACES), PASSED),
    Case("traces, by any account", send(NOBODY, TRACES), no_right(NOBODY, f"Topic:{TRACES}"), PASSED),
    Case("the topic of delays", send(PUB_ALL, SCHEDULE), FORBIDDEN, FORBIDDEN_HERE),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_request(sides: Sides, case: Case) -> None:
    check(sides, case)


def test_a_refused_heartbeat_registers_nothing(sides: Sides) -> None:
    for side in sides:
        group = "joins-not"
        who = side.admit(account(group), allow(f"Group:{group}", "Sub"), allow(f"Topic:{ORDERS}", "Sub"))
        with Peer(side.broker) as peer:
            assert peer.ask(heartbeat(who, group, ORDERS, OTHER)).code == 16
            members = peer.ask(signed(who, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}))
            assert members.code == 1, "no member"
            assert peer.ask(heartbeat(who, group, ORDERS)).code == 0
            members = peer.ask(signed(who, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}))
        assert json.loads(members.body) == {"consumerIdList": [f"client of {group}"]}


class Rule(NamedTuple):
    name: str
    rights: Rights
    decision: str
    """What a send to `orders` meets: allow, deny or none (no entry fits)."""
    apache_agrees: bool = True
    """False: it is not asked."""


def _custom(*entries: dict[str, object]) -> Rights:
    return Rights(entries)


T, P, PP, ANY_TOPIC, ANY = f"Topic:{ORDERS}", "Topic:o*", "Topic:ord*", "Topic:*", "*"
RULES = [
    *[
        Rule(f"{first} {one} over {then} {two}", _custom(*order), first_decision)
        for first, one, then, two in (
            (T, "Pub", PP, "Pub"),
            (PP, "Pub", P, "Pub"),
            (P, "Pub", ANY_TOPIC, "Pub"),
            (ANY_TOPIC, "Pub", ANY, "Pub"),
            (T, "Pub", ANY, "All"),
            (T, "All", P, "Pub"),
        )
        for first_decision, strong, weak in (("allow", allow, deny), ("deny", deny, allow))
        for order in ((strong(first, one), weak(then, two)),)
    ],
    Rule("the weaker one first", _custom(allow(ANY, "All"), deny(T, "Pub")), "deny"),
    Rule("twice the same, deny last", _custom(allow(T, "Pub"), deny(T, "Pub")), "deny"),
    Rule("twice the same, deny first", _custom(deny(T, "Pub"), allow(T, "Pub")), "deny"),
    Rule("another action is as if absent", _custom(deny(T, "Sub"), allow(P, "Pub")), "allow"),
    Rule("one of several actions", _custom(allow(T, "Sub", "Pub", "Get")), "allow"),
    Rule("another topic", _custom(allow("Topic:order", "All")), "none"),
    Rule("a longer topic", _custom(allow("Topic:orders1", "All")), "none"),
    Rule("another case", _custom(allow("Topic:Orders", "All")), "none"),
    Rule("the kind in another case", _custom(allow(f"topic:{ORDERS}", "pub")), "allow"),
    Rule("a group of that name", _custom(allow(f"Group:{ORDERS}", "All")), "none"),
    Rule("a cluster", _custom(allow("Cluster:*", "All")), "none"),
    Rule("custom deny over default allow", Rights((deny(ANY_TOPIC, "Pub"),), (allow(T, "Pub"),)), "deny"),
    Rule("custom allow over default deny", Rights((allow(ANY, "All"),), (deny(T, "Pub"),)), "allow"),
    Rule("default alone", Rights((), (allow(T, "Pub"),)), "allow"),
    Rule("default deny", Rights((), (deny(T, "Pub"),)), "deny"),
    Rule("default where custom does not fit", Rights((deny(T, "Sub"),), (allow(T, "Pub"),)), "allow"),
    *[
        Rule(f"from {ips}", _custom(allow(T, "Pub", ips=[ips])), decision, agrees)
        for ips, decision, agrees in (
            ("127.0.0.1", "allow", True),
            ("127.0.0.0/8", "allow", True),
            ("127.0.0.1/32", "allow", True),
            ("0.0.0.0/0", "allow", True),
            ("127.0.0.2", "none", True),
            ("10.0.0.0/8", "none", True),
            ("::1", "none", True),
            ("::/0", "none", False),
        )
    ],
    Rule("one of several networks", _custom(allow(T, "Pub", ips=["10.0.0.0/8", "127.0.0.1"])), "allow"),
    Rule("denied elsewhere only", _custom(deny(T, "Pub", ips=["10.0.0.0/8"]), allow(P, "Pub")), "allow"),
    Rule("denied here", _custom(deny(T, "Pub", ips=["127.0.0.0/8"]), allow(P, "Pub")), "deny"),
]


@pytest.mark.parametrize("number", range(len(RULES)), ids=[rule.name for rule in RULES])
def test_which_entry_decides(sides: Sides, number: int) -> None:
    rule, who = RULES[number], account(f"rule{number}")
    expected = {"allow": PASSED, "deny": denied(who, T), "none": no_right(who, T)}[rule.decision]
    for side in sides if rule.apache_agrees else (sides.ours,):
        side.create_user(who)
        side.grant(who, rule.rights)
        assert said(side.ask(send(who, ORDERS))) == expected, side
