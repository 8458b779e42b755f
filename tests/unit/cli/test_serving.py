"""Work that runs until it is told to stop, by a signal or by the end of its lifeline."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.serving import until_signalled


class Work:
    """Runs until cancelled, and takes its time to wind up."""

    def __init__(self) -> None:
        self.runs = asyncio.Event()
        self.winds_up = asyncio.Event()
        self.may_end = asyncio.Event()
        self.endings = 0

    async def __call__(self) -> str:
        try:
            self.runs.set()
            await asyncio.Event().wait()
        finally:
            self.winds_up.set()
            await self.may_end.wait()
            self.endings += 1
        return "never"


@pytest.mark.parametrize("first", ["lifeline", "signal"])
async def test_who_is_told_twice_winds_up_once_and_in_peace(first: str) -> None:
    reader, writer = os.pipe()
    work = Work()
    task = asyncio.create_task(until_signalled(work(), reader))
    async with asyncio.timeout(PATIENCE_S):
        await work.runs.wait()
        os.write(writer, b"means nothing")
        if first == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
            await work.winds_up.wait()
            os.close(writer)
        else:
            os.close(writer)
            await work.winds_up.wait()
            os.kill(os.getpid(), signal.SIGTERM)
        # From the first signal on the next one ends the process, for those who cannot wait.
        while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL or _is_watched(reader):
            await asyncio.sleep(0)
        assert work.endings == 0
        work.may_end.set()
        assert await task is None
    assert work.endings == 1
    os.close(reader)


def _is_watched(descriptor: int) -> bool:
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    return descriptor in selector.get_map()


async def test_work_that_ends_by_itself_needs_no_lifeline() -> None:
    reader, writer = os.pipe()

    async def work() -> int:
        return 7

    assert await until_signalled(work(), reader) == 7
    os.close(reader)
    os.close(writer)
