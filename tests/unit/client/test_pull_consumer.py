from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, FakeCluster, own_tasks, until

from rocketline.client import ClientOptions, ConsumeFrom, PullConsumer, PullSettings, SeekTo
from rocketline.client.consumer_info import ConsumerRunningInfo
from rocketline.errors import BrokerError, ClientError, ConsumerClosed, InvalidMessage, RouteNotFound
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.bodies import ResetOffsetBody, decode_body, encode_body, queue_key
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PullMessageHeader

PULL = RequestCode.LITE_PULL_MESSAGE
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.fixture
async def queues(cluster: FakeCluster) -> list[MessageQueue]:
    return cluster.add_topic("T", 2)


@pytest.fixture
async def consumer(cluster: FakeCluster, queues: list[MessageQueue]) -> AsyncIterator[PullConsumer]:
    async with PullConsumer(cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS) as made:
        yield made


def fill(cluster: FakeCluster, queue_id: int, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        cluster.broker.store(
            "T", queue_id, b"%d-%d" % (queue_id, number), {"TAGS": "even" if number % 2 == 0 else "odd"}
        )


async def polled(consumer: PullConsumer, count: int, **options: Any) -> list[MessageView]:
    messages: list[MessageView] = []
    while len(messages) < count:
        batch = await consumer.poll(timeout=PATIENCE_S, **options)
        assert batch, f"only {len(messages)} of {count} messages came"
        messages += batch
    return messages


async def test_assigned_queues_are_read_from_the_start(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 3)
    fill(cluster, 1, 2)
    assert await consumer.queues("T") == tuple(queues)
    consumer.assign(queues)
    messages = await polled(consumer, 5)
    assert sorted(message.body for message in messages) == [b"0-0", b"0-1", b"0-2", b"1-0", b"1-1"]
    assert [m.queue_offset for m in messages if m.queue_id == 0] == [0, 1, 2]
    assert {message.broker_name for message in messages} == {"broker-a"}
    assert consumer.assigned == set(queues)


async def test_a_pull_is_the_one_javas_lite_client_sends(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    consumer.assign(queues[:1], "even || odd")
    header = PullMessageHeader.decode(await cluster.broker.request(PULL))
    assert (header.sys_flag, header.suspend_ms, header.sub_version) == (0x16, 20_000, 0)
    assert (header.subscription, header.expression_type, header.max_msg_bytes) == ("even || odd", "TAG", 2**31 - 1)
    assert consumer.client_id.endswith("@STREAM")
    await cluster.broker.request(RequestCode.HEART_BEAT)
    await until(lambda: bool(cluster.broker.heartbeats[-1].consumer_data_set[0].subscription_data_set))
    assert cluster.broker.heartbeats[-1].consumer_data_set[0].consume_type == "CONSUME_ACTIVELY"


async def test_poll_returns_what_is_there_and_waits_when_nothing_is(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    consumer.assign(queues)
    assert await consumer.poll(timeout=0.01) == []
    waiting = asyncio.create_task(consumer.poll(timeout=PATIENCE_S))
    await cluster.broker.request(PULL, 2)
    fill(cluster, 1, 1)
    assert [message.body for message in await waiting] == [b"1-0"]


async def test_poll_takes_at_most_what_is_asked_and_queues_in_turn(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 30)
    fill(cluster, 1, 30)
    consumer.assign(queues)
    await until(lambda: len(cluster.broker.requests_of(PULL)) >= 4)
    batches = [await consumer.poll(max_messages=10) for _ in range(6)]
    assert [len(batch) for batch in batches] == [10] * 6
    assert {message.queue_id for message in batches[0] + batches[1]} == {0, 1}
    offsets = [message.queue_offset for batch in batches for message in batch if message.queue_id == 0]
    assert offsets == list(range(30))


async def test_nothing_is_committed_but_by_commit(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    fill(cluster, 0, 6)
    timing = replace(QUICK, persist_s=0.005)
    async with PullConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        auto_commit=False,
        options=ClientOptions(timing=timing),
    ) as consumer:
        consumer.assign(queues)
        await until(lambda: len(cluster.broker.requests_of(PULL)) >= 3)
        assert len(await consumer.poll(max_messages=2)) == 2
        assert not cluster.broker.committed
        assert await consumer.committed(queues[0]) is None
        assert consumer.position(queues[0]) == 2
        await consumer.commit()
        assert cluster.broker.committed == {("g", "T", 0): 2, ("g", "T", 1): 0}
        await polled(consumer, 3, max_messages=3)
        await consumer.commit(queues[:1])
        assert await consumer.committed(queues[0]) == 5
        await consumer.commit({queues[1]: 0, queues[0]: 1})
        assert cluster.broker.committed == {("g", "T", 0): 1, ("g", "T", 1): 0}
        await polled(consumer, 1)
    assert cluster.broker.committed["g", "T", 0] == 1


async def test_a_group_goes_on_at_what_it_committed(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    fill(cluster, 0, 5)
    for expected in ([b"0-0", b"0-1"], [b"0-2", b"0-3"]):
        async with PullConsumer(
            cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
        ) as consumer:
            consumer.assign(queues[:1])
            messages = await polled(consumer, 2, max_messages=2)
            assert [message.body for message in messages] == expected
            await consumer.commit()


async def test_seeking_back_and_forth(consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    fill(cluster, 0, 6)
    consumer.assign(queues[:1])
    await polled(consumer, 6)
    await consumer.seek(queues[0], 2)
    assert consumer.position(queues[0]) == 2
    assert [message.queue_offset for message in await polled(consumer, 4)] == [2, 3, 4, 5]
    await consumer.seek(queues[0], 6)
    fill(cluster, 0, 1, start=6)
    assert [message.queue_offset for message in await polled(consumer, 1)] == [6]


async def test_seeking_outside_the_queue_is_refused(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 3)
    consumer.assign(queues[:1])
    for offset in (-1, 4):
        with pytest.raises(InvalidMessage, match="0 to 3"):
            await consumer.seek(queues[0], offset)
    with pytest.raises(ClientError, match="not assigned"):
        await consumer.seek(queues[1], 0)


async def test_offsets_of_a_queue(consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    await consumer.queues("T")
    cluster.broker.queues["T", 0].first = 10
    fill(cluster, 0, 3)
    assert await consumer.begin_offset(queues[0]) == 10
    assert await consumer.end_offset(queues[0]) == 13
    assert await consumer.offset_at(queues[0], datetime(2026, 1, 1, tzinfo=UTC)) == 7
    request = await cluster.broker.request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    assert (request.ext or {})["timestamp"] == "1767225600000"


async def test_assigning_anew_keeps_what_stays(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 4)
    fill(cluster, 1, 4)
    consumer.assign(queues[:1])
    await until(lambda: consumer.position(queues[0]) == 0 and len(cluster.broker.requests_of(PULL)) >= 2)
    assert len(await consumer.poll(max_messages=2)) == 2
    consumer.assign(queues)
    messages = await polled(consumer, 6)
    assert [message.queue_offset for message in messages if message.queue_id == 0] == [2, 3]
    consumer.assign(queues[1:])
    assert consumer.position(queues[0]) is None
    fill(cluster, 0, 1, start=4)
    fill(cluster, 1, 1, start=4)
    assert [message.body for message in await polled(consumer, 1)] == [b"1-4"]


async def test_tags_select(consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    fill(cluster, 0, 6)
    consumer.assign(queues[:1], "odd")
    assert [message.queue_offset for message in await polled(consumer, 3)] == [1, 3, 5]
    await consumer.commit()
    assert await consumer.committed(queues[0]) == 6


async def test_another_expression_counts_from_the_position_on(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 6)
    consumer.assign(queues[:1], "odd")
    await until(lambda: consumer.position(queues[0]) == 1)
    assert [message.queue_offset for message in await consumer.poll(max_messages=1)] == [1]
    consumer.assign(queues[:1], "even")
    assert [message.queue_offset for message in await polled(consumer, 1)] == [4]


async def test_an_offset_that_is_gone_moves_to_the_oldest_message(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    cluster.broker.queues["T", 0].first = 50
    fill(cluster, 0, 2)
    consumer.assign(queues[:1])
    assert [message.queue_offset for message in await polled(consumer, 2)] == [50, 51]


async def test_reading_ahead_is_bounded(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    fill(cluster, 0, 200)
    async with PullConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        pull=PullSettings(max_messages=20, batch=8),
        options=ClientOptions(timing=replace(QUICK, pull_recheck_s=0.005)),
    ) as consumer:
        consumer.assign(queues[:1])
        await cluster.broker.request(PULL, 3)
        for _ in range(10):
            await asyncio.sleep(0.002)
        assert len(cluster.broker.requests_of(PULL)) == 3, "24 messages are over the limit of 20"
        assert len(await polled(consumer, 200, max_messages=50)) == 200


async def test_a_failing_queue_does_not_keep_the_others_from_being_read(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 1)
    fill(cluster, 1, 1)
    cluster.broker.on[PULL] = lambda request: (
        request.reply(1, remark="broken") if (request.ext or {})["queueId"] == "0" else cluster.broker._pull(request)
    )
    consumer.assign(queues)
    assert [message.body for message in await polled(consumer, 1)] == [b"1-0"]
    del cluster.broker.on[PULL]
    assert [message.body for message in await polled(consumer, 1)] == [b"0-0"]


@pytest.mark.parametrize("code", [16, 17, 23])
@pytest.mark.parametrize("request_code", [PULL, RequestCode.QUERY_CONSUMER_OFFSET])
async def test_a_topic_that_brokers_refuse_is_an_exception_until_they_serve_it(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue], code: int, request_code: int
) -> None:
    fill(cluster, 0, 1)
    cluster.broker.on[request_code] = lambda request: request.reply(code, remark="not for you")
    consumer.assign(queues)
    for _ in range(2):
        with pytest.raises(BrokerError, match=r"T@broker-a.*not for you") as caught:
            await consumer.poll(timeout=PATIENCE_S)
        assert caught.value.code == code
    del cluster.broker.on[request_code]
    while True:
        try:
            assert [message.body for message in await polled(consumer, 1)] == [b"0-0"]
            break
        except BrokerError:
            continue  # of a pull from before


@pytest.mark.parametrize("code", [1, 2, 14, 24, 215])
async def test_a_refusal_that_passes_is_waited_for(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue], code: int
) -> None:
    fill(cluster, 0, 1)
    cluster.broker.script(PULL, *[code] * 3 * len(queues))
    consumer.assign(queues)
    assert [message.body for message in await polled(consumer, 1)] == [b"0-0"]


async def test_one_queue_that_is_refused_does_not_hide_the_others(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    cluster.broker.on[PULL] = lambda request: (
        request.reply(16, remark="no") if (request.ext or {})["queueId"] == "0" else cluster.broker._pull(request)
    )
    consumer.assign(queues)
    await cluster.broker.request(PULL, 3, lambda request: (request.ext or {})["queueId"] == "0")
    assert await consumer.poll(timeout=0) == []


async def test_topics_that_do_not_exist_are_told_when_the_time_is_over(
    consumer: PullConsumer, cluster: FakeCluster
) -> None:
    consumer.assign([MessageQueue("nowhere", "broker-a", 0)])
    with pytest.raises(RouteNotFound, match=r"no route to topic 'nowhere'.*create it"):
        while not await consumer.poll(timeout=0.001):
            continue


async def test_an_unreadable_message_is_reported(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 1)
    cluster.broker.put("T", 0, b"not a record at all" * 10)
    consumer.assign(queues[:1])
    await polled(consumer, 1)
    await until(lambda: bool(consumer.problems))
    assert "T@broker-a:0 offset 1" in consumer.problems[0]
    assert consumer.position(queues[0]) == 1


async def test_a_group_the_broker_does_not_know_yet_is_announced_and_committed(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    await consumer.queues("T")
    cluster.broker.script(COMMIT, 26)
    beats = len(cluster.broker.heartbeats)
    await consumer.commit_offset(queues[0], 3)
    assert cluster.broker.committed["g", "T", 0] == 3
    assert len(cluster.broker.heartbeats) > beats


async def test_what_an_operator_sees_of_queues(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 5)
    cluster.broker.store("T", 0, bytes(3 << 20))
    consumer.assign(queues[:2])
    await polled(consumer, 2, max_messages=2)
    await cluster.broker.request(PULL, 3)  # everything is here
    ask = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": consumer.client_id})
    shown = decode_body(ConsumerRunningInfo, (await cluster.broker.ask_client(ask)).body).mq_table
    full, empty = shown[queue_key(queues[0])], shown[queue_key(queues[1])]
    assert full.last_pull_timestamp > 0 < empty.last_pull_timestamp
    assert (full.cached_msg_count, full.cached_msg_min_offset, full.cached_msg_max_offset) == (4, 2, 5)
    assert (full.commit_offset, full.cached_msg_size_in_mib, full.droped) == (2, 3, False)
    assert (empty.cached_msg_count, empty.cached_msg_min_offset, empty.cached_msg_max_offset) == (0, 0, 0)
    assert (empty.commit_offset, empty.cached_msg_size_in_mib, empty.droped) == (0, 0, False)


async def test_an_operator_can_look_and_reset(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 3)
    consumer.assign(queues[:1])
    await polled(consumer, 3)
    ask = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": consumer.client_id})
    info = decode_body(ConsumerRunningInfo, (await cluster.broker.ask_client(ask)).body)
    assert info.mq_table[queue_key(queues[0])].commit_offset == 3
    body = encode_body(ResetOffsetBody({queue_key(queues[0]): 1}))
    fields = {"group": "g", "topic": "T", "timestamp": "0", "isForce": "true"}
    await cluster.broker.ask_client(Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body))
    assert [message.queue_offset for message in await polled(consumer, 2)] == [1, 2]
    record = cluster.broker.queues["T", 0].records[0]
    refused = await cluster.broker.ask_client(
        Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "g"}, record)
    )
    assert (refused.code, "no handler" in (refused.remark or "")) == (1, True)


async def test_seeking_to_ends_and_times(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    cluster.broker.queues["T", 0].first = 3
    fill(cluster, 0, 6)
    consumer.assign(queues[:1])
    await consumer.seek(queues[0], SeekTo.END)
    await until(lambda: consumer.position(queues[0]) == 9)
    await consumer.seek(queues[0], SeekTo.BEGIN)
    assert consumer.position(queues[0]) == 3
    await consumer.seek(queues[0], datetime(2026, 1, 1, tzinfo=UTC))
    assert [message.queue_offset for message in await polled(consumer, 2)] == [7, 8]


async def test_a_seek_before_the_start_is_known_decides_it(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 6)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def late(request: Command) -> Command:
        asked.set()
        await go_on.wait()
        return request.reply(22, remark="nothing")

    cluster.broker.on[RequestCode.QUERY_CONSUMER_OFFSET] = late
    consumer.assign(queues[:1])
    await asked.wait()
    await consumer.seek(queues[0], 4)
    go_on.set()
    assert [message.queue_offset for message in await polled(consumer, 2)] == [4, 5]


async def test_a_paused_queue_gives_nothing_until_resumed(
    consumer: PullConsumer, cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 2)
    consumer.assign(queues)
    consumer.pause(queues[:1])
    fill(cluster, 1, 2)
    assert {message.queue_id for message in await polled(consumer, 2)} == {1}
    assert await consumer.poll(timeout=0) == []
    assert consumer.paused == {queues[0]}
    waiting = asyncio.create_task(consumer.poll(timeout=PATIENCE_S))
    consumer.resume(queues[:1])
    assert [message.body for message in await waiting] == [b"0-0", b"0-1"]
    assert not [r for r in cluster.broker.requests_of(PULL)[:2] if (r.ext or {})["queueId"] == "0"]


async def test_all_buffers_together_are_bounded(
    cluster: FakeCluster, queues: list[MessageQueue], caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 0, 40)
    fill(cluster, 1, 40)
    async with PullConsumer(
        cluster.namesrv,
        group="g",
        from_where=ConsumeFrom.FIRST,
        pull=PullSettings(batch=10, max_total_messages=25),
        options=QUICK_OPTIONS,
    ) as consumer:
        consumer.assign(queues)
        await until(lambda: caplog.text.count("messages of all queues held, the limit is 25") == 2)
        assert len(cluster.broker.requests_of(PULL)) in (3, 4), "ten messages each, and one that was under way"
        assert len(await polled(consumer, 80, max_messages=100)) == 80


async def test_iterating_commits_message_by_message(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    fill(cluster, 0, 5)
    async with PullConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
    ) as consumer:
        consumer.assign(queues[:1])
        seen = []
        async for message in consumer:
            seen.append(message.queue_offset)
            if len(seen) == 3:
                break
        assert [message.queue_offset for message in await consumer.poll()] == [3, 4], "nothing was skipped"
    assert cluster.broker.committed["g", "T", 0] == 5


async def test_iterating_ends_with_the_consumer(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    async with PullConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as consumer:
        consumer.assign(queues[:1])

        async def run() -> int:
            return len([message async for message in consumer])

        running = asyncio.create_task(run())
        await cluster.broker.request(PULL)
    assert await asyncio.wait_for(running, PATIENCE_S) == 0


async def test_progress_is_committed_by_itself_once_the_next_poll_says_it_is_done(
    cluster: FakeCluster, queues: list[MessageQueue]
) -> None:
    fill(cluster, 0, 6)
    timing = replace(QUICK, persist_s=0.005)
    async with PullConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=timing)
    ) as consumer:
        consumer.assign(queues[:1])
        await polled(consumer, 2, max_messages=2)
        beats = len(cluster.broker.requests_of(COMMIT))
        await cluster.broker.request(PULL, 2)
        assert ("g", "T", 0) not in cluster.broker.committed or cluster.broker.committed["g", "T", 0] == 0
        await polled(consumer, 1, max_messages=1)
        await cluster.broker.request(COMMIT, beats + 1, lambda r: (r.ext or {})["commitOffset"] == "2")
    assert cluster.broker.committed["g", "T", 0] == 3


async def test_an_exception_leaves_the_last_poll_undone(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    fill(cluster, 0, 6)
    with pytest.raises(ZeroDivisionError):
        async with PullConsumer(
            cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
        ) as consumer:
            consumer.assign(queues[:1])
            await polled(consumer, 2, max_messages=2)
            await polled(consumer, 2, max_messages=2)
            raise ZeroDivisionError
    assert cluster.broker.committed["g", "T", 0] == 2


async def test_mistakes_are_told(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    consumer = PullConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS)
    with pytest.raises(ConsumerClosed, match="async with"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(ClientError, match="assign"):
            await consumer.poll()
        with pytest.raises(ClientError, match="not assigned"):
            await consumer.commit(queues)
        with pytest.raises(ClientError, match="not assigned"):
            consumer.pause(queues)
        with pytest.raises(InvalidMessage, match="max_messages"):
            await consumer.poll(max_messages=0)
        with pytest.raises(RouteNotFound):
            await consumer.queues("nowhere")
        with pytest.raises(ConsumerClosed):
            await consumer.__aenter__()


async def test_leaving_leaves_nothing_behind(cluster: FakeCluster, queues: list[MessageQueue]) -> None:
    before = own_tasks()
    async with PullConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as consumer:
        consumer.assign(queues)
        await cluster.broker.request(PULL, 2)
    assert not cluster.broker.requests_of(COMMIT)
    assert cluster.broker.requests_of(RequestCode.UNREGISTER_CLIENT)
    await until(lambda: own_tasks() <= before and not cluster.broker.channels)
