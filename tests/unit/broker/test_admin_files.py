"""Old files by hand, and what a broker's other parts make of files that went."""

from __future__ import annotations

from datetime import datetime

import pytest
from tests.unit.broker.parts import ROOT, GatedDisk, MakeParts, Parts, pull_request, send_request

from rocketline.clock import ManualClock
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.records import decode_messages
from rocketline.store.config import RetentionConfig
from rocketline.testing.disks import MemoryDisk

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
FILE_BYTES = 4096


@pytest.fixture
async def parts(make_parts: MakeParts) -> Parts:
    """Small log files that expire after an hour, on a disk with a clock, and deleted when asked only."""
    clock = ManualClock()
    hour = (datetime.fromtimestamp(clock.now_ms() / 1000).hour + 12) % 24
    return make_parts(
        clock=clock,
        disk=GatedDisk(MemoryDisk(clock)),
        log_segment_bytes=FILE_BYTES,
        retention=RetentionConfig(reserved_hours=1, delete_when=str(hour), file_pause_ms=0),
    )


def send(parts: Parts, count: int, topic: str = "orders", **properties: str) -> None:
    """Messages of which three fill a log file, all flushed."""
    for number in range(count):
        answer = parts.peer().ask(
            send_request(topic, body=b"%04d" % number + bytes(900), properties={"UNIQ_KEY": "U", **properties})
        )
        assert answer.code == ResponseCode.SUCCESS
    parts.dispatch()
    parts.store.flush_now()


def ask(parts: Parts, code: int) -> Command:
    return parts.peer().ask(Command(code))


def first_files(parts: Parts, folder: str) -> list[str]:
    return [entry.name for entry in parts.disk.list(ROOT / folder)]


def expire(parts: Parts) -> None:
    """An operator has expired files deleted; all but the last are."""
    parts.clock.advance(3600)
    answer = ask(parts, RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert (answer.code, answer.ext, bytes(answer.body)) == (ResponseCode.SUCCESS, {}, b"")
    while parts.store.clean_up(wait=True).files:
        pass


async def test_expired_files_go_when_asked_for_and_groups_go_on_behind_them(parts: Parts) -> None:
    peer = parts.peer()
    send(parts, 12)
    ask(parts, RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert parts.store.log_min_offset == 0, "none is expired"
    expire(parts)
    assert first_files(parts, "commitlog") == [f"{3 * FILE_BYTES:020d}"]
    answer = peer.ask(pull_request(queue_offset=4))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL")
    assert answer.ext is not None
    assert (answer.ext["nextBeginOffset"], answer.ext["minOffset"], answer.ext["maxOffset"]) == ("9", "9", "12")
    answer = peer.ask(pull_request(queue_offset=9))
    assert [message.body[:4] for message in decode_messages(answer.body)] == [b"0009", b"0010", b"0011"]
    answer = peer.ask(Command(RequestCode.GET_MIN_OFFSET, {"topic": "orders", "queueId": "0"}))
    assert answer.ext == {"offset": "9"}


async def test_a_held_pull_is_answered_as_ever(parts: Parts) -> None:
    send(parts, 12)
    peer = parts.peer()
    peer.send(pull_request(queue_offset=12, sys_flag=0x6))
    expire(parts)
    assert peer.received() == []
    send(parts, 1)
    answer = await peer.next()
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    await peer.close()


async def test_delayed_messages_that_went_are_passed_over(parts: Parts) -> None:
    send(parts, 6, DELAY="3")
    assert parts.store.max_offset(SCHEDULE, 2) == 6
    expire(parts)
    assert parts.store.min_offset(SCHEDULE, 2) == 3
    assert parts.delays.deliver_due() is None
    assert [message.body[:4] for message in parts.messages("orders")] == [b"0003", b"0004", b"0005"]
    send(parts, 1, DELAY="3")
    parts.clock.advance(10)
    assert parts.delays.deliver_due() is None
    assert len(parts.messages("orders")) == 4


async def test_queue_files_follow_when_asked_for(parts: Parts) -> None:
    send(parts, 330)
    parts.clock.advance(3600)
    for _ in range(20):
        ask(parts, RequestCode.DELETE_EXPIRED_COMMITLOG)
        assert parts.store._threads is not None
        parts.store._threads.retention._remover.wait()
    assert ask(parts, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == ResponseCode.SUCCESS
    assert first_files(parts, "consumequeue/orders/0") == [f"{6000:020d}"], "the file of units 300 to 399"
    assert parts.store.max_offset("orders", 0) == 330


async def test_a_queue_without_messages_keeps_its_next_number(parts: Parts) -> None:
    send(parts, 3, topic="quiet")
    send(parts, 6)
    expire(parts)
    assert ask(parts, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == ResponseCode.SUCCESS
    assert (parts.store.min_offset("quiet", 0), parts.store.max_offset("quiet", 0)) == (3, 3)


async def test_queues_of_unknown_topics_go_when_asked_for(parts: Parts) -> None:
    for topic in ("orders", "forgotten"):
        send(parts, 1, topic)
        parts.offsets.commit("test", "readers", topic, 0, 1)
    send(parts, 1, DELAY="3")
    parts.topics.remove("forgotten")
    peer = parts.peer()
    peer.send(pull_request(queue_offset=1, sys_flag=0x6))
    assert peer.received() == []
    assert ask(parts, RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS
    assert parts.store.topics() == {"orders", SCHEDULE}
    assert (await peer.next()).code == ResponseCode.PULL_NOT_FOUND, "as when a topic is deleted by name"
    assert parts.offsets.get("readers", "orders", 0) == 1
    assert parts.offsets.get("readers", "forgotten", 0) is None
    await peer.close()


async def test_above_the_ratio_sends_get_14_until_there_is_room(parts: Parts) -> None:
    inner = parts.disk._inner
    assert isinstance(inner, MemoryDisk)
    send(parts, 3)
    inner.total_bytes = 1_000_000
    inner.used_elsewhere = 950_000
    parts.store.clean_up(wait=True)
    answer = parts.peer().ask(send_request())
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "above diskSpaceWarningLevelRatio=90" in answer.remark
    assert len(parts.messages("orders")) == 3
    inner.used_elsewhere = 0
    parts.store.clean_up()
    assert parts.peer().ask(send_request()).code == ResponseCode.SUCCESS
