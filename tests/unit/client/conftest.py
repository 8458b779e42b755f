from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.unit.client.fakes import FakeCluster, fake_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with fake_cluster() as made:
        yield made


@pytest.fixture
async def two_brokers() -> AsyncIterator[FakeCluster]:
    async with fake_cluster(2) as made:
        yield made
