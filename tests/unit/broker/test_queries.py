"""Looking messages up by key, unique id and log offset."""

from __future__ import annotations

import pytest
from tests.unit.broker.parts import Parts, send_request

from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.records import decode_messages

FOREVER_MS = (1 << 63) - 1


def query(
    key: str, topic: str = "orders", count: int = 32, begin: int = 0, end: int = FOREVER_MS, **more: str
) -> Command:
    ext = {
        "topic": topic,
        "key": key,
        "maxNum": str(count),
        "beginTimestamp": str(begin),
        "endTimestamp": str(end),
        **more,
    }
    return Command(RequestCode.QUERY_MESSAGE, ext)


def view(log_offset: int) -> Command:
    return Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(log_offset)})


def fill(parts: Parts) -> None:
    """Messages 0..3: unique ids U0.., keys "shared" and "k0".., tag "t", one second apart."""
    peer = parts.peer()
    for number in range(4):
        properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"shared k{number}", "TAGS": "t"}
        peer.ask(send_request(body=b"%d" % number, properties=properties))
        parts.clock.advance(1)
    parts.dispatch()


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS
    return [message.body for message in decode_messages(answer.body)]


async def test_by_key(parts: Parts) -> None:
    fill(parts)
    peer = parts.peer()
    assert bodies(peer.ask(query("k2"))) == [b"2"]
    assert bodies(peer.ask(query("shared"))) == [b"0", b"1", b"2", b"3"]
    assert bodies(peer.ask(query("k2", indexType="K"))) == [b"2"]


async def test_the_answer_says_how_far_the_index_is(parts: Parts) -> None:
    fill(parts)
    answer = parts.peer().ask(query("k2"))
    assert answer.ext.keys() == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
    assert int(answer.ext["indexLastUpdateTimestamp"]) == parts.clock.now_ms() - 1000
    assert int(answer.ext["indexLastUpdatePhyoffset"]) > 0


async def test_by_unique_id(parts: Parts) -> None:
    fill(parts)
    peer = parts.peer()
    assert bodies(peer.ask(query("U1", count=0, _UNIQUE_KEY_QUERY="true"))) == [b"1"]
    assert bodies(peer.ask(query("U1", indexType="U"))) == [b"1"]
    assert bodies(peer.ask(query("U1"))) == [b"1"]
    assert peer.ask(query("k1", _UNIQUE_KEY_QUERY="true")).code == ResponseCode.QUERY_NOT_FOUND


async def test_at_most_as_many_as_asked_for_the_newest(parts: Parts) -> None:
    fill(parts)
    assert bodies(parts.peer().ask(query("shared", count=2))) == [b"2", b"3"]


async def test_within_a_time(parts: Parts) -> None:
    start_ms = parts.clock.now_ms()
    fill(parts)
    assert bodies(parts.peer().ask(query("shared", begin=start_ms + 1000, end=start_ms + 2000))) == [b"1", b"2"]


@pytest.mark.parametrize(
    "request_",
    [
        query("nothing"),
        query("k1", topic="other"),
        query("", count=5),
        query("k1", topic="../../x"),
        query("shared", count=0),
        query("shared", count=-5),
        query("shared", begin=FOREVER_MS, end=0),
        query("shared", begin=-FOREVER_MS, end=-1),
        query("k" * 100_000),
    ],
    ids=["key", "topic", "empty", "path", "none", "negative", "reversed", "past", "long"],
)
async def test_nothing_is_22_with_the_whole_header(parts: Parts, request_: Command) -> None:
    fill(parts)
    answer = parts.peer().ask(request_)
    assert (answer.code, answer.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
    assert answer.ext.keys() == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}


async def test_a_huge_count_is_capped_by_the_store(parts: Parts) -> None:
    fill(parts)
    assert len(bodies(parts.peer().ask(query("shared", count=(1 << 31) - 1)))) == 4


async def test_by_log_offset(parts: Parts) -> None:
    peer = parts.peer()
    sent = [peer.ask(send_request(body=b"%d" % number)) for number in range(3)]
    for number, answer in enumerate(sent):
        _, log_offset = parse_offset_id(answer.ext["msgId"])
        found = peer.ask(view(log_offset))
        [message] = decode_messages(found.body)
        assert (found.code, message.body, message.offset_id) == (0, b"%d" % number, answer.ext["msgId"])


@pytest.mark.parametrize("log_offset", [-1, 1, 12345678, FOREVER_MS, -FOREVER_MS - 1])
async def test_where_no_record_starts_there_is_no_message(parts: Parts, log_offset: int) -> None:
    fill(parts)
    answer = parts.peer().ask(view(log_offset))
    assert (answer.code, str(log_offset) in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_body_that_looks_like_a_record_is_none(parts: Parts) -> None:
    """Anyone may ask for any offset: the inside of a body, written by a client, must not pass for a record."""
    peer = parts.peer()
    first = peer.ask(send_request(body=b"victim"))
    _, log_offset = parse_offset_id(first.ext["msgId"])
    record = bytes(parts.store.record_at(log_offset) or b"")
    second = peer.ask(send_request(body=record))
    _, outer = parse_offset_id(second.ext["msgId"])
    for inside in range(outer + 1, outer + 120):
        assert peer.ask(view(inside)).code == ResponseCode.SYSTEM_ERROR
