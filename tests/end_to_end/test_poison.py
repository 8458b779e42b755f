"""Messages made to stop a broker's background work, or consumers: what others sent is delivered, redelivered and asked about
all the same.

Each attack goes over the wire to a real broker, which is then restarted on what it stored. Victims are counted; how long
they take does not matter as long as they come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.cluster import Cluster
from rocketline.client import ConsumeFrom, PopConsumer, PullConsumer, PushConsumer
from rocketline.clock import SYSTEM_CLOCK
from rocketline.message import MessageView
from rocketline.protocol.bodies import HeartbeatData, ProducerData, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.compression import MAX_INFLATED_BYTES, TYPES, compress
from rocketline.protocol.headers import (
    CheckTransactionStateHeader,
    PopMessageHeader,
    PullMessageHeader,
    SendMessageHeader,
)
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, encode_properties
from rocketline.protocol.record_layout import COMPRESSED
from rocketline.protocol.records import BatchItem, decode_messages, encode_batch
from rocketline.testing import LocalCluster
from rocketline.transport import Channel, RemotingClient, Router

QUICK = {
    "transactionTimeOut": 200,
    "transactionCheckInterval": 100,
    "transactionCheckMax": 1_000_000,  # some are left after a restart, however long that takes
    "messageDelayLevel": "1s 2s",
    "timerPrecisionMs": 100,
}
MANY_DIGITS = "9" * 5000
MOST_TIMES = (1 << 31) - 1
VICTIMS = [b"victim %d" % number for number in range(4)]


class Attacker:
    """A client that says what it likes, and the victims' client as well: brokers cannot tell."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.asked: set[str] = set()
        """Unique ids of the transactions the broker asked about."""
        self._client = RemotingClient(Router({RequestCode.CHECK_TRANSACTION_STATE: self._note}))

    def _note(self, channel: Channel, request: Command) -> None:
        self.asked.add(CheckTransactionStateHeader.decode(request).transaction_id or "")

    async def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        return await self._client.call(self.cluster.brokers[0].address, Command(code, ext, body), PATIENCE_S)

    async def send(
        self, topic: str, body: bytes, reconsume_times: int = 0, sys_flag: int = 0, **properties: str
    ) -> int:
        """The code of the answer."""
        text = encode_properties({"UNIQ_KEY": body.decode("utf-8", "replace"), **properties})
        born_ms = SYSTEM_CLOCK.now_ms()
        header = SendMessageHeader("group", topic, "TBW102", 1, 0, sys_flag, born_ms, 0, text, reconsume_times)
        answer = await self.ask(RequestCode.SEND_MESSAGE_V2, header.encode(), body)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL), answer
        return answer.code

    async def send_half(self, body: bytes, **properties: str) -> int:
        return await self.send("payments", body, sys_flag=4, TRAN_MSG="true", PGROUP="payers", **properties)

    async def greet(self) -> None:
        beat = HeartbeatData("payer", [ProducerData("payers")], [])
        assert (await self.ask(RequestCode.HEART_BEAT, {}, encode_body(beat))).code == ResponseCode.SUCCESS

    async def pop(self, topic: str, group: str = "readers", invisible_ms: int = 1000) -> list[bytes]:
        answer = await self.ask(
            RequestCode.POP_MESSAGE, PopMessageHeader(group, topic, -1, 32, invisible_ms, 0).encode()
        )
        return [message.body for message in decode_messages(answer.body)]

    async def pull(self, topic: str) -> list[bytes]:
        header = PullMessageHeader("readers", topic, 0, 0, 32, 4, 0, 0, 0, "*")  # type: ignore[arg-type]
        answer = await self.ask(RequestCode.PULL_MESSAGE, header.encode())
        return [message.body for message in decode_messages(answer.body)]

    async def dead(self, group: str) -> list[bytes]:
        """All dead letters of a group; bodies over a pull's limit come one by one."""
        topic = f"%DLQ%{group}"
        end = self.cluster.brokers[0].parts.store.max_offset(topic, 0)
        bodies: list[bytes] = []
        while len(bodies) < end:
            header = PullMessageHeader("readers", topic, 0, len(bodies), 32, 4, 0, 0, 0, "*")  # type: ignore[arg-type]
            answer = await self.ask(RequestCode.PULL_MESSAGE, header.encode())
            bodies += [message.body for message in decode_messages(answer.body)]
        return bodies

    async def close(self) -> None:
        await self._client.close()


@pytest.fixture
async def attacker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Attacker]:
    caplog.set_level(logging.WARNING)
    async with LocalCluster(config=QUICK, data=tmp_path) as cluster:
        attacker = Attacker(cluster)
        yield attacker
        await attacker.close()
    assert "beginning anew" not in caplog.text
    assert "Task exception was never retrieved" not in caplog.text


async def popped_again(attacker: Attacker, topic: str, wanted: Iterable[bytes]) -> set[bytes]:
    """Pop until all of these came, without acknowledging any."""
    found: set[bytes] = set()
    async with asyncio.timeout(PATIENCE_S):
        while not found >= set(wanted):
            found |= set(await attacker.pop(topic))
            await asyncio.sleep(0.1)
    return found


@pytest.mark.parametrize("times", [MOST_TIMES, -(1 << 31)])
async def test_attempts_at_the_end_of_32_bits_stop_no_redelivery(attacker: Attacker, times: int) -> None:
    await attacker.send("orders", b"poison", reconsume_times=times)
    for victim in VICTIMS:
        await attacker.send("orders", victim)
    first = await attacker.pop("orders")
    assert set(first) == {b"poison", *VICTIMS}
    await popped_again(attacker, "orders", VICTIMS)
    await attacker.cluster.restart_broker("broker-a")
    await popped_again(attacker, "orders", VICTIMS)
    for victim in VICTIMS:
        await attacker.send("later", victim)
    assert set(await attacker.pop("later")) == set(VICTIMS)
    await popped_again(attacker, "later", VICTIMS)


async def test_properties_that_are_no_text_stop_no_redelivery(attacker: Attacker) -> None:
    """Messages of a batch keep the bytes that their sender wrote; mended, these would not fit any more."""
    items = [BatchItem(0, b"poison", b"x\x01" + b"\xff" * 20_000), *(BatchItem(0, victim, b"") for victim in VICTIMS)]
    header = SendMessageHeader("group", "orders", "TBW102", 1, 0, 0, 1, 0, batch=True)
    answer = await attacker.ask(RequestCode.SEND_BATCH_MESSAGE, header.encode(), encode_batch(items))
    assert answer.code == ResponseCode.SUCCESS
    assert set(await attacker.pop("orders")) == {b"poison", *VICTIMS}
    await popped_again(attacker, "orders", VICTIMS)
    async with asyncio.timeout(PATIENCE_S):
        while await attacker.pull("%DLQ%readers") != [b"poison"]:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("name", ["TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"])
async def test_a_number_that_is_none_stops_no_check(attacker: Attacker, name: str) -> None:
    await attacker.greet()
    assert await attacker.send_half(b"poison", **{name: MANY_DIGITS}) == ResponseCode.SUCCESS
    for victim in VICTIMS:
        assert await attacker.send_half(victim) == ResponseCode.SUCCESS
    await asked_about(attacker)
    await attacker.cluster.restart_broker("broker-a")
    await asked_about(attacker)


async def test_properties_of_any_size_stop_no_check(attacker: Attacker) -> None:
    await attacker.greet()
    codes = [
        await attacker.send_half(b"poison %d" % size, filler="f" * size)
        for size in range(MAX_PROPERTIES_BYTES - 700, MAX_PROPERTIES_BYTES, 7)
    ]
    assert set(codes) == {ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL}
    for victim in VICTIMS:
        assert await attacker.send_half(victim) == ResponseCode.SUCCESS
    await asked_about(attacker)
    assert attacker.cluster.brokers[0].parts.half_messages.counts.given_up == 0


async def asked_about(attacker: Attacker) -> None:
    """The broker asks about every victim, from now on."""
    attacker.asked.clear()
    async with asyncio.timeout(PATIENCE_S):
        while not attacker.asked >= {victim.decode() for victim in VICTIMS}:
            await attacker.greet()
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("detour", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "300"}], ids=["delay level", "timer"])
async def test_what_is_taken_for_later_is_delivered(attacker: Attacker, detour: dict[str, str]) -> None:
    """Properties of every size up to the limit, numbers of any length: taken and delivered, or refused."""
    taken = set()
    for size in range(MAX_PROPERTIES_BYTES - 330, MAX_PROPERTIES_BYTES, 3):
        body = b"size %d" % size
        if await attacker.send("orders", body, filler="f" * (size - 100), **detour) == ResponseCode.SUCCESS:
            taken.add(body)
    odd = {"TIMER_ROLL_TIMES": MANY_DIGITS, "REAL_QID": MANY_DIGITS, "REAL_TOPIC": "../../etc", "TIMER_DEQUEUE_MS": "x"}
    for name, value in odd.items():
        if await attacker.send("orders", name.encode(), **{name: value}, **detour) == ResponseCode.SUCCESS:
            taken.add(name.encode())
    for victim in VICTIMS:
        assert await attacker.send("victims", victim, **detour) == ResponseCode.SUCCESS
    assert taken
    async with asyncio.timeout(PATIENCE_S):
        while set(await attacker.pull("victims")) != set(VICTIMS):
            await asyncio.sleep(0.1)
        stored = attacker.cluster.brokers[0].parts.store
        while stored.max_offset("orders", 0) < len(taken):
            await asyncio.sleep(0.1)
    assert attacker.cluster.brokers[0].parts.aside.counts == {}


# What consumers meet

KINDS = [*TYPES.values(), 0, 0x400, 0x700]
ANY_FLAG = [1 << bit for bit in range(31)] + [COMPRESSED | 1 << bit for bit in range(31)] + [-(1 << 31), -1]


@pytest.fixture(scope="module")
def bombs() -> list[tuple[int, bytes]]:
    """(system flag, a small body that inflates to more than a consumer takes)"""
    large = bytes(MAX_INFLATED_BYTES + 1)
    return [(COMPRESSED | kind, compress(large, kind)) for kind in TYPES.values()]


async def attack(attacker: Attacker, bombs: list[tuple[int, bytes]]) -> tuple[set[bytes], set[bytes]]:
    """Bodies that cannot be inflated, every bit of the system flag, and victims among them: all good bodies, and all bad
    ones."""
    good, bad = set(), set()
    for number, kind in enumerate(KINDS):
        body = b"poison of kind %d" % kind
        await attacker.send("orders", body, sys_flag=COMPRESSED | kind)
        bad.add(body)
        await attacker.send("orders", b"between %d" % number)
        good.add(b"between %d" % number)
    for number, (flag, body) in enumerate(bombs):
        assert await attacker.send("orders", body, sys_flag=flag, UNIQ_KEY=f"bomb {number}") == ResponseCode.SUCCESS
        bad.add(body)
    for flag in ANY_FLAG:
        body = b"flag %x" % (flag & 0xFFFFFFFF)
        if await attacker.send("orders", body, sys_flag=flag) == ResponseCode.SUCCESS:
            (bad if flag & COMPRESSED else good).add(body)
    for victim in VICTIMS:
        assert await attacker.send("orders", victim) == ResponseCode.SUCCESS
    return good | set(VICTIMS), bad


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_bodies_that_cannot_be_inflated_stop_no_push_consumer(
    attacker: Attacker, bombs: list[tuple[int, bytes]], ordered: bool
) -> None:
    good, bad = await attack(attacker, bombs)
    for group in ("before", "after"):
        seen: list[bytes] = []

        async def handle(message: MessageView) -> None:
            seen.append(message.body)

        most = {} if ordered else {"max_reconsume_times": 1}
        async with PushConsumer(
            attacker.cluster.namesrv, group=group, from_where=ConsumeFrom.FIRST, ordered=ordered, **most
        ) as consumer:
            consumer.subscribe("orders", "*", handle)
            await consumer.start()
            async with asyncio.timeout(PATIENCE_S):
                while set(seen) < good or set(await attacker.dead(group)) < bad:
                    await asyncio.sleep(0.1)
            assert consumer.problems == []
        assert (set(seen), set(await attacker.dead(group))) == (good, bad)
        await attacker.cluster.restart_broker("broker-a")


async def test_bodies_that_cannot_be_inflated_stop_no_pull_consumer(
    attacker: Attacker, bombs: list[tuple[int, bytes]]
) -> None:
    good, bad = await attack(attacker, bombs)
    async with PullConsumer(attacker.cluster.namesrv, group="pullers", from_where=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe("orders")
        polled: list[MessageView] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(polled) < len(good | bad):
                polled += await consumer.poll()
        assert {message.body for message in polled if message.body_problem is None} == good
        assert {message.body for message in polled if message.body_problem is not None} == bad
        assert consumer.problems == []


async def test_bodies_that_cannot_be_inflated_stop_no_pop_consumer(
    attacker: Attacker, bombs: list[tuple[int, bytes]]
) -> None:
    good, _ = await attack(attacker, bombs)
    seen: set[bytes] = set()
    async with PopConsumer(
        attacker.cluster.namesrv, group="poppers", from_where=ConsumeFrom.FIRST, invisible=1.0
    ) as consumer:
        await consumer.subscribe("orders")
        async with asyncio.timeout(PATIENCE_S):
            while seen < good:
                messages = await consumer.receive(wait=1.0)
                seen |= {message.body for message in messages}
                await consumer.ack_batch(messages) if messages else None
    assert seen == good


async def test_properties_of_any_size_stop_no_consumer(attacker: Attacker) -> None:
    """A handler fails at them: each is handed back, comes again where there is room for that, and dies."""
    poison = set()
    for size in range(MAX_PROPERTIES_BYTES - 420, MAX_PROPERTIES_BYTES, 4):
        body = b"poison %d" % size
        if await attacker.send("orders", body, filler="f" * (size - 100)) == ResponseCode.SUCCESS:
            poison.add(body)
    for victim in VICTIMS:
        assert await attacker.send("orders", victim) == ResponseCode.SUCCESS
    tries: dict[bytes, int] = {}

    async def handle(message: MessageView) -> None:
        tries[message.body] = tries.get(message.body, 0) + 1
        if message.body in poison:
            raise ValueError("it never works")

    async with PushConsumer(
        attacker.cluster.namesrv, group="pushers", from_where=ConsumeFrom.FIRST, max_reconsume_times=1
    ) as consumer:
        consumer.subscribe("orders", "*", handle)
        await consumer.start()
        async with asyncio.timeout(PATIENCE_S):
            while set(await attacker.dead("pushers")) < poison:
                await asyncio.sleep(0.1)
    assert sorted(await attacker.dead("pushers")) == sorted(poison)
    assert set(tries) == poison | set(VICTIMS)
    assert {tries[body] for body in poison} == {1, 2}, "some have room for another attempt, some have none"
