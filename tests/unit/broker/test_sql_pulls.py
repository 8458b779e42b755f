"""SQL92 pulls: registered or in the request, the codes of what is missing, retries, bitmaps, and held pulls."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.parts import MakeParts, Parts, Peer, eventually, heartbeat, pull_request, send_request

from rocketline.protocol.bodies import SubscriptionData
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers.read import CLASS_FILTER, SUBSCRIPTION, SUSPEND
from rocketline.protocol.records import decode_messages

RETRY = "%RETRY%readers"


def fill(parts: Parts, values: list[str], topic: str = "orders", **properties: str) -> None:
    """One message for each value of the property `a`, which is its body too."""
    peer = parts.peer()
    for value in values:
        request = send_request(topic, value.encode(), properties={"UNIQ_KEY": "U", "a": value, **properties})
        assert peer.ask(request).code == ResponseCode.SUCCESS
    parts.dispatch()


def sql(expression: str, version: int = 1, topic: str = "orders") -> SubscriptionData:
    return SubscriptionData(topic, expression, expression_type="SQL92", sub_version=version)


def registered(parts: Parts, expression: str, version: int = 1) -> Peer:
    peer = parts.peer()
    assert peer.ask(heartbeat(subscriptions=[sql(expression, version)])).code == ResponseCode.SUCCESS
    return peer


def bodies(answer: Command) -> list[str]:
    return [message.body.decode() for message in decode_messages(answer.body)]


async def test_a_registered_expression_selects(parts: Parts) -> None:
    fill(parts, ["1", "2", "x", "10"])
    answer = registered(parts, "a >= 2").ask(pull_request(sys_flag=0, sub_version=1))
    assert (answer.code, bodies(answer)) == (ResponseCode.SUCCESS, ["2", "10"])
    assert answer.ext is not None
    assert answer.ext["nextBeginOffset"] == "4"


async def test_an_expression_in_the_request_selects(parts: Parts) -> None:
    fill(parts, ["1", "2", "10"])
    answer = parts.peer().ask(pull_request(subscription="a IN ('1', '10')", expression_type="SQL92"))
    assert bodies(answer) == ["1", "10"]


async def test_nothing_that_matches_moves_the_reader_on(parts: Parts) -> None:
    fill(parts, ["1", "2"])
    answer = parts.peer().ask(pull_request(subscription="a = 5", expression_type="SQL92"))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert answer.ext is not None
    assert answer.ext["nextBeginOffset"] == "2"


async def test_an_expression_in_the_request_that_is_wrong_is_refused(parts: Parts) -> None:
    fill(parts, ["1"])
    answer = parts.peer().ask(pull_request(subscription="a >", expression_type="SQL92"))
    assert (answer.code, "character 4" in str(answer.remark)) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True)


async def test_a_registered_expression_that_is_wrong_is_named(parts: Parts) -> None:
    fill(parts, ["1"])
    answer = registered(parts, "a > 'x'").ask(pull_request(sys_flag=0))
    assert (answer.code, "character 3" in str(answer.remark)) == (ResponseCode.FILTER_DATA_NOT_EXIST, True)


async def test_versions_are_checked_in_apaches_order(parts: Parts) -> None:
    fill(parts, ["1"])
    peer = parts.peer()
    assert peer.ask(pull_request(sys_flag=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    peer = registered(parts, "a = 1", version=5)
    assert peer.ask(pull_request(sys_flag=0, sub_version=6)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    known = parts.filters.get("readers", "orders")
    assert known is not None
    known.version = 4  # another member, which is behind, registered last
    assert peer.ask(pull_request(sys_flag=0, sub_version=5)).code == ResponseCode.FILTER_DATA_NOT_LATEST
    assert peer.ask(pull_request(sys_flag=0, sub_version=4)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("sys_flag", [CLASS_FILTER, CLASS_FILTER | SUBSCRIPTION])
async def test_class_filters_are_refused(parts: Parts, sys_flag: int) -> None:
    fill(parts, ["1"])
    peer = registered(parts, "a = 1")
    answer = peer.ask(pull_request(sys_flag=sys_flag))
    assert (answer.code, "class filter" in str(answer.remark)) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True)
    peer.ask(heartbeat(subscriptions=[SubscriptionData("orders", "x.Y", class_filter_mode=True, sub_version=2)]))
    assert peer.ask(pull_request(sys_flag=0)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_switched_off_language_is_refused_however_it_comes(make_parts: MakeParts) -> None:
    parts = make_parts(sql_enabled=False)
    fill(parts, ["1"])
    for peer, request in (
        (parts.peer(), pull_request(subscription="a = 1", expression_type="SQL92")),
        (registered(parts, "a = 1"), pull_request(sys_flag=0)),
    ):
        assert peer.ask(request).code == ResponseCode.SYSTEM_ERROR


async def test_a_group_that_left_is_dead_and_comes_back(parts: Parts) -> None:
    fill(parts, ["1", "2"])
    peer = registered(parts, "a = 2")
    await peer.close()
    known = parts.filters.get("readers", "orders")
    assert known is not None
    await eventually(lambda: known.dead_ms > 0)
    assert bodies(registered(parts, "a = 2").ask(pull_request(sys_flag=0))) == ["2"]
    assert known.dead_ms == 0


async def test_retried_messages_pass_unless_told_otherwise(make_parts: MakeParts) -> None:
    for filters_retries, wanted in ((False, ["1", "2"]), (True, ["2"])):
        parts = make_parts(filters_retries=filters_retries)
        peer = registered(parts, "a = 2")
        fill(parts, ["1", "2"], RETRY, RETRY_TOPIC="orders")
        answer = peer.ask(pull_request(RETRY, subscription="a = 5", expression_type="SQL92"))
        assert bodies(answer) == wanted


async def test_retried_messages_of_topics_without_filter_pass(make_parts: MakeParts) -> None:
    parts = make_parts(filters_retries=True)
    registered(parts, "a = 2")
    fill(parts, ["1"], RETRY, RETRY_TOPIC="other")
    fill(parts, ["2"], RETRY)
    assert bodies(parts.peer().ask(pull_request(RETRY, subscription="a = 5", expression_type="SQL92"))) == ["1", "2"]


@pytest.mark.parametrize(
    ("ext_queues", "bitmaps", "looked_at"), [(True, True, 3), (True, False, 5), (False, True, 5), (False, False, 5)]
)
async def test_bitmaps_keep_results_the_same_and_save_looking(
    make_parts: MakeParts, ext_queues: bool, bitmaps: bool, looked_at: int
) -> None:
    parts = make_parts(ext_queues=ext_queues, bitmaps=bitmaps)
    fill(parts, ["2"])
    peer = registered(parts, "a = 2")
    parts.clock.advance(1)
    fill(parts, ["1", "2", "3", "2"])
    assert bodies(peer.ask(pull_request(sys_flag=0))) == ["2", "2", "2"]
    known = parts.filters.get("readers", "orders")
    assert known is not None
    looked: list[bool] = []
    found = parts.store.read(
        "orders", 0, 0, 32, accept_ext=known.accept_ext, accept_record=lambda record: looked.append(True) is None
    )
    assert (found.message_count, len(looked)) == (looked_at, looked_at)


async def test_bitmaps_of_another_expression_are_not_used(make_parts: MakeParts) -> None:
    parts = make_parts(ext_queues=True, bitmaps=True)
    registered(parts, "a = 2", version=1)
    parts.clock.advance(1)
    fill(parts, ["1", "2"])
    parts.clock.advance(1)
    assert bodies(registered(parts, "a = 1", version=2).ask(pull_request(sys_flag=0))) == ["1"]


async def test_a_held_pull_waits_for_a_message_that_matches(parts: Parts) -> None:
    parts.put_topic("orders")
    peer = registered(parts, "a > 5")
    for queue_offset in (0, 4):  # of an empty queue, and at the end of one
        assert peer.ask(pull_request(queue_offset=queue_offset, sys_flag=0)).code == ResponseCode.PULL_NOT_FOUND
        peer.send(pull_request(queue_offset=queue_offset, sys_flag=SUSPEND, sub_version=1))
        fill(parts, ["1", "x", "5"])
        await asyncio.sleep(0)
        assert (peer.received(), len(parts.waiters)) == ([], 1)
        fill(parts, ["6"])
        answer = await peer.next()
        assert bodies(answer) == ["6"]
        assert len(parts.waiters) == 0


async def test_a_hostile_expression_is_refused_and_the_broker_goes_on(parts: Parts) -> None:
    fill(parts, ["1"])
    for expression in ("(" * 60_000, "a = '" + "x" * 200_000 + "'", "a IN (" + "'x'," * 12_000 + "'x')"):
        answer = parts.peer().ask(pull_request(subscription=expression, expression_type="SQL92"))
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        registered(parts, expression, version=len(expression))
        assert parts.filters.get("readers", "orders") is None
    assert parts.peer().ask(pull_request()).code == ResponseCode.SUCCESS
