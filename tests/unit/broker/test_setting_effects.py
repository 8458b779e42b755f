"""Settings do what they say: of each, what can be seen of a broker by default, and with another value.

`tests/unit/test_every_setting.py` shows that somebody goes by every setting; this is about what comes of it. Settings whose
effect is a story of its own (disks that fill, replicas, certificates) have their tests elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.unit.broker.parts import Parts, Setup, heartbeat, pull_request, send_request
from tests.unit.broker.popper import pop_request, popped
from tests.unit.broker.transacting import Payer

from rocketline.broker.config import BrokerConfig
from rocketline.protocol.bodies import LockBatchResponseBody, decode_body
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.records import decode_messages
from rocketline.settings import load

SMALL = {
    "brokerFastFailureEnable": "false",
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "2000",
    "mappedFileSizeTimerLog": "20800",
    "maxHashSlotNum": "100",
    "maxIndexNum": "500",
    "storePathRootDir": "/data",
}
"""Files that fit a disk in memory."""


@dataclass
class Written(Setup):
    """The parts of a broker with settings as a file has them."""

    written: dict[str, str] = field(default_factory=dict)

    def config(self) -> BrokerConfig:
        config, unknown = load(BrokerConfig, SMALL | self.written)
        assert not unknown
        return config


# What can be seen


def sent(request: Command) -> Callable[[Parts], int]:
    return lambda parts: parts.peer().ask(request).code


def in_answer(name: str) -> Callable[[Parts], str | None]:
    return lambda parts: (parts.peer().ask(send_request()).ext or {}).get(name)


def pulled(**more: Any) -> Callable[[Parts], tuple[int, int]]:
    """Code and number of messages of a pull, of forty that are there."""

    def look(parts: Parts) -> tuple[int, int]:
        peer = parts.peer()
        for _ in range(40):
            peer.ask(send_request())
        parts.dispatch()
        answer = peer.ask(pull_request(**more))
        return answer.code, len(list(decode_messages(answer.body))) if answer.body else 0

    return look


def pulled_of_nothing(parts: Parts) -> int:
    parts.put_topic("orders")
    return parts.peer().ask(pull_request(sys_flag=0x4)).code


def half_message(parts: Parts) -> int:
    payer = Payer(parts)
    return payer.peer.ask(payer.half_request("A")).code


def timer(seconds: int) -> Command:
    return send_request(properties={"UNIQ_KEY": "U", "TIMER_DELAY_SEC": str(seconds)})


def delivered_after(seconds: int) -> Callable[[Parts], int]:
    def look(parts: Parts) -> int:
        parts.put_topic("orders")
        parts.peer().ask(timer(seconds))
        parts.pass_time(seconds + 5)
        return len(parts.messages("orders"))

    return look


def found_by_key(parts: Parts) -> int:
    peer = parts.peer()
    peer.ask(send_request(properties={"UNIQ_KEY": "U", "KEYS": "k"}))
    parts.dispatch()
    wanted = {"topic": "orders", "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}
    return peer.ask(Command(RequestCode.QUERY_MESSAGE, wanted)).code


def share_of_one_of_two(parts: Parts) -> list[tuple[int, str]]:
    parts.put_topic("orders")
    for client in ("c1", "c2"):
        parts.peer().ask(heartbeat(client))
    body = {"topic": "orders", "consumerGroup": "readers", "clientId": "c1", "strategyName": "AVG"}
    body["messageModel"] = "CLUSTERING"
    answer = parts.peer().ask(Command(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(body).encode()))
    given = json.loads(answer.body)["messageQueueAssignments"]
    return [(item["messageQueue"]["queueId"], item["mode"]) for item in given]


def locked_by_another_after(seconds: float) -> Callable[[Parts], int]:
    def look(parts: Parts) -> int:
        parts.put_topic("orders")
        granted = []
        for client in ("c1", "c2"):
            queue = {"topic": "orders", "brokerName": "broker-a", "queueId": 0}
            body = json.dumps({"consumerGroup": "readers", "clientId": client, "mqSet": [queue]}).encode()
            answer = parts.peer().ask(Command(RequestCode.LOCK_BATCH_MQ, {}, body))
            granted.append(len(decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set))
            parts.clock.advance(seconds)
        assert granted[0] == 1
        return granted[1]

    return look


def popped_twice(parts: Parts) -> list[int]:
    """How many messages two pops get, of three and then two more."""
    counts = []
    for more in (3, 2):
        for _ in range(more):
            parts.peer().ask(send_request())
        parts.dispatch()
        counts.append(len(popped(parts.peer().ask(pop_request(queue_id=0, init_mode=0)))))
    return counts


def log_files(parts: Parts) -> list[int]:
    parts.peer().ask(send_request())
    folder = parts.environment.root / "commitlog"
    return [int(entry.size) for entry in parts.disk.list(folder)]


SQL = {"subscription": "a IS NULL", "expression_type": "SQL92"}
BULK = {"max_messages": 64, "bulk": True}
ALL_MINE = [(0, "PULL"), (1, "PULL"), (2, "PULL"), (3, "PULL")]
POPS = {"enablePopMessageThreshold": "true", "popInflightMessageThreshold": "2"}
CASES: list[tuple[dict[str, str], Callable[[Parts], Any], Any, Any]] = [
    ({"brokerPermission": "4"}, sent(send_request()), 0, 16),
    ({"brokerPermission": "2"}, pulled(), (0, 32), (16, 0)),
    ({"autoCreateTopicEnable": "false"}, sent(send_request()), 0, 17),
    ({"autoCreateSubscriptionGroup": "false"}, pulled_of_nothing, 19, 26),
    ({"regionId": "eu"}, in_answer("MSG_REGION"), "DefaultRegion", "eu"),
    ({"traceOn": "false"}, in_answer("TRACE_ON"), "true", "false"),
    ({"maxMessageSize": "4"}, sent(send_request()), 0, 13),
    ({"enablePropertyFilter": "false"}, pulled(**SQL), (0, 32), (1, 0)),
    ({"rejectTransactionMessage": "true"}, half_message, 0, 16),
    ({"timerWheelEnable": "false"}, sent(timer(5)), 0, 1),
    ({"timerMaxDelaySec": "10"}, sent(timer(20)), 0, 13),
    ({"timerStopEnqueue": "true"}, delivered_after(5), 1, 0),
    ({"timerStopDequeue": "true"}, delivered_after(5), 1, 0),
    ({"maxTransferCountOnMessageInMemory": "2"}, pulled(), (0, 32), (0, 2)),
    ({"maxTransferBytesOnMessageInMemory": "1"}, pulled(), (0, 32), (0, 1)),
    ({"rocketline.bulkReadMessages": "0"}, pulled(**BULK), (0, 40), (0, 32)),
    ({"rocketline.bulkReadMessages": "36"}, pulled(**BULK), (0, 40), (0, 36)),
    ({"messageIndexEnable": "false"}, found_by_key, 0, 22),
    ({"mappedFileSizeCommitLog": "2097152"}, log_files, [1 << 20], [2 << 20]),
    ({"serverLoadBalancerEnable": "false"}, share_of_one_of_two, ALL_MINE[:2], ALL_MINE),
    ({"defaultMessageRequestMode": "POP"}, share_of_one_of_two, ALL_MINE[:2], [(-1, "POP")]),
    ({"rocketmq.broker.rebalance.lockMaxLiveTime": "1000"}, locked_by_another_after(2), 0, 1),
    (POPS, popped_twice, [3, 2], [3, 0]),
]


@pytest.mark.parametrize(
    ("written", "look", "by_default", "then"),
    CASES,
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
async def test_a_setting_changes_what_can_be_seen(
    written: dict[str, str], look: Callable[[Parts], Any], by_default: Any, then: Any
) -> None:
    seen = []
    for keys in ({}, written):
        parts = Parts(Written(written=keys))
        try:
            seen.append(look(parts))
        finally:
            parts.close()
    assert seen == [by_default, then]
