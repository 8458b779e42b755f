"""Lines arrive as they are written, and a silent writer blocks nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rocketline.cli.messages.lines import lines_of


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        with suppress(OSError):
            os.close(descriptor)


async def test_lines_in_pieces(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = lines_of(reading, 1000)
    os.write(writing, b"first\r\nsec")
    assert await anext(lines) == b"first"
    os.write(writing, b"ond\n\nlast")
    os.close(writing)
    assert [line async for line in lines] == [b"second", b"", b"last"]


async def test_a_line_without_end_is_cut(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    lines = lines_of(reading, 10)
    os.write(writing, b"x" * 11)
    assert await anext(lines) == b"x" * 11
    os.close(writing)
    assert [line async for line in lines] == []


async def test_waiting_for_a_line_can_be_given_up(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    waiting = asyncio.create_task(anext(lines_of(reading, 10)))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    os.write(writing, b"late\n")


async def test_a_descriptor_that_is_closed_is_an_error(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    with pytest.raises(OSError):
        await anext(lines_of(pipe[0], 10))
