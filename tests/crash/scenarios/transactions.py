"""S22: broker or producer killed (kill -9) between half message, local transaction and end, or at any moment.

Passes when half messages are seen by nobody before their local transaction committed, every transaction whose local part
committed is seen, once, no other ever is, and in the end the broker has nothing more to ask.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random

import msgspec
from tests.support.patience import PATIENCE_S

from rocketline.client import ClientOptions, ConsumeFrom, PushConsumer, Transaction, TransactionalProducer
from rocketline.errors import RocketlineError
from rocketline.message import Message, MessageView

from ..child import REPOSITORY
from ..outcome import Outcome
from ..payer import SENDERS, STEPS, Books, PayerPlan, pay
from ..plan import SETTINGS
from ..servers import BrokerSite
from ..traffic import QUICK, NeverHappened, until

BROKER_DIES, PRODUCER_DIES = "broker", "producer"
VARIANTS = (BROKER_DIES, PRODUCER_DIES)
TOPIC, GROUP = "payments", "payers"
FIRST = 1
CHECK_S = 0.1
BROKER = {
    **SETTINGS,
    "transactionTimeOut": "200",
    "transactionCheckInterval": str(round(CHECK_S * 1000)),
    "transactionOpBatchInterval": "50",
    "transactionCheckMax": "100000",
}
MOST_STEPS = 30
MOST_LIFE_S = 0.5
NUMBERS_A_LIFE = 1_000_000


class Witnesses:
    """One that answers questions, and one that watches, for all lives of the broker; and the books they go by."""

    def __init__(self, site: BrokerSite, outcome: Outcome, random: Random) -> None:
        self.site, self.outcome, self.random = site, outcome, random
        self.books = Books(site.folder / "books")
        self.asked_at = 0.0
        self.payer_lives = False

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        namesrv = self.site.namesrv
        async with (
            TransactionalProducer(
                namesrv, group=GROUP, check=self._check, timeout=1.0, retries=0, options=ClientOptions(timing=QUICK)
            ) as self.producer,
            PushConsumer(
                namesrv, group="watchers", from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=QUICK)
            ) as watcher,
        ):
            await self.connected()
            watcher.subscribe(TOPIC, "*", self._seen, in_thread=False)
            await watcher.start()
            yield

    async def connected(self) -> None:
        await self.site.reached_by(self.producer, Message(TOPIC, b"0"))

    async def _check(self, message: MessageView) -> Transaction:
        self.asked_at = asyncio.get_running_loop().time()
        undecided = Transaction.UNKNOWN if self.payer_lives else Transaction.ROLLBACK
        return self.books.outcome(int(message.body), undecided)

    def _seen(self, message: MessageView) -> None:
        number = int(message.body)
        if number and self.books.outcome(number, Transaction.UNKNOWN) is not Transaction.COMMIT:
            self.outcome.violations.append(f"S22 (I8): transaction {number} was seen before it committed")

    async def stored(self) -> Counter[int]:
        found = Counter({int(body): times for body, times in (await self.site.stored(TOPIC)).items()})
        del found[0]
        return found


async def run(folder: Path, seed: int, variant: str = BROKER_DIES, runs: int = 1) -> Outcome:
    """So many kills on one store, and then the reckoning."""
    outcome = Outcome("S22", variant, seed)
    random = Random(seed)
    site = BrokerSite(folder, BROKER)
    witnesses, numbers = Witnesses(site, outcome, random), count(FIRST)
    try:
        async with site, witnesses.watching():
            for number in range(runs):
                if variant == BROKER_DIES:
                    await _kill_the_broker(witnesses, numbers)
                else:
                    await _kill_the_producer(witnesses, FIRST + number * NUMBERS_A_LIFE)
                outcome.runs += 1
            await _reckon(witnesses)
    except NeverHappened as error:
        outcome.violations.append(f"S22 {variant}: {error}")
    finally:
        witnesses.books.close()
    return outcome


async def _kill_the_broker(seen_by: Witnesses, numbers: count[int]) -> None:
    """In the middle of a step of some transaction, or at any moment."""
    seen_by.payer_lives = True
    dead = asyncio.Event()
    after, at = seen_by.random.choice((*STEPS, "")), seen_by.random.randrange(1, MOST_STEPS)
    steps = count(1)

    def step(name: str) -> None:
        if name == after and next(steps) == at:
            seen_by.site.broker.kill_now()
            dead.set()

    senders = [asyncio.create_task(pay(seen_by.producer, TOPIC, seen_by.books, numbers, step)) for _ in range(SENDERS)]
    try:
        await asyncio.wait_for(dead.wait(), seen_by.random.uniform(0.05, MOST_LIFE_S) if not after else PATIENCE_S)
    except TimeoutError:
        if after:
            raise NeverHappened(f"no transaction came to: {after}") from None
    await seen_by.site.broker.kill()
    results = await asyncio.gather(*senders, return_exceptions=True)
    strange = [result for result in results if not isinstance(result, RocketlineError)]
    seen_by.outcome.require(not strange, f"S22: senders ended with {strange}")
    await seen_by.site.broker.start()
    await seen_by.connected()
    seen_by.payer_lives = False


async def _kill_the_producer(seen_by: Witnesses, first: int) -> None:
    """By its own hand after some step, or by ours at any moment."""
    seen_by.payer_lives = True
    after = seen_by.random.choice((*STEPS, ""))
    at = seen_by.random.randrange(1, MOST_STEPS) if after else 0
    plan = PayerPlan(seen_by.site.namesrv, GROUP, TOPIC, str(seen_by.site.folder / "books"), first, after, at)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.crash.payer", msgspec.json.encode(plan).decode(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))},
    )  # fmt: skip
    try:
        if after:
            await asyncio.wait_for(process.wait(), PATIENCE_S)
        else:
            await until(lambda: any(number >= first for number in seen_by.books.all()), "a first transaction")
            await asyncio.sleep(seen_by.random.uniform(0, MOST_LIFE_S))
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.wait_for(process.wait(), PATIENCE_S)
        seen_by.payer_lives = False
    seen_by.outcome.require(process.returncode == -9, f"S22: the producer ended with {process.returncode}")


async def _reckon(seen_by: Witnesses) -> None:
    outcome, loop = seen_by.outcome, asyncio.get_running_loop()
    wanted = {number for number, end in seen_by.books.all().items() if end is Transaction.COMMIT}
    started, seen = loop.time(), Counter[int]()
    while wanted - seen.keys():
        if loop.time() - started > PATIENCE_S:
            raise NeverHappened(f"{len(wanted - seen.keys())} of {len(wanted)} committed transactions were never seen")
        seen = await seen_by.stored()
    outcome.note("seconds to the last end", loop.time() - started)
    # It asks every round about what is open: when it is silent for many of them, nothing is.
    await until(lambda: loop.time() - seen_by.asked_at > 10 * CHECK_S, "an end of all questions")
    seen = await seen_by.stored()
    outcome.acked += len(seen_by.books.all())
    outcome.duplicates += seen.total() - len(seen)
    outcome.lost += len(wanted - seen.keys())
    outcome.require(outcome.lost == 0, f"S22: {outcome.lost} committed transactions are missing")
    outcome.require(outcome.duplicates == 0, f"S22: {outcome.duplicates} came twice")
    strange = seen.keys() - wanted
    outcome.require(not strange, f"S22: {len(strange)} were seen that did not commit: {sorted(strange)[:5]}")
