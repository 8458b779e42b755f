"""Java clients and clusters for the interop tests: started when first asked for, shared by all tests of this folder that
run in one process. They end before a process goes on to other tests, which count threads and watch files.

ROCKETLINE_INTEROP_TARGET chooses what `cluster` is: "rocketline" (our own, the default) or "apache", which
proves that a test's expectations are Apache's.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java
from tests.support.java_client import JavaClient
from tests.support.java_driver import client_coordinates

from rocketline.testing import LocalCluster

LANES = 3
"""How many worker processes run these tests: they wait for other processes most of the time, and each has a cluster of
Apache's, so that more of them than cores are quicker, and one for every worker would cost too much memory."""
LONG_S = {
    "access": 90,
    "test_timers.py": 150,
    "test_store_exchange.py": 110,
    "test_transactions_and_requests.py": 110,
    "test_travelling_store.py": 100,
    "test_consumption_verbs.py": 95,
    "test_apache_broker_on_our_nameserver.py": 85,
    "test_mixed_groups.py": 75,
    "test_killed_members.py": 70,
    "test_mqadmin_verbs.py": 60,
    "test_retry_ladder.py": 45,
    "test_access_on_apache.py": 25,
    "test_pop_handles.py": 70,
    "test_consuming_without_master.py": 45,
    "test_java_on_rocketline.py": 40,
    "test_our_broker_on_apache_nameserver.py": 15,
    "test_ext_queue.py": 45,
    "test_java_over_tls.py": 30,
    "test_sql_filters.py": 40,
    "test_pop_on_apache.py": 40,
    "test_pop.py": 35,
    "test_apache_baseline.py": 35,
}
"""About how long a file or folder takes; all others are quick."""


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Share files and folders out to the lanes, the long ones first, each to the lane that has least."""
    here = Path(__file__).parent
    files = sorted(
        {_shared(item) for item in items if here in item.path.parents}, key=lambda path: (-_seconds(path), path)
    )
    lanes = dict.fromkeys((f"interop {number}" for number in range(LANES)), 0)
    lane_of: dict[Path, str] = {}
    for path in files:
        lane = lane_of[path] = min(lanes, key=lambda name: lanes[name])
        lanes[lane] += _seconds(path)
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(lane_of[_shared(item)]))


def _shared(item: pytest.Item) -> Path:
    """What goes to one lane as a whole: a file, or a folder of files that share their servers."""
    here = Path(__file__).parent
    return here / item.path.relative_to(here).parts[0]


def _seconds(path: Path) -> int:
    return LONG_S.get(path.name, 10)


class Cluster(Protocol):
    """What a test needs to know of a cluster."""

    @property
    def namesrv(self) -> str: ...


class JavaClients:
    """The drivers of all tests: `java_clients("5.4.0")`, one per version and header encoding."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], JavaClient] = {}

    def __call__(self, version: str, serialize: str = "JSON") -> JavaClient:
        key = (version, serialize)
        if key not in self._running:
            require_java(*client_coordinates(version))
            self._running[key] = JavaClient(version, serialize)
        return self._running[key]

    def close(self) -> None:
        for client in self._running.values():
            client.close()


@pytest.fixture(scope="package")
def java_clients() -> Iterator[JavaClients]:
    require_java()
    clients = JavaClients()
    yield clients
    clients.close()


@pytest.fixture
def java(java_clients: JavaClients) -> JavaClient:
    """Apache's client of the version that Apache's servers here have."""
    return java_clients(SERVER_VERSION)


@pytest.fixture(scope="package")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """Apache's name server and broker, one pair for all tests."""
    require_java(*server_coordinates(SERVER_VERSION))
    cluster = ApacheCluster(tmp_path_factory.mktemp("apache"), jvm_options=QUICK_START).start()
    yield cluster
    cluster.kill()  # a clean stop takes up to half a minute, and nobody looks at this store again


@pytest.fixture(scope="package")
def rocketline() -> Iterator[LocalCluster]:
    """Our name server and broker, one pair for all tests."""
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster under test, shared as Apache's is."""
    target = os.environ.get("ROCKETLINE_INTEROP_TARGET", "rocketline")
    if target not in ("rocketline", "apache"):
        pytest.fail(f"ROCKETLINE_INTEROP_TARGET must be rocketline or apache, not {target!r}", pytrace=False)
    found: Cluster = request.getfixturevalue(target)
    return found


@pytest.fixture
def name() -> Callable[[str], str]:
    """`name("orders")`: a topic or group name no other test uses, whichever cluster is shared."""
    return lambda prefix: f"{prefix}_{uuid.uuid4().hex[:8]}"
