"""Pulls: the order of checks, every outcome of a read, filters, and pulls that are held until something arrives."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.unit.broker.parts import ROOT, MakeParts, Parts, heartbeat, pull_request, send_request

from rocketline.broker.handler_wiring import install_handlers, pull_handlers
from rocketline.broker.replication.roles import Role
from rocketline.broker.selection import Selections
from rocketline.protocol.bodies import SubscriptionData, SubscriptionGroupConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers.read import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from rocketline.protocol.records import decode_messages
from rocketline.store.config import ReadConfig

HELD = SUBSCRIPTION | SUSPEND


def fill(parts: Parts, count: int, topic: str = "orders", tags: list[str | None] | None = None, size: int = 5) -> None:
    """Messages in queue 0, whose bodies are their numbers; `tags` repeat."""
    peer = parts.peer()
    for number in range(count):
        properties = {"UNIQ_KEY": f"U{number}"}
        if tags and (tag := tags[number % len(tags)]):
            properties["TAGS"] = tag
        answer = peer.ask(send_request(topic, b"%0*d" % (size, number), properties=properties))
        assert answer.code == ResponseCode.SUCCESS
    parts.dispatch()


def bodies(answer: Command) -> list[int]:
    return [int(message.body) for message in decode_messages(answer.body)]


def offsets(answer: Command) -> tuple[int, int, int]:
    """(next, min, max); all four fields must be there, or a Java client throws. Replicas have one more for our clients."""
    assert answer.ext is not None
    needed = {"nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"}
    assert needed <= answer.ext.keys() <= {*needed, "rocketlineReplica"}
    assert answer.ext["suggestWhichBrokerId"] == "0"
    return int(answer.ext["nextBeginOffset"]), int(answer.ext["minOffset"]), int(answer.ext["maxOffset"])


# What a read finds


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_messages_come_in_order_with_the_next_offset(parts: Parts, code: int) -> None:
    fill(parts, 40)
    answer = parts.peer().ask(pull_request(code=code, max_messages=10))
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert bodies(answer) == list(range(10))
    assert offsets(answer) == (10, 0, 40)
    answer = parts.peer().ask(pull_request(code=code, queue_offset=10, max_messages=1000))
    assert bodies(answer) == list(range(10, 40))
    assert offsets(answer) == (40, 0, 40)


@pytest.mark.parametrize(
    ("asked", "usual", "bulk"), [(31, 31, 31), (32, 32, 32), (33, 32, 33), (2_000_000_000, 32, 90), (-1, 1, 1)]
)
async def test_only_a_pull_that_asks_for_a_bulk_read_gets_more_than_the_usual(
    parts: Parts, asked: int, usual: int, bulk: int
) -> None:
    fill(parts, 90)
    assert bodies(parts.peer().ask(pull_request(max_messages=asked))) == list(range(usual))
    assert bodies(parts.peer().ask(pull_request(max_messages=asked, bulk=True))) == list(range(bulk))


async def test_a_bulk_read_keeps_to_the_bytes_it_asks_for(parts: Parts) -> None:
    fill(parts, 90, size=1000)
    whole = parts.peer().ask(pull_request(max_messages=1000, bulk=True))
    limited = parts.peer().ask(pull_request(max_messages=1000, bulk=True, max_bytes=20_000))
    assert (bodies(whole), bodies(limited)) == (
        list(range(90)),
        list(range(len(limited.body) // (len(whole.body) // 90))),
    )
    assert 15_000 < len(limited.body) <= 20_000
    assert bodies(parts.peer().ask(pull_request(max_messages=1000, bulk=True, max_bytes=1))) == [0], (
        "the first always fits"
    )
    assert len(bodies(parts.peer().ask(pull_request(max_messages=1000, bulk=True, max_bytes=-1)))) == 90


@pytest.mark.parametrize("asked", [0, -1, -(1 << 31)])
async def test_a_pull_for_no_messages_still_moves_on(parts: Parts, asked: int) -> None:
    fill(parts, 2)
    answer = parts.peer().ask(pull_request(max_messages=asked))
    assert (answer.code, bodies(answer)) == (ResponseCode.SUCCESS, [0])


@pytest.mark.parametrize(
    ("queue_offset", "code", "status", "after"),
    [
        (-5, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 8),
        (7, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 8),
        (8, ResponseCode.SUCCESS, "FOUND", 40),
        (40, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 40),
        (41, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 40),
        ((1 << 63) - 1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 40),
    ],
)
async def test_an_offset_outside_the_queue_is_answered_with_a_better_one(
    make_parts: MakeParts, queue_offset: int, code: int, status: str, after: int
) -> None:
    before = make_parts(log_segment_bytes=4096)
    fill(before, 40, size=300)
    before.close()
    before.disk.remove(ROOT / "commitlog" / "00000000000000000000")  # as retention does
    parts = make_parts(log_segment_bytes=4096, disk=before.disk, clock=before.clock)
    answer = parts.peer().ask(pull_request(queue_offset=queue_offset, max_messages=100))
    assert (answer.code, answer.remark) == (code, status)
    assert offsets(answer) == (after, 8, 40)
    assert bool(answer.body) == (code == ResponseCode.SUCCESS)


@pytest.mark.parametrize(
    ("queue_offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (3, ResponseCode.PULL_OFFSET_MOVED)]
)
async def test_a_queue_that_never_had_a_message(parts: Parts, queue_offset: int, code: int) -> None:
    parts.put_topic("orders")
    answer = parts.peer().ask(pull_request(queue_offset=queue_offset))
    assert (answer.code, answer.remark) == (code, "NO_MATCHED_LOGIC_QUEUE")
    assert offsets(answer) == (0, 0, 0)


async def test_records_that_are_damaged_in_the_log_are_passed_over(parts: Parts) -> None:
    fill(parts, 3)
    log_file = _content(parts, ROOT / "commitlog" / "00000000000000000000")
    for number in range(3):
        unit = parts.store.unit_at("orders", 0, number)
        assert unit is not None
        struct.pack_into(">q", log_file, unit.log_offset, -1)
    answer = parts.peer().ask(pull_request(sys_flag=HELD))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING")
    assert (answer.body, offsets(answer)) == (b"", (3, 0, 3))


def _content(parts: Parts, path: Path) -> bytearray:
    files: dict[Path, object] = parts.disk._inner._files  # type: ignore[attr-defined]
    return files[path].cached  # type: ignore[attr-defined, no-any-return]


# Checks, in their order


async def test_checks_come_in_apaches_order(make_parts: MakeParts) -> None:
    """Each request has everything wrong that is checked later; what is mended moves the refusal on by one."""
    parts = make_parts(auto_create_groups=False)
    parts.put_topic("secret", perm=2)
    parts.put_topic("orders", queue_count=4)
    parts.groups.put(SubscriptionGroupConfig("barred", consume_enable=False))
    parts.groups.put(SubscriptionGroupConfig("readers"))
    heartbeat_only = 0
    steps = [
        (pull_request("nowhere", "nobody", queue_id=9), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "nobody"),
        (pull_request("nowhere", "barred", queue_id=9), ResponseCode.NO_PERMISSION, "barred"),
        (pull_request("nowhere", queue_id=9), ResponseCode.TOPIC_NOT_EXIST, "nowhere"),
        (pull_request("secret", queue_id=9), ResponseCode.NO_PERMISSION, "secret"),
        (pull_request(queue_id=9), ResponseCode.INVALID_PARAMETER, "queueId[9]"),
        (pull_request(queue_id=-1), ResponseCode.INVALID_PARAMETER, "queueId[-1]"),
        (pull_request(queue_id=4, sys_flag=heartbeat_only), ResponseCode.INVALID_PARAMETER, "queueId[4]"),
        (pull_request(sys_flag=heartbeat_only), ResponseCode.SUBSCRIPTION_NOT_EXIST, "heartbeat"),
        (pull_request(subscription="||"), ResponseCode.SUBSCRIPTION_PARSE_FAILED, "||"),
        (pull_request(), ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE"),
    ]
    for request, code, word in steps:
        answer = parts.peer().ask(request)
        assert (answer.code, word in answer.remark) == (code, True), answer


async def test_a_broker_that_may_not_be_read_refuses_first(make_parts: MakeParts) -> None:
    parts = make_parts(permission=2)
    answer = parts.peer().ask(pull_request("nowhere", "../../x"))
    assert (answer.code, "broker" in answer.remark) == (ResponseCode.NO_PERMISSION, True)


@pytest.mark.parametrize("group", ["../../x", "a b", "", "g" * 256])
async def test_a_group_with_an_illegal_name_is_never_created(parts: Parts, group: str) -> None:
    parts.put_topic("orders")
    answer = parts.peer().ask(pull_request(group=group))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert group not in parts.groups.table


async def test_a_legal_group_is_created_by_its_first_pull(parts: Parts) -> None:
    parts.put_topic("orders")
    parts.peer().ask(pull_request(group="newcomers"))
    assert parts.groups.table["newcomers"] == SubscriptionGroupConfig("newcomers")


async def test_a_refused_pull_commits_nothing(parts: Parts) -> None:
    parts.put_topic("orders")
    parts.peer().ask(pull_request(queue_id=9, sys_flag=HELD | COMMIT_OFFSET, commit_offset=7))
    parts.peer().ask(pull_request(subscription="||", sys_flag=HELD | COMMIT_OFFSET, commit_offset=7))
    assert parts.offsets.items() == []


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("SQL92", ResponseCode.SYSTEM_ERROR),
        ("tag", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("nonsense", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_a_filter_that_is_not_supported_is_refused_and_never_ignored(
    make_parts: MakeParts, kind: str, code: int
) -> None:
    parts = make_parts(sql_enabled=False)
    fill(parts, 1)
    answer = parts.peer().ask(pull_request(expression_type=kind, subscription="a > 5"))
    assert (answer.code, kind in answer.remark) == (code, True)
    peer = parts.peer()
    peer.ask(heartbeat(subscriptions=[SubscriptionData("orders", "a > 5", expression_type=kind, sub_version=1)]))
    assert peer.ask(pull_request(sys_flag=0)).code == code


# Tags


async def test_only_messages_with_a_wanted_tag_are_returned(parts: Parts) -> None:
    fill(parts, 12, tags=["a", "b", None])
    answer = parts.peer().ask(pull_request(subscription="a || c"))
    assert (bodies(answer), offsets(answer)) == ([0, 3, 6, 9], (12, 0, 12))


@pytest.mark.parametrize("expression", ["*", "", None])
async def test_everything_matches_a_star_or_nothing(parts: Parts, expression: str | None) -> None:
    fill(parts, 3, tags=["a", None])
    assert bodies(parts.peer().ask(pull_request(subscription=expression))) == [0, 1, 2]


async def test_tags_with_the_same_hash_are_left_to_the_consumer(parts: Parts) -> None:
    """Java's hash of "Aa" equals that of "BB": a broker compares hashes only."""
    fill(parts, 3, tags=["Aa", "BB", "Cc"])
    assert bodies(parts.peer().ask(pull_request(subscription="Aa"))) == [0, 1]


async def test_no_match_moves_the_consumer_on(parts: Parts) -> None:
    fill(parts, 5, tags=["a"])
    answer = parts.peer().ask(pull_request(subscription="b", sys_flag=HELD))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert (answer.body, offsets(answer)) == (b"", (5, 0, 5))


# The subscription of the last heartbeat


async def test_the_subscription_of_the_heartbeat_counts_unless_the_request_brings_one(parts: Parts) -> None:
    fill(parts, 4, tags=["a", "b"])
    peer = parts.peer()
    peer.ask(heartbeat(subscriptions={"orders": "a"}))
    assert bodies(peer.ask(pull_request(sys_flag=0, subscription="b", sub_version=1))) == [0, 2]
    assert bodies(peer.ask(pull_request(sys_flag=SUBSCRIPTION, subscription="b"))) == [1, 3]


async def test_a_newer_heartbeat_changes_the_filter_and_an_older_one_does_not(parts: Parts) -> None:
    fill(parts, 4, tags=["a", "b"])
    peer = parts.peer()
    peer.ask(heartbeat(subscriptions={"orders": "a"}, version_ms=5))
    assert bodies(peer.ask(pull_request(sys_flag=0))) == [0, 2]
    peer.ask(heartbeat(subscriptions={"orders": "b"}, version_ms=6))
    assert bodies(peer.ask(pull_request(sys_flag=0))) == [1, 3]
    peer.ask(heartbeat(subscriptions={"orders": "a"}, version_ms=4))
    assert bodies(peer.ask(pull_request(sys_flag=0))) == [1, 3]


async def test_a_topic_missing_from_the_heartbeat_is_24(parts: Parts) -> None:
    fill(parts, 1)
    peer = parts.peer()
    peer.ask(heartbeat(subscriptions={"other": "*"}))
    answer = peer.ask(pull_request(sys_flag=0))
    assert (answer.code, "orders" in answer.remark) == (ResponseCode.SUBSCRIPTION_NOT_EXIST, True)


async def test_a_request_newer_than_the_heartbeat_is_25(parts: Parts) -> None:
    fill(parts, 1)
    peer = parts.peer()
    peer.ask(heartbeat(version_ms=100))
    assert peer.ask(pull_request(sys_flag=0, sub_version=101)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert peer.ask(pull_request(sys_flag=0, sub_version=100)).code == ResponseCode.SUCCESS


async def test_broadcasting_can_be_forbidden_to_a_group(parts: Parts) -> None:
    fill(parts, 1)
    parts.groups.put(SubscriptionGroupConfig("readers", consume_broadcast_enable=False))
    peer = parts.peer()
    peer.ask(heartbeat(model="BROADCASTING"))
    answer = peer.ask(pull_request(sys_flag=0))
    assert (answer.code, "broadcast" in answer.remark) == (ResponseCode.NO_PERMISSION, True)
    peer.ask(heartbeat(model="CLUSTERING"))
    assert peer.ask(pull_request(sys_flag=0)).code == ResponseCode.SUCCESS


async def test_a_group_can_be_barred_from_a_topic(make_parts: MakeParts) -> None:
    parts = make_parts()
    fill(parts, 1)
    parts.groups.put(SubscriptionGroupConfig("readers"))
    table = parts.groups.snapshot()
    table.forbidden_table = {"readers": {"orders": 4}}
    parts.json_table("subscriptionGroup.json", type(table)).save(table)
    parts.groups.load()
    peer = parts.peer()
    peer.ask(heartbeat())
    answer = peer.ask(pull_request(sys_flag=0))
    assert (answer.code, "forbidden" in answer.remark) == (ResponseCode.NO_PERMISSION, True)


async def test_after_the_last_member_left_its_subscription_is_gone(parts: Parts) -> None:
    fill(parts, 1)
    peer, other = parts.peer(), parts.peer()
    peer.ask(heartbeat())
    assert other.ask(pull_request(sys_flag=0)).code == ResponseCode.SUCCESS
    await peer.close()
    assert other.ask(pull_request(sys_flag=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


# Committing with a pull


async def test_a_pull_commits_when_its_flag_says_so(parts: Parts) -> None:
    fill(parts, 10)
    parts.peer().ask(pull_request(queue_offset=5, sys_flag=SUBSCRIPTION, commit_offset=5))
    assert parts.offsets.items() == []
    parts.peer().ask(pull_request(queue_offset=5, sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=5))
    parts.peer().ask(pull_request(queue_offset=5, sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=-1))
    assert parts.offsets.items() == [("orders@readers", 0, 5)]


async def test_a_held_pull_commits_once_and_not_again_when_it_is_woken(parts: Parts) -> None:
    fill(parts, 3)
    peer = parts.peer()
    peer.send(pull_request(queue_offset=3, sys_flag=HELD | COMMIT_OFFSET, commit_offset=3))
    assert parts.offsets.get("readers", "orders", 0) == 3
    parts.offsets.commit("tool", "readers", "orders", 0, 1)  # a reset while it waits
    fill(parts, 1)
    assert (await peer.next()).code == ResponseCode.SUCCESS
    assert parts.offsets.get("readers", "orders", 0) == 1


# Long polling


async def test_a_pull_that_finds_nothing_is_held_until_something_arrives(parts: Parts) -> None:
    fill(parts, 2)
    peer = parts.peer()
    peer.send(pull_request(queue_offset=2, sys_flag=HELD))
    assert (peer.received(), len(parts.waiters)) == ([], 1)
    fill(parts, 3)
    answer = await peer.next()
    assert (answer.code, answer.remark, bodies(answer)) == (ResponseCode.SUCCESS, "FOUND", [0, 1, 2])
    assert offsets(answer) == (5, 0, 5)
    assert (peer.received(), len(parts.waiters), peer.channel.waiting_count) == ([], 0, 0)


async def test_a_pull_on_a_queue_without_any_message_is_held_too(parts: Parts) -> None:
    parts.put_topic("orders")
    peer = parts.peer()
    peer.send(pull_request(sys_flag=HELD))
    assert len(parts.waiters) == 1
    fill(parts, 1)
    assert bodies(await peer.next()) == [0]


@pytest.mark.parametrize(("sys_flag", "offset"), [(SUBSCRIPTION, 2), (HELD, 0), (HELD, 9)])
async def test_what_need_not_wait_is_answered_at_once(parts: Parts, sys_flag: int, offset: int) -> None:
    fill(parts, 2)
    parts.peer().ask(pull_request(queue_offset=offset, sys_flag=sys_flag))
    assert len(parts.waiters) == 0


async def test_a_message_of_another_queue_or_topic_wakes_nobody(parts: Parts) -> None:
    parts.put_topic("orders")
    peer = parts.peer()
    peer.send(pull_request(sys_flag=HELD))
    parts.peer().ask(send_request(queue_id=1))
    fill(parts, 1, topic="other")
    await asyncio.sleep(0)
    assert (peer.received(), len(parts.waiters)) == ([], 1)


async def test_a_message_wakes_only_those_who_want_its_tag(parts: Parts) -> None:
    fill(parts, 1)
    wants_a, wants_b, wants_all = parts.peer(), parts.peer(), parts.peer()
    for peer, expression in ((wants_a, "a"), (wants_b, "b"), (wants_all, "*")):
        peer.send(pull_request(queue_offset=1, sys_flag=HELD, subscription=expression))
    fill(parts, 2, tags=["b"])
    assert bodies(await wants_b.next()) == [0, 1]
    assert bodies(await wants_all.next()) == [0, 1]
    assert (wants_a.received(), len(parts.waiters)) == ([], 1)
    fill(parts, 1, tags=["a"])
    answer = await wants_a.next()
    assert (bodies(answer), offsets(answer)) == ([0], (4, 0, 4))


async def test_one_answer_carries_the_whole_burst(parts: Parts) -> None:
    parts.put_topic("orders")
    peer = parts.peer()
    peer.send(pull_request(sys_flag=HELD))
    producer = parts.peer()
    for number in range(20):
        producer.ask(send_request(body=b"%d" % number))
    assert peer.received() == []
    parts.dispatch()
    assert bodies(await peer.next()) == list(range(20))
    assert peer.received() == []


async def test_a_held_pull_ends_with_19_when_its_time_is_up(parts: Parts) -> None:
    fill(parts, 2)
    peer = parts.peer()
    peer.send(pull_request(queue_offset=2, sys_flag=HELD, suspend_ms=1))
    answer = await peer.next()
    assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
    assert (offsets(answer), len(parts.waiters)) == ((2, 0, 2), 0)


async def test_a_held_pull_whose_filter_matched_nothing_moves_on_when_its_time_is_up(parts: Parts) -> None:
    fill(parts, 1)
    peer = parts.peer()
    peer.send(pull_request(queue_offset=1, sys_flag=HELD, suspend_ms=50, subscription="a"))
    fill(parts, 3, tags=["b"])
    answer = await peer.next()
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, (4, 0, 4))


async def test_a_held_pull_whose_filter_matched_nothing_moves_on_within_five_seconds(parts: Parts) -> None:
    fill(parts, 1)
    peer = parts.peer()
    peer.send(pull_request(queue_offset=1, sys_flag=HELD, suspend_ms=15_000, subscription="a"))
    [waiter] = parts.waiters._held["orders", 0]
    assert waiter.expiry is not None
    fill(parts, 1, tags=["b"])
    first = waiter.expiry.when()
    assert first <= asyncio.get_running_loop().time() + 5
    fill(parts, 1, tags=["b"])
    assert waiter.expiry.when() == first, "the next ones do not keep it waiting"
    parts.waiters.answer_all()
    answer = await peer.next()
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, (3, 0, 3))


async def test_a_pull_where_a_queue_file_is_missing_is_held_and_then_sent_on(parts: Parts) -> None:
    fill(parts, 250)
    queue = parts.store._queues.get("orders", 0)
    assert queue is not None
    del queue.file._segments[1]
    peer = parts.peer()
    peer.send(pull_request(queue_offset=150, sys_flag=HELD))
    assert (peer.received(), len(parts.waiters)) == ([], 1)
    fill(parts, 1)
    answer = await peer.next()
    assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_FOUND_NULL")
    assert offsets(answer) == (200, 0, 251)


async def test_without_long_polling_a_pull_waits_its_short_time_and_no_arrival_ends_it(make_parts: MakeParts) -> None:
    parts = make_parts(long_polling=False, short_polling_ms=1)
    fill(parts, 2)
    peer = parts.peer()
    for _ in range(2):  # the second one takes the fast path
        peer.send(pull_request(queue_offset=2, sys_flag=HELD, suspend_ms=1_000_000))
    assert len(parts.waiters) == 2
    fill(parts, 3)
    assert (peer.received(), len(parts.waiters)) == ([], 2)
    for _ in range(2):
        answer = await peer.next()
        assert (answer.code, bodies(answer), offsets(answer)) == (ResponseCode.SUCCESS, [0, 1, 2], (5, 0, 5))


async def test_nobody_is_held_longer_than_two_minutes(make_parts: MakeParts) -> None:
    parts = make_parts()
    parts.put_topic("orders")
    peer = parts.peer()
    loop = asyncio.get_running_loop()
    peer.send(pull_request(sys_flag=HELD, suspend_ms=(1 << 63) - 1))
    [waiter] = parts.waiters._held["orders", 0]
    assert waiter.expiry is not None
    assert waiter.expiry.when() <= loop.time() + 120
    parts.waiters.answer_all()
    assert (await peer.next()).code == ResponseCode.PULL_NOT_FOUND


async def test_a_negative_wait_is_none(make_parts: MakeParts) -> None:
    parts = make_parts()
    parts.put_topic("orders")
    peer = parts.peer()
    peer.send(pull_request(sys_flag=HELD, suspend_ms=-5))
    assert (await peer.next()).code == ResponseCode.PULL_NOT_FOUND


async def test_a_client_that_disconnects_leaves_no_held_pull_behind(parts: Parts) -> None:
    parts.put_topic("orders")
    peer, other = parts.peer(), parts.peer()
    for _ in range(3):
        peer.send(pull_request(sys_flag=HELD))
    other.send(pull_request(sys_flag=HELD))
    assert len(parts.waiters) == 4
    await peer.close()
    assert (len(parts.waiters), peer.channel.waiting_count) == (1, 0)
    fill(parts, 1)
    assert bodies(await other.next()) == [0]
    assert parts.waiters._held == {}


async def test_more_pulls_than_may_be_held_are_answered_at_once(make_parts: MakeParts) -> None:
    parts = make_parts(max_held=2)
    parts.put_topic("orders")
    peers = [parts.peer() for _ in range(3)]
    for peer in peers:
        peer.send(pull_request(sys_flag=HELD))
    assert [len(peer.received()) for peer in peers] == [0, 0, 1]
    await peers[0].close()
    peers[2].send(pull_request(sys_flag=HELD))
    assert peers[2].received() == []


async def test_a_second_pull_of_the_same_connection_waits_by_itself(parts: Parts) -> None:
    parts.put_topic("orders", queue_count=2)
    peer = parts.peer()
    peer.send(pull_request(sys_flag=HELD), pull_request(sys_flag=HELD, queue_id=1))
    parts.peer().ask(send_request(queue_id=1))
    parts.dispatch()
    assert (await peer.next()).opaque == 2
    assert len(parts.waiters) == 1


async def test_deleting_a_topic_answers_its_held_pulls(parts: Parts) -> None:
    fill(parts, 3)
    peer = parts.peer()
    peer.send(pull_request(queue_offset=3, sys_flag=HELD))
    parts.peer().ask(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}))
    answer = await peer.next()
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_OFFSET_MOVED, (0, 0, 0))


async def test_with_sync_flush_a_held_pull_sees_only_what_is_on_disk(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True)
    parts.put_topic("orders")
    consumer, producer = parts.peer(), parts.peer()
    producer.send(send_request(body=b"0"))  # makes the first file, which takes flushes too
    await producer.next()
    gate = parts.disk.gate
    gate.clear()
    consumer.send(pull_request(queue_offset=1, sys_flag=HELD))
    producer.send(send_request(body=b"1"))
    parts.dispatch()
    await asyncio.sleep(0)
    assert consumer.received() == []
    gate.set()
    assert bodies(await consumer.next()) == [1]


async def test_a_store_that_fails_while_a_pull_is_held_answers_it_with_an_error(make_parts: MakeParts) -> None:
    parts = make_parts()
    parts.put_topic("orders")
    peer = parts.peer()
    peer.send(pull_request(sys_flag=HELD))
    parts.close()
    parts.waiters.answer_all()
    answer = await peer.next()
    assert (answer.code, "not open" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert len(parts.waiters) == 0


async def test_what_was_sent_stays_intact_when_the_store_is_closed_meanwhile(make_parts: MakeParts) -> None:
    parts = make_parts()
    fill(parts, 1)
    peer = parts.peer()
    peer.send(pull_request())
    parts.close()
    [answer] = peer.received()
    assert bodies(answer) == [0]


def suggested(parts: Parts) -> str:
    answer = parts.peer().ask(pull_request())
    assert answer.ext is not None
    return answer.ext["suggestWhichBrokerId"]


@pytest.mark.parametrize(
    ("slave_read", "memory_ratio", "broker_id"), [(True, 0, "3"), (True, 40, "5"), (False, 0, "0"), (False, 40, "0")]
)
async def test_a_reader_that_lags_is_sent_where_its_group_says(
    make_parts: MakeParts, slave_read: bool, memory_ratio: int, broker_id: str
) -> None:
    parts = make_parts(slave_read=slave_read, reads=ReadConfig(memory_ratio=memory_ratio))
    parts.groups.put(SubscriptionGroupConfig("readers", broker_id=5, which_broker_when_consume_slowly=3))
    fill(parts, 20)
    assert suggested(parts) == broker_id


async def test_a_lagging_reader_of_an_unchanged_group_is_sent_to_the_first_slave(make_parts: MakeParts) -> None:
    parts = make_parts(slave_read=True, reads=ReadConfig(memory_ratio=0))
    fill(parts, 20)
    assert suggested(parts) == "1"


async def test_groups_that_come_and_go_leave_no_tag_tests_behind(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketline.broker.selection.MAX_KNOWN", 3)
    selections = Selections(parts.filters)
    parts.router.add(RequestCode.PULL_MESSAGE, pull_handlers(parts, selections).pull)
    fill(parts, 2)
    peer = parts.peer()
    for number in range(10):
        peer.ask(heartbeat(group=f"group-{number}", subscriptions={"orders": "*"}))
        assert peer.ask(pull_request(group=f"group-{number}", sys_flag=0)).code == ResponseCode.SUCCESS
    assert 1 <= len(selections._known) <= 3


# On a replica


def replica(make_parts: MakeParts, *, master_is_there: bool = False, **setup: object) -> Parts:
    """One that has offsets 3 to 7 of a queue, and is a replica from now on."""
    parts = make_parts(**{"slave_read": True, **setup})  # type: ignore[arg-type]
    fill(parts, 8)
    parts.store._queues.by_key["orders", 0].min_offset = 3
    parts.roles.role = Role.REPLICA
    parts.roles.follower = SimpleNamespace(is_connected=master_is_there, diverged=False)  # type: ignore[assignment]
    install_handlers(parts.router, parts)
    return parts


async def test_a_replica_that_may_not_be_read_refuses(make_parts: MakeParts) -> None:
    parts = replica(make_parts, slave_read=False)
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        answer = parts.peer().ask(pull_request(code=code))
        assert (answer.code, "slave" in answer.remark) == (ResponseCode.SYSTEM_BUSY, True)


@pytest.mark.parametrize("master_is_there", [False, True], ids=["alone", "with its master"])
async def test_a_replica_gives_what_it_has(make_parts: MakeParts, master_is_there: bool) -> None:
    answer = replica(make_parts, master_is_there=master_is_there).peer().ask(pull_request(queue_offset=3))
    assert (answer.code, bodies(answer), offsets(answer)) == (ResponseCode.SUCCESS, [3, 4, 5, 6, 7], (8, 3, 8))


@pytest.mark.parametrize("asked", [1, 20], ids=["too small", "too large"])
async def test_a_plain_replica_corrects_no_offset(make_parts: MakeParts, asked: int) -> None:
    """What it lacks its master may have: 20 instead of 21, and the consumer stays where it is."""
    answer = replica(make_parts).peer().ask(pull_request(queue_offset=asked))
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, (asked, 3, 8))


@pytest.mark.parametrize(("asked", "better"), [(1, 3), (20, 8)], ids=["too small", "too large"])
async def test_a_replica_that_checks_offsets_corrects_them(make_parts: MakeParts, asked: int, better: int) -> None:
    answer = replica(make_parts, corrects_as_slave=True).peer().ask(pull_request(queue_offset=asked))
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_OFFSET_MOVED, (better, 3, 8))


async def test_who_has_read_all_of_a_replica_goes_on_at_its_master(make_parts: MakeParts) -> None:
    """20 instead of 19, and with it the master's id; without a master the replica answers as one would."""
    answer = replica(make_parts).peer().ask(pull_request(queue_offset=8))
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_NOT_FOUND, (8, 3, 8))
    parts = replica(make_parts, master_is_there=True)
    parts.groups.put(SubscriptionGroupConfig("readers", broker_id=1, which_broker_when_consume_slowly=1))
    peer = parts.peer()
    answer = peer.ask(pull_request(queue_offset=8))
    assert (answer.code, offsets(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, (8, 3, 8))
    peer.send(pull_request(queue_offset=8, sys_flag=HELD))
    [answer] = peer.received()
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY, "it is not held"
