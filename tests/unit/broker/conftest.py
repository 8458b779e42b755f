"""A broker's parts for each test, closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from tests.unit.broker.parts import Parts, Setup

MakeParts = Callable[..., Parts]


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
