"""What an operator finds out about messages, on any cluster, ours or Apache's: each function is a test of its own."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from tests.support.history_parts import (
    QUICK,
    consume,
    delete_topic,
    eventually,
    leave_half_open,
    listed,
    make_dead_letters,
    make_topic,
    send_all,
)

from rocketline.admin import Admin
from rocketline.admin.broker_settings import change_setting, settings_of
from rocketline.admin.cursors import BadCursor
from rocketline.admin.dead_letters import COPIED_FROM, count_dead_letters, resend, resend_by_id
from rocketline.admin.delayed import delayed_messages, level_counts, recall, timer_messages, timer_states
from rocketline.admin.messages import by_offset_id
from rocketline.admin.overview import USER, all_producers, group_summaries, proxies, topic_ends, topic_summaries
from rocketline.admin.resets import apply_reset, preview_reset
from rocketline.admin.search import Budget, Wanted, newest
from rocketline.admin.tail import Room, Tail
from rocketline.admin.traces import Timeline, trace_of
from rocketline.admin.transactions import check_again, given_up, open_transactions
from rocketline.client import ClientOptions, Producer
from rocketline.errors import ClientError, InvalidExpression, RouteNotFound
from rocketline.message import Message, MessageQueue
from rocketline.protocol.message_ids import encode_host, offset_id

Check = Callable[[Admin], Awaitable[None]]
TRACES = "looking_traces"


async def search_is_newest_first_over_all_queues_and_goes_on(admin: Admin) -> None:
    await make_topic(admin, "looking_pages", 3)
    await send_all(admin.namesrv, (Message("looking_pages", b"%d" % number) for number in range(100)))
    await listed(admin, "looking_pages", 100)
    bodies: list[bytes] = []
    times: list[int] = []
    cursor = None
    while True:
        page = await newest(admin, "looking_pages", Wanted(), Budget(most=7), cursor)
        assert page.missing == ()
        bodies += [message.body for message in page.messages]
        times += [message.store_ms for message in page.messages]
        cursor = page.next
        if cursor is None:
            break
        assert len(page.messages) == page.scanned == 7
    assert sorted(map(int, bodies)) == list(range(100))
    assert times == sorted(times, reverse=True)


async def search_takes_conditions_a_time_and_a_budget(admin: Admin) -> None:
    await make_topic(admin, "looking_where", 2)
    sent = [
        Message(
            "looking_where",
            b'{"region": "%s", "n": %d.5}' % ((b"eu", b"us")[number % 2], number),
            tag="big" if number > 10 else "small",
            keys=[f"key{number}"],
            properties={"amount": str(number * 10)},
        )
        for number in range(20)
    ]
    await send_all(admin.namesrv, sent)
    await listed(admin, "looking_where", 20)

    async def found(**conditions: object) -> list[int]:
        page = await newest(admin, "looking_where", Wanted(**conditions))  # type: ignore[arg-type]
        assert page.complete
        assert page.scanned >= len(page.messages)
        return sorted(int(message.properties["amount"]) // 10 for message in page.messages)

    assert await found(where="amount > 100 AND body.region = 'eu'") == [12, 14, 16, 18]
    assert await found(where="body.n > 17") == [17, 18, 19]
    assert await found(where="body.absent IS NULL AND size < 27 AND tag = 'small'") == list(range(10))
    assert await found(tag="big", text="KEY1") == list(range(11, 20))
    assert await found(queue_id=0) + await found(queue_id=1) != await found()
    everything = (await newest(admin, "looking_where")).messages
    middle_ms = everything[10].store_ms
    since = await found(begin_ms=middle_ms)
    until = await found(end_ms=middle_ms - 1)
    assert sorted(since + until) == list(range(20))
    assert 9 in {*since, *until}
    page = await newest(admin, "looking_where", Wanted(where="amount = 0"), Budget(scan=5))
    assert (page.messages, page.scanned, page.next is None) == ([], 5, False)
    page = await newest(admin, "looking_where", Wanted(where="amount = 0"), Budget(), page.next)
    assert ([message.properties["amount"] for message in page.messages], page.scanned) == (["0"], 15)


async def search_says_what_is_wrong(admin: Admin) -> None:
    await make_topic(admin, "looking_wrong", 1)
    for text, position in (("amount >", 8), ("amount = 1 foo", 11), ("body.a = 'x", 9)):
        with pytest.raises(InvalidExpression) as error:
            await newest(admin, "looking_wrong", Wanted(where=text))
        assert error.value.position == position
    for cursor in ("", "nothing", "W10x", "W1siYnJva2VyLXoiLDAsMCwxMl1d", "\u4e2d"):
        if cursor:
            with pytest.raises(BadCursor):
                await newest(admin, "looking_wrong", cursor=cursor)
    with pytest.raises(RouteNotFound):
        await newest(admin, "looking_absent")


async def large_bodies_are_cut_where_asked(admin: Admin) -> None:
    await make_topic(admin, "looking_large", 1)
    await send_all(admin.namesrv, [Message("looking_large", b"x" * 1_000_000), Message("looking_large", b"small")])
    await listed(admin, "looking_large", 2)
    page = await newest(admin, "looking_large", Wanted(where="size < 2000000"), Budget(body_bytes=100))
    small, large = sorted(page.messages, key=lambda message: len(message.body))
    assert (small.body, large.body, page.cut) == (b"small", b"x" * 100, {large.offset_id: 1_000_000})


async def tail_shows_what_arrives_and_resumes(admin: Admin) -> None:
    await make_topic(admin, "looking_tail", 3)
    await send_all(admin.namesrv, [Message("looking_tail", b"before")])
    await listed(admin, "looking_tail", 1)
    seen: list[bytes] = []
    async with Producer(admin.namesrv, group="looking_shop") as producer:
        async with Tail(admin, "looking_tail", Wanted(where="wanted IS NOT NULL")) as tail:
            for number in range(30):
                properties = {"wanted": "yes"} if number % 3 else {}
                await producer.send(Message("looking_tail", b"%d" % number, properties=properties))
            while len(seen) < 12:
                batch = await tail.next_batch(most=5)
                assert len(batch.messages) <= 5
                assert (batch.dropped, batch.missing) == (0, ())
                seen += [message.body for message in batch.messages]
        # The viewer went away with messages waiting; what comes next begins right behind the last one it was given.
        async with Tail(admin, "looking_tail", Wanted(where="wanted IS NOT NULL"), batch.position) as tail:
            await producer.send(Message("looking_tail", b"31", properties={"wanted": "yes"}))
            while len(seen) < 21:
                seen += [message.body for message in (await tail.next_batch()).messages]
    assert sorted(map(int, seen)) == [number for number in range(30) if number % 3] + [31]


async def slow_viewer_of_a_tail_loses_the_oldest(admin: Admin) -> None:
    await make_topic(admin, "looking_slow", 1)
    async with Tail(admin, "looking_slow", room=Room(messages=10)) as tail:
        await send_all(admin.namesrv, (Message("looking_slow", b"%d" % number) for number in range(50)))
        dropped, bodies = 0, []
        while b"49" not in bodies:
            batch = await tail.next_batch()
            dropped += batch.dropped
            bodies += [message.body for message in batch.messages]
    assert dropped + len(bodies) == 50


async def traces_are_a_timeline(admin: Admin) -> None:
    await make_topic(admin, TRACES, 1)
    await make_topic(admin, "looking_traced", 1)
    options = ClientOptions(timing=QUICK, trace=TRACES)
    async with Producer(admin.namesrv, group="looking_shop", options=options) as producer:
        receipt = await producer.send(Message("looking_traced", b"x", keys=["k"]))
    await consume(admin.namesrv, "looking_reader", "looking_traced", 1, failures=1, trace=TRACES)

    async def timeline() -> Timeline:
        return await trace_of(admin, receipt.message_id, trace_topic=TRACES)

    found = await eventually(timeline, lambda line: len([a for a in line.attempts if a.took_ms is not None]) == 2)
    assert [(item.group, item.ok, item.kind, item.topic) for item in found.sent] == [
        ("looking_shop", True, "normal", "looking_traced")
    ]
    assert [(item.group, item.ok, item.retries) for item in found.attempts] == [
        ("looking_reader", False, 0),
        ("looking_reader", True, 1),
    ]
    assert (found.silent_side, found.groups, found.limited) == ("", ["looking_reader"], False)
    assert (found.begin_ms or 0) <= (found.end_ms or 0)
    assert (await trace_of(admin, "7F00000100000000000000000000", trace_topic=TRACES)).silent_side == "both"


async def messages_that_wait_are_shown_and_recalled(admin: Admin) -> None:
    for broker in await admin.brokers():
        await change_setting(broker, "recallMessageEnable", "true")
    await make_topic(admin, "looking_later", 1)
    await send_all(
        admin.namesrv,
        [
            Message("looking_later", b"level", delay_level=14),
            Message("looking_later", b"level", delay_level=14),
            Message("looking_later", b"hour", delay=timedelta(hours=1)),
            Message("looking_later", b"two hours", delay=timedelta(hours=2)),
        ],
    )

    async def by_level() -> int:
        return sum(item.waiting for item in (await level_counts(admin)).value if item.level == 14)

    await eventually(by_level, lambda count: count == 2)
    (first, second) = (await delayed_messages(admin, level=14)).value
    now_ms = time.time() * 1000
    assert (first.topic, first.level, second.level, first.due_ms <= second.due_ms) == ("looking_later", 14, 14, True)
    assert 0 < first.due_ms - now_ms <= 600_000

    async def timers() -> list[bytes]:
        return [item.message.body for item in (await timer_messages(admin)).value if item.topic == "looking_later"]

    assert await eventually(timers, lambda bodies: len(bodies) == 2) == [b"hour", b"two hours"]
    hour = next(item for item in (await timer_messages(admin)).value if item.message.body == b"hour")
    assert hour.handle is not None
    assert await recall(admin, hour.handle) == hour.message.message_id
    await eventually(timers, lambda bodies: bodies == [b"two hours"])
    states = await timer_states(admin)
    assert states.complete
    assert len(states.value) == len(await admin.brokers())
    with pytest.raises(ClientError):
        await recall(admin, "no handle")


async def open_transactions_are_shown_until_they_end(admin: Admin) -> None:
    await make_topic(admin, "looking_paid", 1)

    async def bodies() -> list[tuple[bytes, str, str]]:
        found = await open_transactions(admin)
        assert found.complete
        halves = [half for half in found.value if half.topic == "looking_paid"]
        assert all(half.age_ms >= 0 and half.checks >= 0 for half in halves)
        return [(half.message.body, half.group, half.broker) for half in halves]

    async with AsyncExitStack() as stack:
        await leave_half_open(stack, admin.namesrv, "looking_banks", Message("looking_paid", b"half"))
        found = await eventually(bodies, lambda halves: len(halves) == 1)
        assert found[0][:2] == (b"half", "looking_banks")


async def only_given_up_transactions_are_checked_again(admin: Admin) -> None:
    await make_topic(admin, "looking_other", 1)
    (receipt,) = await send_all(admin.namesrv, [Message("looking_other", b"mine")])
    assert (await given_up(admin)).messages == []
    with pytest.raises(ClientError, match="TRANS_CHECK_MAX_TIME_TOPIC"):
        await check_again(admin, receipt.offset_id)


async def dead_letters_are_sent_again_one_by_one(admin: Admin) -> None:
    await make_topic(admin, "looking_kept", 1)
    await make_topic(admin, "looking_doomed", 1)
    kept = [Message("looking_kept", b"%d" % n, tag="t", keys=[f"k{n}"], properties={"p": "v"}) for n in range(2)]
    await send_all(admin.namesrv, [*kept, Message("looking_doomed", b"gone")])
    await make_dead_letters(admin, "looking_fails", "looking_kept", 2)
    await make_dead_letters(admin, "looking_fails_too", "looking_doomed", 1)
    counts = {item.group: item.count for item in (await count_dead_letters(admin)).value}
    assert (counts["looking_fails"], counts["looking_fails_too"]) == (2, 1)
    await delete_topic(admin, "looking_doomed")
    letters = (await newest(admin, "%DLQ%looking_fails")).messages
    ids = [letter.offset_id for letter in letters]
    (of_deleted,) = (await newest(admin, "%DLQ%looking_fails_too")).messages
    given = [*ids, "7F0000010000000000000000000000FF", "none", of_deleted.offset_id]
    outcomes = await resend_by_id(admin, "looking_fails", given)
    assert [(item.offset_id, item.ok) for item in outcomes] == list(zip(given, [True, True, False, False, False]))
    (refused,) = await resend(admin, [of_deleted])
    assert "looking_doomed" in (refused.problem or "")
    with pytest.raises(RouteNotFound):
        admin.forget_route("looking_doomed")
        await admin.route("looking_doomed")
    await listed(admin, "looking_kept", 4)
    copies = (await newest(admin, "looking_kept", Wanted(where=f"{COPIED_FROM} IS NOT NULL"))).messages
    assert {copy.properties[COPIED_FROM] for copy in copies} == set(ids)
    assert {(copy.tag, copy.properties["p"]) for copy in copies} == {("t", "v")}
    assert {key for copy in copies for key in copy.keys} == {"k0", "k1"}


async def resets_do_what_their_preview_says(admin: Admin) -> None:
    await make_topic(admin, "looking_reset", 2)
    await send_all(admin.namesrv, (Message("looking_reset", b"%d" % number) for number in range(10)))
    await consume(admin.namesrv, "looking_resetting", "looking_reset", 10)

    async def back() -> int:
        return sum(move.repeats for move in (await preview_reset(admin, group, topic, to_ms=0)).value)

    group, topic = "looking_resetting", "looking_reset"
    assert await eventually(back, lambda count: count == 10) == 10
    preview = await preview_reset(admin, group, topic, to_ms=0)
    assert preview.complete
    assert sum(move.skips for move in preview.value) == 0
    assert all(moved.ok for moved in await apply_reset(admin, group, topic, preview.value))
    ahead = await preview_reset(admin, group, topic, to_ms=-1)
    assert (sum(move.skips for move in ahead.value), sum(move.repeats for move in ahead.value)) == (10, 0)
    one = ahead.value[0]
    moves = (await preview_reset(admin, group, topic, offsets={one.queue: one.begin + 1})).value
    assert [(move.queue, move.before, move.skips) for move in moves] == [(one.queue, one.begin, 1)]
    assert [moved.problem for moved in await apply_reset(admin, group, topic, moves)] == [None]
    again = await preview_reset(admin, group, topic, to_ms=0)
    assert {move.queue: move.repeats for move in again.value}[one.queue] == 1
    with pytest.raises(ClientError):
        await preview_reset(admin, group, topic, offsets={MessageQueue(topic, one.queue.broker_name, 99): 0})


async def summaries_have_everything_in_a_few_requests(admin: Admin) -> None:
    await make_topic(admin, "looking_summed", 2)
    await send_all(admin.namesrv, (Message("looking_summed", b"x") for _ in range(5)))
    await consume(admin.namesrv, "looking_sums", "looking_summed", 5)

    async def summary() -> tuple[object, ...]:
        topics = await topic_summaries(admin)
        assert topics.complete
        topic = next(item for item in topics.value if item.name == "looking_summed")
        ends = (await topic_ends(admin, [topic])).value["looking_summed"]
        read = {"looking_sums": topic.groups.get("looking_sums")}
        return topic.kind, topic.read_queues, read, ends.kept, ends.last_ms > 0

    brokers = len(await admin.brokers())
    await eventually(summary, lambda found: found == (USER, 2 * brokers, {"looking_sums": 0}, 5, True))
    groups = {item.name: item.lag for item in (await group_summaries(admin)).value}
    assert groups["looking_sums"] == 0
    async with Producer(admin.namesrv, group="looking_producers") as producer:
        await producer.send(Message("looking_summed", b"x"))

        async def groups_of_producers() -> set[str]:
            return {row.group for row in (await all_producers(admin)).value}

        await eventually(groups_of_producers, lambda names: "looking_producers" in names)
    assert await proxies(admin) is None


async def only_safe_settings_are_changed(admin: Admin) -> None:
    (broker, *_) = await admin.brokers()
    settings = {item.name: item for item in await settings_of(broker)}
    assert settings["fileReservedTime"].changeable
    assert not settings["storePathRootDir"].changeable
    before, now = await change_setting(broker, "fileReservedTime", "48")
    assert (before == settings["fileReservedTime"].value, now) == (True, "48")
    for name, value in (
        ("storePathRootDir", "/tmp/elsewhere"),
        ("fileReservedTime", "-1"),
        ("fileReservedTime", "1\nstorePathRootDir=/tmp/elsewhere"),
        ("rocketmqHome", "x"),
    ):
        with pytest.raises(ClientError):
            await change_setting(broker, name, value)
    assert (await broker.config())["storePathRootDir"] == settings["storePathRootDir"].value
    await change_setting(broker, "fileReservedTime", before)


async def no_id_makes_it_connect_elsewhere(admin: Admin) -> None:
    await make_topic(admin, "looking_ids", 1)
    (receipt,) = await send_all(admin.namesrv, [Message("looking_ids", b"mine")])
    await listed(admin, "looking_ids", 1)
    assert (await by_offset_id(admin, receipt.offset_id)).body == b"mine"
    with pytest.raises(ClientError, match=r"192\.0\.2\.1"):
        await by_offset_id(admin, offset_id(encode_host("192.0.2.1", 80), 0))


CHECKS: list[Check] = [
    search_is_newest_first_over_all_queues_and_goes_on,
    search_takes_conditions_a_time_and_a_budget,
    search_says_what_is_wrong,
    large_bodies_are_cut_where_asked,
    tail_shows_what_arrives_and_resumes,
    slow_viewer_of_a_tail_loses_the_oldest,
    traces_are_a_timeline,
    messages_that_wait_are_shown_and_recalled,
    open_transactions_are_shown_until_they_end,
    only_given_up_transactions_are_checked_again,
    dead_letters_are_sent_again_one_by_one,
    resets_do_what_their_preview_says,
    summaries_have_everything_in_a_few_requests,
    only_safe_settings_are_changed,
    no_id_makes_it_connect_elsewhere,
]
