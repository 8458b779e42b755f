"""One real cluster for the tests of an adapter: each test has its own topics and groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketline.testing import LocalCluster


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with LocalCluster() as cluster:
        yield cluster.namesrv
