"""Who reads which queues: modes that are set and saved, and the shares of members in both modes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from tests.unit.broker.parts import BROKER, ROOT, MakeParts, Parts, heartbeat

from rocketline.broker.config import PopConfig
from rocketline.broker.pop.modes import averagely, by_circle, share_out
from rocketline.broker.pop.routes import KEEP_S, ClusterQueues
from rocketline.clock import ManualClock
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import QueueData, SetMessageRequestModeRequestBody, TopicRouteData, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel, RemotingClient, RemotingServer, Router


def ask(parts: Parts, client: str = "c1", **changed: str) -> Any:
    """What a member is told: None for no word, or {(queue, mode)}."""
    body = {
        "topic": "orders", "consumerGroup": "readers", "clientId": client, "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    } | changed  # fmt: skip
    answer = parts.peer().ask(Command(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(body).encode()))
    assert answer.code == ResponseCode.SUCCESS, answer
    told = json.loads(answer.body)
    if "messageQueueAssignments" not in told:
        assert told == {}
        return None
    assignments = told["messageQueueAssignments"]
    assert all(item["messageQueue"]["brokerName"] == BROKER for item in assignments)
    return [(item["messageQueue"]["queueId"], item["mode"]) for item in assignments]


def set_mode(parts: Parts, mode: str = "POP", share: int = 0, topic: str = "orders", group: str = "readers") -> Command:
    body = encode_body(SetMessageRequestModeRequestBody(topic, group, mode, share))
    return parts.peer().ask(Command(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body))


def join(parts: Parts, *clients: str) -> None:
    for number, client in enumerate(clients):
        parts.peer(("192.0.2.5", 50_000 + number)).ask(heartbeat(client))


async def test_without_a_mode_members_share_the_queues_for_pulling(parts: Parts) -> None:
    parts.put_topic("orders", 5)
    join(parts, "c2", "c1")
    assert ask(parts, "c1") == [(0, "PULL"), (1, "PULL"), (2, "PULL")]
    assert ask(parts, "c2") == [(3, "PULL"), (4, "PULL")]
    assert ask(parts, "c1", strategyName="AVG_BY_CIRCLE") == [(0, "PULL"), (2, "PULL"), (4, "PULL")]
    assert ask(parts, "stranger") == []


async def test_in_pop_mode_everybody_may_read_everything(parts: Parts) -> None:
    parts.put_topic("orders", 4)
    assert set_mode(parts, share=8).code == ResponseCode.SUCCESS
    join(parts, "c1", "c2", "c3")
    assert [ask(parts, client) for client in ("c1", "c2", "c3")] == [[(-1, "POP")]] * 3


async def test_in_pop_mode_a_queue_may_have_some_readers(parts: Parts) -> None:
    parts.put_topic("orders", 8)
    set_mode(parts, share=1)
    join(parts, "c1", "c2", "c3", "c4")
    told = [ask(parts, f"c{number}") for number in (1, 2, 3, 4)]
    assert [len(queues) for queues in told] == [4] * 4
    assert set(Counter(queue for queues in told for queue in queues).values()) == {2}


async def test_more_members_than_queues_all_get_one(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    set_mode(parts, share=1)
    join(parts, *(f"c{number}" for number in range(5)))
    assert [ask(parts, f"c{number}") for number in range(5)] == [[(number % 2, "POP")] for number in range(5)]


@pytest.mark.parametrize("changed", [{"topic": "nowhere"}, {"consumerGroup": "unknown"}, {"strategyName": "X"}])
async def test_what_cannot_be_said_is_not_said(parts: Parts, changed: dict[str, str]) -> None:
    parts.put_topic("orders", 2)
    join(parts, "c1")
    assert ask(parts, **changed) is None


async def test_broadcasting_members_get_all_queues(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    assert ask(parts, messageModel="BROADCASTING") == [(0, "PULL"), (1, "PULL")]
    assert ask(parts, messageModel="BROADCASTING", topic="nowhere") is None


async def test_a_broker_that_shares_nothing_out_gives_all_to_everybody(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig(shares_queues=False))
    parts.put_topic("orders", 2)
    assert ask(parts, "c1") == ask(parts, "c2") == [(0, "PULL"), (1, "PULL")]


async def test_retry_topics_are_pulled_whatever_the_default(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig(request_mode="POP"))
    parts.put_topic("orders", 2)
    join(parts, "c1")
    assert ask(parts) == [(-1, "POP")]
    assert ask(parts, topic="%RETRY%readers") == [(0, "PULL")]


async def test_modes_are_saved_in_apaches_file_and_come_back(make_parts: MakeParts) -> None:
    before = make_parts()
    before.put_topic("orders", 2)
    set_mode(before, share=4)
    data = before.disk.read(ROOT / "config" / "messageRequestMode.json")
    assert data is not None
    expected = {
        "messageRequestModeMap": {
            "orders": {"readers": {"consumerGroup": "readers", "mode": "POP", "popShareQueueNum": 4, "topic": "orders"}}
        }
    }
    assert json.loads(data) == expected
    before.close()
    parts = make_parts(disk=before.disk, clock=before.clock)
    answer = parts.peer().ask(Command(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {}))
    assert json.loads(answer.body) == expected
    join(parts, "c1")
    assert ask(parts) == [(-1, "POP")]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"topic": "%RETRY%readers"}, ResponseCode.NO_PERMISSION),
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "not a name"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"mode": "PUSH"}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_a_mode_that_cannot_be_set_is_refused(parts: Parts, changed: dict[str, str], code: int) -> None:
    parts.put_topic("orders", 2)
    answer = set_mode(parts, **changed)  # type: ignore[arg-type]
    assert (answer.code, bool(answer.remark)) == (code, True)
    assert parts.pops.modes.table == {}


async def test_a_mode_the_disk_refuses_is_not_set(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    parts.disk.fail("write", part="messageRequestMode")
    assert set_mode(parts).code == ResponseCode.SYSTEM_ERROR
    assert parts.pops.modes.table == {}


@pytest.mark.parametrize("strategy", [averagely, by_circle])
def test_shares_are_complete_and_disjoint(strategy: Any) -> None:
    queues = [MessageQueue("orders", "b", number) for number in range(7)]
    members = [f"c{number}" for number in range(3)]
    mode = SetMessageRequestModeRequestBody("orders", "readers", "PULL", 0)
    shares = [share_out(mode, strategy, member, members, queues) for member in members]
    assert sorted(queue for share in shares for queue in share) == queues


# The queues of other brokers


class Names:
    """A name server that knows one topic."""

    def __init__(self) -> None:
        self.asked = 0
        self.knows = True
        self.server = RemotingServer(Router({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}), "127.0.0.1", 0)

    def _route(self, channel: Channel, request: Command) -> Command:
        self.asked += 1
        if not self.knows:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark="no")
        queues = [QueueData("b", 1, 1, 6, 0), QueueData("a", 2, 2, 6, 0), QueueData("shut", 9, 9, 2, 0)]
        return request.reply(ResponseCode.SUCCESS, body=encode_body(TopicRouteData([], queues)))


async def test_the_queues_of_all_brokers_come_from_the_name_servers(parts: Parts) -> None:
    names, clock = Names(), ManualClock()
    await names.server.start()
    async with RemotingClient() as client:
        queues = ClusterQueues([f"127.0.0.1:{names.server.port}"], client, parts.topics, clock, BROKER)
        expected = [MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1), MessageQueue("orders", "b", 0)]
        first = queues.of("orders")
        assert asyncio.iscoroutine(first)
        assert await first == expected
        assert queues.of("orders") == expected, "known, and so told at once"
        clock.advance(KEEP_S + 1)
        names.knows = False
        later = queues.of("orders")
        assert asyncio.iscoroutine(later)
        assert await later == expected, "what was known last"
        other = queues.of("other")
        assert asyncio.iscoroutine(other)
        assert await other is None
        assert names.asked == 3
    await names.server.close(grace_s=0)
