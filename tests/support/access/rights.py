"""What each request to a broker asks of its sender, written down a second time: the product's own table is not asked.

A row is a request that the broker would serve, and the rights it asks for, one after the other. So a row that is lost or
wrong in the product is noticed here, and a code that is new there has no row here and is noticed too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.access.world import CLUSTER, Entry, allow, long_send_fields, send_fields
from tests.support.request_table import NOT_ANSWERED_CODES, requests

T, G, DOOMED_TOPIC, DOOMED_GROUP, NEW_GROUP = "walk", "walkers", "doomed", "doomed-group", "new-group"
"""Topics and groups that are there, two that may be deleted, and a group that is not there."""

Right = tuple[str, str]
"""Resource and action."""

TOPIC, GROUP, OWN = f"Topic:{T}", f"Group:{G}", f"Cluster:{CLUSTER}"
CLUSTER_GET, CLUSTER_UPDATE = ((OWN, "Get"),), ((OWN, "Update"),)
ANY_ACCOUNT: tuple[Right, ...] = ()
SUPER = None
"""Only super users."""


@dataclass(frozen=True)
class Row:
    code: int
    rights: tuple[Right, ...] | None
    """ANY_ACCOUNT, SUPER, or all of these."""
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    other_actions: tuple[str, ...] = ()
    """Any of these is as good as the action of every right."""

    def entries(self, rights: Iterable[Right]) -> list[Entry]:
        return [allow(resource, action) for resource, action in rights]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _body_of_pop_ack() -> bytes:
    ack = {"c": G, "t": T, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 1000, "b": "AQ=="}
    return _json({"brokerName": "broker-a", "acks": [ack]})


QUEUE = {"topic": T, "brokerName": "broker-a", "queueId": 0}
SUBSCRIPTION = {"topic": T, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1, "expressionType": "TAG"}
CONSUMER = {
    "groupName": G,
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "subscriptionDataSet": [SUBSCRIPTION],
}
LOCKS = _json({"clientId": "c", "consumerGroup": G, "mqSet": [QUEUE]})
BODIES = {
    18: _json({"topicConfigList": [{"topicName": T, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]}),
    34: _json({"clientID": "c", "consumerDataSet": [CONSUMER], "producerDataSet": []}),
    41: LOCKS,
    42: LOCKS,
    46: _json({"clientId": "c", "group": G, "subscriptionData": SUBSCRIPTION}),
    200: _json({"groupName": NEW_GROUP}),
    225: _json({"groupConfigList": [{"groupName": G}]}),
    400: _json({"topic": T, "consumerGroup": G, "clientId": "c", "strategyName": "AVG", "messageModel": "CLUSTERING"}),
    401: _json({"topic": T, "consumerGroup": G, "mode": "PULL", "popShareQueueNum": 0}),
    513: _json({"topic": T, "totalQueues": 1, "bname": "broker-a", "epoch": 1, "scope": "__global__"}),
    200151: _body_of_pop_ack(),
    3001: _json({"username": "walker", "password": "p"}),
    3002: _json({"username": "walker", "password": "p"}),
    3006: _json({"subject": "User:walker", "policies": [{"entries": [allow("Topic:none", "Pub")]}]}),
    3007: _json({"subject": "User:walker", "policies": [{"entries": [allow("Topic:none", "Pub")]}]}),
}

NAMES = {
    "topic": T,
    "topicList": T,
    "consumerGroup": G,
    "group": G,
    "groupName": DOOMED_GROUP,
    "producerGroup": G,
    "compareGroup": G,
    "filterGroups": G,
    "destGroup": G,
    "srcGroup": G,
    "username": "walker",
    "subject": "User:walker",
    "queueId": "0",
    "maxMsgNums": "1",
    "count": "1",
    "clusterName": CLUSTER,
    "topicFilterType": "SINGLE_TAG",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "attributes": "",
    "timestamp": "0",
    "invisibleTime": "1000",
    "expressionType": "TAG",
    "subscription": "*",
    "expType": "TAG",
    "exp": "*",
    "bname": "broker-a",
}
"""The values of header fields, where those of tests/support/request_table.py are not enough."""
ALSO = {215: {"topic": DOOMED_TOPIC}, 11: {"sysFlag": "4"}, 361: {"sysFlag": "4"}}
LONG_SENDS, REPLIES = (10, 324), (324, 325)
REPLY_TOPIC = f"{CLUSTER}_REPLY_TOPIC"
"""Replies are for any account there, and a send like others elsewhere."""

BY_HANDLER = (33, 36, 37, 309, 323)
"""They name a message and not its topic: tests/interop/access/test_our_broker.py."""

RIGHTS: dict[tuple[int, ...], tuple[Right, ...] | None] = {
    (10, 310, 320, 370, 39): ((TOPIC, "Pub"),),
    (324, 325): ANY_ACCOUNT,
    (11, 361, 200052): ((TOPIC, "Sub"), (GROUP, "Sub")),
    (200050, 200051, 200053, 200054, 200151, 326): ((GROUP, "Sub"), (TOPIC, "Sub")),
    (34, 41, 42, 46, 400): ((GROUP, "Sub"), (TOPIC, "Sub")),
    (35, 40): ((GROUP, "Sub"),),
    (14, 15): ((TOPIC, "Sub"), (GROUP, "Sub")),
    (38,): ((GROUP, "Sub"),),
    (12, 29, 30, 31): ((TOPIC, "Sub"),),
    (17, 18, 513): ((TOPIC, "Create"),),
    (215,): ((f"Topic:{DOOMED_TOPIC}", "Delete"),),
    (32, 202, 300, 351, 354, 105): ((TOPIC, "Get"),),
    (200,): ((f"Group:{NEW_GROUP}", "Create"),),
    (225, 401): ((GROUP, "Update"),),
    (207,): ((f"Group:{DOOMED_GROUP}", "Delete"),),
    (203, 307, 343, 352): ((GROUP, "Get"),),
    (208, 308, 345, 200055): ((GROUP, "Get"), (TOPIC, "Get")),
    (223, 303, 321): ((TOPIC, "Get"), (GROUP, "Get")),
    (222, 353, 314): ((GROUP, "Update"), (TOPIC, "Update")),
    (21, 26, 28, 43, 45, 60, 61, 101, 201, 204, 219, 305, 315, 317, 322, 328, 355, 402, 901, 907): CLUSTER_GET,
    (1004, 1005, 1006, 1007, 1012, 2003, 3004, 3005, 3009, 3010): CLUSTER_GET,
    (100, 102, 103, 104, 205, 216, 217, 306, 316, 327, 329, 902, 903, 904, 905): CLUSTER_UPDATE,
    (1001, 1002, 1003, 1008, 1011, 1013, 2001, 2002, 2004, 5001, 200056): CLUSTER_UPDATE,
    (3001, 3002, 3003, 3006, 3007, 3008): CLUSTER_UPDATE,
    (25, 906, 908): SUPER,
}
EITHER: dict[tuple[int, ...], tuple[str, ...]] = {
    (14, 38, 12, 29, 30, 31): ("Get",),
    (15,): ("Update",),
}
"""Actions that are as good as those above."""

NOT_FOR_BROKERS = (106, 206, 220, 221, 224, 304, 311, 312, 313, 318, 319)


def rows() -> list[Row]:
    """All of them."""
    known = {item.code: item for item in requests()}
    found = []
    for codes, rights in RIGHTS.items():
        for code in codes:
            valid = known[code].valid() if code in known else {}
            fields = {name: NAMES.get(name, value) for name, value in valid.items()}
            if "b" in fields:
                topic = REPLY_TOPIC if code in REPLIES else T
                fields = long_send_fields(topic) if code in LONG_SENDS else send_fields(topic)
            found.append(Row(code, rights, fields | ALSO.get(code, {}), BODIES.get(code, b""), _other_actions(code)))
    return found


def every_code() -> set[int]:
    """Every number that RocketMQ has a name for."""
    return {item.code for item in requests()} | set(NOT_ANSWERED_CODES)


def _other_actions(code: int) -> tuple[str, ...]:
    return next((actions for codes, actions in EITHER.items() if code in codes), ())


def is_refusal(remark: str | None) -> bool:
    """Whether an answer with code 16 is one of access control, and not one of a handler."""
    return bool(
        re.match(
            r"User:\S+ (has no permission|is no super user|is not found)|parse authorization|request ", remark or ""
        )
    )
