"""A server of the command line in a process of its own: started, paused, killed, and started again on its port."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from pathlib import Path

from tests.support.standing_still import stop_process

from rocketline.cli.child import cli_command, cli_environment

from .child import START_LIMIT_S, STOP_LIMIT_S, DidNotStart

READY = re.compile(r"ready \w+=(?:[^@\s]+@)?(?P<host>[^:\s]+):(?P<port>\d+)\n")


class ServerChild:
    """`rocketline nameserver` or `rocketline broker`; what it has to say goes to a file beside its data."""

    def __init__(self, log_path: Path, *arguments: str) -> None:
        self._log_path = log_path
        self._arguments = arguments
        self._port = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self, *, new_port: bool = False) -> None:
        """Returns when it serves, on the port it had before unless a new one is wanted."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        port = 0 if new_port else self._port
        with open(self._log_path, "a") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *cli_command(*self._arguments, "--port", str(port)),
                stdout=subprocess.PIPE,
                stderr=errors,
                env=cli_environment(),
            )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), START_LIMIT_S)
        ready = READY.fullmatch(line.decode())
        if ready is None:
            await self.kill()
            raise DidNotStart(self._log_path.read_text(errors="replace")[-3000:])
        self._port = int(ready["port"])

    def pause(self) -> None:
        """It answers nothing from now on, and nobody is told: its connections stay open."""
        stop_process(self._running.pid)

    def resume(self) -> None:
        self._running.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        self._running.terminate()
        await asyncio.wait_for(self._running.wait(), STOP_LIMIT_S)
        self._process = None

    async def kill(self) -> None:
        """kill -9, as far as it is still there."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await asyncio.wait_for(process.wait(), STOP_LIMIT_S)

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, f"{self._arguments[0]} is not running"
        return self._process
