"""The same accounts, rights, topics and groups on any broker with access control, made by requests."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.support.access.frames import Account, ask, frame, signed

from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command

CREATE_USER, UPDATE_USER, DELETE_USER, GET_USER, LIST_USER = 3001, 3002, 3003, 3004, 3005
CREATE_ACL, UPDATE_ACL, DELETE_ACL, GET_ACL, LIST_ACL = 3006, 3007, 3008, 3009, 3010

ROOT = Account("root", "rootsecret1")
INNER = Account("inner", "innersecret")
"""The accounts of the configuration: the first one, and the one that the broker itself signs with."""

CLUSTER = "DefaultCluster"
ORDERS, OTHER, STOCK = "orders", "other", "orders_stock"
G1, G2 = "g1", "g2"
DEAD, RETRY_G1, RETRY_G2 = "%DLQ%g1", "%RETRY%g1", "%RETRY%g2"

Entry = dict[str, Any]


def allow(resource: str, *actions: str, ips: Sequence[str] = ()) -> Entry:
    return {"resource": resource, "actions": list(actions), "sourceIps": list(ips), "decision": "Allow"}


def deny(resource: str, *actions: str, ips: Sequence[str] = ()) -> Entry:
    return {**allow(resource, *actions, ips=ips), "decision": "Deny"}


class Rights(NamedTuple):
    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()

    def body(self, name: str) -> bytes:
        """AclInfo, as `mqadmin` and others send it."""
        kinds = {"Custom": self.custom, "Default": self.default}
        policies = [{"policyType": kind, "entries": list(entries)} for kind, entries in kinds.items() if entries]
        return json.dumps({"subject": f"User:{name}", "policies": policies}).encode()


def account(name: str) -> Account:
    """An account of the world; its secret follows from its name."""
    return Account(name, f"secret of {name}")


NOBODY = account("nobody")
OFF = account("off")
PUB = account("pub")
SUB_TOPIC, SUB_GROUP, SUB_BOTH = account("sub-topic"), account("sub-group"), account("sub-both")
UMLAUT = Account("Jürgen", "Schlüssel €")
PUB_ALL = account("pub-all")
OPERATOR = account("operator")

RIGHTS: Mapping[Account, Rights] = {
    NOBODY: Rights(),
    OFF: Rights((allow("*", "All"),)),
    PUB: Rights((allow(f"Topic:{ORDERS}", "Pub"),)),
    SUB_TOPIC: Rights((allow(f"Topic:{ORDERS}", "Sub"),)),
    SUB_GROUP: Rights((allow(f"Group:{G1}", "Sub"),)),
    SUB_BOTH: Rights((allow(f"Topic:{ORDERS}", "Sub"), allow(f"Group:{G1}", "Sub"))),
    UMLAUT: Rights((allow(f"Topic:{ORDERS}", "Pub"),)),
    PUB_ALL: Rights((allow("Topic:*", "Pub"),)),
    OPERATOR: Rights((allow("Cluster:*", "All"),)),
}


@dataclass(frozen=True)
class Side:
    """A broker with the world on it."""

    namesrv: str
    broker: str

    def ask(self, request: bytes) -> Command:
        """One request on a connection of its own."""
        return ask(self.broker, request)

    def order(self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> Command:
        """A request of the first account; it must succeed."""
        answer = self.ask(signed(ROOT, code, fields, body))
        assert answer.code == 0, (code, answer.remark)
        return answer

    def create_user(self, who: Account, kind: str = "Normal") -> None:
        info = {"username": who.name, "password": who.secret, "userType": kind}
        self.order(CREATE_USER, {"username": who.name}, json.dumps(info).encode())

    def disable(self, who: Account) -> None:
        info = {"username": who.name, "userStatus": "disable"}
        self.order(UPDATE_USER, {"username": who.name}, json.dumps(info).encode())

    def grant(self, who: Account, rights: Rights) -> None:
        if rights != Rights():
            self.order(CREATE_ACL, {"subject": f"User:{who.name}"}, rights.body(who.name))

    def admit(self, who: Account, *entries: Entry) -> Account:
        """A new account with custom entries."""
        self.create_user(who)
        self.grant(who, Rights(entries))
        return who

    def create_topic(self, topic: str, queues: int = 1) -> None:
        numbers = {
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicSysFlag": "0",
            "order": "false",
        }
        fields = {"topic": topic, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", **numbers}
        self.order(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    def create_group(self, group: str) -> None:
        config = {"groupName": group, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
        self.order(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(config).encode())

    def await_route(self, who: Account, topic: str) -> None:
        """Until the name server knows both: clients that ask too early try again late."""
        while ask(self.namesrv, signed(who, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code != 0:
            time.sleep(0.25)  # an account that is not known yet counts as a guess

    def mark(self, topic: str) -> int:
        """Send a message and tell its place: what was stored between two marks is seen at once, as a broker may tell the
        number of messages late."""
        answer = self.ask(send(ROOT, topic))
        return int((answer.ext or {})["queueOffset"])


def furnish(side: Side) -> Side:
    """Make the world.

    Its first message, at offset 0 of the log, can be handed back. There is a retry to be read, also when a test has locked
    queues: from then on retries of that group become dead letters."""
    for topic in (ORDERS, OTHER, STOCK, RETRY_G1, RETRY_G2, DEAD):
        side.create_topic(topic)
    for group in (G1, G2):
        side.create_group(group)
    for who, rights in RIGHTS.items():
        side.create_user(who)
        side.grant(who, rights)
    side.disable(OFF)
    for topic in (ORDERS, RETRY_G1):
        answer = side.ask(send(ROOT, topic))
        assert answer.code == 0, (topic, answer.remark)
    return side


def send(who: Account | None, topic: str, body: bytes = b"x", **fields: str) -> bytes:
    """A send in the form that clients use."""
    return _by(who, RequestCode.SEND_MESSAGE_V2, {**send_fields(topic), **fields}, body)


def send_fields(topic: str) -> dict[str, str]:
    letters = {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": "1",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
    }
    return {**letters, "i": "KEYS\x01k\x02", "j": "0", "k": "false", "m": "false"}


def long_send_fields(topic: str) -> dict[str, str]:
    """The same in the spelling of requests 10 and 324."""
    names = {"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId"}
    names |= {"f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes"}
    names |= {"k": "unitMode", "m": "batch"}
    return {names[letter]: value for letter, value in send_fields(topic).items()}


def pull(who: Account | None, topic: str, group: str, *, offset: int = 0, hold_ms: int = 0) -> bytes:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32"}
    fields |= {"sysFlag": "6" if hold_ms else "4", "commitOffset": "0", "suspendTimeoutMillis": str(hold_ms)}
    fields |= {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}
    return _by(who, RequestCode.PULL_MESSAGE, fields)


def heartbeat(who: Account | None, group: str, *topics: str) -> bytes:
    subscriptions = [
        {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1, "expressionType": "TAG"}
        for topic in topics
    ]
    consumer: dict[str, Any] = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    consumer |= {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subscriptions}
    data = {"clientID": f"client of {group}", "producerDataSet": [], "consumerDataSet": [consumer]}
    return _by(who, RequestCode.HEART_BEAT, {}, json.dumps(data).encode())


def send_back(who: Account, group: str, offset: int = 0) -> bytes:
    fields = {"offset": str(offset), "group": group, "delayLevel": "0", "originTopic": ORDERS, "originMsgId": "x"}
    return _by(who, RequestCode.CONSUMER_SEND_MSG_BACK, fields)


def _by(who: Account | None, code: int, fields: Mapping[str, Any], body: bytes = b"") -> bytes:
    return frame(code, fields, body) if who is None else signed(who, code, fields, body)
