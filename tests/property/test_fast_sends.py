"""The fast path of sends leaves a broker, its log and its clients as the general path does, whatever a read holds."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from itertools import count, pairwise
from math import inf
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.compiled import few, needs_compiled, thorough
from tests.unit.broker.parts import GatedDisk, NoThread, Parts, Peer, Setup

from rocketline.broker.fastpath import sends as fast_sends
from rocketline.broker.fastpath.path import MANY_CONNECTIONS as MANY
from rocketline.broker.fastpath.sends import MAX_QUEUES
from rocketline.broker.handlers.send import NOT_IN_TIME
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import JSON, ONEWAY, ROCKETMQ, Command
from rocketline.protocol.connection import frame_bytes
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.message_ids import UniqueIds
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import BatchItem, encode_batch
from rocketline.transport import Channel, Limits

pytestmark = needs_compiled

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
items = st.builds(
    BatchItem,
    st.sampled_from([0, 0, 7, -1]),
    st.binary(max_size=30) | st.just(b"x" * 1500),
    properties.map(str.encode)
    | st.sampled_from([b"", b"\xff\x01\xfe\x02", b"TAGS\x01\xe4\x02", b"x\0", b"KEYS\x01k1 \x1ck2\x02"]),
)
"""Of a batch: what they say is stored as it is."""


def of_one_program(
    bodies: Sequence[bytes], first: int, start: str = "7F0000010000000018B4AAC2", before: str = "", after: str = "\x02"
) -> list[BatchItem]:
    """Messages whose properties differ in their ids only."""
    return [
        BatchItem(0, body, f"{before}UNIQ_KEY\x01{start}{number:08X}{after}".encode())
        for number, body in enumerate(bodies, first)
    ]


alike_items = st.builds(
    of_one_program,
    st.lists(st.binary(min_size=9, max_size=9), min_size=1, max_size=12) | st.lists(st.binary(max_size=9), max_size=3),
    st.sampled_from([0, 1, 0xFFFFFFFE]),
    st.sampled_from(["7F0000010000000018B4AAC2", "", "ü", "\0"]),
    st.sampled_from(["", "WAIT\x01true\x02", "TAGS\x01a\x02", "TAGS\x01größer-als-acht\x02", "KEYS\x01k1 k2\x02"]),
    st.sampled_from(["", "\x02", "\x02WAIT\x01true\x02", "\x02x\x01\0", "\x02UNIQ_KEY\x01other-one"]),
)


@st.composite
def send_commands(draw: st.DrawFn) -> Command:
    batch = draw(st.sampled_from([False, False, True]))
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
        batch=batch,
    )
    if batch:
        body = encode_batch(draw(st.lists(items, max_size=4) | alike_items)) + draw(
            st.sampled_from([b"", b"", b"", b"\0"])
        )
    else:
        body = draw(st.binary(max_size=40)) * draw(st.sampled_from([1, 1, 1, 30]))
    return Command(
        draw(st.sampled_from([RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE if batch else 310])),
        header.encode(),
        body,
        opaque=draw(st.integers(0, 9)),
        flag=draw(st.sampled_from([0, 0, 0, 0, ONEWAY])),
        encoding=draw(st.sampled_from([JSON, ROCKETMQ])),
    )


def sends() -> st.SearchStrategy[bytes]:
    return send_commands().map(frame_bytes)


others = st.sampled_from(
    [
        frame_bytes(Command(9999, {})),
        b"\0\0\0\x10\0\0\0\x0c{'code':310}",
        frame_bytes(Command(RequestCode.GET_MAX_OFFSET, {"topic": "plain", "queueId": "0"})),
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


FLUSH = b""
"""Among reads: what was stored is flushed now."""


async def run(reads: Sequence[bytes], fast: bool, sync_flush: bool = False) -> dict[str, Any]:
    parts = Parts(Setup(log_segment_bytes=64 << 10, timer_slots=120, sync_flush=sync_flush, workers=NoThread))
    try:
        parts.put_topic("plain")
        parts.put_topic("other", 1)
        assert parts.router.fast_path is not None
        if not fast:
            parts.router.fast_path = None
        peer = parts.peer()
        for data in [*reads, FLUSH]:
            parts.clock.advance(0.001)
            if data == FLUSH:
                parts.store.flush_now()
                while peer.channel.waiting_count:
                    await asyncio.sleep(0)
            elif peer.channel.is_open:
                peer.channel.data_received(data)
            parts.dispatch()
        left = left_by(parts, peer)
        if sync_flush:  # the order of answers does not matter
            left["answers"].sort()
        return left
    finally:
        parts.close()
        await asyncio.sleep(0)


def left_by(parts: Parts, peer: Peer) -> dict[str, Any]:
    queues = [(topic, queue_id) for topic in ("plain", "other", "unknown") for queue_id in range(4)]
    statistics, index = parts.statistics, parts.store._index
    assert index is not None
    index.flush()
    return {
        "answers": [said_by(answer) for answer in peer.received()],
        "open": peer.channel.is_open,
        "log": [bytes(segment.open()[: parts.store._log.wrote - segment.base]) for segment in parts.store._log.file],
        "wrote": parts.store._log.wrote,
        "queues": [[bytes(chunk) for chunk in parts.store.read(*queue, 0, 32).chunks] for queue in queues],
        "units": {key: [queue.unit(number) for number in range(queue.max_offset)] for key, queue in _by_key(parts)},
        "index": [bytes(file._view[: file._entries_at + 20 * file.count]) for file in index.files],
        "indexed": index.updated,
        "dispatched": (parts.store.dispatched_offset, getattr(parts.store._dispatcher.last, "log_offset", -1)),
        "found": [len(parts.store.query("plain", key, 32).records) for key in (PLAIN["UNIQ_KEY"], "k1")],
        "totals": statistics.totals(),
        "puts": {topic: (t.messages, t.size, t.times) for topic, t in statistics._puts.items()},
        "special": {
            (topic, kind): (special.messages, special.size, special.larger)
            for topic, kinds in statistics._special.items()
            for kind, special in kinds.items()
        },
    }


def said_by(answer: Command) -> tuple[Any, ...]:
    """All that an answer says; the order of its fields does not matter."""
    fields = sorted((answer.ext or {}).items())
    head = answer.opaque, answer.code, answer.flag, answer.encoding, answer.language, answer.version
    return *head, fields, answer.remark or "", answer.body


def _by_key(parts: Parts) -> list[tuple[Any, Any]]:
    return [(key, queue) for key, queue in parts.store._queues.by_key.items() if queue.max_offset]


def left_by_each_path(reads: Sequence[bytes], sync_flush: bool = False) -> list[dict[str, Any]]:
    """By the general path and by the fast one."""
    left = []
    for fast in (False, True):
        with patch.object(UniqueIds, "next", side_effect=(f"{number:032X}" for number in count())):
            left.append(asyncio.run(run(reads, fast, sync_flush)))
    return left


def served_fast(parts: Parts) -> list[int]:
    """How many sends the fast path serves from now on: one number that grows."""
    found = [0]

    def note_served(channel: Channel, code: int, response: int, number: int, began: float) -> None:
        found[0] += number

    parts.router.note_served = note_served  # type: ignore[method-assign]
    return found


frames = sends() | sends() | sends() | others | damaged()


@thorough
@given(st.lists(frames, min_size=1, max_size=12), st.lists(st.integers(0), max_size=3))
def test_both_paths_leave_the_same(frames: list[bytes], cuts: list[int]) -> None:
    reads = [plain(9), plain(9), *reads_of(frames, cuts)]
    general, fast = left_by_each_path(reads)
    assert fast == general


@few
@given(
    st.lists(sends() | sends() | others, min_size=1, max_size=8),
    st.lists(st.integers(0), max_size=3),
    st.lists(st.integers(0), max_size=3),
)
def test_both_paths_leave_the_same_when_answers_wait_for_the_disk(
    frames: list[bytes], cuts: list[int], flushes: list[int]
) -> None:
    reads = [plain(9), FLUSH, plain(9), *reads_of(frames, cuts)]
    for place in flushes:
        reads.insert(2 + place % len(reads), FLUSH)
    general, fast = left_by_each_path(reads, sync_flush=True)
    assert fast == general


def batch(number: int, items: Sequence[BatchItem], queue_id: int = 0) -> bytes:
    header = SendMessageHeader("p", "plain", "TBW102", 4, queue_id, 0, 1, 0, encode_properties(PLAIN), batch=True)
    return frame_bytes(Command(RequestCode.SEND_BATCH_MESSAGE, header.encode(), encode_batch(items), opaque=number))


def test_batches_that_fill_files_leave_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """Of the log, of queues and of the index several are filled, in the middle of a batch too, and slots are shared."""
    random = Random(1)
    reads, number = [plain(9), plain(9)], 0
    for _ in range(50):
        frames = []
        for _ in range(random.randrange(1, 4)):
            number += 1
            bodies = [random.randbytes(random.choice([20, 200]))] * random.randrange(1, 30)
            if random.random() < 0.2:
                bodies[-1] += b"longer"
            first = random.choice([number * 100, 0, 0xFFFFFFF0])
            before = random.choice(["", "", "TAGS\x01tag\x02", "KEYS\x01k1\x02"])
            frames.append(batch(number, of_one_program(bodies, first, before=before), random.randrange(2)))
            if random.random() < 0.2:
                frames.append(plain(number))
        reads.append(b"".join(frames))
    general, fast = left_by_each_path(reads)
    assert len(general["log"]) > 2
    assert len(general["index"]) > 2
    assert min(map(len, general["units"].values())) > 300
    assert fast == general
    assert not caplog.records, "the fast path did not fail"


CLIENTS = 2 * MANY


def told_to(number: int, random: Random) -> list[bytes]:
    """What one client writes, as it is read: sends to a queue of its own, some other requests, frames in pieces."""
    frames = [plain(opaque, queue_id=number) for opaque in range(20)]
    frames[5] = frame_bytes(Command(9999, {}, opaque=5))
    frames[9] = plain(9, "unknown", number)
    reads: list[bytes] = []
    for frame in frames:
        cut = random.choice([0, 0, 0, 50])
        reads += [frame[:cut], frame[cut:]] if cut else [frame]
    return reads


async def run_together(many: float) -> tuple[int, list[Any]]:
    """How many were served by the fast path; for each client what it was told, and what its queue holds."""
    random = Random(1)
    parts = Parts(Setup(timer_slots=120))
    parts.put_topic("plain", CLIENTS)
    peers = [parts.peer(("192.0.2.5", 40000 + number)) for number in range(CLIENTS)]
    reads = [told_to(number, random) for number in range(CLIENTS)]
    served = served_fast(parts)
    with patch("rocketline.broker.fastpath.path.MANY_CONNECTIONS", many):
        while any(reads):
            for peer, own in zip(peers, reads):
                for _ in range(random.randrange(3)):
                    if own:
                        peer.channel.data_received(own.pop(0))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    left = []
    for number, peer in enumerate(peers):
        # Where in the log a message came to lie depends on the others.
        told = sorted((answer.opaque, answer.code, answer.remark) for answer in peer.received())
        left.append((told, [message.body for message in parts.messages("plain", number)]))
    parts.close()
    return served[0], left


async def test_reads_that_are_served_together_leave_what_they_leave_one_by_one() -> None:
    together, left = await run_together(1)
    alone, expected = await run_together(inf)
    assert left == expected
    assert [len(bodies) for _, bodies in left] == [18] * CLIENTS
    assert min(together, alone) > CLIENTS, "some begin a read"


def plain(number: int, topic: str = "plain", queue_id: int = 0, wait: str = "true") -> bytes:
    return frame_bytes(plain_command(number, topic, queue_id, wait))


def plain_command(number: int, topic: str = "plain", queue_id: int = 0, wait: str = "true") -> Command:
    header = SendMessageHeader("p", topic, "TBW102", 4, queue_id, 0, 1, 0, encode_properties({**PLAIN, "WAIT": wait}))
    return Command(RequestCode.SEND_MESSAGE_V2, header.encode(), b"%d" % number, opaque=number)


async def test_plain_sends_take_the_fast_path_until_topics_change() -> None:
    parts = Parts(Setup(timer_slots=120))
    parts.put_topic("plain")
    peer, served = parts.peer(), served_fast(parts)
    peer.channel.data_received(plain(0))
    assert served == [0], "the first of a topic makes it known"
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


async def test_large_batches_take_the_fast_path_though_their_records_are_longer_than_their_frames() -> None:
    parts = Parts(Setup(timer_slots=120, log_segment_bytes=4 << 20))
    parts.put_topic("plain")
    peer, served = parts.peer(), served_fast(parts)
    peer.channel.data_received(plain(0))
    for number in range(1, 4):
        peer.channel.data_received(batch(number, of_one_program([b"x" * 128] * 256, number * 1000)))
    assert served == [3]
    assert [answer.code for answer in peer.received()] == [0] * 4
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


async def test_what_was_stored_and_could_not_be_told_is_stored_again_without_holes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve = fast_sends._serve_sends

    def run_out_of_memory(*args: Any) -> None:
        assert serve(*args)
        raise MemoryError

    parts = Parts(Setup(timer_slots=120))
    parts.put_topic("plain")
    peer, served = parts.peer(), served_fast(parts)
    peer.channel.data_received(plain(0))
    with monkeypatch.context() as patched:
        patched.setattr(fast_sends, "_serve_sends", run_out_of_memory)
        peer.channel.data_received(b"".join([plain(1), plain(2, queue_id=1), plain(3), plain(4, queue_id=1)]))
    assert served == [0]
    peer.channel.data_received(b"".join([plain(5), plain(6, queue_id=1)]))
    assert served == [2]
    assert [answer.code for answer in peer.received()] == [0] * 7
    for queue_id, bodies in enumerate(([b"0", b"1", b"3", b"5"], [b"2", b"4", b"6"])):
        found = [(message.queue_offset, message.body) for message in parts.messages("plain", queue_id)]
        assert found == list(enumerate(bodies))
    parts.close()


async def test_a_topic_of_very_many_queues_keeps_no_key_of_each() -> None:
    parts = Parts(Setup(timer_slots=120))
    parts.put_topic("plain", MAX_QUEUES)
    parts.put_topic("vast", 1_000_000_000)
    peer, served = parts.peer(), served_fast(parts)
    for number in range(2):
        peer.channel.data_received(plain(number, "vast", 999_999_999))
        peer.channel.data_received(plain(number))
    assert served == [1], "that of the other topic"
    assert [answer.code for answer in peer.received()] == [0] * 4
    assert len(parts.messages("vast", 999_999_999)) == 2
    parts.close()


async def test_the_fast_path_goes_by_the_limits_of_its_server() -> None:
    parts = Parts(Setup(timer_slots=120, limits=Limits(max_header_bytes=100)))
    parts.put_topic("plain")
    peer, served = parts.peer(), served_fast(parts)
    for number in range(3):
        peer.channel.data_received(plain(number))
    assert served == [0]
    parts.close()


async def test_answers_that_wait_for_the_disk_say_what_became_of_it() -> None:
    parts = Parts(Setup(timer_slots=120, sync_flush=True, sync_timeout_s=0.001))
    parts.put_topic("plain")
    peer = parts.peer()
    first = plain(0)
    peer.channel.data_received(first)
    await peer.next()
    assert isinstance(parts.disk, GatedDisk)
    parts.disk.gate.clear()
    peer.channel.data_received(plain(1))
    assert peer.channel.waiting_count == 1
    peer.channel.data_received(plain(2, wait="false"))
    now = await peer.next()
    assert (now.opaque, now.code) == (2, ResponseCode.SUCCESS), "who does not want to wait does not"
    late = await peer.next()
    assert (late.opaque, late.code) == (1, ResponseCode.FLUSH_DISK_TIMEOUT)
    assert (late.remark, (late.ext or {})["queueOffset"]) == (NOT_IN_TIME, "1")
    parts.disk.gate.set()
    assert peer.channel.waiting_count == 0
    parts.close()


async def test_a_flush_that_fails_is_told_to_those_who_wait() -> None:
    parts = Parts(Setup(timer_slots=120, sync_flush=True))
    parts.put_topic("plain")
    peer = parts.peer()
    peer.channel.data_received(plain(0))
    await peer.next()
    parts.disk.fail("sync", errno.EIO)
    peer.channel.data_received(b"".join([plain(1), plain(2)]))
    answers = [await peer.next(), await peer.next()]
    assert {answer.opaque: answer.code for answer in answers} == dict.fromkeys(
        (1, 2), ResponseCode.SERVICE_NOT_AVAILABLE
    )
    assert all(answer.remark and not answer.ext for answer in answers)
    parts.close()


async def test_with_very_many_waiting_the_general_path_counts_them() -> None:
    parts = Parts(Setup(timer_slots=120, sync_flush=True))
    parts.put_topic("plain")
    peer = parts.peer()
    peer.channel.data_received(plain(0))
    with patch("rocketline.broker.fastpath.late_answers.MAX_WAITING", 0):
        peer.channel.data_received(plain(1))
        assert peer.channel.fast.late_answers == 0  # type: ignore[union-attr]
        assert peer.channel.waiting_count == 2
    peer.channel.data_received(plain(2))
    assert peer.channel.fast.late_answers == 1  # type: ignore[union-attr]
    assert [(await peer.next()).code for _ in range(3)] == [0, 0, 0]
    parts.close()
