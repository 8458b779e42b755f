"""The harness's end of a broker's process: start it, ask it, kill it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from tests.support.patience import PATIENCE_S

from .plan import Plan

REPOSITORY = Path(__file__).resolve().parents[2]


class DidNotStart(Exception):
    """The broker ended before it served; the text is what it said."""


class BrokerChild:
    """One broker process."""

    def __init__(self, plan: Plan, *, under: Sequence[str] = ()) -> None:
        """`under` is a command line to run it under, such as strace with its options."""
        self.plan = plan
        self.port = 0
        self.report: dict[str, Any] = {}
        self.open_s = 0.0
        """How long the store took to open."""
        self.start_s = 0.0
        """From the start of the process to serving."""
        self._under = list(under)
        self._pid = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        """Everything the broker had to say, over all its lives on this store."""
        return self.plan.root.with_name(self.plan.root.name + ".stderr")

    async def start(self) -> BrokerChild:
        started = time.monotonic()
        self.plan.root.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.crash.broker_process", msgspec.json.encode(self.plan).decode()]
        with open(self.log_path, "a") as errors:
            self._process = subprocess.Popen(
                [*self._under, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))},
            )
        ready = await self._line(PATIENCE_S)
        if "port" not in ready:
            self._end()
            raise DidNotStart(ready.get("refused") or self._last_words())
        self._pid, self.port, self.report = ready["pid"], ready["port"], ready["report"]
        self.open_s, self.start_s = ready["open_s"], time.monotonic() - started
        return self

    async def stats(self) -> dict[str, Any]:
        """What the broker's process knows of itself now."""
        return await self._ask("stats")

    async def heal(self) -> dict[str, Any]:
        """End all trouble that was planned for it."""
        return await self._ask("heal")

    async def slow_down(self) -> dict[str, Any]:
        """Let planned slowness begin."""
        return await self._ask("slow")

    async def speed_up(self) -> dict[str, Any]:
        """Let planned slowness end."""
        return await self._ask("fast")

    async def fill_disk(self) -> dict[str, Any]:
        """There is no space from now on."""
        return await self._ask("fill")

    async def make_room(self) -> dict[str, Any]:
        return await self._ask("room")

    async def fail_next_flush(self) -> dict[str, Any]:
        """Of the log; for good, as far as this process can tell."""
        return await self._ask("fail")

    async def stall(self, seconds: float) -> dict[str, Any]:
        """Its event loop does nothing for so long; returns afterwards."""
        return await self._ask(f"stall {seconds:.3f}")

    async def _ask(self, question: str) -> dict[str, Any]:
        process = self._running
        assert process.stdin is not None
        process.stdin.write(question + "\n")
        process.stdin.flush()
        return await self._line(PATIENCE_S)

    async def _line(self, limit_s: float) -> dict[str, Any]:
        process = self._running
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), limit_s)
        except TimeoutError:
            process.kill()
            raise
        found: dict[str, Any] = json.loads(line) if line else {}
        return found

    def kill(self) -> None:
        """kill -9, as far as it is still there."""
        if self._process is not None:
            if self._pid:
                # Under strace the broker is a grandchild: killing strace would leave it running.
                with suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
            self._end()

    async def stop(self) -> int:
        """Stop it cleanly; its exit code."""
        process = self._running
        os.kill(self._pid, signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, PATIENCE_S)
        finally:
            self._end()
        return process.returncode

    async def died(self) -> int:
        """Wait until it ended by itself."""
        process = self._running
        await asyncio.to_thread(process.wait, PATIENCE_S)
        self._end()
        return process.returncode

    def _end(self) -> None:
        process, self._process, self._pid = self._running, None, 0
        if process.poll() is None and not self._under:
            process.kill()
        process.wait(PATIENCE_S)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _last_words(self) -> str:
        return self.log_path.read_text(errors="replace")[-3000:]

    @property
    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the broker's process is not running"
        return self._process
