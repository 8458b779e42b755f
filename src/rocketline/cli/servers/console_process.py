"""The console of `rocketline up --console`: a process of its own, so that no page costs a broker a turn of its loop.

Its standard input is its lifeline: it ends when this process does. What it prints, its link, is printed here too. When it
ends by itself the servers go on.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rocketline.cli.access import NAMESRV_VARIABLE
from rocketline.cli.contexts import CONFIG_VARIABLE
from rocketline.cli.servers.child import cli_command, cli_environment

log = logging.getLogger(__name__)

STOP_LIMIT_S = 10.0


@asynccontextmanager
async def console_process(namesrv: str, port: int, contexts: Path | None) -> AsyncIterator[Process]:
    """A console for a cluster; `contexts` is a file that says how to get in, where accounts are asked for."""
    environment = cli_environment()
    place = ["--namesrv", namesrv]
    if contexts is not None:
        place = []  # an account is used only for the name servers that its context names
        environment = {key: value for key, value in environment.items() if key != NAMESRV_VARIABLE}
        environment[CONFIG_VARIABLE] = str(contexts)
    command = cli_command("console", *place, "--port", str(port), "--lifeline")
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment)
    watching = asyncio.create_task(_watch(process))
    try:
        yield process
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await _stop(process)


async def _watch(process: Process) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        print(line.decode("utf-8", "replace").rstrip("\n"), flush=True)
    code = await process.wait()
    log.warning("the console ended with exit code %d; the servers go on. `rocketline console` starts another one", code)


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
