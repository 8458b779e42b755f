"""Java clients and clusters for the interop tests: started when first asked for, shared by the whole session.

ROCKETLINE_INTEROP_TARGET chooses what `cluster` is: "rocketline" (our own, the default) or "apache", which
proves that a test's expectations are Apache's.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

pytest.register_assert_rewrite("tests.support.comparing", "tests.support.reading")  # before they are imported

from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates  # noqa: E402
from tests.support.java import require_java  # noqa: E402
from tests.support.java_client import JavaClient  # noqa: E402
from tests.support.java_driver import client_coordinates  # noqa: E402


class Cluster(Protocol):
    """What a test needs to know of a cluster."""

    @property
    def namesrv(self) -> str: ...


class JavaClients:
    """The session's drivers: `java_clients("5.4.0")`, one per version and header encoding."""

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


@pytest.fixture(scope="session")
def java_clients() -> Iterator[JavaClients]:
    require_java()
    clients = JavaClients()
    yield clients
    clients.close()


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    """Apache's name server and broker, one pair for the session."""
    require_java(*server_coordinates(SERVER_VERSION))
    cluster = ApacheCluster(tmp_path_factory.mktemp("apache"), jvm_options=QUICK_START).start()
    yield cluster
    cluster.kill()  # a clean stop takes up to half a minute, and nobody looks at this store again


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster under test, shared by the session as Apache's is."""
    fixtures = {"rocketline": "rocketline_session_cluster", "apache": "apache"}
    target = os.environ.get("ROCKETLINE_INTEROP_TARGET", "rocketline")
    if target not in fixtures:
        pytest.fail(f"ROCKETLINE_INTEROP_TARGET must be rocketline or apache, not {target!r}", pytrace=False)
    found: Cluster = request.getfixturevalue(fixtures[target])
    return found


@pytest.fixture
def name() -> Callable[[str], str]:
    """`name("orders")`: a topic or group name no other test uses, whichever cluster is shared."""
    return lambda prefix: f"{prefix}_{uuid.uuid4().hex[:8]}"
