"""Servers of the command line in processes of their own: started, paused, killed, and started again on their ports."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from tests.support.patience import PATIENCE_S
from tests.support.standing_still import stop_process

from rocketline.cli.servers.child import cli_command, cli_environment
from rocketline.client import ClientOptions, ConsumeFrom, Producer, PullConsumer
from rocketline.errors import RocketlineError
from rocketline.message import Message

from .child import DidNotStart
from .traffic import QUICK

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
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S)
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
        await asyncio.wait_for(self._running.wait(), PATIENCE_S)
        self._process = None

    def kill_now(self) -> None:
        """kill -9, without waiting for what `kill` has to wait for afterwards."""
        self._running.kill()

    async def kill(self) -> None:
        """kill -9, as far as it is still there."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await asyncio.wait_for(process.wait(), PATIENCE_S)

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, f"{self._arguments[0]} is not running"
        return self._process


class BrokerSite:
    """A name server that stays, and a broker to be killed; an async context manager."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._settings = {key: value for key, value in settings.items() if key != "listenPort"}
        self._name_server = ServerChild(folder / "n.log", "nameserver")
        self._undo = AsyncExitStack()

    @property
    def namesrv(self) -> str:
        return self._name_server.address

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._name_server.kill)
            await self._name_server.start()
            settings = [part for key, value in self._settings.items() for part in ("--set", f"{key}={value}")]
            settings += ["--namesrv", self.namesrv, "--data", str(self.folder / "store")]
            self.broker = ServerChild(self.folder / "broker.log", "broker", *settings)
            undo.push_async_callback(self.broker.kill)
            await self.broker.start()
            self._undo = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._undo.aclose()

    async def reached_by(self, producer: Producer, first: Message) -> None:
        """Wait until a producer has found the broker (again): until this message is stored."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await producer.send(first)
                    return
                except RocketlineError:
                    await asyncio.sleep(0.02)

    async def stored(self, topic: str) -> Counter[bytes]:
        """The bodies that a topic holds, whatever consumers were given."""
        found: Counter[bytes] = Counter()
        async with PullConsumer(
            self.namesrv, group="reader", from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=QUICK)
        ) as consumer:
            queues = await consumer.queues(topic)
            consumer.assign(queues)
            left = 0
            for queue in queues:
                await consumer.seek(queue, 0)
                left += await consumer.end_offset(queue)
            async with asyncio.timeout(PATIENCE_S):
                while found.total() < left:
                    found.update(message.body for message in await consumer.poll(timeout=0.2))
        return found
