"""Requests about offsets: of groups, and of queues by end and by time."""

from __future__ import annotations

import pytest
from tests.unit.broker.parts import ROOT, MakeParts, Parts, pull_request, send_request

from rocketline.protocol.bodies import SubscriptionGroupConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import ONEWAY, Command


def query(group: str = "readers", topic: str = "orders", queue_id: int = 0, **more: str) -> Command:
    ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), **more}
    return Command(RequestCode.QUERY_CONSUMER_OFFSET, ext)


def update(offset: int, group: str = "readers", topic: str = "orders", queue_id: int = 0) -> Command:
    ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


def of_queue(code: int, topic: str = "orders", queue_id: int = 0, **more: str) -> Command:
    return Command(code, {"topic": topic, "queueId": str(queue_id), **more})


def fill(parts: Parts, count: int, step_s: float = 1.0, queue_id: int = 0) -> None:
    peer = parts.peer()
    for _ in range(count):
        peer.ask(send_request(queue_id=queue_id))
        parts.clock.advance(step_s)
    parts.dispatch()


# 14


async def test_a_committed_offset_is_returned(parts: Parts) -> None:
    fill(parts, 5)
    parts.offsets.commit("c", "readers", "orders", 0, 3)
    answer = parts.peer().ask(query())
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"offset": "3"})


@pytest.mark.parametrize("count", [0, 5])
async def test_a_new_group_starts_at_0_while_the_first_message_is_at_hand(parts: Parts, count: int) -> None:
    """On an empty queue too: a client told "none" would start at the end and could miss what comes first."""
    parts.put_topic("orders")
    fill(parts, count)
    for more in ({}, {"setZeroIfNotFound": "true"}):
        answer = parts.peer().ask(query(**more))
        assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"offset": "0"})


async def test_a_new_group_that_wants_no_guess_is_told_22(parts: Parts) -> None:
    fill(parts, 5)
    answer = parts.peer().ask(query(setZeroIfNotFound="false"))
    assert (answer.code, answer.ext) == (ResponseCode.QUERY_NOT_FOUND, {})
    assert "Not found" in answer.remark


async def test_a_new_group_on_a_queue_that_lost_its_start_is_told_22(make_parts: MakeParts) -> None:
    before = make_parts(log_segment_bytes=4096)
    fill(before, 60)
    before.close()
    before.disk.remove(ROOT / "commitlog" / "00000000000000000000")
    parts = make_parts(log_segment_bytes=4096, disk=before.disk, clock=before.clock)
    assert parts.store.min_offset("orders", 0) > 0
    assert parts.peer().ask(query()).code == ResponseCode.QUERY_NOT_FOUND


# 15


async def test_a_commit_is_stored_as_given_also_backwards(parts: Parts) -> None:
    fill(parts, 5)
    parts.groups.put(SubscriptionGroupConfig("readers"))
    peer = parts.peer()
    for offset in (4, 2, 4_000_000_000, 0):
        answer = peer.ask(update(offset))
        assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {})
        assert parts.offsets.get("readers", "orders", 0) == offset


async def test_a_oneway_commit_counts_and_is_not_answered(parts: Parts) -> None:
    fill(parts, 1)
    parts.groups.put(SubscriptionGroupConfig("readers"))
    peer = parts.peer()
    commit = update(1)
    commit.flag |= ONEWAY
    wrong = update(1, topic="nowhere")
    wrong.flag |= ONEWAY
    peer.send(commit, wrong)
    assert peer.received() == []
    assert parts.offsets.items() == [("orders@readers", 0, 1)]


async def test_a_commit_of_a_group_nobody_has_seen_is_26_and_creates_nothing(parts: Parts) -> None:
    """Apache 5.4.0 with group creation on answers so; a pull or heartbeat creates the group, a commit does not."""
    fill(parts, 1)
    answer = parts.peer().ask(update(1, "nobody"))
    assert (answer.code, "nobody" in answer.remark) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, True)
    assert "nobody" not in parts.groups.table
    parts.peer().ask(pull_request(group="nobody"))
    assert parts.peer().ask(update(1, "nobody")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("request_", "code", "word"),
    [
        (update(1, topic="nowhere"), ResponseCode.TOPIC_NOT_EXIST, "nowhere"),
        (update(1, queue_id=4), ResponseCode.INVALID_PARAMETER, "queueId 4"),
        (update(1, queue_id=-1), ResponseCode.INVALID_PARAMETER, "queueId -1"),
        (update(-1), ResponseCode.INVALID_PARAMETER, "negative"),
    ],
    ids=["topic", "queue", "negative queue", "negative offset"],
)
async def test_a_commit_that_makes_no_sense_is_refused(parts: Parts, request_: Command, code: int, word: str) -> None:
    parts.put_topic("orders", queue_count=4)
    parts.groups.put(SubscriptionGroupConfig("readers"))
    answer = parts.peer().ask(request_)
    assert (answer.code, word in answer.remark) == (code, True)
    assert parts.offsets.items() == []


# 29, 30, 31, 32


async def test_the_ends_of_a_queue(parts: Parts) -> None:
    parts.put_topic("orders")
    peer = parts.peer()
    assert peer.ask(of_queue(RequestCode.GET_MAX_OFFSET)).ext == {"offset": "0"}
    fill(parts, 3)
    assert peer.ask(of_queue(RequestCode.GET_MAX_OFFSET)).ext == {"offset": "3"}
    assert peer.ask(of_queue(RequestCode.GET_MIN_OFFSET)).ext == {"offset": "0"}
    assert peer.ask(of_queue(RequestCode.GET_MAX_OFFSET, queue_id=1)).ext == {"offset": "0"}


async def test_the_end_is_what_can_be_read_not_what_was_appended(parts: Parts) -> None:
    parts.peer().ask(send_request())
    assert parts.peer().ask(of_queue(RequestCode.GET_MAX_OFFSET)).ext == {"offset": "0"}
    parts.dispatch()
    assert parts.peer().ask(of_queue(RequestCode.GET_MAX_OFFSET)).ext == {"offset": "1"}


async def test_the_start_moves_with_the_log(make_parts: MakeParts) -> None:
    before = make_parts(log_segment_bytes=4096)
    fill(before, 60)
    before.close()
    before.disk.remove(ROOT / "commitlog" / "00000000000000000000")
    parts = make_parts(log_segment_bytes=4096, disk=before.disk, clock=before.clock)
    lowest = int(parts.peer().ask(of_queue(RequestCode.GET_MIN_OFFSET)).ext["offset"])
    assert 0 < lowest < 60
    stamp = int(parts.peer().ask(of_queue(RequestCode.GET_EARLIEST_MSG_STORETIME)).ext["timestamp"])
    assert stamp == before.clock.now_ms() - (60 - lowest) * 1000


@pytest.mark.parametrize(
    ("after_ms", "boundary", "offset"),
    [
        (-1, "LOWER", 0),
        (0, "LOWER", 0),
        (1, None, 1),
        (1000, "lower", 1),
        (1500, "LOWER", 2),
        (9000, "nonsense", 5),
        (0, "UPPER", 0),
        (1500, "upper", 1),
        (2000, "UPPER", 2),
        (9000, "UPPER", 4),
    ],
)
async def test_an_offset_by_time(parts: Parts, after_ms: int, boundary: str | None, offset: int) -> None:
    start_ms = parts.clock.now_ms()
    fill(parts, 5)
    more = {"boundaryType": boundary} if boundary else {}
    request = of_queue(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=str(start_ms + after_ms), **more)
    assert parts.peer().ask(request).ext == {"offset": str(offset)}


async def test_the_time_of_the_oldest_message(parts: Parts) -> None:
    parts.put_topic("orders")
    assert parts.peer().ask(of_queue(RequestCode.GET_EARLIEST_MSG_STORETIME)).ext == {"timestamp": "-1"}
    stamp = parts.clock.now_ms()
    fill(parts, 3)
    assert parts.peer().ask(of_queue(RequestCode.GET_EARLIEST_MSG_STORETIME)).ext == {"timestamp": str(stamp)}


@pytest.mark.parametrize("code", [29, 30, 31, 32])
async def test_an_unknown_topic_is_17(parts: Parts, code: int) -> None:
    answer = parts.peer().ask(of_queue(code, "../../x", timestamp="0"))
    assert (answer.code, "../../x" in answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, True)


@pytest.mark.parametrize("code", [29, 30, 31, 32])
@pytest.mark.parametrize("queue_id", [-1, 99, (1 << 31) - 1])
async def test_a_queue_that_is_not_there_is_empty(parts: Parts, code: int, queue_id: int) -> None:
    fill(parts, 2)
    answer = parts.peer().ask(of_queue(code, queue_id=queue_id, timestamp="0"))
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"timestamp": "-1"} if code == 32 else {"offset": "0"})
