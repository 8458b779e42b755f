"""Tables as other brokers copy them, and consume queues entry by entry."""

from __future__ import annotations

import pytest
from tests.unit.broker.parts import Parts, fill, heartbeat, send_request

from rocketline.broker.handlers.admin.tables import MAX_UNITS
from rocketline.protocol.bodies import ConsumeQueueBody, ConsumerOffsetTable, DelayOffsetTable, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command


async def test_all_consumer_offsets(parts: Parts) -> None:
    parts.offsets.commit("c", "readers", "orders", 3, 7)
    answer = parts.peer().ask(Command(RequestCode.GET_ALL_CONSUMER_OFFSET))
    assert decode_body(ConsumerOffsetTable, answer.body).offset_table == {"orders@readers": {3: 7}}


async def test_how_far_each_delay_level_is(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(send_request(properties={"UNIQ_KEY": "U", "DELAY": "2"}))
    parts.dispatch()
    parts.clock.advance(10)
    parts.delays.deliver_due()
    answer = peer.ask(Command(RequestCode.GET_ALL_DELAY_OFFSET))
    assert decode_body(DelayOffsetTable, answer.body).offset_table == {}, "the message is not on disk yet"
    parts.store.flush_now()
    answer = peer.ask(Command(RequestCode.GET_ALL_DELAY_OFFSET))
    assert decode_body(DelayOffsetTable, answer.body).offset_table == {2: 1}


def look(index: int = 0, count: int = 10, *, queue_id: int = 0, **more: str) -> Command:
    ext = {"topic": "orders", "queueId": str(queue_id), "index": str(index), "count": str(count), **more}
    return Command(RequestCode.QUERY_CONSUME_QUEUE, ext)


async def test_entries_of_a_consume_queue(parts: Parts) -> None:
    fill(parts, 5)
    body = decode_body(ConsumeQueueBody, parts.peer().ask(look(1, 2)).body)
    assert (body.min_queue_index, body.max_queue_index) == (0, 5)
    units = [parts.store.unit_at("orders", 0, offset) for offset in (1, 2)]
    shown = [(unit.physic_offset, unit.physic_size, unit.tags_code) for unit in body.queue_data]
    assert shown == units
    assert (body.subscription_data, body.filter_data) == (None, None)


@pytest.mark.parametrize("count", [MAX_UNITS + 10, 1 << 30])
async def test_no_more_than_so_many_at_once(parts: Parts, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketline.broker.handlers.admin.tables.MAX_UNITS", 3)
    fill(parts, 5)
    assert len(decode_body(ConsumeQueueBody, parts.peer().ask(look(0, count)).body).queue_data) == 3


async def test_with_the_subscription_of_a_group(parts: Parts) -> None:
    fill(parts, 1)
    peer = parts.peer()
    body = decode_body(ConsumeQueueBody, peer.ask(look(consumerGroup="readers")).body)
    assert (body.subscription_data, body.filter_data) == (None, "readers@orders is not online!")
    parts.peer().ask(heartbeat(subscriptions={"orders": "a"}))
    body = decode_body(ConsumeQueueBody, peer.ask(look(consumerGroup="readers")).body)
    assert body.subscription_data is not None
    assert (body.subscription_data.sub_string, body.filter_data) == ("a", "null")


async def test_a_queue_or_an_entry_that_is_not_there(parts: Parts) -> None:
    fill(parts, 1)
    answer = parts.peer().ask(look(queue_id=3))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "3@orders is not exist!")
    for index in (7, -1):
        answer = parts.peer().ask(look(index))
        assert (answer.code, answer.body, answer.remark) == (0, b"", f"Index {index} of 0@orders is not exist!")
