"""F14: what is under way while masters change: delayed messages, timers, transactions, pops, topics of an operator.

Clients as applications have them, with routes from the name server. In the end: nothing that was acknowledged is missing,
nothing came early, nothing was seen that did not commit, and topics that were answered as created are there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Self

from tests.crash.outcome import Outcome
from tests.crash.traffic import QUICK
from tests.replication.group import ReplicatedGroup
from tests.support.patience import PATIENCE_S

from rocketline.client import (
    ClientOptions,
    ConsumeFrom,
    PopConsumer,
    Producer,
    PushConsumer,
    Transaction,
    TransactionalProducer,
)
from rocketline.errors import BrokerError, RocketlineError
from rocketline.message import Message, MessageView
from rocketline.protocol.bodies import TopicConfigSerializeWrapper, decode_body
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import CreateTopicHeader
from rocketline.transport import RemotingClient

LATER, PAID, TAKEN = "later", "paid", "taken"
SETTINGS = {
    "transactionTimeOut": "500",
    "transactionCheckInterval": "300",
    "transactionOpBatchInterval": "50",
    "transactionCheckMax": "100000",
    "rocketline.copyTablesMs": "500",
}
LEVEL_1_S = 1.0
SEND_S = 20.0
"""Time limit of a send: longer than it takes until another one leads."""
LIMIT_TIMES = 2
"""On a busy machine."""
INVISIBLE_S = 3.0
PAUSE_S = 0.1
EARLY_S = 0.05
"""A timer may come a little early."""
OPTIONS = ClientOptions(timing=QUICK)


class Errands:
    """An async context manager around a fault."""

    def __init__(self, group: ReplicatedGroup, seed: int) -> None:
        self._group = group
        self._namesrv = group.name_server_address
        self._chance = Random(seed)
        self._numbers = count(seed * 100_000)
        self._is_over = False
        self._undo = AsyncExitStack()
        self._work: list[asyncio.Task[None]] = []
        self._due: dict[bytes, float] = {}
        """Wall time before which a message must not come."""
        self._wanted: dict[str, set[bytes]] = {LATER: set(), PAID: set(), TAKEN: set()}
        self._decided: dict[bytes, Transaction] = {}
        self._seen: Counter[bytes] = Counter()
        self._acked: set[bytes] = set()
        self._topics: set[str] = set()
        self._wrong: list[str] = []
        self._succeeded: dict[str, float] = {}
        """When an errand of each kind was last done."""
        self._failed: Counter[str] = Counter()

    @property
    def _kinds(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return self._later, self._pay, self._send_taken, self._create

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            self._remoting = RemotingClient()
            undo.push_async_callback(self._remoting.close)
            self._producer = await undo.enter_async_context(
                Producer(self._namesrv, group="errands", timeout=SEND_S, options=OPTIONS)
            )
            self._payer = await undo.enter_async_context(
                TransactionalProducer(self._namesrv, group="payers", check=self._check, timeout=SEND_S, options=OPTIONS)
            )
            for topic in (LATER, PAID, TAKEN):
                await self._tried_until_done(partial(self._send, topic))  # makes the topic
            for topic in (LATER, PAID):
                reader = PushConsumer(
                    self._namesrv,
                    group=f"readers-of-{topic}",
                    from_where=ConsumeFrom.FIRST,
                    options=OPTIONS,
                )
                await undo.enter_async_context(reader)
                reader.subscribe(topic, "*", self._arrived, in_thread=False)
                await reader.start()
            self._popper = await undo.enter_async_context(
                PopConsumer(
                    self._namesrv, group="takers", from_where=ConsumeFrom.FIRST, invisible=INVISIBLE_S, options=OPTIONS
                )
            )
            await self._popper.subscribe(TAKEN)
            for errand in self._kinds:
                self._work.append(asyncio.ensure_future(self._again_and_again(errand)))
            self._popping = asyncio.ensure_future(self._pop())
            undo.callback(self._popping.cancel)
            self._undo = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._work:
            task.cancel()
        await self._undo.aclose()

    # What they do

    async def _again_and_again(self, errand: Callable[[], Awaitable[None]]) -> None:
        while not self._is_over:
            began = time.monotonic()
            try:
                await errand()
                self._succeeded[errand.__name__] = time.monotonic()
            except RocketlineError as error:
                self._failed[f"{errand.__name__}: {type(error).__name__}"] += 1
                if (took_s := time.monotonic() - began) > LIMIT_TIMES * SEND_S:
                    self._wrong.append(
                        f"F14: {errand.__name__} failed after {took_s:.1f} s, its limit is {SEND_S:g}: {error}"
                    )
            await asyncio.sleep(self._chance.uniform(0, 2 * PAUSE_S))

    async def _tried_until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(RocketlineError):
                    return await work()
                await asyncio.sleep(PAUSE_S)

    async def _send(self, topic: str, *, level: int = 0, delay_s: float = 0.0) -> None:
        body = b"%d" % next(self._numbers)
        wait_s = LEVEL_1_S if level else delay_s
        if wait_s:
            self._due[body] = time.time() + wait_s
        delay = timedelta(seconds=delay_s) if delay_s else None
        await self._producer.send(Message(topic, body, delay_level=level, delay=delay))
        self._wanted[topic].add(body)

    async def _later(self) -> None:
        if self._chance.random() < 0.5:
            await self._send(LATER, level=1)
        else:
            await self._send(LATER, delay_s=self._chance.choice([1.0, 2.0, 4.0]))

    async def _send_taken(self) -> None:
        await self._send(TAKEN)

    async def _pay(self) -> None:
        async def local(message: Message, body: bytes) -> Transaction:
            self._decided[body] = self._chance.choice([Transaction.COMMIT, Transaction.COMMIT, Transaction.ROLLBACK])
            return self._chance.choice([self._decided[body], Transaction.UNKNOWN])

        body = b"%d" % next(self._numbers)
        await self._payer.send_in_transaction(Message(PAID, body), local, body)
        if self._decided[body] is Transaction.COMMIT:
            self._wanted[PAID].add(body)

    async def _check(self, message: MessageView) -> Transaction:
        # A half message of which the sender never heard was not decided: its local part has not happened.
        return self._decided.get(bytes(message.body), Transaction.ROLLBACK)

    async def _create(self) -> None:
        name = f"made-{next(self._numbers)}"
        header = CreateTopicHeader(
            topic=name,
            default_topic="TBW102",
            read_queue_nums=2,
            write_queue_nums=2,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, header.encode())
        master = await self._group.master()
        answer = await self._remoting.call(master.address, command, SEND_S)
        if answer.code:
            raise BrokerError(answer.code, answer.remark, master.address)
        self._topics.add(name)
        await asyncio.sleep(5 * PAUSE_S)

    async def _pop(self) -> None:
        while True:
            try:
                for message in await self._popper.receive(8, wait=0.5):
                    if self._chance.random() < 0.7:
                        await self._popper.ack(message)
                        self._acked.add(bytes(message.body))
            except RocketlineError:
                await asyncio.sleep(PAUSE_S)

    def _arrived(self, message: MessageView) -> None:
        body = bytes(message.body)
        self._seen[body] += 1
        if time.time() < self._due.get(body, 0.0) - EARLY_S:
            self._wrong.append(f"F14: {message.topic} {body!r} came {self._due[body] - time.time():.2f} s early")
        if message.topic == PAID and body in self._decided and self._decided[body] is not Transaction.COMMIT:
            self._wrong.append(f"F14: transaction {body!r} was seen and did not commit")

    # The end

    async def finish(self, outcome: Outcome) -> None:
        """The group is whole: everything succeeds again, then nothing new is begun, and everything comes to its end."""
        await self._all_succeed(outcome)
        self._is_over = True
        await asyncio.wait(self._work)
        limit = time.monotonic() + PATIENCE_S
        while (missing := self._missing()) and time.monotonic() < limit:
            await asyncio.sleep(0.1)
        outcome.violations += self._wrong
        for topic, bodies in missing.items():
            outcome.violations.append(f"F14: {len(bodies)} of {topic} never came: {sorted(bodies)[:5]}")
        existing = await self._existing()
        outcome.require(
            self._topics <= existing, f"F14: topics {sorted(self._topics - existing)} were created and are gone"
        )
        done = [body for topic in (LATER, PAID) for body in self._wanted[topic]]
        outcome.note("errands", len(done) + len(self._wanted[TAKEN]) + len(self._topics))
        outcome.note("errands that failed", self._failed.total())
        outcome.note("errands done twice", sum(self._seen[body] - 1 for body in done if self._seen[body] > 1))

    async def _all_succeed(self, outcome: Outcome) -> None:
        whole, limit = time.monotonic(), time.monotonic() + PATIENCE_S
        kinds = [errand.__name__ for errand in self._kinds]
        while waits_for := [kind for kind in kinds if self._succeeded.get(kind, 0.0) < whole]:
            if time.monotonic() > limit:
                outcome.violations.append(f"F14: {waits_for} do not succeed any more: {dict(self._failed)}")
                return
            await asyncio.sleep(0.1)

    def _missing(self) -> dict[str, set[bytes]]:
        had = self._seen.keys()
        found = {
            LATER: self._wanted[LATER] - had,
            PAID: self._wanted[PAID] - had,
            TAKEN: self._wanted[TAKEN] - self._acked,
        }
        return {topic: bodies for topic, bodies in found.items() if bodies}

    async def _existing(self) -> set[str]:
        master = await self._group.master()
        answer = await self._remoting.call(master.address, Command(RequestCode.GET_ALL_TOPIC_CONFIG), PATIENCE_S)
        return set(decode_body(TopicConfigSerializeWrapper, answer.body).topic_config_table)
