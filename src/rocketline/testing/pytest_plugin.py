"""Pytest fixtures: a real cluster for one test, or one for the whole run.

    async def test_orders(rocketline_cluster):
        async with Producer(rocketline_cluster.namesrv, group="shop") as producer:
            await producer.send(Message("orders", b"hello"))

Override `rocketline_cluster_options` to change what is started, for example `{"brokers": 2}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rocketline.testing.local_cluster import LocalCluster


@pytest.fixture(scope="session")
def rocketline_cluster_options() -> dict[str, Any]:
    """Keyword arguments of the `LocalCluster` that the other fixtures start."""
    return {}


@pytest.fixture
def rocketline_cluster(rocketline_cluster_options: dict[str, Any]) -> Iterator[LocalCluster]:
    """A fresh cluster for this test alone."""
    yield from _running(rocketline_cluster_options)


@pytest.fixture(scope="session")
def rocketline_session_cluster(rocketline_cluster_options: dict[str, Any]) -> Iterator[LocalCluster]:
    """One cluster for all tests of this run; they share it, so each should use topics and groups of its own."""
    yield from _running(rocketline_cluster_options)


def _running(options: dict[str, Any]) -> Iterator[LocalCluster]:
    from rocketline.testing.local_cluster import LocalCluster

    with LocalCluster(**options) as cluster:
        yield cluster
