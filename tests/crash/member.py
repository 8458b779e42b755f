"""A member of a consumer group in a process of its own, to be stopped, killed, or to hang by itself.

    python -m tests.crash.member PLAN        a plan as JSON

It writes a line for every message before it is consumed, the body in hex, so what a member said is never less than what its
group committed. What it wrote before it was killed is not lost. Before it hangs it says so. One that pops says, in other
lines, when it got which messages, when the broker had taken which acknowledgements, and for which it had no answer, by the
machine's clock.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
from tests.support.patience import PATIENCE_S
from tests.support.standing_still import stop_process

from rocketline.client import ClientOptions, ConsumeFrom, PopConsumer, PushConsumer
from rocketline.errors import RocketlineError
from rocketline.message import MessageView

from .child import REPOSITORY
from .traffic import QUICK

HANDLER, LOOP = "handler", "loop"
HANGS = b"hangs\n"
POPPED, ACKED, DOUBTED = b"popped", b"acked", b"doubted"
POP_WAIT_S = 1.0


class MemberPlan(msgspec.Struct, frozen=True):
    namesrv: str
    group: str
    topic: str
    hangs: str = ""
    """What hangs for ever at the `hangs_at`th message: its handler, or with it the event loop and so the whole client."""
    hangs_at: int = 0
    consume_timeout_s: float = 900.0
    pop_invisible_s: float = 0.0
    """Above 0 it pops, and hides messages for so long."""


class Member:
    """The process as the harness sees it."""

    def __init__(self, plan: MemberPlan, log_path: Path) -> None:
        self.bodies: list[bytes] = []
        """Of every message it consumed."""
        self.popped: list[tuple[float, bytes]] = []
        self.acked: list[tuple[float, bytes]] = []
        self.doubted: list[tuple[float, bytes]] = []
        """If it pops: when, and the body; doubted are those of which nobody knows whether the broker took their ack."""
        self.hangs = threading.Event()
        with open(log_path, "a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.member", msgspec.json.encode(plan).decode()],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == HANGS:
                self.hangs.set()
            elif line.endswith(b"\n"):  # the last line of one that was killed may be half a line
                self._note(line.split())

    def _note(self, words: list[bytes]) -> None:
        body = bytes.fromhex(words[-1].decode())
        if len(words) == 1:
            self.bodies.append(body)
        else:
            told = {POPPED: self.popped, ACKED: self.acked, DOUBTED: self.doubted}
            told[words[0]].append((float(words[1]), body))

    def pause(self) -> None:
        """It stands still, and nobody is told: its connections stay open."""
        stop_process(self._process.pid)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9; once everything it wrote is here."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)

    def close(self) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


class _Handler:
    def __init__(self, plan: MemberPlan) -> None:
        self._plan = plan
        self._calls = 0

    async def __call__(self, message: MessageView) -> None:
        self._calls += 1
        if self._plan.hangs and self._calls == self._plan.hangs_at:
            say(HANGS)
            if self._plan.hangs == LOOP:
                time.sleep(1e6)
            await asyncio.get_running_loop().create_future()
        say(message.body.hex().encode() + b"\n")


def say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def tell(what: bytes, *messages: MessageView) -> None:
    now = time.monotonic()
    say(b"".join(b"%b %f %b\n" % (what, now, message.body.hex().encode()) for message in messages))


async def pop(plan: MemberPlan) -> None:
    """Pop for ever; what cannot be acknowledged, or asked for, because the broker is gone is tried again later."""
    handler = _Handler(plan)
    async with PopConsumer(
        plan.namesrv,
        group=plan.group,
        from_where=ConsumeFrom.FIRST,
        invisible=plan.pop_invisible_s,
        options=ClientOptions(timing=QUICK),
    ) as consumer:
        await consumer.subscribe(plan.topic)
        while True:
            try:
                messages = await consumer.receive(8, wait=POP_WAIT_S)
                tell(POPPED, *messages)
                for message in messages:
                    await handler(message)
                    await acknowledge(consumer, message)
            except RocketlineError as error:
                print(error, file=sys.stderr, flush=True)
                await asyncio.sleep(0.1)


async def acknowledge(consumer: PopConsumer, message: MessageView) -> None:
    try:
        await consumer.ack(message)
    except RocketlineError:
        tell(DOUBTED, message)
        raise
    tell(ACKED, message)


async def push(plan: MemberPlan) -> None:
    first = ConsumeFrom.FIRST
    async with PushConsumer(
        plan.namesrv,
        group=plan.group,
        from_where=first,
        options=ClientOptions(timing=replace(QUICK, consume_timeout_s=plan.consume_timeout_s)),
    ) as consumer:
        consumer.subscribe(plan.topic, "*", _Handler(plan))
        await consumer.run()


async def main(plan: MemberPlan) -> None:
    await (pop if plan.pop_invisible_s else push)(plan)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=MemberPlan)))
