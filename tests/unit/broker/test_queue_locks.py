"""Queue locks: who gets them, how long they last, and what the two requests answer."""

from __future__ import annotations

import pytest
from tests.unit.broker.parts import MakeParts, Parts, heartbeat, send_request

from rocketline.broker.queue_locks import QueueLocks
from rocketline.clock import ManualClock
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import LockBatchResponseBody, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import ONEWAY, Command

Q0, Q1, Q2 = (MessageQueue("orders", "broker-a", number) for number in range(3))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def locks(clock: ManualClock) -> QueueLocks:
    return QueueLocks(clock)


def test_a_client_gets_what_is_free_and_keeps_what_it_has(locks: QueueLocks) -> None:
    assert locks.lock("g", "c1", [Q0, Q1]) == [Q0, Q1]
    assert locks.lock("g", "c2", [Q0, Q1, Q2]) == [Q2]
    assert locks.lock("g", "c1", [Q0, Q1, Q2]) == [Q0, Q1]


def test_groups_know_nothing_of_each_other(locks: QueueLocks) -> None:
    assert locks.lock("g", "c1", [Q0]) == locks.lock("h", "c2", [Q0]) == [Q0]
    locks.unlock("g", "c1", [Q0])
    assert (locks.holder("g", Q0), locks.holder("h", Q0)) == (None, "c2")


def test_only_the_holder_unlocks(locks: QueueLocks) -> None:
    locks.lock("g", "c1", [Q0, Q1])
    locks.unlock("g", "c2", [Q0])
    locks.unlock("other", "c1", [Q0])
    locks.unlock("g", "c1", [Q1, Q2])
    assert (locks.holder("g", Q0), locks.holder("g", Q1)) == ("c1", None)
    assert locks.lock("g", "c2", [Q0, Q1]) == [Q1]


def test_a_lock_lasts_sixty_seconds_from_its_last_renewal(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "c1", [Q0, Q1])
    clock.advance(40)
    locks.lock("g", "c1", [Q0])
    clock.advance(20)
    assert locks.lock("g", "c2", [Q0, Q1]) == []
    clock.advance(0.001)
    assert locks.lock("g", "c2", [Q0, Q1]) == [Q1]
    clock.advance(40)
    assert locks.lock("g", "c2", [Q0, Q1]) == [Q0, Q1]


def test_a_clock_that_is_set_changes_nothing(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "c1", [Q0])
    clock.jump_wall(3600)
    assert locks.lock("g", "c2", [Q0]) == []
    clock.jump_wall(-7200)
    clock.advance(61)
    assert locks.lock("g", "c2", [Q0]) == [Q0]


def test_a_group_holds_locks_until_the_last_is_gone(locks: QueueLocks, clock: ManualClock) -> None:
    assert not locks.are_held("g")
    locks.lock("g", "c1", [Q0])
    clock.advance(30)
    locks.lock("g", "c1", [Q1])
    clock.advance(31)
    assert locks.are_held("g")
    clock.advance(30)
    assert not locks.are_held("g")


def test_expired_locks_are_dropped_and_no_others(locks: QueueLocks, clock: ManualClock) -> None:
    locks.lock("g", "c1", [Q0])
    clock.advance(50)
    locks.lock("h", "c1", [Q1])
    clock.advance(20)
    locks.drop_expired()
    assert (locks.holder("g", Q0), locks.holder("h", Q1)) == (None, "c1")
    assert not locks.are_held("g")


def request(code: int, queues: str, client: str = "c1", group: str = "readers") -> Command:
    body = f'{{"clientId":"{client}","consumerGroup":"{group}","mqSet":[{queues}],"onlyThisBroker":false}}'
    return Command(code, {}, body.encode())


def queue(number: int, topic: str = "orders") -> str:
    return f'{{"brokerName":"broker-a","queueId":{number},"topic":"{topic}"}}'


def lock(parts: Parts, *queues: str, client: str = "c1") -> list[MessageQueue]:
    answer = parts.peer().ask(request(RequestCode.LOCK_BATCH_MQ, ",".join(queues), client))
    assert answer.code == ResponseCode.SUCCESS, answer
    return [item.queue for item in decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set]


async def test_the_answer_names_exactly_what_was_granted(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    assert lock(parts, queue(0)) == [Q0]
    assert lock(parts, queue(0), queue(1), client="c2") == [Q1]
    answer = parts.peer().ask(request(RequestCode.LOCK_BATCH_MQ, queue(0)))
    assert answer.body == b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"orders"}]}'
    answer = parts.peer().ask(request(RequestCode.LOCK_BATCH_MQ, queue(0), "c2"))
    assert answer.body == b'{"lockOKMQSet":[]}'


async def test_queues_that_do_not_exist_are_not_granted(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    assert lock(parts, queue(2), queue(-1), queue(0, "nowhere")) == []
    assert not parts.locks.are_held("readers")


@pytest.mark.parametrize("group", ["../x", "a b", ""])
async def test_a_group_that_cannot_be_gets_nothing(parts: Parts, group: str) -> None:
    parts.put_topic("orders", 2)
    answer = parts.peer().ask(request(RequestCode.LOCK_BATCH_MQ, queue(0), group=group))
    assert answer.code != ResponseCode.SUCCESS
    assert not parts.locks.are_held(group)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"clientId":"c","consumerGroup":"g","mqSet":[{}]}', b"\xff"])
@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
async def test_a_body_that_is_none_is_refused(parts: Parts, code: int, body: bytes) -> None:
    assert parts.peer().ask(Command(code, {}, body)).code == ResponseCode.SYSTEM_ERROR


async def test_unlocking_frees_also_without_an_answer(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    lock(parts, queue(0), queue(1))
    assert parts.peer().ask(request(RequestCode.UNLOCK_BATCH_MQ, queue(0))).code == ResponseCode.SUCCESS
    peer = parts.peer()
    oneway = request(RequestCode.UNLOCK_BATCH_MQ, queue(1))
    oneway.flag = ONEWAY
    peer.send(oneway)
    assert peer.received() == []
    assert lock(parts, queue(0), queue(1), client="c2") == [Q0, Q1]


async def test_a_lock_outlives_the_connection_of_its_holder(parts: Parts) -> None:
    """The client may be alive and in the middle of a call."""
    parts.put_topic("orders", 1)
    peer = parts.peer()
    peer.ask(heartbeat())
    peer.ask(request(RequestCode.LOCK_BATCH_MQ, queue(0), "client-1"))
    await peer.close()
    assert lock(parts, queue(0), client="c2") == []
    parts.clock.advance(61)
    assert lock(parts, queue(0), client="c2") == [Q0]


async def test_what_a_group_with_locks_sends_to_its_retry_topic_is_dead(make_parts: MakeParts) -> None:
    parts = make_parts()
    parts.put_topic("orders", 1)
    parts.groups.require("readers")
    lock(parts, queue(0))
    to_retry = {"topic": "%RETRY%readers", "reconsume_times": 1, "max_reconsume_times": 16}
    assert parts.peer().ask(send_request(**to_retry)).code == ResponseCode.SUCCESS
    assert len(parts.messages("%DLQ%readers")) == 1
    parts.locks.unlock("readers", "c1", [Q0])
    assert parts.peer().ask(send_request(**to_retry)).code == ResponseCode.SUCCESS
    assert len(parts.messages("%DLQ%readers")) == len(parts.messages("%RETRY%readers")) == 1
