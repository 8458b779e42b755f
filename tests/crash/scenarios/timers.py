"""S15, with a broker that is killed (kill -9) while it delivers: messages with a time and messages with a level.

Passes when no message is seen before its time, every acknowledged one is delivered, and none is stored more often than once
and once more for each kill. Those stored again are counted: they were delivered after the last save of progress.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from rocketline.client import ClientOptions, ConsumeFrom, Producer, PushConsumer
from rocketline.errors import RocketlineError
from rocketline.message import Message, MessageView

from ..outcome import Outcome
from ..plan import SETTINGS
from ..servers import BrokerSite
from ..traffic import QUICK, NeverHappened, until

KILLED = "killed in delivery"
TOPIC = "reminders"
SENDERS = 4
LEVELS_S = (1, 2)
MOST_DELAY_S = 2.5
LIFE_S = (1.0, 3.5)
"""A life ends while messages of its first second are being delivered."""
FIRST = b"first"
BROKER = {
    **SETTINGS,
    "messageDelayLevel": " ".join(f"{level}s" for level in LEVELS_S),
    "timerFlushIntervalMs": "200",
    "mappedFileSizeTimerLog": str(52 * 200),
}


class Reminders:
    """What was sent, when it is due by the clock, and who has seen it."""

    def __init__(self, outcome: Outcome, random: Random) -> None:
        self._outcome, self._random = outcome, random
        self._due_ms: dict[bytes, float] = {}
        self.acknowledged: set[bytes] = set()
        self.seen: set[bytes] = set()

    async def send_on(self, producer: Producer, life: int, sender: int) -> None:
        number = 0
        while True:
            body = f"{life} {sender} {number}".encode()
            number += 1
            try:
                await producer.send(self._message(body))
                self.acknowledged.add(body)
            except RocketlineError:
                await asyncio.sleep(0.02)  # it may be stored; then it must not be early either
            await asyncio.sleep(self._random.uniform(0, 0.02))

    def _message(self, body: bytes) -> Message:
        now = datetime.now(UTC)
        if self._random.random() < 0.5:
            level = self._random.randrange(len(LEVELS_S))
            self._due_ms[body] = now.timestamp() * 1000 + LEVELS_S[level] * 1000
            return Message(TOPIC, body, delay_level=level + 1)
        deliver_at = now + timedelta(seconds=self._random.uniform(0, MOST_DELAY_S))
        self._due_ms[body] = int(deliver_at.timestamp() * 1000)
        return Message(TOPIC, body, deliver_at=deliver_at)

    def arrived(self, message: MessageView) -> None:
        early_ms = self._due_ms.get(message.body, 0.0) - time.time() * 1000
        self._outcome.require(early_ms < 1, f"S15: {message.body!r} was seen {early_ms:.0f} ms before its time")
        self._outcome.note("seconds late", -early_ms / 1000 if message.body != FIRST else 0.0)
        self.seen.add(message.body)


async def run(folder: Path, seed: int, variant: str = KILLED, runs: int = 1) -> Outcome:
    """So many kills on one store, and then the reckoning."""
    outcome = Outcome("S15", variant, seed)
    random = Random(seed)
    site, reminders = BrokerSite(folder, BROKER), Reminders(outcome, random)
    try:
        async with (
            site,
            Producer(site.namesrv, group="senders", timeout=1.0, options=ClientOptions(timing=QUICK)) as producer,
            PushConsumer(
                site.namesrv, group="watchers", from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=QUICK)
            ) as watcher,
        ):
            await site.reached_by(producer, Message(TOPIC, FIRST))
            watcher.subscribe(TOPIC, "*", reminders.arrived, in_thread=False)
            await watcher.start()
            for life in range(runs):
                sending = [asyncio.create_task(reminders.send_on(producer, life, each)) for each in range(SENDERS)]
                await asyncio.sleep(random.uniform(*LIFE_S))
                await site.broker.kill()
                for task in sending:
                    task.cancel()
                await asyncio.wait(sending)
                await site.broker.start()
                outcome.runs += 1
            await _reckon(outcome, site, reminders)
    except NeverHappened as error:
        outcome.violations.append(f"S15 {variant}: {error}")
    return outcome


async def _reckon(outcome: Outcome, site: BrokerSite, reminders: Reminders) -> None:
    await until(lambda: not reminders.acknowledged - reminders.seen, "every acknowledged message")
    stored = await site.stored(TOPIC)
    del stored[FIRST]
    outcome.acked = len(reminders.acknowledged)
    outcome.lost = len(reminders.acknowledged - stored.keys())
    outcome.duplicates = stored.total() - len(stored)
    outcome.require(outcome.lost == 0, f"S15: {outcome.lost} messages were never delivered")
    most = max(stored.values(), default=0)
    outcome.require(most <= 1 + outcome.runs, f"S15: a message was delivered {most} times over {outcome.runs} kills")
