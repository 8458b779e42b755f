"""Asking about open transactions on a virtual clock: when, whom, how often, and what restarts and crashes leave."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.golden.wire.load import frames
from tests.unit.broker.parts import STORE_HOST, MakeParts, Parts
from tests.unit.broker.rights import accounts_of, grant
from tests.unit.broker.transacting import (
    COMMIT,
    GIVEN_UP,
    HALF,
    OP,
    ROLLBACK,
    UNKNOWN,
    Payer,
    bodies,
    check_after,
    saved_offsets,
)
from tests.unit.store.test_golden_store import CONFIG, Golden

from rocketline.auth.model import Action
from rocketline.broker import Broker
from rocketline.broker.config import BrokerConfig, TransactionConfig
from rocketline.broker.transactions import checker
from rocketline.broker.transactions.ops import OpReader
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.connection import Connection
from rocketline.protocol.message_ids import offset_id
from rocketline.protocol.records import decode_message
from rocketline.store.config import TimerConfig
from rocketline.testing.disks import FaultyDisk, MemoryDisk

HOUR = 3600.0
APACHE_OFFSETS = """{
\t"offsetTable":{
\t\t"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{
\t\t\t0:2
\t\t},
\t\t"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{
\t\t\t0:16
\t\t}
\t}
}"""
"""What that broker had in its offset table, as it wrote it."""


async def test_a_young_message_is_not_asked_about(parts: Parts) -> None:
    payer = Payer(parts)
    payer.half("U1")
    await check_after(parts, 6)
    assert payer.questions() == []
    await check_after(parts, 0.001)
    assert len(payer.questions()) == 1


async def test_the_time_of_the_producer_counts_from_the_moment_it_is_reached(parts: Parts) -> None:
    payer = Payer(parts)
    parts.clock.advance(10)
    request = payer.half_request("U1")
    parts.clock.advance(-10)
    assert payer.peer.ask(request).code == ResponseCode.SUCCESS
    parts.dispatch()
    await check_after(parts, 10)
    assert payer.questions() == []
    await check_after(parts, 6.001)
    assert len(payer.questions()) == 1


async def test_only_who_may_publish_to_its_topic_is_shown_a_message(make_parts: MakeParts) -> None:
    """Any account can say in a heartbeat that it is a producer of the group."""
    accounts = accounts_of("payer", "listener", "gone")
    for name in ("payer", "gone"):
        grant(accounts, name, "orders", Action.PUB, Action.CREATE)
    parts = make_parts(accounts=accounts)
    payer, listener = Payer(parts, account="payer"), Payer(parts, client_id="client-2", account="listener")
    gone = Payer(parts, client_id="client-3", account="gone")
    accounts.delete_user("gone", lambda user: None)
    payer.half("U1")
    for _ in range(6):
        await check_after(parts, 60)
    assert (len(payer.questions()), listener.questions(), gone.questions()) == (6, [], [])
    grant(accounts, "payer", "orders", Action.SUB)
    await check_after(parts, 60)
    assert (payer.questions(), listener.questions()) == ([], [])
    assert parts.half_messages.counts.unanswerable == 1


async def test_the_question_is_apaches(parts: Parts) -> None:
    """Field by field what Apache 5.4.0 asks (the recording of its broker has the same names and values)."""
    parts.put_topic("orders", queue_count=4)
    payer = Payer(parts)
    half = payer.half("U1", b"pay", queue_id=2)
    stored_ms = parts.clock.now_ms()
    await check_after(parts, 7)
    [question] = payer.questions()
    again = parts.messages(HALF)[1]
    assert question.header.encode() == {
        "tranStateTableOffset": "1",
        "commitLogOffset": str(again.log_offset),
        "topic": HALF,
        "msgId": "U1",
        "transactionId": "U1",
        "offsetMsgId": offset_id(STORE_HOST, again.log_offset),
        "bname": "broker-a",
    }
    shown = question.message
    assert (shown.topic, shown.queue_id, shown.queue_offset, shown.log_offset) == ("orders", 2, 1, again.log_offset)
    assert (shown.body, shown.flag, shown.sys_flag, shown.store_ms) == (b"pay", 3, 0, stored_ms)
    assert shown.properties == {**again.properties, "WAIT": "false"}
    assert again.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert (again.properties["REAL_TOPIC"], again.properties["REAL_QID"]) == ("orders", "2")
    assert (again.born_ms, again.flag) == (stored_ms, 3)
    assert half.queue_offset == 0


def test_the_recorded_question_has_the_names_that_ours_has() -> None:
    recorded = [frame for frame in frames() if frame.request == RequestCode.CHECK_TRANSACTION_STATE]
    assert recorded
    for frame in recorded:
        [command] = Connection().receive(frame.data)
        names = {"tranStateTableOffset", "commitLogOffset", "topic", "msgId", "transactionId", "offsetMsgId", "bname"}
        assert command.ext.keys() == names
        message = decode_message(command.body, 0, len(command.body))
        assert message.properties["WAIT"] == "false"
        assert message.properties["REAL_TOPIC"] == message.topic
        assert command.ext["topic"] == HALF


@pytest.mark.parametrize(("outcome", "seen"), [(COMMIT, [b"pay"]), (ROLLBACK, [])])
async def test_the_answer_ends_the_transaction(parts: Parts, outcome: int, seen: list[bytes]) -> None:
    payer = Payer(parts)
    payer.half("U1")
    await check_after(parts, 7)
    [question] = payer.questions()
    payer.tell(question.half, outcome, from_check=True, topic=HALF)
    assert bodies(parts) == seen
    parts.half_messages.ops.write()
    assert bodies(parts, OP) == [b"1,"]
    for _ in range(3):
        await check_after(parts, 30)
    assert payer.questions() == []
    assert parts.store.max_offset(HALF, 0) == 2


async def test_fifteen_questions_then_it_is_put_aside(parts: Parts) -> None:
    payer = Payer(parts)
    payer.half("U1", b"nobody knows")
    for times in range(1, 16):
        await check_after(parts, 30)
        [question] = payer.questions()
        assert question.message.properties["TRANSACTION_CHECK_TIMES"] == str(times)
        payer.tell(question.half, UNKNOWN, from_check=True)
    assert parts.topics.get(GIVEN_UP) is None
    await check_after(parts, 30)
    assert payer.questions() == []
    [aside] = parts.messages(GIVEN_UP)
    assert (aside.body, aside.flag, aside.queue_id) == (b"nobody knows", 3, 0)
    assert aside.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert aside.properties["REAL_TOPIC"] == "orders"
    assert bodies(parts) == []
    for _ in range(20):
        await check_after(parts, HOUR)
    assert payer.questions() == []
    assert len(parts.messages(GIVEN_UP)) == 1
    assert (parts.half_messages.counts.checked, parts.half_messages.counts.given_up) == (15, 1)


async def test_over_virtual_hours_every_open_transaction_comes_to_an_end(parts: Parts) -> None:
    """A group whose producers come back after a while, one that never does, and one that always knows."""
    knowing, absent = Payer(parts), Payer(parts, "absent", "client-2")
    await absent.peer.close()
    for number in range(40):
        knowing.half(f"K{number}", b"known %d" % number)
        silent = Payer(parts, "silent", "client-3")
        silent.half(f"S{number}", b"silent")
        await silent.peer.close()
    for _ in range(3 * 120):
        await check_after(parts, 30)
        for question in knowing.questions():
            odd = int(question.message.message_id[1:]) % 2
            knowing.tell(question.half, COMMIT if odd else ROLLBACK, from_check=True)
        parts.half_messages.ops.write()
    counts = parts.half_messages.counts
    assert (counts.prepared, counts.committed, counts.rolled_back, counts.given_up) == (80, 20, 20, 40)
    assert counts.unanswerable == 40 * 15
    assert parts.store.max_offset("orders", 0) == 20
    parts.store.flush_now()
    parts.checker.publish()
    assert saved_offsets(parts) == (parts.store.max_offset(HALF, 0), parts.store.max_offset(OP, 0))


async def test_what_is_older_than_the_log_keeps_is_put_aside_at_once(parts: Parts) -> None:
    payer = Payer(parts)
    payer.half("U1")
    await check_after(parts, 72 * HOUR + 1)
    assert payer.questions() == []
    assert bodies(parts, GIVEN_UP) == [b"pay"]


async def test_a_clock_ahead_of_ours_does_not_make_a_message_old(parts: Parts) -> None:
    payer = Payer(parts)
    parts.clock.jump_wall(3600)
    request = payer.half_request("U1")
    parts.clock.jump_wall(-3600)
    payer.peer.ask(request)
    await check_after(parts, 5)
    assert payer.questions() == []
    await check_after(parts, 2)
    assert len(payer.questions()) == 1


async def test_producers_of_the_group_are_asked_in_turn(parts: Parts) -> None:
    payers = [Payer(parts, client_id=f"client-{number}") for number in range(3)]
    other = Payer(parts, "others", "client-9")
    for number in range(9):
        payers[0].half(f"U{number}")
    await payers[1].peer.close()
    await check_after(parts, 7)
    asked = [len(payer.questions()) for payer in (payers[0], payers[2], other)]
    assert sum(asked) == 9
    assert min(asked[:2]) >= 4
    assert asked[2] == 0


async def test_without_a_producer_the_question_counts_all_the_same(parts: Parts) -> None:
    payer = Payer(parts)
    payer.half("U1")
    await payer.peer.close()
    await check_after(parts, 7)
    assert parts.half_messages.counts.unanswerable == 1
    back = Payer(parts)
    await check_after(parts, 30)
    [question] = back.questions()
    assert question.message.properties["TRANSACTION_CHECK_TIMES"] == "2"


async def test_own_time_keeps_questions_away_and_holds_nobody_up(parts: Parts) -> None:
    payer = Payer(parts)
    payer.half("slow", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    payer.half("quick")
    await check_after(parts, 7)
    assert [question.message.message_id for question in payer.questions()] == ["quick"]
    for _ in range(119):
        await check_after(parts, 30)
        assert "slow" not in [question.message.message_id for question in payer.questions()]
    await check_after(parts, 30)
    [question] = payer.questions()
    assert question.message.message_id == "slow"
    # Waiting was not asking: Apache counts it, and gives such a message up before it ever asked.
    assert question.message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert question.message.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"


async def test_an_end_by_the_old_place_is_an_end(parts: Parts) -> None:
    """The local transaction took longer than the broker waits: it knows only where the message was first."""
    payer = Payer(parts)
    half = payer.half("U1")
    for _ in range(3):
        await check_after(parts, 30)
    assert len(payer.questions()) == 3
    assert payer.end(half, COMMIT).code == ResponseCode.SUCCESS
    for _ in range(3):
        await check_after(parts, 30)
    assert payer.questions() == []
    assert bodies(parts) == [b"pay"]
    parts.half_messages.ops.write()
    assert bodies(parts, OP) == [b"3,"]


async def test_slow_answers_to_two_questions_commit_once(parts: Parts) -> None:
    payer = Payer(parts)
    payer.half("U1")
    await check_after(parts, 30)
    await check_after(parts, 30)
    first, second = payer.questions()
    payer.tell(first.half, COMMIT, from_check=True)
    payer.tell(second.half, COMMIT, from_check=True)
    assert bodies(parts) == [b"pay"]
    assert parts.half_messages.counts.repeated == 1


async def test_an_end_within_its_own_time_by_the_old_place(parts: Parts) -> None:
    payer = Payer(parts)
    half = payer.half("U1", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    await check_after(parts, 30)
    await check_after(parts, 30)
    assert payer.end(half, COMMIT).code == ResponseCode.SUCCESS
    for _ in range(4):
        await check_after(parts, 30)
    assert payer.questions() == []
    assert bodies(parts) == [b"pay"]


async def test_what_was_ended_and_not_noted_yet_is_not_asked_about(parts: Parts) -> None:
    payer = Payer(parts)
    half = payer.half("U1")
    parts.clock.advance(5.9)
    payer.end(half, COMMIT)
    await check_after(parts, 1)
    assert payer.questions() == []
    assert parts.store.max_offset(OP, 0) == 0


async def test_a_store_without_room_puts_the_round_off(parts: Parts) -> None:
    payer = Payer(parts)
    payer.half("U1")
    parts.store._note_room("no room, as the test wants it")
    await check_after(parts, 7)
    assert payer.questions() == []
    parts.store._note_room("")
    await check_after(parts, 30)
    [question] = payer.questions()
    assert question.message.properties["TRANSACTION_CHECK_TIMES"] == "1"


async def test_a_round_lets_others_have_their_turn_and_ends_in_time(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "A_TURN", 4)
    payer = Payer(parts)
    for number in range(12):
        payer.half(f"U{number}")
    parts.clock.advance(7)

    async def time_flies() -> None:
        parts.clock.advance(61)

    other = asyncio.create_task(time_flies())
    await parts.checker.check()
    await other
    assert len(payer.questions()) == 4
    await parts.checker.check()
    assert len(payer.questions()) == 8


async def test_offsets_count_when_what_they_speak_of_is_on_disk(make_parts: MakeParts) -> None:
    disk = FaultyDisk(MemoryDisk())
    parts = make_parts(disk=disk)
    payer = Payer(parts)
    payer.half("U1")
    parts.store.flush_now()
    await check_after(parts, 7)
    parts.checker.publish()
    assert saved_offsets(parts) == (None, None)
    parts.store.flush_now()
    parts.checker.publish()
    assert saved_offsets(parts) == (1, 0)


async def test_a_power_cut_after_a_question_loses_no_transaction(make_parts: MakeParts) -> None:
    inner = MemoryDisk()
    before = make_parts(disk=FaultyDisk(inner))
    payer = Payer(before)
    payer.half("U1", b"must not be lost")
    before.store.flush_now()
    await check_after(before, 7)
    before.checker.publish()
    if (data := before.offsets.take_changes()) is not None:
        before.offsets.write(data)
    after = make_parts(disk=FaultyDisk(inner.crash()), clock=before.clock)
    again = Payer(after)
    await check_after(after, 30)
    [question] = again.questions()
    again.tell(question.half, COMMIT, from_check=True)
    assert bodies(after) == [b"must not be lost"]


def stop(parts: Parts) -> None:
    """A clean stop, in the order of a broker."""
    parts.half_messages.ops.write()
    parts.store.flush_now()
    parts.checker.publish()
    if (data := parts.offsets.take_changes()) is not None:
        parts.offsets.write(data)
    parts.close()


async def test_a_restart_goes_on_where_it_was(make_parts: MakeParts) -> None:
    before = make_parts()
    payer = Payer(before)
    payer.end(payer.half("U0", b"done"), COMMIT)
    payer.half("U1", b"open")
    payer.end(payer.half("U2", b"done too"), ROLLBACK)
    await check_after(before, 30)
    stop(before)
    parts = make_parts(disk=before.disk, clock=before.clock)
    assert saved_offsets(parts) == (3, 0)
    again = Payer(parts)
    await check_after(parts, 30)
    [question] = again.questions()
    assert (question.message.body, question.message.properties["TRANSACTION_CHECK_TIMES"]) == (b"open", "2")
    again.tell(question.half, COMMIT, from_check=True)
    assert bodies(parts) == [b"done", b"open"]


async def test_a_stop_between_half_and_commit_leaves_it_to_a_question(make_parts: MakeParts) -> None:
    before = make_parts()
    half = Payer(before).half("U1")
    stop(before)
    parts = make_parts(disk=before.disk, clock=before.clock)
    payer = Payer(parts)
    assert bodies(parts) == []
    await check_after(parts, 7)
    [question] = payer.questions()
    assert payer.end(half, COMMIT).code == ResponseCode.SUCCESS
    payer.tell(question.half, COMMIT, from_check=True)
    assert bodies(parts) == [b"pay"]


async def test_a_crash_between_commit_and_note_commits_once(make_parts: MakeParts) -> None:
    """The note is gone; the log has the real message, and the key index knows it."""
    before = make_parts()
    payer = Payer(before)
    half = payer.half("U1")
    payer.end(half, COMMIT)
    before.close()
    parts = make_parts(disk=before.disk, clock=before.clock)
    again = Payer(parts)
    assert again.end(half, COMMIT).code == ResponseCode.SUCCESS
    await check_after(parts, 30)
    assert again.questions() == []
    assert bodies(parts) == [b"pay"]
    assert parts.half_messages.counts.repeated == 1


async def test_the_same_crash_with_the_question_first(make_parts: MakeParts) -> None:
    before = make_parts()
    payer = Payer(before)
    payer.end(payer.half("U1"), COMMIT)
    before.close()
    parts = make_parts(disk=before.disk, clock=before.clock)
    again = Payer(parts)
    await check_after(parts, 30)
    assert again.questions() == []
    assert bodies(parts) == [b"pay"]


async def test_a_half_message_that_was_sent_twice_is_committed_once(parts: Parts) -> None:
    """A producer that got no answer sends it again, under the same unique id."""
    payer = Payer(parts)
    payer.half("U1")
    payer.end(payer.half("U1"), COMMIT)
    await check_after(parts, 30)
    assert payer.questions() == []
    assert bodies(parts) == [b"pay"]


async def test_notes_of_older_brokers_and_nonsense_are_read(parts: Parts) -> None:
    payer = Payer(parts)
    for number in range(5):
        payer.half(f"U{number}")
    ops = parts.half_messages.ops
    for body in (b"1", b"", b"x,-1,2,99999999999999999999999,", b"3,3,3,"):
        parts.store.append(ops._record(body))
    wrong_tag = ops._record(b"4,")
    wrong_tag.properties_raw = b"TAGS\x01e\x02"
    parts.store.append(wrong_tag)
    await check_after(parts, 7)
    assert [question.message.message_id for question in payer.questions()] == ["U0", "U4"]
    parts.store.flush_now()
    parts.checker.publish()
    assert saved_offsets(parts) == (5, 5)


async def test_notes_are_kept_until_all_they_speak_of_is_passed(parts: Parts) -> None:
    ops = parts.half_messages.ops
    for body in (b"0,", b"5,1,", b"2,"):
        parts.store.append(ops._record(body))
    parts.dispatch()
    reader = OpReader(parts.store, 0)
    assert reader.read(0) == [0, 5, 1, 2]
    assert reader.done == 0
    assert [reader.passed(offset) for offset in (0, 1, 2, 3)] == [True, True, True, False]
    assert reader.done == 1
    assert reader.passed(5)
    assert reader.done == 3
    assert reader.read(6) == []


async def test_a_folder_of_apaches_broker_is_gone_on_with(tmp_path: Path) -> None:
    """Two transactions open after five questions, notes up to the second, as Apache 5.4.0 left them."""
    golden = Golden("features", tmp_path)
    (golden.root / "config").mkdir(exist_ok=True)
    (golden.root / "config" / "consumerOffset.json").write_text(APACHE_OFFSETS)
    config = BrokerConfig(
        store_root=str(golden.root), port=0, cluster="GoldenCluster", name="broker-g",
        store=replace(CONFIG, timers=TimerConfig(log_segment_bytes=52416)),
        transactions=TransactionConfig(max_checks=1000, interval_ms=3_600_000),
    )  # fmt: skip
    async with Broker(config) as broker:
        broker.parts.checker._keeps_ms = 1 << 60
        assert broker.parts.checker._next == 16
        await broker.parts.checker.check()
        broker._dispatch()
        assert broker.parts.store.max_offset(HALF, 0) == 20
        for queue_offset in (18, 19):
            unit = broker.parts.store.unit_at(HALF, 0, queue_offset)
            assert unit is not None
            half = broker.parts.half_messages.at(unit.log_offset)
            assert half is not None
            assert (half.properties["TRANSACTION_CHECK_TIMES"], half.record.body) == ("6", b"tx pending")
        assert broker.parts.half_messages.counts.checked == 2
