"""Pops: which queues they read and from where, what they answer, and pops that wait; peeks, notifications, refusals."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from tests.unit.broker.parts import MakeParts, Parts, pull_request, send_request
from tests.unit.broker.popper import (
    Popper,
    bodies,
    notification_request,
    numbers,
    pop_request,
    popped,
    put,
    revive_records,
    stop,
)

from rocketline.broker.config import PopConfig
from rocketline.protocol.bodies import SubscriptionGroupConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PeekMessageHeader, PollingInfoHeader
from rocketline.protocol.records import decode_messages
from rocketline.store.config import TimerConfig

RETRY = "%RETRY%readers_orders"
RETRY_V2 = "%RETRY%readers+orders"

NEVER_RETRY_FIRST = PopConfig(retry_first_percent=0)


class Turns(Random):
    """Numbers of our choice instead of random ones."""

    def __init__(self, *turns: int) -> None:
        super().__init__()
        self.turns = list(turns)

    def randrange(self, *_: object) -> int:
        return self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]


# What a pop gives


async def test_a_pop_gives_messages_and_what_a_client_makes_their_handles_from(parts: Parts) -> None:
    put(parts, *numbers(5))
    answer = parts.peer().ask(pop_request(count=2, invisible_ms=6000))
    now_ms = parts.clock.now_ms()
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert answer.ext == {
        "popTime": str(now_ms),
        "invisibleTime": "6000",
        "reviveQid": "0",
        "restNum": "3",
        "startOffsetInfo": "0 0 0",
        "msgOffsetInfo": "0 0 0,1",
    }
    messages = decode_messages(answer.body)
    assert [message.body for message in messages] == [b"0", b"1"]
    assert [message.receipt_handle for message in messages] == [None, None], "clients make them from the header"
    assert str(popped(answer)[1].handle) == f"0 {now_ms} 6000 0 0 broker-a 0 1"


async def test_two_pops_without_acks_get_different_messages(parts: Parts) -> None:
    put(parts, *numbers(7))
    first, second, third = Popper(parts), Popper(parts), Popper(parts)
    assert [bodies(popper.pop(3)) for popper in (first, second, third)] == [numbers(3), numbers(3, 3), [b"6"]]
    assert first.pop() == []


async def test_the_revive_queue_is_another_one_each_time(parts: Parts) -> None:
    put(parts, *numbers(10))
    popper = Popper(parts)
    assert [popper.pop(1)[0].handle.revive_queue_id for _ in range(10)] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]


async def test_the_offset_moves_with_the_pop_and_one_check_point_is_written_for_each_queue(parts: Parts) -> None:
    put(parts, *numbers(3), queue_count=2)
    put(parts, *numbers(2, 3), queue_id=1)
    answer = parts.peer().ask(pop_request())
    assert sorted(decoded.body for decoded in decode_messages(answer.body)) == numbers(5)
    assert parts.offsets.of("readers", "orders") == {0: 3, 1: 2}
    assert [record.tag for record in revive_records(parts)] == ["ck", "ck"]


async def test_all_queues_are_read_each_time_beginning_with_another(make_parts: MakeParts) -> None:
    parts = make_parts(random=Turns(41, 42, 43, 44))
    for queue_id in range(4):
        put(parts, *numbers(10, queue_id * 10), queue_id=queue_id, queue_count=4)
    popper = Popper(parts)
    assert [popper.pop(1)[0].message.queue_id for _ in range(4)] == [1, 2, 3, 0]


async def test_a_pop_of_one_queue_reads_only_that(parts: Parts) -> None:
    put(parts, b"0", queue_count=2)
    put(parts, b"1", queue_id=1)
    assert bodies(Popper(parts).pop(queue_id=1)) == [b"1"]
    assert Popper(parts).pop(queue_id=1) == []
    assert bodies(Popper(parts).pop(queue_id=0)) == [b"0"]


async def test_rest_counts_what_the_visited_queues_still_have(make_parts: MakeParts) -> None:
    parts = make_parts(random=Turns(40))
    put(parts, *numbers(20), queue_count=2)
    put(parts, *numbers(7), queue_id=1)
    answer = parts.peer().ask(pop_request(count=5))
    assert answer.ext is not None
    assert answer.ext["restNum"] == "22"
    answer = parts.peer().ask(pop_request(count=5, queue_id=0))
    assert answer.ext is not None
    assert answer.ext["restNum"] == "10"


async def test_groups_know_nothing_of_each_other_and_of_those_that_pull(parts: Parts) -> None:
    put(parts, *numbers(3))
    assert bodies(Popper(parts, "a").pop()) == bodies(Popper(parts, "b").pop()) == numbers(3)
    pulled = parts.peer().ask(pull_request(group="c", subscription="*"))
    assert [message.body for message in decode_messages(pulled.body)] == numbers(3)


async def test_pops_count_as_reads_of_the_group(parts: Parts) -> None:
    put(parts, *numbers(3))
    Popper(parts).pop()
    assert parts.statistics._gets["orders@readers"].messages == 3
    assert parts.offsets.pulled("readers", "orders", 0) == 3


# Where a group starts


async def test_a_new_group_starts_at_the_oldest_message_or_at_the_end(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig(init_by_memory=False))
    put(parts, *numbers(5))
    assert bodies(Popper(parts, "oldest").pop(init_mode=0)) == numbers(5)
    assert bodies(Popper(parts, "newest").pop(init_mode=1)) == [b"4"]


async def test_a_new_group_at_the_end_of_a_young_queue_gets_all_of_it(parts: Parts) -> None:
    put(parts, *numbers(5))
    assert bodies(Popper(parts).pop(init_mode=1)) == numbers(5)


async def test_a_new_group_on_an_empty_queue_misses_nothing(parts: Parts) -> None:
    parts.put_topic("orders", 1)
    popper = Popper(parts)
    assert popper.pop(init_mode=1) == []
    put(parts, *numbers(2))
    assert bodies(popper.pop(init_mode=1)) == numbers(2)


async def test_an_operators_reset_counts_for_the_next_pop(parts: Parts) -> None:
    put(parts, *numbers(5))
    popper = Popper(parts)
    popper.pop()
    parts.offsets.reset("readers", "orders", 0, 3)
    assert bodies(popper.pop()) == [b"3", b"4"]
    assert not parts.offsets.has_resets


@pytest.mark.parametrize(("wrong", "first"), [(99, None), (2, b"2")])
async def test_an_offset_that_is_not_there_is_put_right(parts: Parts, wrong: int, first: bytes | None) -> None:
    put(parts, *numbers(3))
    parts.offsets.commit("test", "readers", "orders", 0, wrong)
    assert bodies(Popper(parts).pop()) == ([first] if first else [])
    assert parts.offsets.get("readers", "orders", 0) == 3
    put(parts, b"next")
    assert bodies(Popper(parts).pop()) == [b"next"]


# Filters


async def test_tags_are_selected_and_what_does_not_match_is_passed(parts: Parts) -> None:
    for number in range(6):
        put(parts, b"%d" % number, TAGS="even" if number % 2 == 0 else "odd")
    answer = parts.peer().ask(pop_request(exp_type="TAG", exp="odd"))
    assert answer.ext is not None
    assert (answer.ext["startOffsetInfo"], answer.ext["msgOffsetInfo"]) == ("0 0 1", "0 0 1,3,5")
    assert [one.body for one in popped(answer)] == [b"1", b"3", b"5"]
    assert parts.offsets.get("readers", "orders", 0) == 6


async def test_a_pop_that_matches_nothing_moves_on_without_a_check_point(parts: Parts) -> None:
    put(parts, *numbers(4), TAGS="a")
    assert Popper(parts).pop(exp_type="TAG", exp="b") == []
    assert parts.offsets.get("readers", "orders", 0) == 4
    assert revive_records(parts) == []


async def test_sql_expressions_select_by_properties(parts: Parts) -> None:
    for number in range(6):
        put(parts, b"%d" % number, price=str(number))
    assert bodies(Popper(parts).pop(exp_type="SQL92", exp="price > 3")) == [b"4", b"5"]


@pytest.mark.parametrize(("kind", "text"), [("SQL92", "price >"), ("SQL92", "= 5"), ("XPATH", "/x"), ("TAG", "||")])
async def test_expressions_that_cannot_be_are_refused(parts: Parts, kind: str, text: str) -> None:
    put(parts, b"0")
    answer = parts.peer().ask(pop_request(exp_type=kind, exp=text))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert answer.remark


# Redeliveries


def redeliver(parts: Parts, count: int = 3) -> None:
    """Messages on the retry topic of the group, popped by somebody who died."""
    put(parts, *numbers(count))
    assert len(Popper(parts).pop(invisible_ms=1000)) == count
    parts.pass_time(6)


async def test_redeliveries_are_read_when_the_topic_gives_too_little(make_parts: MakeParts) -> None:
    parts = make_parts(pop=NEVER_RETRY_FIRST)
    redeliver(parts, 3)
    put(parts, b"new")
    assert bodies(Popper(parts).pop(2)) == [b"new", b"0"]
    assert bodies(Popper(parts).pop()) == [b"1", b"2"]


async def test_some_pops_look_at_redeliveries_first(make_parts: MakeParts) -> None:
    parts = make_parts(random=Turns(50, 19, 20))
    redeliver(parts, 2)
    put(parts, b"new", b"newer")
    popper = Popper(parts)
    assert bodies(popper.pop(1)) == [b"0"], "19 of 100"
    assert bodies(popper.pop(1)) == [b"new"], "20 of 100"


async def test_about_a_fifth_of_the_pops_look_at_redeliveries_first(make_parts: MakeParts) -> None:
    parts = make_parts(random=Random(7))
    for start in range(0, 300, 30):
        put(parts, *numbers(30, start))
        Popper(parts).pop(invisible_ms=1000)
    parts.pass_time(6)
    put(parts, *numbers(300))
    popper = Popper(parts)
    flags = Counter(popper.pop(1)[0].handle.flag for _ in range(250))
    assert 0.12 < flags[1] / 250 < 0.30


async def test_a_redelivered_message_looks_as_if_it_lay_on_the_topic(parts: Parts) -> None:
    redeliver(parts, 2)
    answer = parts.peer().ask(pop_request())
    assert answer.ext is not None
    assert (answer.ext["startOffsetInfo"], answer.ext["msgOffsetInfo"]) == ("1 0 0", "1 0 0,1")
    first, second = popped(answer)
    assert (first.message.topic, first.topic, first.message.reconsume_times) == ("orders", RETRY, 1)
    assert first.message.receipt_handle == str(first.handle)
    assert (first.handle.flag, second.handle.queue_offset) == (1, 1)


async def test_the_retry_topic_may_be_left_in_redelivered_messages(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig(returns_retry_topic=True))
    redeliver(parts, 1)
    [one] = popped(parts.peer().ask(pop_request()))
    assert (one.message.topic, one.message.receipt_handle) == (RETRY, None)


async def test_with_the_second_kind_of_retry_topics_both_are_drained(make_parts: MakeParts) -> None:
    before = make_parts()
    redeliver(before, 1)
    stop(before)
    parts = make_parts(
        disk=before.disk, clock=before.clock, pop=PopConfig(retry_v2=True), random=Turns(51, 51, 50, 51, 50)
    )
    put(parts, b"later")
    assert bodies(Popper(parts).pop(invisible_ms=1000)) == [b"later"]
    parts.pass_time(6)
    assert parts.store.max_offset(RETRY_V2, 0) == 1
    popper = Popper(parts)
    assert [one.handle.flag for one in popper.pop()] == [2]
    assert [one.handle.flag for one in popper.pop()] == [1]


async def test_the_filter_holds_for_redeliveries_too(parts: Parts) -> None:
    put(parts, b"a", TAGS="A")
    put(parts, b"b", TAGS="B")
    Popper(parts).pop(invisible_ms=1000)
    parts.pass_time(6)
    assert bodies(Popper(parts).pop(exp_type="TAG", exp="B")) == [b"b"]


async def test_names_may_be_so_long_that_records_need_a_longer_field(parts: Parts) -> None:
    group, topic = "g" * 100, "t" * 100
    put(parts, b"0", topic=topic)
    popper = Popper(parts, group, topic)
    popper.pop(invisible_ms=1000)
    parts.pass_time(6)
    [one] = popper.pop()
    assert (one.body, one.message.topic, one.topic) == (b"0", topic, f"%RETRY%{group}_{topic}")
    assert popper.ack(one).code == ResponseCode.SUCCESS


# Limits


async def test_a_queue_with_too_many_in_flight_gives_no_more(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig(limits_in_flight=True, max_in_flight=3))
    put(parts, *numbers(10))
    popper = Popper(parts)
    taken = popper.pop(4)
    assert len(taken) == 4
    answer = parts.peer().ask(pop_request())
    assert (answer.code, answer.ext and answer.ext["restNum"]) == (ResponseCode.POLLING_TIMEOUT, "6")
    popper.ack(taken[0])
    assert len(popper.pop()) == 6


async def test_a_group_made_anew_has_nothing_in_flight(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig(limits_in_flight=True, max_in_flight=3))
    put(parts, *numbers(8))
    Popper(parts).pop(4)
    assert Popper(parts).pop(4) == []
    parts.groups.remove("readers")
    parts.pops.clean()
    parts.offsets.forget_group("readers")
    assert bodies(Popper(parts).pop(4)) == numbers(4)


# Waiting


async def test_a_pop_that_does_not_wait_is_told_so_at_once(parts: Parts) -> None:
    parts.put_topic("orders", 1)
    answer = parts.peer().ask(pop_request(poll_ms=0))
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert answer.ext is not None
    assert answer.ext == {
        "popTime": str(parts.clock.now_ms()), "invisibleTime": "60000", "reviveQid": "0", "restNum": "0",
        "startOffsetInfo": "", "msgOffsetInfo": "",
    }  # fmt: skip


async def test_a_held_pop_is_answered_by_a_message(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    peer = parts.peer()
    peer.send(pop_request(poll_ms=15_000))
    assert peer.received() == []
    put(parts, b"0", queue_id=1)
    [one] = popped(await peer.next())
    assert one.body == b"0"
    assert len(parts.pops.waiters) == 0


async def test_without_long_polling_no_arrival_ends_a_pop_or_a_notification(make_parts: MakeParts) -> None:
    """As with Apache's broker, where both are held for the time they ask for."""
    parts = make_parts(long_polling=False)
    parts.put_topic("orders")
    peer = parts.peer()
    peer.send(pop_request(poll_ms=60), notification_request(group="watchers", poll_ms=60))
    put(parts, b"0")
    assert (peer.received(), len(parts.pops.waiters), len(parts.pops.notifications)) == ([], 1, 1)
    answers = {answer.opaque: answer for answer in [await peer.next(), await peer.next()]}
    assert bodies(popped(answers[1])) == [b"0"]
    assert (answers[2].ext or {})["hasMsg"] == "true"


async def test_a_held_pop_is_answered_when_its_time_is_over(parts: Parts) -> None:
    parts.put_topic("orders", 1)
    peer = parts.peer()
    peer.send(pop_request(poll_ms=60))
    answer = await peer.next()
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert answer.ext is not None
    assert answer.ext.keys() >= {"popTime", "invisibleTime", "reviveQid", "restNum"}


async def test_a_message_that_does_not_match_wakes_nobody(parts: Parts) -> None:
    parts.put_topic("orders", 1)
    peer = parts.peer()
    peer.send(pop_request(poll_ms=15_000, exp_type="TAG", exp="A"))
    put(parts, b"0", TAGS="B")
    assert (len(parts.pops.waiters), peer.received()) == (1, [])
    put(parts, b"1", TAGS="A")
    assert [one.body for one in popped(await peer.next())] == [b"1"]


async def test_one_message_answers_one_of_those_who_wait_and_many_answer_more(parts: Parts) -> None:
    parts.put_topic("orders", 1)
    peers = [parts.peer() for _ in range(4)]
    for peer in peers:
        peer.send(pop_request(poll_ms=15_000, count=2))
    put(parts, b"0")
    assert len(parts.pops.waiters) == 3
    for body in numbers(3, 1):
        parts.peer().ask(send_request("orders", body))
    parts.dispatch()
    assert len(parts.pops.waiters) == 1
    await asyncio.sleep(0)
    assert [len(peer.received()) for peer in peers] == [1, 1, 1, 0]


async def test_a_redelivery_wakes_who_waits(parts: Parts) -> None:
    put(parts, b"0")
    Popper(parts).pop(invisible_ms=1000)
    peer = parts.peer()
    peer.send(pop_request(poll_ms=15_000, queue_id=0))
    parts.pass_time(6)
    [one] = popped(await peer.next())
    assert (one.body, one.message.reconsume_times) == (b"0", 1)


async def test_what_one_pop_leaves_wakes_the_next(parts: Parts) -> None:
    put(parts, *numbers(1))
    waiting, popper = parts.peer(), Popper(parts)
    popper.pop()
    waiting.send(pop_request(poll_ms=15_000))
    parts.peer().ask(send_request("orders", b"1"))
    parts.peer().ask(send_request("orders", b"2"))
    parts.store.dispatch()  # not yet told to those who wait
    parts.pops.waiters._woken.clear()
    assert bodies(popper.pop(1)) == [b"1"]
    assert [one.body for one in popped(await waiting.next())] == [b"2"]


async def test_a_pop_whose_connection_is_gone_takes_nothing(parts: Parts) -> None:
    parts.put_topic("orders", 1)
    gone, peer = parts.peer(), parts.peer()
    gone.send(pop_request(poll_ms=15_000))
    peer.send(pop_request(poll_ms=15_000))
    gone.channel.close()
    await gone.channel.wait_closed()
    put(parts, b"0")
    assert [one.body for one in popped(await peer.next())] == [b"0"]


async def test_more_waiting_pops_than_allowed_are_told_209(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig(max_waiting_per_queue=3, max_waiting=5))
    parts.put_topic("orders", 2)
    peer = parts.peer()
    for _ in range(3):
        peer.send(pop_request(poll_ms=15_000))
    answer = peer.ask(pop_request(poll_ms=15_000))
    assert (answer.code, answer.remark) == (ResponseCode.POLLING_FULL, "NO_MESSAGE_IN_QUEUE")
    peer.send(pop_request(poll_ms=15_000, queue_id=0), pop_request(poll_ms=15_000, queue_id=0))
    assert peer.ask(pop_request(poll_ms=15_000, queue_id=1)).code == ResponseCode.POLLING_FULL, "five in all"
    info = PollingInfoHeader("readers", "orders", -1)
    assert peer.ask(Command(RequestCode.POLLING_INFO, info.encode())).ext == {"pollingNum": "3"}


async def test_a_flood_of_pops_neither_loses_nor_doubles_anything(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig(max_waiting_per_queue=10))
    parts.put_topic("orders", 1)
    peer = parts.peer()
    for _ in range(100):
        peer.send(pop_request(poll_ms=15_000, count=1))
    assert [answer.code for answer in peer.received()] == [ResponseCode.POLLING_FULL] * 90
    put(parts, *numbers(12))
    await asyncio.sleep(0)
    got = [one.body for answer in peer.received() for one in popped(answer)]
    assert got == numbers(10)
    assert bodies(Popper(parts).pop()) == numbers(2, 10)


async def test_deleting_the_topic_answers_who_waits(parts: Parts) -> None:
    parts.put_topic("orders", 1)
    peer = parts.peer()
    peer.send(pop_request(poll_ms=15_000))
    parts.peer().ask(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}))
    assert (await peer.next()).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_pop_that_comes_too_late_is_told_so_with_all_fields(parts: Parts) -> None:
    put(parts, b"0")
    answer = parts.peer().ask(pop_request(poll_ms=1000, born_ms=parts.clock.now_ms() - 1600))
    assert (answer.code, answer.ext) == (
        ResponseCode.POLLING_TIMEOUT,
        {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"},
    )


@pytest.mark.parametrize("ahead_s", [-3600, 3600])
async def test_a_client_whose_clock_is_wrong_waits_no_longer_than_it_asks(parts: Parts, ahead_s: int) -> None:
    parts.put_topic("orders", 1)
    peer = parts.peer()
    peer.send(pop_request(poll_ms=60, born_ms=parts.clock.now_ms() + ahead_s * 1000))
    assert (await peer.next()).code == ResponseCode.POLLING_TIMEOUT


# Notifications and peeks


async def test_a_notification_says_whether_a_pop_would_find_something(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    peer = parts.peer()
    assert peer.ask(notification_request()).ext == {"hasMsg": "false", "pollingFull": "false"}
    put(parts, b"0", queue_id=1)
    assert peer.ask(notification_request()).ext == {"hasMsg": "true", "pollingFull": "false"}
    assert peer.ask(notification_request(queue_id=0)).ext == {"hasMsg": "false", "pollingFull": "false"}
    Popper(parts).pop(invisible_ms=1000)
    assert peer.ask(notification_request()).ext == {"hasMsg": "false", "pollingFull": "false"}
    parts.pass_time(6)
    assert peer.ask(notification_request()).ext == {"hasMsg": "true", "pollingFull": "false"}


async def test_a_held_notification_is_answered_by_a_message_or_its_time(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig(max_waiting_per_queue=1))
    parts.put_topic("orders", 1)
    peer, other = parts.peer(), parts.peer()
    peer.send(notification_request(poll_ms=15_000))
    assert other.ask(notification_request(poll_ms=15_000)).ext == {"hasMsg": "false", "pollingFull": "true"}
    put(parts, b"0")
    assert (await peer.next()).ext == {"hasMsg": "true", "pollingFull": "false"}
    assert bodies(Popper(parts).pop()) == [b"0"], "it took nothing"
    peer.send(notification_request(poll_ms=60))
    assert (await peer.next()).ext == {"hasMsg": "false", "pollingFull": "false"}


def peek_request(count: int = 32, queue_id: int = -1, topic: str = "orders") -> Command:
    return Command(RequestCode.PEEK_MESSAGE, PeekMessageHeader(topic, queue_id, count, "readers").encode())


async def test_a_peek_takes_nothing(parts: Parts) -> None:
    put(parts, *numbers(4))
    for _ in range(2):
        answer = parts.peer().ask(peek_request(2))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
        assert answer.ext == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "4"}
        assert [message.body for message in decode_messages(answer.body)] == numbers(2)
    Popper(parts).pop()
    answer = parts.peer().ask(peek_request())
    assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")


# Refusals


@pytest.mark.parametrize(
    ("changed", "code", "why"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "nowhere"),
        ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER, "queueId[1]"),
        ({"count": 33}, ResponseCode.INVALID_PARAMETER, "33"),
        ({"count": 0}, ResponseCode.INVALID_PARAMETER, "0"),
        ({"invisible_ms": 0}, ResponseCode.INVALID_PARAMETER, "invisibleTime 0"),
        ({"invisible_ms": -1}, ResponseCode.INVALID_PARAMETER, "invisibleTime -1"),
        ({"invisible_ms": 259_200_001}, ResponseCode.INVALID_PARAMETER, "timerMaxDelaySec"),
        ({"invisible_ms": (1 << 63) - 1}, ResponseCode.INVALID_PARAMETER, "timerMaxDelaySec"),
        ({"group": "no such name!"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such name!"),
        ({"group": "g" * 250}, ResponseCode.INVALID_PARAMETER, "255"),
        ({"group": "stopped"}, ResponseCode.NO_PERMISSION, "stopped"),
        ({"group": "barred"}, ResponseCode.NO_PERMISSION, "barred"),
        ({"topic": "secret"}, ResponseCode.NO_PERMISSION, "secret"),
        ({"born_ms": 1}, ResponseCode.POLLING_TIMEOUT, "clock"),
    ],
)
async def test_refusals_have_a_code_and_a_reason(
    parts: Parts, changed: dict[str, object], code: ResponseCode, why: str
) -> None:
    put(parts, b"0")
    parts.put_topic("secret", 1, perm=2)
    parts.groups.put(SubscriptionGroupConfig("stopped", consume_enable=False), SubscriptionGroupConfig("barred"))
    parts.groups.allow("barred", "orders", readable=False)
    answer = parts.peer().ask(pop_request(**changed))  # type: ignore[arg-type]
    assert (answer.code, why in (answer.remark or "")) == (code, True), answer.remark
    assert bodies(Popper(parts).pop()) == [b"0"], "nothing was taken"


async def test_a_broker_that_may_not_be_read_or_has_no_timers_gives_nothing(make_parts: MakeParts) -> None:
    unreadable = make_parts(permission=2)
    unreadable.put_topic("orders", 1)
    assert unreadable.peer().ask(pop_request()).code == ResponseCode.NO_PERMISSION
    timeless = make_parts(timers=TimerConfig(enabled=False))
    timeless.put_topic("orders", 1)
    answer = timeless.peer().ask(pop_request())
    assert (answer.code, "timerWheelEnable" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_an_unknown_group_is_created_only_if_that_is_allowed(make_parts: MakeParts) -> None:
    parts = make_parts(auto_create_groups=False)
    put(parts, b"0")
    assert parts.peer().ask(pop_request()).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_nobody_may_write_check_points(parts: Parts) -> None:
    answer = parts.peer().ask(send_request("rmq_sys_REVIVE_LOG_DefaultCluster", b"{}", properties={"TAGS": "ck"}))
    assert answer.code == ResponseCode.NO_PERMISSION


async def test_a_store_that_refuses_check_points_gives_nothing_and_moves_nothing(parts: Parts) -> None:
    put(parts, *numbers(2))
    parts.store._refusal = "the disk is full"
    assert Popper(parts).pop() == []
    assert parts.offsets.get("readers", "orders", 0) == 0
    parts.store._refusal = ""
    assert bodies(Popper(parts).pop()) == numbers(2)
