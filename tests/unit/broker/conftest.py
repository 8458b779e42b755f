"""A broker's parts for each test, closed at its end; whole brokers run on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop
from tests.unit.broker.parts import MakeParts, Parts, Setup


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.name == "test_broker.py":
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture
async def make_parts() -> AsyncIterator[MakeParts]:
    """Makes parts that differ from the usual: `make_parts(sync_flush=True)`."""
    made: list[Parts] = []

    def make(**settings: object) -> Parts:
        made.append(Parts(Setup(**settings)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for parts in made:
        parts.close()


@pytest.fixture
async def parts(make_parts: MakeParts) -> Parts:
    """The usual parts."""
    return make_parts()
