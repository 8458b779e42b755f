"""The fast path of pulls answers as the general path does, and leaves a broker as it does, whatever is asked."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.compiled import needs_compiled, thorough
from tests.unit.broker.parts import Parts, Peer, Setup, heartbeat, pull_request, send_request

from rocketline.broker.fastpath import pulls as fast_pulls
from rocketline.broker.fastpath.held_pull import HeldPull
from rocketline.broker.fastpath.pulls import FastPulls
from rocketline.protocol.bodies import SubscriptionGroupConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import JSON, ONEWAY, RESPONSE, ROCKETMQ, Command
from rocketline.protocol.connection import frame_bytes
from rocketline.protocol.records import Buffer, decode_messages
from rocketline.transport import Channel, Limits, Router
from rocketline.transport.timed_router import TimedRouter

pytestmark = needs_compiled

TOPICS = ("orders", "others")
GROUPS = ("readers", "strangers")
TAGS = ("a", "b", "")
ENDS = (129, 22, 15)
"""Of the queues of `orders`, and of one of the others."""
END = ENDS[0]
EXPRESSIONS = [("*", None), ("*", "TAG"), ("a", "TAG"), ("a||b", None), ("c", None), ("x = 1", "SQL92"), ("||", None)]


def filled(setup: Setup) -> Parts:
    """Messages with tags and without, of two topics and two queues, in turn; then some of one queue that are alike."""
    parts = Parts(setup)
    for topic in TOPICS:
        parts.put_topic(topic, 2)
    sends = []
    for number in range(130):
        properties = {"UNIQ_KEY": f"{number:032X}", "x": str(number % 3)}
        if tag := TAGS[number % 3]:
            properties["TAGS"] = tag
        body = b"%d" % number * (1 + number % 40)
        sends.append(send_request(TOPICS[number % 7 == 0], body, queue_id=int(number % 5 == 0), properties=properties))
    for number in range(40):  # neighbours that are alike
        sends.append(send_request("orders", b"%03d" % number * 9, properties={"UNIQ_KEY": f"{number:032X}"}))
    peer = parts.peer()
    peer.send(*sends)
    peer.send(heartbeat(subscriptions={"orders": "a", "others": "*"}))
    parts.dispatch()
    return parts


@st.composite
def pulls(draw: st.DrawFn) -> Command:
    expression, kind = draw(st.sampled_from(EXPRESSIONS))
    request = pull_request(
        draw(st.sampled_from([*TOPICS, "orders", "orders", "unknown"])),
        draw(st.sampled_from([*GROUPS, "readers"])),
        code=draw(st.sampled_from([RequestCode.PULL_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])),
        queue_id=draw(st.sampled_from([0, 0, 0, 1, 2, -1])),
        queue_offset=draw(st.sampled_from([0, 0, 1, 30, END, *ENDS, END + 1, 90, 100, 300, -1])),
        max_messages=draw(st.sampled_from([32, 32, 32, 1, 5, 0, -3, 50])),
        sys_flag=draw(st.sampled_from([4, 4, 4, 5, 6, 7, 0, 1, 2, 3, 12])),
        commit_offset=draw(st.sampled_from([0, 5, 7, -1])),
        sub_version=draw(st.sampled_from([0, 0, 1, 9])),
        subscription=expression,
        expression_type=kind,
        max_bytes=draw(st.sampled_from([None, None, 0x7FFFFFFF, 700, 1, -1])),
        bulk=draw(st.sampled_from([False, False, True])),
    )
    request.opaque = draw(st.integers(0, 9))
    request.flag = draw(st.sampled_from([0, 0, 0, 0, 0, ONEWAY]))
    request.encoding = draw(st.sampled_from([JSON, JSON, ROCKETMQ]))
    return request


@st.composite
def odd(draw: st.DrawFn) -> bytes:
    """A pull that is not written as clients do, and may be none."""
    frame = bytearray(frame_bytes(draw(pulls())))
    place = draw(st.integers(8, len(frame) - 1))
    if draw(st.booleans()):
        frame[place] ^= draw(st.integers(1, 255))
        return bytes(frame)
    text = bytes(frame[8:])
    before, after = draw(
        st.sampled_from(
            [
                (b":", b" : "),
                (b'"queueOffset":"', b'"queueOffset":"7","queueOffset":"'),
                (b'"queueOffset":"', b'"queueOffset":"0'),
                (b'"queueOffset":"', b'"queueOffset":"+'),
                (b'"extFields":{', b'"queueOffset":"1","extFields":{'),
                (b'"extFields":{', b'"extFields":{"x":"\\"queueOffset\\":\\"1",'),
                (b'"extFields":{', b'"extFields":{},"extFields":{'),
                (b'"opaque":', b'"opaque":1,"opaque":'),
                (b'"opaque":', b'"opaque":-'),
                (b'"opaque":', b'"opaque":"1","x":'),
                (b'"opaque":', b'"opaque":99999999999'),
                (b'"commitOffset"', b'"commitOffseT"'),
                (b'"', b"'"),
            ]
        )
    )
    text = text.replace(before, after)
    return struct.pack(">II", 4 + len(text), frame[4] << 24 | len(text)) + text


Event = Callable[[Parts], None]


def _damage(parts: Parts) -> None:
    """Bytes of bodies in the middle of the log go wrong."""
    for number in (32, 110):
        unit = parts.store.unit_at("orders", 0, number)
        segment = parts.store._log.file.segment_at(unit.log_offset) if unit else None
        if unit and segment:
            segment.open()[unit.log_offset - segment.base + 88] ^= 1


def _misplace(parts: Parts) -> None:
    """Units no longer point at their records."""
    queue = parts.store._queues.get("orders", 0)
    for number in (31, 111):
        unit = queue.unit(number) if queue else None
        if queue and unit:
            queue.replace(number, unit[0] + 1, *unit[1:])


def _arrive(parts: Parts) -> None:
    parts.peer().send(send_request(queue_id=0))
    parts.dispatch()


EVENTS: dict[str, Event] = {
    "nothing": lambda parts: None,
    "topic": lambda parts: parts.put_topic("orders", 2, perm=2),
    "group": lambda parts: parts.groups.put(SubscriptionGroupConfig(group_name="readers", consume_enable=False)),
    "barred": lambda parts: parts.groups.allow("readers", "orders", readable=False),
    "reset": lambda parts: parts.offsets.reset("readers", "orders", 0, 3),
    "subscription": lambda parts: parts.peer().send(heartbeat(subscriptions={"orders": "b"}, version_ms=5)),
    "broadcast": lambda parts: parts.peer().send(heartbeat(model="BROADCASTING")),
    "arrival": _arrive,
    "damage": _damage,
    "misplaced": _misplace,
    "deleted": lambda parts: parts.store.delete_topic("orders"),
    "no more": lambda parts: parts.waiters.answer_queue("orders", 0),
    "full": lambda parts: setattr(parts.waiters, "_max_held", 2),
}
LOST = "lost"
"""The connection ends, and the next begins."""


async def run(setup: Setup, memory_bytes: int, steps: Sequence[bytes | str], fast: bool) -> dict[str, Any]:
    parts = filled(setup)
    parts.store._reader._memory_bytes = memory_bytes
    try:
        router = TimedRouter(parts.clock.monotonic)
        router.take(parts.router)
        assert parts.router.fast_path is not None
        router.fast_path = parts.router.fast_path if fast else None
        peer, answers = Peer(router), []
        for step in [*steps, *steps]:
            if step == LOST:
                await peer.close()
                answers.append(bytes(peer.transport.written))
                peer = Peer(router)
            elif isinstance(step, str):
                EVENTS[step](parts)
            elif peer.channel.is_open:
                peer.channel.data_received(step)
            await asyncio.sleep(0)  # held pulls of the general path are answered in the next turn of the loop
            answers.append(peer.channel.waiting_count.to_bytes(2))
        held = len(parts.waiters)
        parts.waiters.answer_all()
        await asyncio.sleep(0)
        return _left_by(parts, router, peer) | {"held": held, "before": answers}
    finally:
        parts.close()
        await asyncio.sleep(0)


def _left_by(parts: Parts, router: TimedRouter, peer: Peer) -> dict[str, Any]:
    offsets, statistics = parts.offsets, parts.statistics
    return {
        "answers": bytes(peer.transport.written),
        "open": peer.channel.is_open,
        "committed": sorted(offsets.items()),
        "pulled": {key: dict(queues) for key, queues in offsets._pulled.items()},
        "resets": dict(offsets._resets),
        "groups": sorted(parts.groups.table),
        "got": {key: (t.messages, t.size, t.times) for key, t in statistics._gets.items()},
        "totals": statistics.totals(),
        "times": dict(router.times()),
        "damage": (parts.store.damage.records, parts.store.damage.units),
    }


reads = st.lists(pulls().map(frame_bytes) | pulls().map(frame_bytes) | odd(), min_size=1, max_size=4).map(b"".join)


@thorough
@given(
    st.lists(reads | reads | st.sampled_from(["arrival", LOST, *sorted(EVENTS)]), min_size=1, max_size=6),
    st.sampled_from([1 << 30, 4000]),
)
def test_both_paths_are_the_same(steps: list[bytes | str], memory_bytes: int) -> None:
    left = [
        asyncio.run(run(Setup(timer_slots=120, log_segment_bytes=24 << 10), memory_bytes, steps, fast))
        for fast in (True, False)
    ]
    assert left[0] == left[1]


@pytest.mark.parametrize("event", ["nothing", "damage", "misplaced", "arrival", "deleted"])
@pytest.mark.parametrize("memory_bytes", [1 << 30, 4000])
def test_so_are_they_for_neighbours_that_are_alike(event: str, memory_bytes: int) -> None:
    reads = [
        frame_bytes(pull_request(queue_offset=offset, max_messages=most, max_bytes=size, sys_flag=6))
        for offset, most, size in ((89, 32, None), (90, 32, None), (100, 10, None), (110, 32, 3000), (120, 32, None))
    ]
    left = [
        asyncio.run(run(Setup(timer_slots=120), memory_bytes, [*reads, event, b"".join(reads)], fast))
        for fast in (True, False)
    ]
    assert left[0] == left[1]
    assert left[0]["damage"] == {"damage": (1, 0), "misplaced": (0, 2)}.get(event, (0, 0)), "events come twice"


class Watched(Router):
    """Tells what took the fast path."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.take(parts.router)
        self.fast_path = parts.router.fast_path
        self.quickly: list[tuple[int, int]] = []

    def note_served(self, channel: Channel, code: int, response: int, count: int, began: float) -> None:
        self.quickly += [(code, response)] * count


def held_fast(parts: Parts) -> int:
    return sum(isinstance(waiter, HeldPull) for waiters in parts.waiters._held.values() for waiter in waiters)


def plans_of(router: Router) -> dict[Any, Any]:
    return router.fast_path._pulls._plans  # type: ignore[union-attr, attr-defined, no-any-return]


def asked(peer: Peer, *requests: Command) -> list[Command]:
    peer.send(*requests)
    return peer.received()


async def test_a_pull_is_learnt_once_and_served_quickly_from_then_on() -> None:
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer = Peer(router)
    for number, offset in enumerate((0, 7, 50)):
        (answer,) = asked(peer, pull_request(queue_offset=offset, commit_offset=offset, sys_flag=5))
        assert answer.code == ResponseCode.SUCCESS
        assert decode_messages(answer.body)[0].queue_offset == offset
        assert len(router.quickly) == number, "all but the first"
        assert parts.offsets.get("readers", "orders", 0) == offset
    asked(peer, *[pull_request(queue_offset=offset, sys_flag=5) for offset in (1, 2, 300, 3)])
    assert len(router.quickly) == 4, "up to the one that cannot be served, and what follows goes its way"
    parts.close()


async def test_a_pull_at_the_end_of_its_queue_is_held_and_answered_with_what_arrives() -> None:
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer, other = Peer(router), Peer(router)
    (end, *_), held = ENDS, {"sys_flag": 7, "suspend_ms": 1000}
    for offset in (0, 1):
        asked(peer, pull_request(queue_offset=offset, sys_flag=7, suspend_ms=1000))
    peer.send(*[pull_request(queue_offset=end, commit_offset=end, **held) for _ in range(2)])
    for _ in range(2):
        other.send(pull_request(queue_offset=end, commit_offset=end, subscription="c", **held))
    assert [peer.received(), peer.channel.waiting_count, len(parts.waiters), held_fast(parts)] == [[], 2, 4, 3]
    assert parts.offsets.get("readers", "orders", 0) == end, "committed when it came"
    before = peer.transport.writes
    _arrive(parts)
    answers = peer.received()
    assert [decode_messages(answer.body)[0].queue_offset for answer in answers] == [end, end]
    assert (peer.transport.writes - before, peer.channel.waiting_count) == (1, 0), "answers leave together, at once"
    assert [other.channel.waiting_count, len(parts.waiters)] == [2, 2], "those wait for another"
    await other.close()
    assert len(parts.waiters) == 0
    parts.close()


async def test_a_held_pull_that_cannot_be_answered_leaves_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer, other = Peer(router), Peer(router)
    asked(peer, pull_request(sys_flag=7))
    for each in (peer, other):
        each.send(pull_request(queue_offset=END, commit_offset=END, sys_flag=7))
    answer = FastPulls.answer

    def break_for_one(pulls: FastPulls, held: HeldPull) -> tuple[int, str, list[Buffer]]:
        if held.channel is peer.channel:
            raise ArithmeticError("as the test wants it")
        return answer(pulls, held)

    monkeypatch.setattr(FastPulls, "answer", break_for_one)
    _arrive(parts)
    assert [len(each.received()) for each in (peer, other)] == [0, 1]
    assert (len(parts.waiters), peer.channel.waiting_count) == (0, 0)
    parts.close()


async def test_a_held_pull_whose_time_is_up_is_told_that_there_is_nothing() -> None:
    parts = filled(Setup(timer_slots=120))
    peer = Peer(Watched(parts))
    for offset in (0, ENDS[0]):
        peer.send(pull_request(queue_offset=offset, sys_flag=7, suspend_ms=20))
    peer.received()
    answer = await peer.next()
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, str(ENDS[0]))
    assert (len(parts.waiters), peer.channel.waiting_count) == (0, 0)
    parts.close()


async def test_more_than_may_wait_on_a_connection_are_refused() -> None:
    parts = filled(Setup(timer_slots=120))
    peer = Peer(Watched(parts), limits=Limits(max_waiting=2))
    peer.send(pull_request(sys_flag=7))
    peer.received()
    peer.send(*[pull_request(queue_offset=ENDS[0], sys_flag=7) for _ in range(3)])
    assert [answer.code for answer in peer.received()] == [ResponseCode.SYSTEM_BUSY]
    await asyncio.sleep(0)
    assert len(parts.waiters) == 2
    parts.close()


async def test_nothing_matched_is_an_answer_too() -> None:
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer = Peer(router)
    answers = [asked(peer, pull_request(subscription="c"))[0] for _ in range(2)]
    assert router.quickly == [(RequestCode.PULL_MESSAGE, ResponseCode.PULL_RETRY_IMMEDIATELY)]
    assert [(answer.code, answer.remark, answer.ext) for answer in answers[:1] * 2] == [
        (answer.code, answer.remark, answer.ext) for answer in answers
    ]
    assert parts.statistics.missed == 2
    parts.close()


async def test_so_is_the_end_of_a_queue_for_those_who_do_not_wait() -> None:
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer = Peer(router)
    answers = [asked(peer, pull_request(queue_offset=END, sys_flag=5, commit_offset=END))[0] for _ in range(2)]
    assert router.quickly == [(RequestCode.PULL_MESSAGE, ResponseCode.PULL_NOT_FOUND)]
    assert answers[0].remark == "OFFSET_OVERFLOW_ONE"
    assert [(answer.code, answer.remark, answer.ext) for answer in answers[:1] * 2] == [
        (answer.code, answer.remark, answer.ext) for answer in answers
    ]
    assert (parts.statistics.missed, parts.offsets.get("readers", "orders", 0)) == (2, END)
    assert asked(peer, pull_request(queue_offset=END, sys_flag=7), pull_request(queue_offset=END, sys_flag=7)) == []
    assert len(parts.waiters) == 2, "those are held"
    parts.close()


async def test_where_no_pull_is_plain_the_fast_path_looks_now_and_then() -> None:
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer = Peer(router)
    for _ in range(8):
        asked(peer, pull_request(subscription="x = 1", expression_type="SQL92"))
    assert router.quickly == []
    for number in range(9):
        assert len(asked(peer, pull_request(queue_offset=number, sys_flag=6))) == 1
    assert 1 < len(router.quickly) < 9
    before = len(router.quickly)
    for number in range(3):
        asked(peer, pull_request(queue_offset=number, sys_flag=6))
    assert len(router.quickly) == before + 3, "once one was served, every one is looked at again"
    parts.close()


async def test_a_change_of_tables_or_of_the_subscription_ends_plans() -> None:
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer = Peer(router)

    def by_heartbeat() -> Command:
        return pull_request(sys_flag=0, sub_version=1, subscription=None)

    for _ in range(2):
        (answer,) = asked(peer, by_heartbeat())
    assert len(router.quickly) == 1
    assert {message.tag for message in decode_messages(answer.body)} == {"a"}
    parts.peer().send(heartbeat(subscriptions={"orders": "b"}, version_ms=5))
    for _ in range(3):  # forgotten, learnt, used
        (answer,) = asked(peer, by_heartbeat())
        assert {message.tag for message in decode_messages(answer.body)} == {"b"}
    assert len(router.quickly) == 2
    parts.groups.allow("readers", "orders", readable=False)
    assert asked(peer, by_heartbeat())[0].code == ResponseCode.NO_PERMISSION
    parts.put_topic("orders", 2, perm=2)
    assert asked(peer, by_heartbeat())[0].code == ResponseCode.NO_PERMISSION
    assert len(router.quickly) == 2
    parts.close()


async def test_a_read_of_very_many_pulls_looks_whether_the_peer_still_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer = Peer(router)
    asked(peer, pull_request())
    monkeypatch.setattr(fast_pulls, "MAX_JOINED_BYTES", 10_000)
    requests = [pull_request() for _ in range(8)]
    answers = asked(peer, *requests)
    assert [answer.opaque for answer in answers] == [request.opaque for request in requests]
    assert 1 < len(router.quickly) < 8
    parts.close()


async def test_units_with_addresses_instead_of_codes_take_the_general_path() -> None:
    parts = filled(Setup(timer_slots=120, ext_queues=True))
    router = Watched(parts)
    peer = Peer(router)
    for _ in range(2):
        (answer,) = asked(peer, pull_request(subscription="a"))
        assert {message.tag for message in decode_messages(answer.body)} == {"a"}
    assert not router.quickly
    parts.close()


async def test_a_request_that_is_no_pull_but_has_its_fields_goes_its_own_way() -> None:
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer = Peer(router)
    notice = pull_request(group="nobody")
    notice.flag = RESPONSE
    asked(peer, pull_request())
    for _ in range(3):
        asked(peer, pull_request(), notice)
        answers = asked(peer, pull_request(), pull_request(code=9999))
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED]
    assert {code for code, _ in router.quickly} == {RequestCode.PULL_MESSAGE}
    assert "nobody" not in parts.groups.table
    parts.close()


async def test_no_plan_is_made_for_a_very_long_request() -> None:
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer = Peer(router)
    for number in range(3):
        request = pull_request(queue_offset=number)
        request.ext = {**(request.ext or {}), "ignored": "x" * fast_pulls.MAX_PLANNED_BYTES}
        assert asked(peer, request)[0].code == ResponseCode.SUCCESS
    assert not plans_of(router)
    parts.close()


async def test_a_check_that_breaks_costs_nobody_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = filled(Setup(timer_slots=120))
    peer = Peer(Watched(parts))
    asked(peer, pull_request())

    def break_off(name: str) -> SubscriptionGroupConfig:
        raise ArithmeticError("as the test wants it")

    monkeypatch.setattr(parts.groups, "require_readable", break_off)
    answers = asked(peer, pull_request(), pull_request(max_messages=7))
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR]
    parts.close()


async def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_pulls, "MAX_PLANS", 3)
    parts = filled(Setup(timer_slots=120))
    router = Watched(parts)
    peer = Peer(router)
    for number in range(1, 9):
        asked(peer, pull_request(max_messages=number))
        asked(peer, pull_request(max_messages=number))
    assert len(router.quickly) == 8
    assert len(plans_of(router)) <= 3
    parts.close()


async def test_groups_that_may_be_sent_to_slaves_take_the_general_path() -> None:
    parts = filled(Setup(timer_slots=120, slave_read=True))
    assert parts.router.fast_path._pulls is None  # type: ignore[union-attr, attr-defined]
    parts.close()
