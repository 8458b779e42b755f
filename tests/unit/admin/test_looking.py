"""What an operator finds out about messages, on our cluster (tests/interop/test_looking.py: on Apache's)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.looking import CHECKS, Check

from rocketline.admin import Admin
from rocketline.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_our_cluster(check: Check, cluster: LocalCluster) -> None:
    async with Admin(cluster.namesrv) as admin:
        await check(admin)
