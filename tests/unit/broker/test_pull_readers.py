"""Readers of one queue: offsets out of range, many groups at once, messages without tag."""

from __future__ import annotations

import logging

import pytest
from tests.unit.broker.parts import Parts, fill, heartbeat, pull_request

from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.headers.read import SUBSCRIPTION, SUSPEND


@pytest.mark.parametrize("offset", [50, 1_000_000, -1])
async def test_a_pull_at_an_offset_out_of_range_is_logged_and_stores_no_message(
    parts: Parts, caplog: pytest.LogCaptureFixture, offset: int
) -> None:
    """Apache 4.x stores a message in OFFSET_MOVED_EVENT; 5.x, and we, only log."""
    caplog.set_level(logging.INFO, "rocketline.broker.handlers.pull")
    fill(parts, 10)
    before = parts.store.log_next_offset
    answer = parts.peer().ask(pull_request(queue_offset=offset))
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"group readers asked for offset {offset} of orders queue 0, which has 0 to 10" in line
    assert parts.store.log_next_offset == before


async def test_a_group_with_a_wrong_offset_does_not_disturb_other_groups(parts: Parts) -> None:
    fill(parts, 10)
    lost, fine = parts.peer(), parts.peer()
    for _ in range(3):
        assert lost.ask(pull_request(group="lost", queue_offset=99)).code == ResponseCode.PULL_OFFSET_MOVED
        answer = fine.ask(pull_request(group="fine", queue_offset=9))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")


async def test_one_message_answers_all_groups_that_wait_on_its_queue(parts: Parts) -> None:
    parts.put_topic("orders")
    peers = [parts.peer(("192.0.2.7", 1000 + number)) for number in range(20)]
    for number, peer in enumerate(peers):
        peer.send(pull_request(group=f"g{number}", sys_flag=SUBSCRIPTION | SUSPEND))
    assert len(parts.waiters) == 20
    fill(parts, 1)
    answers = [await peer.next() for peer in peers]
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert len({answer.body for answer in answers}) == 1
    assert len(parts.waiters) == 0


async def test_a_message_without_tag_matches_no_tag(parts: Parts) -> None:
    fill(parts, 1)
    parts.peer().ask(heartbeat())
    answer = parts.peer().ask(pull_request(subscription="TagA"))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
