"""Apache's Java clients on our cluster, which takes only TLS and demands a certificate of every client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.java import require_java
from tests.support.java_client import JavaClient
from tests.support.java_driver import JavaCallError, client_coordinates
from tests.support.patience import PATIENCE_S

from rocketline.testing import LocalCluster
from rocketline.transport.certificates import LOCAL_NAMES, Authority

pytestmark = pytest.mark.interop

MESSAGES = 20
T = TypeVar("T")


def patiently(work: Callable[[], T]) -> T:
    """Do it again while a busy machine lets Java's own time limits pass: its first TLS connection loads much."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except JavaCallError as error:
            if "RemotingTimeoutException" not in str(error) or time.monotonic() > deadline:
                raise


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("java-tls")
    authority = Authority.make("everybody", 1)
    authority.pair.save(folder / "ca.pem", folder / "ca.key")
    authority.server(LOCAL_NAMES, 1).save(folder / "server.pem", folder / "server.key")
    authority.client("java", 1).save(folder / "java.pem", folder / "java.key")
    return folder


@pytest.fixture(scope="module")
def secured(certificates: Path) -> Iterator[LocalCluster]:
    config = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(certificates / "server.pem"),
        "tls.server.keyPath": str(certificates / "server.key"),
        "tls.server.trustCertPath": str(certificates / "ca.pem"),
        "tls.server.need.client.auth": "require",
        "tls.client.trustCertPath": str(certificates / "ca.pem"),
    }
    with LocalCluster(config=config) as cluster:
        yield cluster


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
def test_produces_and_consumes_through_tls(
    version: str, secured: LocalCluster, certificates: Path, name: Callable[[str], str]
) -> None:
    require_java(*client_coordinates(version))
    topic = name("secured")
    options = (
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={certificates / 'ca.pem'}",
        f"-Dtls.client.certPath={certificates / 'java.pem'}",
        f"-Dtls.client.keyPath={certificates / 'java.key'}",
    )
    bodies = [b"%d" % number * 5000 for number in range(MESSAGES)]
    with JavaClient(version, jvm_options=options) as java:
        with java.producer(secured.namesrv, name("senders")) as producer:
            patiently(lambda: producer.send(name("first"), b"x"))
            assert {producer.send(topic, body).status for body in bodies} == {"SEND_OK"}
        with java.push_consumer(secured.namesrv, name("readers"), {topic: "*"}) as consumer:
            assert sorted(seen.body for seen in consumer.poll(MESSAGES)) == sorted(bodies)


def test_a_plain_java_client_is_refused(
    secured: LocalCluster, java_clients: Callable[[str], JavaClient], name: Callable[[str], str]
) -> None:
    with (
        java_clients("5.4.0").producer(secured.namesrv, name("plain"), retries=0) as producer,
        pytest.raises(JavaCallError, match=r"TLS required|No route info|send request to .* failed"),
    ):
        patiently(lambda: producer.send(name("secured"), b"x"))
