"""A transactional producer to be killed between its steps, and the database of its local transactions.

    python -m tests.crash.payer PLAN        a plan as JSON

A transaction is a number. Its local transaction is a line in a file; so who reads the file knows how it ended, whoever died.
Every third one is rolled back, every fifth says nothing to the broker and leaves it to a question.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import msgspec

from rocketline.client import ClientOptions, Transaction, TransactionalProducer
from rocketline.message import Message, MessageView

from .traffic import QUICK

HALF, LOCAL, TOLD = "half message stored", "local transaction done", "broker told"
STEPS = (HALF, LOCAL, TOLD)
SENDERS = 4


class PayerPlan(msgspec.Struct, frozen=True):
    namesrv: str
    group: str
    topic: str
    books: str
    first: int
    """Number of the first transaction."""
    dies_after: str = ""
    """The step after which it kills itself ..."""
    dies_at: int = 0
    """... the nth time; 0: it goes on until somebody kills it."""


class Books:
    """The database: a line for each local transaction that ended, shared by processes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b", buffering=0)
        self._known: dict[int, Transaction] = {}
        self._read = 0

    def close(self) -> None:
        self._file.close()

    def write(self, number: int, outcome: Transaction) -> None:
        self._file.write(f"{number} {outcome.name}\n".encode())

    def all(self) -> dict[int, Transaction]:
        self._file.seek(self._read)
        text = self._file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode().splitlines():
            number, outcome = line.split()
            self._known[int(number)] = Transaction[outcome]
        return self._known

    def outcome(self, number: int, otherwise: Transaction) -> Transaction:
        return self._known.get(number) or self.all().get(number, otherwise)


async def pay(
    producer: TransactionalProducer, topic: str, books: Books, numbers: Iterator[int], step: Callable[[str], None]
) -> None:
    """Transactions one after the other, until something fails."""

    async def execute(message: Message, number: int) -> Transaction:
        step(HALF)
        outcome = Transaction.ROLLBACK if number % 3 == 0 else Transaction.COMMIT
        books.write(number, outcome)
        step(LOCAL)
        return Transaction.UNKNOWN if number % 5 == 0 else outcome

    for number in numbers:
        await producer.send_in_transaction(Message(topic, str(number).encode()), execute, number)
        step(TOLD)


async def main(plan: PayerPlan) -> None:
    books, steps = Books(Path(plan.books)), count(1)

    async def check(message: MessageView) -> Transaction:
        return books.outcome(int(message.body), Transaction.UNKNOWN)

    def step(name: str) -> None:
        if name == plan.dies_after and next(steps) == plan.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async with TransactionalProducer(
        plan.namesrv, group=plan.group, check=check, options=ClientOptions(timing=QUICK)
    ) as producer:
        numbers = count(plan.first)
        await asyncio.gather(*(pay(producer, plan.topic, books, numbers, step) for _ in range(SENDERS)))


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=PayerPlan)))
