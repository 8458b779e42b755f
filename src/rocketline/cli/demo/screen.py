"""Output of the demonstration: progress bars and a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol

Counts = Callable[[], dict[str, int]]

REDRAW_S = 0.1
PLAIN_EVERY_S = 1.0


class Screen(Protocol):
    def say(self, text: str) -> None:
        """One line about what happens."""

    def progress(self, total: int, counts: Counts) -> Any:
        """An async context in which `counts`, each out of `total`, are shown as they grow."""

    def summary(self, rows: Sequence[tuple[str, str]], problems: Sequence[str]) -> None: ...


@contextmanager
def open_screen() -> Iterator[Screen]:
    yield RichScreen() if sys.stdout.isatty() else PlainScreen()


class PlainScreen:
    """Lines only, for logs and pipes."""

    def say(self, text: str) -> None:
        print(text, flush=True)

    @asynccontextmanager
    async def progress(self, total: int, counts: Counts) -> AsyncIterator[None]:
        def show() -> None:
            self.say(", ".join(f"{name} {count:,} of {total:,}" for name, count in counts().items()))

        async with _repeated(show, PLAIN_EVERY_S):
            yield
        show()

    def summary(self, rows: Sequence[tuple[str, str]], problems: Sequence[str]) -> None:
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self.say(f"{name:<{width}}  {value}")
        for problem in problems:
            self.say(f"PROBLEM: {problem}")
        self.say("nothing was lost" if not problems else f"{len(problems)} problems")


class RichScreen:
    """Bars and tables on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)

    @asynccontextmanager
    async def progress(self, total: int, counts: Counts) -> AsyncIterator[None]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, auto_refresh=False) as bars:
            tasks = {name: bars.add_task(name, total=total) for name in counts()}

            def show() -> None:
                for name, count in counts().items():
                    bars.update(tasks[name], completed=count)
                bars.refresh()

            async with _repeated(show, REDRAW_S):
                yield
            show()

    def summary(self, rows: Sequence[tuple[str, str]], problems: Sequence[str]) -> None:
        from rich.table import Table

        table = Table(show_header=False, title="the journey", title_justify="left")
        table.add_column()
        table.add_column(justify="right")
        for name, value in rows:
            table.add_row(name, value)
        self._console.print(table)
        for problem in problems:
            self._console.print(f"problem: {problem}", style="bold red", markup=False)
        if not problems:
            self._console.print("nothing was lost", style="bold green")


@asynccontextmanager
async def _repeated(show: Callable[[], None], every_s: float) -> AsyncIterator[None]:
    """Call `show` every `every_s` seconds while the context lasts."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(every_s)
            show()

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
