"""Groups moved by an operator: what is answered, who is told and when, and what becomes of commits meanwhile."""

from __future__ import annotations

import pytest
from tests.unit.broker.parts import BROKER, MakeParts, Parts, Peer, fill, heartbeat, pull_request

from rocketline.message import MessageQueue
from rocketline.protocol.bodies import decode_body, decode_reset_offsets, queue_key
from rocketline.protocol.bodies.queues import ResetOffsetBody
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


def reset(timestamp: int = -1, *, topic: str = "orders", group: str = "readers", **more: str) -> Command:
    ext = {"topic": topic, "group": group, "timestamp": str(timestamp), "isForce": "true", **more}
    return Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)


def answered(answer: Command) -> dict[int, int]:
    """Offsets by queue of an answer; every queue must be one of this broker."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    table = decode_body(ResetOffsetBody, answer.body).offset_table
    by_key = {queue_key(MessageQueue("orders", BROKER, queue_id)): queue_id for queue_id in range(8)}
    return {by_key[key]: offset for key, offset in table.items()}


@pytest.fixture
async def filled(parts: Parts) -> Parts:
    """Ten messages in queue 0, a second apart, of which a group has read seven."""
    return with_readers(parts)


def with_readers(parts: Parts) -> Parts:
    parts.put_topic("orders", 2)
    fill(parts, 10)
    parts.groups.get("readers")
    parts.offsets.commit("c", "readers", "orders", 0, 7)
    return parts


async def test_by_time_all_queues_move_at_once(filled: Parts) -> None:
    start_ms = filled.store.store_ms_of("orders", 0, 0)
    assert answered(filled.peer().ask(reset(start_ms + 3000))) == {0: 3, 1: 0}
    assert filled.offsets.get("readers", "orders", 0) == 3


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 10), (0, 0), (1 << 60, 10)])
async def test_a_time_before_all_or_after_all(filled: Parts, timestamp: int, offset: int) -> None:
    assert answered(filled.peer().ask(reset(timestamp)))[0] == offset


async def test_one_queue_to_a_number(filled: Parts) -> None:
    peer = filled.peer()
    assert answered(peer.ask(reset(0, queueId="0", offset="4"))) == {0: 4}
    assert answered(peer.ask(reset(queueId="0", offset="-1"))) == {0: 10}
    assert answered(peer.ask(reset(queueId="1"))) == {1: 0}


@pytest.mark.parametrize("offset", ["11", "12", "-2"])
async def test_a_number_outside_the_queue_is_refused(filled: Parts, offset: str) -> None:
    answer = filled.peer().ask(reset(queueId="0", offset=offset))
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"Target offset {offset} not in consume queue range [0-10]",
    )
    assert filled.offsets.get("readers", "orders", 0) == 7


async def test_what_is_unknown_is_named(filled: Parts) -> None:
    peer = filled.peer()
    answer = peer.ask(reset(topic="nothing"))
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "Topic nothing does not exist")
    answer = peer.ask(reset(group="nobody"))
    assert (answer.code, answer.remark) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group nobody does not exist")
    answer = peer.ask(reset(queueId="7", offset="0"))
    assert (answer.code, "queueId 7" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True)


async def test_the_next_pull_is_told_once(filled: Parts) -> None:
    peer = filled.peer()
    peer.ask(reset(queueId="0", offset="2"))
    told = peer.ask(pull_request(queue_offset=10, commit_offset=9, sys_flag=COMMIT | SUSPEND | SUBSCRIPTION))
    assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert told.ext == {"nextBeginOffset": "2", "minOffset": "0", "maxOffset": "10", "suggestWhichBrokerId": "0"}
    assert filled.offsets.get("readers", "orders", 0) == 2
    assert peer.ask(pull_request(queue_offset=2)).code == ResponseCode.SUCCESS


async def test_commits_count_again_once_the_consumer_knows(filled: Parts) -> None:
    peer = filled.peer()
    peer.ask(reset(queueId="0", offset="2"))
    update = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "8"}
    assert peer.ask(Command(RequestCode.UPDATE_CONSUMER_OFFSET, update)).code == ResponseCode.SUCCESS
    assert filled.offsets.get("readers", "orders", 0) == 2
    peer.ask(pull_request(queue_offset=10))
    peer.ask(Command(RequestCode.UPDATE_CONSUMER_OFFSET, update))
    assert filled.offsets.get("readers", "orders", 0) == 8


async def test_a_held_pull_hears_of_it_at_once(filled: Parts) -> None:
    consumer, other, operator = filled.peer(), filled.peer(), filled.peer()
    held = SUSPEND | SUBSCRIPTION
    consumer.send(pull_request(queue_offset=10, sys_flag=held))
    other.send(pull_request(queue_offset=10, sys_flag=held, group="others"))
    assert len(filled.waiters) == 2
    answered(operator.ask(reset(0)))
    told = await consumer.next()
    assert (told.code, told.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    assert (await other.next()).code == ResponseCode.PULL_NOT_FOUND


async def test_a_consumer_that_starts_at_the_new_offset_is_served(filled: Parts) -> None:
    peer = filled.peer()
    peer.ask(reset(queueId="0", offset="2"))
    flags = COMMIT | SUBSCRIPTION
    assert peer.ask(pull_request(queue_offset=2, commit_offset=2, sys_flag=flags)).code == ResponseCode.SUCCESS


async def test_one_that_reads_there_and_still_holds_earlier_messages_is_told(filled: Parts) -> None:
    peer = filled.peer()
    peer.ask(reset(queueId="0", offset="9"))
    answer = peer.ask(pull_request(queue_offset=9, commit_offset=7, sys_flag=COMMIT | SUBSCRIPTION))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert filled.offsets.get("readers", "orders", 0) == 9


async def test_other_groups_are_not_disturbed(filled: Parts) -> None:
    filled.offsets.commit("c", "others", "orders", 0, 5)
    peer = filled.peer()
    peer.ask(reset(0))
    assert peer.ask(pull_request(group="others", queue_offset=5)).code == ResponseCode.SUCCESS
    assert filled.offsets.get("others", "orders", 0) == 5


# Without server-side resets the consumers do it


def online(parts: Parts, language: str = "JAVA", version: int = 493) -> Peer:
    consumer = parts.peer()
    beat = heartbeat()
    beat.language, beat.version = language, version
    consumer.ask(beat)
    consumer.received()
    return consumer


async def test_consumers_online_are_told(make_parts: MakeParts) -> None:
    parts = with_readers(make_parts(server_side_reset=False))
    parts.offsets.commit("c", "readers", "orders", 1, 0)
    java, cpp = online(parts), online(parts, "CPP")
    java.received()
    assert answered(parts.peer().ask(reset(0))) == {0: 0, 1: 0}
    for consumer in (java, cpp):
        (told,) = consumer.received()
        assert (told.code, told.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
        assert told.ext == {
            "topic": "orders",
            "group": "readers",
            "timestamp": "0",
            "isForce": "false",
            "queueId": "-1",
        }
        assert sorted(decode_reset_offsets(told.body).offset_table.values()) == [0, 0]
        assert told.body.startswith(b'{"offsetTable":[' if consumer is cpp else b'{"offsetTable":{')
    assert parts.offsets.get("readers", "orders", 0) == 7, "their own commits move the group"


@pytest.mark.parametrize(("force", "offset"), [("true", 10), ("false", 7)])
async def test_only_force_moves_a_group_forward(make_parts: MakeParts, force: str, offset: int) -> None:
    parts = with_readers(make_parts(server_side_reset=False))
    parts.offsets.commit("c", "readers", "orders", 1, 0)
    online(parts)
    assert answered(parts.peer().ask(reset(isForce=force))) == {0: offset, 1: 0}


async def test_why_consumers_cannot_be_told(make_parts: MakeParts) -> None:
    parts = with_readers(make_parts(server_side_reset=False))
    peer = parts.peer()
    assert peer.ask(reset(topic="nothing")).code == ResponseCode.TOPIC_NOT_EXIST
    answer = peer.ask(reset())
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "THe consumer group <readers> not exist")
    parts.offsets.commit("c", "readers", "orders", 1, 0)
    answer = peer.ask(reset(5))
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert answer.remark == ("Consumer not online, so can not reset offset, Group: readers Topic: orders Timestamp: 5")
    old = online(parts, version=27)
    answer = peer.ask(reset(5))
    assert (answer.code, "does not support this feature" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert old.received() == []
