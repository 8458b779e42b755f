"""One bad item never stops a background worker: it is set aside, reported and counted once, and the work goes on.

Every worker of a broker is in `WORKERS`, and has its tests below, in that order. A broker that gets another one fails
`test_every_worker_is_listed`: then plant something bad for it, too. What the store and a name server do follows at the end.
"""

from __future__ import annotations

import ast
import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.unit.broker.name_servers import FakeNameServer
from tests.unit.broker.parts import PATIENCE_S, STORE_HOST, MakeParts, Parts, eventually, heartbeat, send_request
from tests.unit.broker.popper import REVIVE_TOPIC, Popper, numbers, put, stop
from tests.unit.broker.popper import bodies as popped_bodies
from tests.unit.broker.transacting import COMMIT, GIVEN_UP, HALF, OP, Payer, bodies, check_after
from tests.unit.nameserver import brokers

import rocketline
from rocketline.auth import accounts as accounts_module
from rocketline.auth.accounts import Accounts
from rocketline.broker import Broker, BrokerConfig
from rocketline.broker import background as background_module
from rocketline.broker.background import BackgroundTasks
from rocketline.broker.config import PopConfig, RegistrationConfig
from rocketline.broker.metrics.collector import BrokerMetrics
from rocketline.broker.pop.records import new_checkpoint
from rocketline.broker.pop.recovering import copies_since
from rocketline.broker.replication.tables import TableCopier
from rocketline.broker.tables.topics import SCHEDULE_TOPIC
from rocketline.broker.timer.redirect import TIMER_TOPIC
from rocketline.clock import SYSTEM_CLOCK, ManualClock
from rocketline.coordination.memory import MemoryCoordinator, MemoryGroup
from rocketline.errors import BrokerError
from rocketline.message import MessageView
from rocketline.metrics.config import ExporterType, MetricsConfig
from rocketline.metrics.exporter import MetricsExporter, Source
from rocketline.metrics.families import Family, gauge
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.protocol.bodies import (
    SQL92,
    Body,
    ConsumerOffsetTable,
    DataVersion,
    DelayOffsetTable,
    HaStatus,
    KVTable,
    MessageRequestModeTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    decode_body,
    decode_file,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ConsumerSendMsgBackHeader
from rocketline.protocol.names import ASIDE_TOPIC
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties, encode_properties
from rocketline.protocol.records import BatchItem, LogEntry, decode_messages, encode_batch
from rocketline.protocol.subscription import build_subscription
from rocketline.settings import load
from rocketline.store.config import FlushConfig, RetentionConfig, StoreConfig, TimerConfig
from rocketline.store.message_store import AppendStatus, StoreMessage
from rocketline.testing.disks import FaultyDisk, MemoryDisk
from rocketline.transport import RemotingClient

WORKERS = {
    "delay levels": "test_delay_levels",
    "timers": "test_timers",
    "transaction checks": "test_transaction_checks",
    "notes of transactions": "test_notes_of_transactions",
    "redeliveries": "test_redeliveries_of_odd_attempts",
    "check points": "test_check_points_that_are_refused",
    "registration": "test_registration",
    "consumer offsets": "test_tables",
    "delay offsets": "test_tables",
    "order of pops": "test_tables",
    "SQL filters": "test_tables",
    "timer progress": "test_tables",
    "refused tables": "test_tables",
    "silent clients": "test_clients",
    "gone counters": "test_clients",
    "old files": "test_old_files",
    "statistics": "",  # counts what the broker itself did, by names it has checked
    "loop delay": "",  # looks at the clock
    "tables of the master": "test_tables_of_a_bad_master",
    "offsets of the master": "test_tables_of_a_bad_master",  # the same table, by the same function
    "dispatch": "test_dispatch_goes_on_behind_one_that_cannot_be_filed",
    # Of brokers that are configured so
    "own address": "",  # looks once at the address that it was given
    "heartbeats": "test_registration",  # to the same name servers, each on its own
    "accounts": "test_accounts",
    "election": "",  # says what this broker is, and takes from etcd only what its own kind wrote: tests/replication
}
"""Names of workers, and the first of their tests."""

ELSEWHERE = {
    "broker/registration.py": {"_keep_informed": "test_registration"},
    "broker/replication/follower.py": {"_cut_and_start": ""},  # what it found in its own log
    "broker/replication/member.py": {"_listen": "", "_renew_for_ever": "", "_steer": ""},  # as "election"
    "broker/replication/roles.py": {"_announce_all": "", "run": ""},  # run: a bad master is left, tests/replication
    "broker/replication/source.py": {"on_stranger": ""},
    "broker/replication/table_changes.py": {"_run_after": "test_tables_of_a_bad_master"},
    "console/desk.py": {"_sweep": "", "__aexit__": ""},  # sessions, which it made itself
    "console/responses.py": {"part": ""},  # of one answer
    "console/sampler.py": {"_examine_when_looked_at": "", "_sample_for_ever": ""},
    "console/serve.py": {"serve": "", "watch": ""},
    "nameserver/server.py": {"_scan_forever": "test_silent_brokers", "_send_notice": "", "watch": "test_accounts"},
    "proxy/background.py": {"_work": ""},  # one call of a client each
    "broker/handlers/for_master.py": {"_pass_commits": ""},  # numbers that were read; the next commit begins it anew
    "proxy/front.py": {"_again": "test_work_of_a_front"},
    "proxy/known.py": {"_ask": ""},
    "proxy/remote.py": {"_learn_now": "", "close": ""},
    "proxy/server.py": {"work": ""},
}
"""Tasks that are begun outside of `BackgroundTasks`, by file; and the first test of those that handle one item after the
other of what somebody else said. A failure of the others costs nobody else anything."""

SMALL = StoreConfig(log_segment_bytes=1 << 20, queue_segment_bytes=2000, index_slots=100, index_entries=500)


EVERYTHING_ON = {
    "authenticationEnabled": "true",
    "brokerIP1": "127.0.0.1",
    "initAuthenticationUser": '{"username":"admin","password":"secret-1"}',
    "brokerName": "broker-a",
    "enableSlaveActingMaster": "true",
    "listenPort": "0",
    "haListenPort": "0",
    "mappedFileSizeCommitLog": str(1 << 20),
    "namesrvAddr": "127.0.0.1:1",
    "rocketline.leaseMs": "2000",
}


async def test_every_worker_is_listed(tmp_path: Path) -> None:
    """Of a broker by itself, and of one of a group with elections."""
    alone = EVERYTHING_ON | {"storePathRootDir": str(tmp_path / "alone")}
    elected = EVERYTHING_ON | {
        "rocketline.coordination": "etcd://127.0.0.1:1",
        "storePathRootDir": str(tmp_path / "elected"),
    }
    group = MemoryGroup(SYSTEM_CLOCK)
    async with Broker(load(BrokerConfig, alone)[0]) as broker:
        names = broker._background.names
    elected_config = load(BrokerConfig, elected)[0]
    async with Broker(elected_config, coordinators=lambda config: MemoryCoordinator(group, "a")) as broker:
        await eventually(lambda: broker.parts.roles.is_master)
        await eventually(lambda: "delay levels" in broker._background.names)
        names |= broker._background.names
    assert names == set(WORKERS) - {"dispatch"}
    known = {*WORKERS.values(), *(test for tests in ELSEWHERE.values() for test in tests.values())}
    assert [test for test in known if test and test not in globals()] == []


def test_every_other_task_is_listed() -> None:
    found: dict[str, set[str]] = {}
    for part in ("broker", "console", "nameserver", "proxy"):
        for path in Path(rocketline.__file__).parent.joinpath(part).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "create_task":
                    work = call.args[0].func if isinstance(call.args[0], ast.Call) else call.args[0]
                    name = work.attr if isinstance(work, ast.Attribute) else ast.unparse(work)
                    place = path.relative_to(Path(rocketline.__file__).parent).as_posix()
                    found.setdefault(place, set()).add(name)
    del found["broker/background.py"]
    assert found == {place: set(tests) for place, tests in ELSEWHERE.items()}


async def test_a_worker_that_fails_all_the_same_begins_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background_module, "BEGIN_ANEW_S", 0.001)
    turns: list[int] = []
    done = asyncio.Event()

    async def work() -> None:
        turns.append(len(turns))
        if len(turns) < 4:
            raise RuntimeError("a mistake of ours")
        done.set()
        await asyncio.Event().wait()

    background = BackgroundTasks()
    background.start("work", work)
    async with asyncio.timeout(PATIENCE_S):
        await done.wait()
    await background.close()
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3


MANY_DIGITS = "9" * 5000
"""More than `int()` takes."""


def plant(parts: Parts, topic: str, properties: dict[str, str] | bytes, body: bytes = b"bad", queue_id: int = 0) -> int:
    """Store something nobody could have sent; its log offset."""
    raw = properties if isinstance(properties, bytes) else encode_properties(properties).encode()
    decoded = decode_properties(raw.decode("utf-8", "replace"))
    born_ms = parts.clock.now_ms()
    result = parts.store.append(StoreMessage(topic, queue_id, body, decoded, raw, 0, 0, born_ms, STORE_HOST))
    assert result.status is AppendStatus.OK, result
    parts.dispatch()
    return result.log_offset


def filled(properties: dict[str, str], size: int = MAX_PROPERTIES_BYTES) -> dict[str, str]:
    """The same and a filler, so many bytes in all."""
    return {**properties, "filler": "f" * (size - len(encode_properties({**properties, "filler": ""}).encode()))}


def set_aside(parts: Parts, topic: str = ASIDE_TOPIC) -> list[MessageView]:
    return parts.messages(topic)


# Messages on a detour: delay levels and timers

TARGET = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
BAD_TARGETS: dict[str, dict[str, str] | bytes] = {
    "no target": {},
    "no queue": {"REAL_TOPIC": "orders"},
    "a text for a queue": {**TARGET, "REAL_QID": "x"},
    "a negative queue": {**TARGET, "REAL_QID": "-1"},
    "a queue of 32 bits": {**TARGET, "REAL_QID": str(1 << 31)},
    "a queue of 5,000 digits": {**TARGET, "REAL_QID": MANY_DIGITS},
    "a queue in other digits": {**TARGET, "REAL_QID": "٣"},
    "a topic that leads elsewhere": {**TARGET, "REAL_TOPIC": "../../etc"},
    "a topic no folder can have": {**TARGET, "REAL_TOPIC": "t" * 300},
    "properties without room for more": filled(TARGET),
    "properties that grow when they are mended": encode_properties(TARGET).encode() + b"x\x01" + b"\xff" * 20_000,
}


@pytest.mark.parametrize("bad", BAD_TARGETS.values(), ids=BAD_TARGETS.keys())
async def test_delay_levels(parts: Parts, bad: dict[str, str] | bytes) -> None:
    plant(parts, SCHEDULE_TOPIC, bad)
    parts.peer().ask(send_request(body=b"good", properties={"UNIQ_KEY": "U", "DELAY": "1"}))
    parts.dispatch()
    parts.clock.advance(1)
    for _ in range(3):
        assert parts.delays.deliver_due() is None
        parts.dispatch()
    assert bodies(parts) == [b"good"]
    [kept] = set_aside(parts)
    assert (kept.body, parts.aside.counts) == (b"bad", {"delay levels": 1})


def timed(parts: Parts, bad: dict[str, str] | bytes) -> dict[str, str] | bytes:
    """The same as a timer message that is due in a second."""
    time = {"TIMER_OUT_MS": str(parts.clock.now_ms())}
    if isinstance(bad, bytes):
        return encode_properties(time).encode() + bad
    return filled({**TARGET, **time}) if "filler" in bad else {**time, **bad}


async def turn_timers(parts: Parts) -> None:
    for _ in range(3):
        parts.clock.advance(1)
        while parts.timers.turn() == 0:
            pass
        parts.dispatch()


@pytest.mark.parametrize("bad", BAD_TARGETS.values(), ids=BAD_TARGETS.keys())
async def test_timers(parts: Parts, bad: dict[str, str] | bytes) -> None:
    plant(parts, TIMER_TOPIC, timed(parts, bad))
    parts.peer().ask(send_request(body=b"good", properties={"UNIQ_KEY": "U", "TIMER_DELAY_MS": "1000"}))
    parts.dispatch()
    await turn_timers(parts)
    assert bodies(parts) == [b"good"]
    [kept] = set_aside(parts)
    assert (kept.body, parts.aside.counts) == (b"bad", {"timers": 1})
    assert parts.timers.counts.total == 0


@pytest.mark.parametrize("time", ["", "soon", "-1", str(1 << 63), MANY_DIGITS])
async def test_timers_that_say_no_time(parts: Parts, time: str) -> None:
    plant(parts, TIMER_TOPIC, {**TARGET, "TIMER_OUT_MS": time})
    parts.peer().ask(send_request(body=b"good", properties={"UNIQ_KEY": "U", "TIMER_DELAY_MS": "1000"}))
    parts.dispatch()
    await turn_timers(parts)
    assert (bodies(parts), parts.aside.counts) == ([b"good"], {"timers": 1})


@pytest.mark.parametrize("time", ["0", "1", "1600000000000"])
async def test_timers_whose_time_is_long_over(parts: Parts, time: str) -> None:
    plant(parts, TIMER_TOPIC, {**TARGET, "TIMER_OUT_MS": time}, b"late")
    await turn_timers(parts)
    assert (bodies(parts), parts.aside.counts) == ([b"late"], {})


async def test_timers_that_go_round_again(parts: Parts) -> None:
    """How often they did is a property, and so anybody's."""
    far_ms = str(parts.clock.now_ms() + 3 * 24 * 3_600_000 - 1)
    properties = {"UNIQ_KEY": "U", "TIMER_DELIVER_MS": far_ms, "TIMER_ROLL_TIMES": MANY_DIGITS}
    answer = parts.peer().ask(send_request(body=b"far", properties=properties))
    assert answer.code == ResponseCode.SUCCESS
    parts.dispatch()
    for _ in range(4):
        await turn_timers(parts)
        parts.clock.advance(24 * 3600)
    await turn_timers(parts)
    assert (bodies(parts), parts.aside.counts) == ([b"far"], {})


@pytest.mark.parametrize("worker", ["delay levels", "timers"])
async def test_a_store_that_takes_nothing_is_no_bad_item(parts: Parts, worker: str) -> None:
    """Neither is the message that cannot be set aside because of it."""
    delays = worker == "delay levels"
    plant(parts, SCHEDULE_TOPIC if delays else TIMER_TOPIC, timed(parts, {**TARGET, "REAL_TOPIC": "../../etc"}))
    wanted = {"DELAY": "1"} if delays else {"TIMER_DELAY_MS": "1000"}
    parts.peer().ask(send_request(body=b"good", properties={"UNIQ_KEY": "U", **wanted}))
    parts.dispatch()
    turn = parts.delays.deliver_due if delays else parts.timers.turn
    turn()
    parts.clock.advance(3)
    parts.store._refusal = "the disk is full"
    for _ in range(3):
        assert turn() == 1000
    assert (bodies(parts), parts.aside.counts) == ([], {})
    parts.store._refusal = ""
    while turn() == 0:
        pass
    assert (bodies(parts), parts.aside.counts) == ([b"good"], {worker: 1})


@pytest.mark.parametrize("detour", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}], ids=["delay level", "timer"])
async def test_what_could_not_be_delivered_is_refused(parts: Parts, detour: dict[str, str]) -> None:
    """Of any size: what is taken is delivered."""
    taken = refused = 0
    for size in range(MAX_PROPERTIES_BYTES - 300, MAX_PROPERTIES_BYTES + 1):
        answer = parts.peer().ask(send_request(properties=filled({"UNIQ_KEY": "U", **detour}, size)))
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL), answer
        taken += answer.code == ResponseCode.SUCCESS
        refused += answer.code == ResponseCode.MESSAGE_ILLEGAL
        parts.dispatch()
    assert taken > 0
    assert refused > 0
    parts.timers.turn()
    parts.clock.advance(2)
    for turn in (parts.delays.deliver_due, parts.timers.turn):
        while turn() == 0:
            pass
    parts.dispatch()
    assert (parts.store.max_offset("orders", 0), parts.aside.counts) == (taken, {})


# Transactions

HALF_TARGET = {"REAL_TOPIC": "orders", "REAL_QID": "0", "UNIQ_KEY": "bad", "PGROUP": "payers", "TRAN_MSG": "true"}


@pytest.mark.parametrize(
    "bad",
    [
        filled(HALF_TARGET),
        encode_properties(HALF_TARGET).encode() + b"x\x01" + b"\xff" * 20_000,
        filled({**HALF_TARGET, "CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}),
    ],
    ids=["no room for more", "grow when they are mended", "no room to wait"],
)
async def test_transaction_checks(parts: Parts, bad: dict[str, str] | bytes) -> None:
    payer = Payer(parts)
    plant(parts, HALF, bad)
    payer.half("good")
    for _ in range(3):
        await check_after(parts, 10)
    assert {question.half.unique for question in payer.questions()} == {"good"}
    [kept] = set_aside(parts, GIVEN_UP)
    assert (kept.body, parts.aside.counts) == (b"bad", {"transaction checks": 1})
    assert parts.half_messages.counts.given_up == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"TRANSACTION_CHECK_TIMES": MANY_DIGITS},
        {"TRANSACTION_CHECK_TIMES": "-5"},
        {"TRAN_PREPARED_QUEUE_OFFSET": MANY_DIGITS},
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": MANY_DIGITS},
        {"UNIQ_KEY": "u" * 15_000},
        {"PGROUP": "payers"},
    ],
    ids=lambda odd: next(iter(odd)),
)
async def test_transactions_with_odd_properties(parts: Parts, odd: dict[str, str]) -> None:
    """What is no number counts as not given; they are asked about like others."""
    payer = Payer(parts)
    answer = payer.peer.ask(payer.half_request("odd", **odd))
    assert answer.code == ResponseCode.SUCCESS, answer
    payer.half("good")
    await check_after(parts, 10)
    assert len(payer.questions()) == 2
    assert parts.aside.counts == {}


@pytest.mark.parametrize("bad", [{"REAL_QID": MANY_DIGITS}, {"REAL_TOPIC": "../../etc"}], ids=["queue", "topic"])
async def test_transactions_without_a_place(parts: Parts, bad: dict[str, str]) -> None:
    payer = Payer(parts)
    plant(parts, HALF, {**HALF_TARGET, **bad})
    payer.half("good")
    await check_after(parts, 10)
    assert {question.half.unique for question in payer.questions()} == {"bad", "good"}


async def test_transactions_whose_question_cannot_be_put(parts: Parts) -> None:
    """They fit where they are kept, and not into the question: in the end they are given up like others."""
    payer = Payer(parts)
    room = len("TRANSACTION_CHECK_TIMES\x0115\x02")
    plant(parts, HALF, filled(HALF_TARGET, MAX_PROPERTIES_BYTES - room))
    payer.half("good")
    for _ in range(20):
        await check_after(parts, 10)
    assert {question.half.unique for question in payer.questions()} == {"good"}
    assert sorted(message.message_id for message in set_aside(parts, GIVEN_UP)) == ["bad", "good"]
    assert parts.aside.counts == {}


@pytest.mark.parametrize("body", [b"", b"x", b",", b"-1,", MANY_DIGITS.encode(), b"\xff", b"1,x,2"])
async def test_notes_of_transactions(parts: Parts, body: bytes) -> None:
    payer = Payer(parts)
    plant(parts, OP, {"TAGS": "d"}, body)
    payer.half("good")
    await check_after(parts, 10)
    assert [question.half.unique for question in payer.questions()] == ["good"]


async def test_checks_wait_for_a_store_that_takes_nothing(parts: Parts) -> None:
    payer = Payer(parts)
    plant(parts, HALF, filled(HALF_TARGET))
    payer.half("good")
    parts.store._refusal = "the disk is full"
    await check_after(parts, 10)
    assert (payer.questions(), parts.aside.counts) == ([], {})
    parts.store._refusal = ""
    await check_after(parts, 1)
    assert ([question.half.unique for question in payer.questions()], parts.aside.counts) == (
        ["good"],
        {"transaction checks": 1},
    )


@pytest.mark.parametrize(
    "detour", [{}, {"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}], ids=["none", "delay level", "timer"]
)
async def test_a_transaction_that_could_not_be_checked_or_committed_is_refused(
    make_parts: MakeParts, detour: dict[str, str]
) -> None:
    parts = make_parts(log_segment_bytes=64 << 20)
    payer = Payer(parts)
    taken = 0
    for size in range(MAX_PROPERTIES_BYTES - 600, MAX_PROPERTIES_BYTES + 1):
        filler = filled(detour, size)["filler"]
        answer = payer.peer.ask(payer.half_request("U" * 12 + f"{size}", filler=filler, **detour))
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL), answer
        taken += answer.code == ResponseCode.SUCCESS
    assert 0 < taken < 600
    parts.dispatch()
    await check_after(parts, 10)
    questions = payer.questions()
    assert len(questions) == taken
    for question in questions:
        assert payer.end(question.half, COMMIT, from_check=True).code == ResponseCode.SUCCESS
    parts.timers.turn()
    parts.clock.advance(3)
    for turn in (parts.delays.deliver_due, parts.timers.turn):
        while turn() == 0:
            pass
    parts.dispatch()
    assert (parts.store.max_offset("orders", 0), parts.aside.counts) == (taken, {})


@pytest.mark.parametrize("detour", [{"DELAY": "x"}, {"DELAY": MANY_DIGITS}, {"TIMER_DELAY_SEC": MANY_DIGITS}])
async def test_a_transaction_with_a_detour_that_cannot_be_is_refused(parts: Parts, detour: dict[str, str]) -> None:
    payer = Payer(parts)
    answer = payer.peer.ask(payer.half_request("U1", **detour))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert parts.store.log_next_offset == 0


# Redeliveries of popped messages


def send_odd(parts: Parts, reconsume_times: int) -> None:
    answer = parts.peer().ask(
        send_request(body=b"bad", properties={"UNIQ_KEY": "bad"}, reconsume_times=reconsume_times)
    )
    assert answer.code == ResponseCode.SUCCESS
    parts.dispatch()


@pytest.mark.parametrize(
    ("times", "topic", "attempts"),
    [((1 << 31) - 1, "%DLQ%readers", (1 << 31) - 1), (-(1 << 31), "%RETRY%readers_orders", 1)],
    ids=["as many as there can be", "below zero"],
)
async def test_redeliveries_of_odd_attempts(parts: Parts, times: int, topic: str, attempts: int) -> None:
    parts.put_topic("orders", 1)
    send_odd(parts, times)
    put(parts, *numbers(4))
    popper = Popper(parts)
    assert len(popper.pop(invisible_ms=1000)) == 5
    parts.pass_time(6)
    found = {message.body: message for message in parts.messages(topic)}
    assert found[b"bad"].reconsume_times == attempts
    assert [body for body in popped_bodies(popper.pop()) if body != b"bad"] == numbers(4)
    assert parts.aside.counts == {}


async def test_handing_back_odd_attempts(parts: Parts) -> None:
    """36, which is no worker, counts in the same way."""
    send_odd(parts, (1 << 31) - 1)
    parts.groups.require("readers")
    header = ConsumerSendMsgBackHeader(log_offset=0, group="readers", delay_level=0)  # type: ignore[arg-type]
    answer = parts.peer().ask(Command(RequestCode.CONSUMER_SEND_MSG_BACK, header.encode()))
    assert answer.code == ResponseCode.SUCCESS, answer
    [dead] = parts.messages("%DLQ%readers")
    assert (dead.body, dead.reconsume_times) == (b"bad", (1 << 31) - 1)


@pytest.mark.parametrize(
    "raw",
    [b"x\x01" + b"\xff" * 20_000, encode_properties(filled({"UNIQ_KEY": "bad"})).encode()],
    ids=["grow when they are mended", "no room for more"],
)
async def test_redeliveries_of_odd_properties(parts: Parts, raw: bytes) -> None:
    """Messages of a batch are stored with the properties that their sender wrote, whatever these are."""
    parts.put_topic("orders", 1)
    batch = encode_batch([BatchItem(0, b"bad", raw)])
    answer = parts.peer().ask(send_request(body=batch, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
    assert answer.code == ResponseCode.SUCCESS, answer
    put(parts, *numbers(4))
    popper = Popper(parts)
    assert len(popper.pop(invisible_ms=1000)) == 5
    parts.pass_time(6)
    again = popped_bodies(popper.pop())
    dead = [message.body for message in parts.messages("%DLQ%readers")]
    assert sorted(again + dead) == sorted([*numbers(4), b"bad"])
    assert parts.aside.counts == ({"redeliveries": 1} if dead else {})


HUGE = (1 << 63) - 1


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        ("ck", b""),
        ("ck", b"{"),
        ("ck", b"\xff\xfe"),
        ("ck", b'{"so":' + MANY_DIGITS.encode() + b"}"),
        ("ck", b'{"t":"orders","c":"readers","n":-1}'),
        ("ack", b'{"ao":"x"}'),
        ("bAck", b'{"aol":[' + MANY_DIGITS.encode() + b"]}"),
        ("\x7f", b"?"),
    ],
)
async def test_records_of_the_revive_log(parts: Parts, tag: str, body: bytes) -> None:
    plant(parts, REVIVE_TOPIC, {"TAGS": tag}, body)
    put(parts, b"0")
    popper = Popper(parts)
    assert popper.pop(invisible_ms=1000)[0].handle.revive_queue_id == 0
    parts.pass_time(6)
    assert popped_bodies(popper.pop()) == [b"0"]
    assert parts.aside.counts == {"redeliveries": 1}


@pytest.mark.parametrize(
    ("offset", "pop_ms", "invisible_ms"),
    [(0, HUGE, HUGE), (0, HUGE, 0), (0, 0, HUGE), (0, -HUGE, -HUGE), (HUGE, 0, 0), (1 << 60, 0, 0)],
)
async def test_check_points_that_say_what_cannot_be(parts: Parts, offset: int, pop_ms: int, invisible_ms: int) -> None:
    """One that is due in a million years must not hold up those behind it until then."""
    put(parts, b"0")
    checkpoint = new_checkpoint("readers", "orders", 0, [offset], pop_ms, invisible_ms, "broker-a")
    popper = Popper(parts)
    plant(parts, REVIVE_TOPIC, {"TAGS": "ck"}, checkpoint.encode())
    assert popper.pop(invisible_ms=1000)[0].handle.revive_queue_id == 0
    parts.pass_time(6)
    assert b"0" in popped_bodies(popper.pop())
    assert parts.pops.reviver.open_count <= 1


async def test_redeliveries_taken_up_by_the_next_start(make_parts: MakeParts) -> None:
    """A topic has no checksum: what is damaged there is passed over when the broker looks for what it redelivered."""
    before = make_parts()
    put(before, *numbers(3))
    Popper(before).pop(invisible_ms=1000)
    before.pass_time(6)
    unit = before.store.unit_at("%RETRY%readers_orders", 0, 1)
    assert unit is not None
    record = before.store._log.record_at(unit.log_offset)
    assert record is not None
    at = bytes(record).index(b"%RETRY%")
    record[at : at + 1] = b"\xff"
    stop(before)
    parts = make_parts(disk=before.disk, clock=before.clock)
    assert copies_since(parts.store, 0, parts.topics.table).total() == 2
    put(parts, b"later")
    popper = Popper(parts, "others")
    assert popped_bodies(popper.pop(invisible_ms=1000)) == [*numbers(3), b"later"]
    parts.pass_time(6)
    assert sorted(popped_bodies(popper.pop())) == sorted([*numbers(3), b"later"])


async def test_check_points_that_are_refused(make_parts: MakeParts) -> None:
    """One in memory that the timer does not take, because its second is crowded, holds up no other."""
    parts = make_parts(pop=PopConfig(merges_in_memory=True), timers=TimerConfig(congested_count=1))
    put(parts, b"crowded", b"other")
    for _ in range(2):
        properties = {"UNIQ_KEY": "U", "TIMER_DELAY_MS": "29000"}
        assert parts.peer().ask(send_request("else", properties=properties)).code == ResponseCode.SUCCESS
    parts.dispatch()
    parts.timers.turn()
    popper = Popper(parts)
    assert popped_bodies(popper.pop(1, invisible_ms=30_000)) == [b"crowded"]
    assert popped_bodies(popper.pop(1, invisible_ms=40_000)) == [b"other"]
    parts.clock.advance(10)
    assert parts.pops.checkpoints.turn() == 1000
    assert len(parts.pops.checkpoints) == 1
    parts.pass_time(34)
    assert sorted(popped_bodies(popper.pop())) == [b"crowded", b"other"]


# Name servers


async def test_registration(tmp_path: Path) -> None:
    """One that talks nonsense, one that is nowhere, addresses that are none: the last one is told everything."""
    async with FakeNameServer() as good, _talking_nonsense() as nonsense:
        servers = [nonsense, "127.0.0.1:1", "nowhere", "127.0.0.1:" + MANY_DIGITS, "a\0b:1", good.address]
        registration = RegistrationConfig(namesrv=";".join(servers), interval_ms=100, timeout_ms=200)
        config = BrokerConfig(port=0, store_root=str(tmp_path), store=SMALL, registration=registration)
        async with Broker(config) as broker:
            await eventually(lambda: bool(good.told) and "BenchmarkTest" in good.topics(0))
            told = len(good.told)
            broker.parts.topics.put([TopicConfig("fresh", 1, 1, 6)])
            await eventually(lambda: any("fresh" in good.topics(number) for number in range(told, len(good.told))))
            told = len(good.told)
            await eventually(lambda: len(good.told) > told + 2)
        assert good.told[-1].code == RequestCode.UNREGISTER_BROKER


class _talking_nonsense:
    """A server that answers whatever it is told with bytes that are no frame."""

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\xff" * 100)
        writer.close()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()


# Tables


@pytest.mark.parametrize("failing", ["consumerOffset.json", "consumerFilter.json", "consumerOrderInfo.json"])
async def test_tables(tmp_path: Path, failing: str, caplog: pytest.LogCaptureFixture) -> None:
    """A table that cannot be written costs the others nothing, neither while the broker runs nor when it stops."""
    config = BrokerConfig(
        port=0,
        store_root=str(tmp_path),
        store=replace(SMALL, flush=FlushConfig(log_interval_ms=10, log_thorough_ms=10)),
        flush_offsets_ms=10,
        flush_delay_offsets_ms=10,
    )
    saved = tmp_path / "config" / "delayOffset.json"
    async with Broker(config) as broker, RemotingClient() as client:
        for name in (failing, f"{failing}.bak"):
            (tmp_path / "config" / name / "in the way").mkdir(parents=True)
        broker.parts.offsets.commit("a test", "readers", "orders", 0, 1)
        broker.parts.filters._changed = broker.parts.pops.ordered._changed = True
        for _ in range(2):
            request = send_request(properties={"UNIQ_KEY": "U", "DELAY": "1"})
            assert (await client.call(broker.address, request, PATIENCE_S)).code == ResponseCode.SUCCESS
        await eventually(lambda: saved.exists() and _level_1(saved) == 2)
        await client.call(broker.address, send_request(properties={"UNIQ_KEY": "U", "DELAY": "1"}), PATIENCE_S)
        await eventually(lambda: broker.parts.delays.snapshot().offset_table == {1: 3})
    assert _level_1(saved) == 3
    assert failing in caplog.text


def _level_1(file: Path) -> int | None:
    return decode_file(DelayOffsetTable, file.read_bytes()).offset_table.get(1)


TABLES: dict[int, Body] = {
    RequestCode.GET_BROKER_HA_STATUS: HaStatus(),
    RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigSerializeWrapper(
        DataVersion(counter=7), {"fresh": TopicConfig("fresh", 1, 1, 6)}
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupWrapper(
        DataVersion(counter=7), {}, {"fresh": SubscriptionGroupConfig("fresh")}
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: ConsumerOffsetTable(offset_table={"orders@fresh": {0: 5}}),
    RequestCode.GET_ALL_DELAY_OFFSET: DelayOffsetTable(offset_table={3: 5}),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: MessageRequestModeTable(),
}
"""What a good master answers."""


def copied(parts: Parts) -> set[int]:
    seen = {
        RequestCode.GET_ALL_TOPIC_CONFIG: parts.topics.get("fresh") is not None,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: parts.groups.get("fresh") is not None,
        RequestCode.GET_ALL_CONSUMER_OFFSET: parts.offsets.get("fresh", "orders", 0) == 5,
        RequestCode.GET_ALL_DELAY_OFFSET: parts.delays.snapshot().offset_table == {3: 5},
    }
    return {code for code, is_there in seen.items() if is_there}


@pytest.mark.parametrize(
    "nonsense", [b"", b"{", b"[1]", b'{"offsetTable": {"x": {"y": "z"}}}', b"\xff\xfe"], ids=range(5)
)
@pytest.mark.parametrize("bad", [*TABLES, RequestCode.GET_TIMER_CHECK_POINT], ids=lambda code: code.name)
async def test_tables_of_a_bad_master(
    make_parts: MakeParts, bad: int, nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A table that is none, or is answered with a refusal, costs a replica that one alone, and is told once."""
    parts = make_parts(auto_create_groups=False)
    copier = TableCopier(parts, lambda: "127.0.0.1:1")

    async def call(address: str, code: RequestCode, ext: dict[str, str]) -> Command:
        body = nonsense if code == bad else encode_body(TABLES[code]) if code in TABLES else b""
        if code not in TABLES and code != bad:
            raise BrokerError.of(1, "no timers", address, "copying tables")
        return Command(ResponseCode.SUCCESS, {}, body)

    copier._call = call  # type: ignore[method-assign]
    for _ in range(3):
        await copier.copy()
    lost = {RequestCode.GET_ALL_TOPIC_CONFIG} if bad == RequestCode.GET_BROKER_HA_STATUS else {bad}
    assert copied(parts) >= set(TABLES) - lost - {
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    }
    assert len([record for record in caplog.records if "cannot be copied" in record.getMessage()]) <= 1


# Accounts, and what a front for gRPC clients does


async def test_accounts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Files that cannot be read in a way nobody thought of: later changes count all the same."""
    monkeypatch.setattr(accounts_module, "LOOK_AGAIN_S", 0.001)
    accounts = Accounts.open(None, MemoryDisk())
    looked: list[int] = []

    async def load_changes() -> None:
        looked.append(len(looked))
        if len(looked) < 3:
            raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(accounts, "_load_changes", load_changes)
    watch = asyncio.create_task(accounts.watch())
    await eventually(lambda: len(looked) > 4)
    watch.cancel()
    assert len([record for record in caplog.records if record.exc_info]) == 2


async def test_work_of_a_front(monkeypatch: pytest.MonkeyPatch) -> None:
    front = pytest.importorskip("rocketline.proxy.front")
    monkeypatch.setattr(front, "AGAIN_S", 0.001)
    turns: list[int] = []

    async def work() -> None:
        turns.append(len(turns))
        if len(turns) > 3:
            await asyncio.Event().wait()
        raise RuntimeError("a mistake of ours")

    again = asyncio.create_task(front._again(work))
    await eventually(lambda: len(turns) > 3)
    again.cancel()


# Clients


def odd_heartbeats() -> Iterator[Command]:
    for number, (language, version) in enumerate(
        [("KLINGON", -(1 << 31)), ('"}\n# HELP x', (1 << 31) - 1), ("\u2028" * 1000, 0), ("", 493)]
    ):
        beat = heartbeat(f"odd-{number}\n", f"odd_{number}", producers=(f"makers_{number}",))
        beat.language, beat.version = language, version
        yield beat


async def test_clients(parts: Parts) -> None:
    """They say of themselves what they like; they are forgotten like others, and every metric is still shown."""
    peers = [parts.peer(("192.0.2.9", 1000 + number)) for number in range(5)]
    for peer, beat in zip(peers, odd_heartbeats()):
        assert peer.ask(beat).code == ResponseCode.SUCCESS
    peers[4].ask(heartbeat("good", "readers"))
    metrics = BrokerMetrics(parts, None)
    page = (await metrics.exporter()._scrape(False)).decode()
    assert "rocketmq_consumer_connections" in page
    assert 'consumer_group="readers"' in page
    assert "rocketmq_timer_enqueue_lag" in page
    parts.clock.advance(parts.config.client_expiry_ms / 1000 + 1)
    parts.consumers.drop_expired()
    parts.producers.drop_expired()
    metrics.forget_gone()
    assert (list(parts.consumers), parts.producers.names()) == ([], [])


# Metrics


async def good_families() -> AsyncIterator[Family]:
    family = gauge("good", "Good.")
    family.add(1)
    yield family


async def bad_families() -> AsyncIterator[Family]:
    family = gauge("before_it_failed", "Shown.")
    family.add(1)
    yield family
    raise RuntimeError("a mistake of ours")


def odd_families() -> Iterator[Family]:
    family = gauge("odd", "Cannot be written as UTF-8.")
    family.add(1, topic="\ud800")
    yield family
    family = gauge("large", "Has more digits than Python writes.")
    family.add(10**5000)
    yield family
    family = gauge("last", "Last.")
    family.add(3)
    yield family


async def test_what_was_set_aside_is_seen_by_operators(parts: Parts) -> None:
    for _ in range(2):
        parts.aside.item("timers", "an item", ValueError("it is none"))
    page = (await BrokerMetrics(parts, None).exporter()._scrape(False)).decode()
    [line] = [line for line in page.splitlines() if line.startswith("rocketline_set_aside_total")]
    assert line.endswith('worker="timers"} 2')
    answer = parts.peer().ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
    assert decode_body(KVTable, answer.body).table["rocketline.setAside"] == "2"


async def test_metrics(caplog: pytest.LogCaptureFixture) -> None:
    sources: list[Source] = [("bad ones", bad_families), ("odd ones", odd_families), ("good ones", good_families)]
    exporter = MetricsExporter(MetricsConfig(exporter=ExporterType.PROM, port=0), lambda: sources, (), lambda: "")
    for _ in range(3):
        page = (await exporter._scrape(False)).decode()
        shown = [line for line in page.splitlines() if not line.startswith("#")]
        assert shown == ["before_it_failed 1", "last 3", "good 1"]
    assert caplog.text.count("are left out") == 1, "reported once"


# The store: what was appended is made readable, old files go

ODD_KEYS = ["", " ", "k" * 30_000, "\u2028 \U0001f600 \x00", "\ufffd" * 5000, " ".join(map(str, range(5000)))]


async def test_dispatch(make_parts: MakeParts) -> None:
    parts = make_parts(ext_queues=True, bitmaps=True, log_segment_bytes=8 << 20)
    wanted = build_subscription("orders", "a > 5 OR b IN ('x') OR c BETWEEN 1 AND 2", SQL92, version_ms=1)
    parts.peer().ask(heartbeat(subscriptions=[wanted]))
    parts.put_topic("orders", 1)
    sent = 0
    for keys in ODD_KEYS:
        for value in ("x", MANY_DIGITS, "-", "1e999999", "NaN", "\u0663", "0x1p99999"):
            properties = {"UNIQ_KEY": f"U{sent}", "KEYS": keys, "TAGS": keys[:100], "a": value, "b": value, "c": value}
            answer = parts.peer().ask(send_request(properties=properties))
            sent += answer.code == ResponseCode.SUCCESS
    odd = [BatchItem(0, b"odd", raw) for raw in (b"\xff" * 500, b"KEYS\x01\xff\x02a\x01\xfe", b"\x01\x02\x01", b"")]
    request = send_request(body=encode_batch(odd), code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert parts.peer().ask(request).code == ResponseCode.SUCCESS
    parts.dispatch()
    assert parts.store.max_offset("orders", 0) == sent + len(odd)
    assert sent > 30


class _Stumbling:
    """Fails at the records of some queue offsets, whatever it is asked."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = offsets

    def __call__(self, entry: LogEntry) -> int:
        if entry.queue_offset in self.offsets:
            raise TypeError("a mistake of ours")
        return entry.tags_code


@pytest.mark.parametrize("where", ["codes", "index", "log"])
async def test_dispatch_goes_on_behind_one_that_cannot_be_filed(
    parts: Parts, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would read anything any more: it would fail again at every message."""
    dispatcher = parts.store._dispatcher
    parts.put_topic("orders", 1)
    for number in range(6):
        request = send_request(body=b"%d" % number, properties={"UNIQ_KEY": f"U{number}", "KEYS": f"key-{number}"})
        assert parts.peer().ask(request).code == ResponseCode.SUCCESS
    if where == "codes":
        dispatcher._tags_code_for = _Stumbling(0, 3)
        dispatcher._only_topic = None
    elif where == "index":
        index = parts.store._index
        assert index is not None
        put_rows = index.put_rows
        stumbling = _Stumbling(0, 3)
        monkeypatch.setattr(index, "put_range", lambda *_: False)
        monkeypatch.setattr(index, "put_rows", lambda rows: (list(map(stumbling, rows)), put_rows(rows)))
    else:
        for appended in dispatcher._log.appended:
            appended.entries = None
        view, base = dispatcher._log.memory_of(dispatcher._log.appended[0])
        second = bytes(view).index(b"U1") - 4
        assert base == 0
        view[bytes(view).rindex(b"orders", 0, second) - 1] = 200  # the length of its topic
    for _ in range(3):
        parts.store.dispatch()
    assert parts.store.max_offset("orders", 0) == 6
    gone = [1] if where == "log" else []
    for asked in range(6):
        number = asked + (asked in gone)
        found = parts.store.read("orders", 0, asked, 1)
        assert [message.body for chunk in found.chunks for message in decode_messages(chunk)] == [b"%d" % number]
        assert found.next_queue_offset == number + 1
    assert parts.aside.counts == {"dispatch": 1 if where == "log" else 2}
    parts.peer().ask(send_request(body=b"later"))
    parts.dispatch()
    [chunk] = parts.store.read("orders", 0, 6, 1).chunks
    assert [message.body for message in decode_messages(chunk)] == [b"later"]


async def test_old_files(make_parts: MakeParts) -> None:
    """Queue files full of nonsense cost their own queue; those of others follow the log."""
    clock = ManualClock()
    parts = make_parts(
        clock=clock,
        disk=FaultyDisk(MemoryDisk(clock)),
        log_segment_bytes=1 << 16,
        retention=RetentionConfig(reserved_hours=1, file_pause_ms=0),
    )
    for topic in ("bad", "good"):
        parts.put_topic(topic, 1)
    for number in range(300):
        parts.peer().ask(send_request("bad" if number % 2 else "good", bytes(1000)))
        parts.dispatch()
    segment = parts.store._queues.by_key["bad", 0].file.first
    assert segment is not None
    segment.open()[:] = Random(1).randbytes(segment.size)
    parts.store.flush_now()
    parts.clock.advance(100 * 3600)
    parts.store.delete_expired()
    for _ in range(3):
        parts.store.clean_up(wait=True)
        while not parts.store.trim_queues():
            pass
    assert parts.store.log_min_offset > 0
    assert parts.store.min_offset("good", 0) > 0


# A name server looks for brokers that fell silent


async def test_silent_brokers() -> None:
    """They say where they are and how long they may be silent; whatever that is, the others are looked after."""
    clock = ManualClock()
    config = NameServerConfig(host="127.0.0.1", port=0, notify_min_broker_id_changed=True, scan_interval_ms=100)
    unforeseen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unforeseen.append(context))
    async with NameServer(config, clock=clock) as server:
        odd = [("a\0b:1", 0), ("\u2028:99", -(1 << 63)), ("[::::]:1", (1 << 63) - 1), (f"{'h' * 5000}:1", 1)]
        for number, (address, timeout_ms) in enumerate(odd):
            for broker_id in (0, 1):
                header = brokers.header(
                    f"odd-{number}", f"{broker_id}{address}", broker_id, acting=True, timeout_ms=timeout_ms
                )
                server.routes.register(header, brokers.body(), None)
        server.routes.register(brokers.header("good", timeout_ms=1000), brokers.body(), None)
        clock.advance(2)
        await eventually(lambda: "good" not in server.routes._groups)
        assert set(server.routes._groups) == {"odd-2"}, "it said that it may be silent for ever"
    assert unforeseen == []
