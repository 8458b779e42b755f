"""Half messages and their end: what is stored where, who may end them, and that each is ended once."""

from __future__ import annotations

import errno

import pytest
from tests.unit.broker.parts import CLUSTER, STORE_HOST, GatedDisk, MakeParts, Parts, eventually, send_request
from tests.unit.broker.transacting import COMMIT, HALF, OP, ROLLBACK, UNKNOWN, Half, Payer, bodies, check_after

from rocketline.broker.config import TransactionConfig
from rocketline.broker.handler_wiring import install_handlers
from rocketline.broker.replication.roles import Role
from rocketline.broker.transactions import half_messages, ops
from rocketline.message import MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.message_ids import decode_host, offset_id


def only(messages: list[MessageView]) -> MessageView:
    assert len(messages) == 1
    return messages[0]


async def test_a_half_message_is_stored_as_apache_stores_it(parts: Parts) -> None:
    parts.put_topic("orders", queue_count=4)
    payer = Payer(parts)
    answer = payer.peer.ask(payer.half_request("U1", b"pay", queue_id=2))
    stored = only(parts.messages(HALF))
    assert answer.ext == {
        "msgId": offset_id(STORE_HOST, stored.log_offset),
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": "U1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert (stored.queue_id, stored.sys_flag, stored.flag, stored.body) == (0, 0, 3, b"pay")
    assert stored.properties == {
        "KEYS": "kU1",
        "TAGS": "paid",
        "TRAN_MSG": "true",
        "UNIQ_KEY": "U1",
        "WAIT": "true",
        "PGROUP": "payers",
        "CLUSTER": CLUSTER,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "__transactionId__": "U1",
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
    }
    assert bodies(parts, "orders", 2) == []
    assert parts.half_messages.counts.prepared == 1


async def test_a_commit_stores_the_real_message_as_apache_does(parts: Parts) -> None:
    parts.put_topic("orders", queue_count=4)
    payer = Payer(parts)
    half = payer.half("U1", b"pay", queue_id=2)
    before = only(parts.messages(HALF))
    parts.clock.advance(1)
    assert payer.end(half, COMMIT).code == ResponseCode.SUCCESS
    real = only(parts.messages("orders", 2))
    assert (real.body, real.flag, real.sys_flag, real.queue_offset) == (b"pay", 3, 0x8, 0)
    assert real.prepared_log_offset == half.log_offset
    assert (real.born_ms, real.born_host) == (before.born_ms, before.born_host)
    assert real.store_ms == before.store_ms + 1000
    expected = {name: value for name, value in before.properties.items() if name not in ("REAL_TOPIC", "REAL_QID")}
    assert real.properties == expected
    found = parts.store.query("orders", "U1", 10)
    assert len(found.records) == 1


async def test_a_rollback_leaves_nothing_but_a_note(parts: Parts) -> None:
    payer = Payer(parts)
    assert payer.end(payer.half("U1"), ROLLBACK).code == ResponseCode.SUCCESS
    parts.half_messages.ops.write()
    assert bodies(parts) == []
    assert bodies(parts, OP) == [b"0,"]
    assert parts.half_messages.counts.rolled_back == 1


async def test_unknown_is_never_answered_and_changes_nothing(parts: Parts) -> None:
    payer = Payer(parts)
    half = payer.half("U1")
    payer.peer.send(payer.end_request(half, UNKNOWN))
    assert payer.peer.received() == []
    assert payer.end(half, COMMIT).code == ResponseCode.SUCCESS
    assert bodies(parts) == [b"pay"]


async def test_java_ends_one_way(parts: Parts) -> None:
    payer = Payer(parts)
    payer.tell(payer.half("U1", b"a"), COMMIT)
    payer.tell(payer.half("U2", b"b"), ROLLBACK)
    assert bodies(parts) == [b"a"]


async def test_notes_are_gathered_and_look_like_apaches(parts: Parts) -> None:
    payer = Payer(parts)
    for number in range(3):
        payer.end(payer.half(f"U{number}"), COMMIT)
    assert bodies(parts, OP) == []
    parts.clock.advance(3)
    parts.half_messages.ops.write()
    note = only(parts.messages(OP))
    assert (note.body, note.properties) == (b"0,1,2,", {"WAIT": "true", "TAGS": "d"})
    assert (note.born_host, note.born_ms) == (decode_host(STORE_HOST), parts.clock.now_ms())
    parts.half_messages.ops.write()
    assert len(bodies(parts, OP)) == 1


async def test_a_full_note_is_written_at_once(make_parts: MakeParts) -> None:
    parts = make_parts(transactions=TransactionConfig(op_bytes=6))
    payer = Payer(parts)
    for number in range(4):
        payer.end(payer.half(f"U{number}"), COMMIT)
    assert bodies(parts, OP) == [b"0,1,2,"]


async def test_notes_that_the_store_refuses_wait(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    payer = Payer(parts)
    halves = [payer.half(f"U{number}") for number in range(3)]
    parts.store._note_room("no room, as the test wants it")
    for half in halves[:2]:
        assert payer.end(half, ROLLBACK).code == ResponseCode.SUCCESS
    parts.half_messages.ops.write()
    monkeypatch.setattr(ops, "MAX_WAITING", 2)
    assert payer.end(halves[2], ROLLBACK).code == ResponseCode.SYSTEM_BUSY
    parts.store._note_room("")
    parts.half_messages.ops.write()
    assert bodies(parts, OP) == [b"0,1,"]


async def test_a_commit_that_the_store_refuses_can_be_repeated(parts: Parts) -> None:
    payer = Payer(parts)
    half = payer.half("U1")
    parts.store._note_room("no room, as the test wants it")
    refused = payer.end(half, COMMIT)
    assert (refused.code, "no room" in refused.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    parts.store._note_room("")
    assert payer.end(half, COMMIT).code == ResponseCode.SUCCESS
    assert bodies(parts) == [b"pay"]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producer_group": "others"}, "The producer group wrong"),
        ({"queue_offset": 7}, "The transaction state table offset wrong"),
        ({"log_offset": 1 << 40}, "Find prepared transaction message failed"),
        ({"log_offset": -1}, "Find prepared transaction message failed"),
    ],
)
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_an_end_must_fit_its_half_message(
    parts: Parts, outcome: int, changes: dict[str, object], remark: str
) -> None:
    payer = Payer(parts)
    half = payer.half("U1")
    answer = payer.end(half, outcome, **changes)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert bodies(parts) == []
    assert payer.end(half, COMMIT).code == ResponseCode.SUCCESS


async def test_only_half_messages_can_be_committed(parts: Parts) -> None:
    """Or whoever knows a log offset could have any message delivered again."""
    payer = Payer(parts)
    properties = {"UNIQ_KEY": "U1", "PGROUP": payer.group, "REAL_TOPIC": "orders", "REAL_QID": "0"}
    payer.peer.ask(send_request(topic="elsewhere", properties=properties))
    parts.dispatch()
    answer = payer.end(Half("U1", 0, 0), COMMIT)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")


@pytest.mark.parametrize("outcome", [-1, 1, 4, 1 << 30])
async def test_other_outcomes_are_refused(parts: Parts, outcome: int) -> None:
    payer = Payer(parts)
    assert payer.end(payer.half("U1"), outcome).code == ResponseCode.SYSTEM_ERROR
    assert bodies(parts) == []


async def test_a_slave_ends_nothing(make_parts: MakeParts) -> None:
    parts = make_parts()
    payer = Payer(parts)
    half = payer.half("U1")
    parts.roles.role = Role.REPLICA
    install_handlers(parts.router, parts)
    assert payer.end(half, COMMIT).code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_transactions_can_be_forbidden(make_parts: MakeParts) -> None:
    parts = make_parts(transactions=TransactionConfig(refused=True))
    payer = Payer(parts)
    answer = payer.peer.ask(payer.half_request("U1"))
    assert (answer.code, "transaction" in answer.remark) == (ResponseCode.NO_PERMISSION, True)
    assert bodies(parts, HALF) == []


async def test_the_property_decides_whatever_its_case_and_the_flag(parts: Parts) -> None:
    peer = parts.peer()
    for sys_flag in (0, 0x4, 0x8, 0xC):
        properties = {"UNIQ_KEY": f"U{sys_flag}", "TRAN_MSG": "TRUE"}
        assert peer.ask(send_request(properties=properties, sys_flag=sys_flag)).code == ResponseCode.SUCCESS
    assert [message.sys_flag for message in parts.messages(HALF)] == [0, 0, 0, 0]


async def test_a_committed_message_handed_back_the_old_way_is_an_ordinary_retry(parts: Parts) -> None:
    """Consumers before 4.6.1 send it to the retry topic with all its properties."""
    parts.groups.get("readers")
    properties = {"UNIQ_KEY": "U1", "TRAN_MSG": "true", "DELAY": "1"}
    request = send_request(topic="%RETRY%readers", properties=properties, sys_flag=0x4, reconsume_times=1)
    assert parts.peer().ask(request).code == ResponseCode.SUCCESS
    assert bodies(parts, HALF) == []
    parts.clock.advance(1)
    parts.dispatch()
    parts.delays.deliver_due()
    assert bodies(parts, "%RETRY%readers") == [b"hello"]


async def test_a_delay_counts_from_the_commit(parts: Parts) -> None:
    payer = Payer(parts)
    half = payer.half("U1", DELAY="1")
    parts.clock.advance(5)
    parts.delays.deliver_due()
    assert bodies(parts) == []
    payer.end(half, COMMIT)
    assert bodies(parts) == []
    parts.clock.advance(1)
    parts.delays.deliver_due()
    assert bodies(parts) == [b"pay"]


async def test_a_delivery_time_counts_from_the_commit(parts: Parts) -> None:
    payer = Payer(parts)
    half = payer.half("U1", TIMER_DELAY_SEC="10")
    parts.clock.advance(60)
    parts.timers.turn()
    assert bodies(parts) == []
    payer.end(half, COMMIT)
    parts.timers.turn()
    assert bodies(parts) == []
    parts.clock.advance(12)
    parts.timers.turn()
    assert bodies(parts) == [b"pay"]


async def test_ends_are_repeated_without_effect(parts: Parts) -> None:
    payer = Payer(parts)
    half = payer.half("U1")
    for _ in range(3):
        assert payer.end(half, COMMIT).code == ResponseCode.SUCCESS
    refused = payer.end(half, ROLLBACK)
    assert (refused.code, "COMMIT" in refused.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert bodies(parts) == [b"pay"]
    assert parts.half_messages.counts.repeated == 3


async def test_what_was_rolled_back_stays_so(parts: Parts) -> None:
    payer = Payer(parts)
    half = payer.half("U1")
    payer.end(half, ROLLBACK)
    refused = payer.end(half, COMMIT)
    assert (refused.code, "ROLLBACK" in refused.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert bodies(parts) == []


async def test_memory_of_ended_transactions_is_bounded(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_messages, "REMEMBERED", 5)
    payer = Payer(parts)
    for number in range(20):
        payer.end(payer.half(f"U{number}"), COMMIT)
    assert len(parts.half_messages._ended) == 5
    assert len(bodies(parts)) == 20


async def test_after_its_own_time_only_an_answer_to_the_broker_counts(parts: Parts) -> None:
    payer = Payer(parts)
    half = payer.half("U1", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    parts.clock.advance(10.001)
    for outcome in (COMMIT, ROLLBACK):
        late = payer.end(half, outcome)
        assert (late.code, "CHECK_IMMUNITY" in late.remark) == (ResponseCode.ILLEGAL_OPERATION, True)
    assert payer.end(half, COMMIT, from_check=True).code == ResponseCode.SUCCESS
    assert bodies(parts) == [b"pay"]


@pytest.mark.parametrize("own_time", ["1", "0", "soon", "-5"])
async def test_its_own_time_is_never_shorter_than_the_brokers(parts: Parts, own_time: str) -> None:
    payer = Payer(parts)
    half = payer.half("U1", CHECK_IMMUNITY_TIME_IN_SECONDS=own_time)
    parts.clock.advance(6)
    assert payer.end(half, COMMIT).code == ResponseCode.SUCCESS


async def test_sync_flush_answers_a_commit_once_it_is_on_disk(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True)
    assert isinstance(parts.disk, GatedDisk)
    payer = Payer(parts)
    payer.peer.send(payer.half_request("U1"))
    assert (await payer.peer.next()).code == ResponseCode.SUCCESS
    half = Half("U1", 0, only(parts.messages(HALF)).log_offset)
    parts.disk.gate.clear()
    payer.peer.send(payer.end_request(half, COMMIT))
    assert payer.peer.received() == []
    assert bodies(parts) == []
    parts.disk.gate.set()
    assert (await payer.peer.next()).code == ResponseCode.SUCCESS
    await eventually(lambda: bodies(parts) == [b"pay"])


async def test_sync_flush_refuses_a_commit_that_the_disk_lost(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True)
    payer = Payer(parts)
    payer.peer.send(payer.half_request("U1"))
    await payer.peer.next()
    half = Half("U1", 0, only(parts.messages(HALF)).log_offset)
    parts.disk.fail("sync", errno.EIO)
    payer.peer.send(payer.end_request(half, COMMIT))
    assert (await payer.peer.next()).code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("real_topic", "real_queue"), [("../../etc", "0"), ("orders", "x"), ("orders", "-1"), ("orders", str(1 << 40))]
)
async def test_a_target_from_the_disk_is_checked(parts: Parts, real_topic: str, real_queue: str) -> None:
    payer = Payer(parts)
    half = payer.half("U1")
    found = parts.half_messages.at(half.log_offset)
    assert found is not None
    properties = {**found.properties, "REAL_TOPIC": real_topic, "REAL_QID": real_queue}
    placed = parts.store.append(found.to_store(HALF, 0, properties))
    answer = payer.end(Half("U1", placed.queue_offset, placed.log_offset), COMMIT)
    assert (answer.code, "names no topic" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_request_that_is_cut_short_is_an_error(parts: Parts) -> None:
    answer = parts.peer().ask(Command(RequestCode.END_TRANSACTION, {"producerGroup": "payers"}))
    assert (answer.code, "missing" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_an_open_transaction_is_not_forgotten_when_a_later_one_ends(parts: Parts) -> None:
    payer = Payer(parts)
    payer.half("U1", b"open")
    payer.end(payer.half("U2", b"done"), COMMIT)
    parts.half_messages.ops.write()
    await check_after(parts, 7)
    assert [question.message.body for question in payer.questions()] == [b"open"]
