"""The lane of plain sends leaves a broker, its log and its clients as the general road does, whatever a read holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count, pairwise
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from tests.support.twins import needs_twin, unhurried
from tests.unit.broker.parts import Parts, Peer, Setup

from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import JSON, ONEWAY, ROCKETMQ, Command
from rocketline.protocol.connection import frame_bytes
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.message_ids import UniqueIds
from rocketline.protocol.properties import encode_properties

pytestmark = needs_twin

PLAIN = {"UNIQ_KEY": "7F0000010000000018B4AAC2", "WAIT": "true"}
properties = st.builds(
    lambda plain, more: encode_properties({**(PLAIN if plain else {}), **more}),
    st.sampled_from([True, True, True, False]),
    st.dictionaries(
        st.sampled_from(["TAGS", "KEYS", "DELAY", "__SHARDINGKEY", "CLUSTER", "ü", "UNIQ_KEY", "POP_CK", "TRAN_MSG"]),
        st.sampled_from(["a", "k1 k2", "1", "true", "x\0", "not plain!", "ü", "v" * 600]),
        max_size=2,
    ),
)
topics = st.sampled_from(["plain", "plain", "other", "unknown", "%RETRY%g", "", "t" * 130])


@st.composite
def sends(draw: st.DrawFn) -> bytes:
    header = SendMessageHeader(
        producer_group="p",
        topic=draw(topics),
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=draw(st.sampled_from([0, 0, 1, 3, 4, 9, -1])),
        sys_flag=draw(st.sampled_from([0, 0, 0, 0x1, 0x4, 0x10, 0x80])),
        born_ms=draw(st.sampled_from([1_700_000_000_000, -1, 1 << 62])),
        flag=draw(st.integers(-(1 << 31), (1 << 31) - 1)),
        properties=draw(properties),
        reconsume_times=draw(st.sampled_from([0, 0, 7])),
        unit_mode=False,
        max_reconsume_times=None,
        batch=False,
    )
    command = Command(
        RequestCode.SEND_MESSAGE_V2,
        header.encode(),
        draw(st.binary(max_size=40)) * draw(st.sampled_from([1, 1, 1, 30])),
        opaque=draw(st.integers(0, 9)),
        flag=draw(st.sampled_from([0, 0, 0, 0, ONEWAY])),
        encoding=draw(st.sampled_from([JSON, ROCKETMQ])),
    )
    return frame_bytes(command)


others = st.sampled_from(
    [
        frame_bytes(Command(RequestCode.GET_MAX_OFFSET, {"topic": "plain", "queueId": "0"})),
        frame_bytes(Command(9999, {})),
        b"\0\0\0\x10\0\0\0\x0c{'code':310}",
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    frame = bytearray(draw(sends()))
    frame[draw(st.integers(8, len(frame) - 1))] ^= draw(st.integers(1, 255))
    return bytes(frame)


def reads_of(frames: Sequence[bytes], cuts: Sequence[int]) -> list[bytes]:
    data = b"".join(frames)
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places) if start < end]


async def run(reads: Sequence[bytes], lane: bool) -> dict[str, Any]:
    parts = Parts(Setup(log_segment_bytes=64 << 10, timer_slots=120))
    try:
        parts.put_topic("plain")
        parts.put_topic("other", 1)
        assert parts.router.lane is not None
        if not lane:
            parts.router.lane = None
        peer = parts.peer()
        for data in reads:
            parts.clock.advance(0.001)
            if peer.channel.is_open:
                peer.channel.data_received(data)
        parts.dispatch()
        return _left_by(parts, peer)
    finally:
        parts.close()
        await asyncio.sleep(0)


def _left_by(parts: Parts, peer: Peer) -> dict[str, Any]:
    queues = [(topic, queue_id) for topic in ("plain", "other", "unknown") for queue_id in range(4)]
    statistics = parts.statistics
    return {
        "answers": bytes(peer.transport.written),
        "open": peer.channel.is_open,
        "log": [bytes(parts.store._log.file.segment_at(0).open())[: parts.store._log.wrote]]
        if parts.store._log.wrote
        else [],
        "wrote": parts.store._log.wrote,
        "queues": [[bytes(chunk) for chunk in parts.store.read(*queue, 0, 32).chunks] for queue in queues],
        "found": [len(parts.store.query("plain", key, 32).records) for key in (PLAIN["UNIQ_KEY"], "k1")],
        "totals": statistics.totals(),
        "puts": {topic: (t.messages, t.size, t.times) for topic, t in statistics._puts.items()},
        "special": {
            (topic, kind): (special.messages, special.size, special.larger)
            for topic, kinds in statistics._special.items()
            for kind, special in kinds.items()
        },
    }


frames = sends() | sends() | sends() | others | damaged()


@unhurried
@given(st.lists(frames, min_size=1, max_size=12), st.lists(st.integers(0), max_size=3))
def test_both_roads_leave_the_same(frames: list[bytes], cuts: list[int]) -> None:
    reads = reads_of(frames, cuts)
    left = []
    for lane in (True, False):
        with patch.object(UniqueIds, "next", side_effect=(f"{number:032X}" for number in count())):
            left.append(asyncio.run(run(reads, lane)))
    assert left[0] == left[1]


def plain(number: int, topic: str = "plain") -> bytes:
    header = SendMessageHeader("p", topic, "TBW102", 4, 0, 0, 1, 0, encode_properties(PLAIN))
    return frame_bytes(Command(RequestCode.SEND_MESSAGE_V2, header.encode(), b"%d" % number, opaque=number))


async def test_plain_sends_take_the_lane_until_topics_change() -> None:
    parts = Parts(Setup(timer_slots=120))
    parts.put_topic("plain")
    peer, served = parts.peer(), parts.router.sends
    peer.channel.data_received(plain(0))
    assert served == [0], "the first of a topic asks what there is"
    peer.channel.data_received(b"".join([plain(1), plain(2), plain(3, "new"), plain(4)]))
    assert served == [2], "what follows another frame goes its way"
    peer.channel.data_received(plain(5)[:50])
    peer.channel.data_received(plain(5)[50:])
    assert served == [2], "nor does one that came in pieces take it"
    parts.put_topic("plain", 4, perm=4)
    peer.channel.data_received(plain(6))
    codes = {answer.opaque: answer.code for answer in peer.received()}
    assert codes == {**dict.fromkeys(range(6), 0), 6: ResponseCode.NO_PERMISSION}
    assert [message.body for message in parts.messages("plain")] == [b"0", b"1", b"2", b"4", b"5"]
    parts.close()


async def test_a_store_that_refuses_and_a_clock_that_stands_still_are_noticed() -> None:
    parts = Parts(Setup(timer_slots=120))
    parts.put_topic("plain")
    peer = parts.peer()
    peer.channel.data_received(plain(0))
    parts.clock.jump_wall(-5.0)
    peer.channel.data_received(plain(1))
    first, second = parts.messages("plain")
    assert first.store_ms == second.store_ms
    parts.store._refusal = "the disk is full"
    peer.channel.data_received(plain(2))
    assert [answer.code for answer in peer.received()] == [0, 0, ResponseCode.SERVICE_NOT_AVAILABLE]
    parts.close()
