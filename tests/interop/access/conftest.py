"""Two brokers with access control and the same accounts: Apache's and ours, each started once for this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.support.access.world import INNER, ROOT, Side, furnish
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java

from rocketline.testing import LocalCluster

AUTH = "org.apache.rocketmq.auth"
SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": "true",
    "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{ROOT.name}","password":"{ROOT.secret}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{INNER.name}","secretKey":"{INNER.secret}"}}',
}
"""The same file works for both."""

EARLY_CHECKS = {"transactionTimeOut": "500", "transactionCheckInterval": "500"}
"""Of transactions whose producers did not say how they ended."""


class Sides(NamedTuple):
    theirs: Side
    ours: Side


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    require_java(*server_coordinates(SERVER_VERSION))
    cluster = ApacheCluster(
        tmp_path_factory.mktemp("guarded"),
        broker_conf=SETTINGS,
        jvm_options=QUICK_START,
        account=(ROOT.name, ROOT.secret),
    ).start()
    yield furnish(Side(cluster.namesrv, cluster.broker))
    cluster.kill()


@pytest.fixture(scope="session")
def ours() -> Iterator[Side]:
    with LocalCluster(config={**SETTINGS, **EARLY_CHECKS}) as cluster:
        yield furnish(Side(cluster.namesrv, cluster.brokers[0].address))


@pytest.fixture(scope="session")
def sides(theirs: Side, ours: Side) -> Sides:
    return Sides(theirs, ours)
