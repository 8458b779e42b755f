"""Two brokers with access control and the same accounts: Apache's and ours, each started once for this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.support.access.world import INNER, ROOT, Side, furnish
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java

from rocketline.auth import brake
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

OLD_ACCOUNTS = """
globalWhiteRemoteAddresses:
- 127.0.0.1
accounts:
- accessKey: old-shop
  secretKey: old-shop-secret
  whiteRemoteAddress: 127.0.0.1
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - orders=PUB|SUB
  - other=DENY
  groupPerms:
  - g1=SUB
- accessKey: old-boss
  secretKey: old-boss-secret
  admin: true
- accessKey: old-guest
  secretKey: old-guest-secret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: DENY
- accessKey: old-reader
  secretKey: old-reader-secret
  topicPerms:
  - orders=SUB
"""
"""A file of RocketMQ 4, from which both take over accounts. White addresses are not taken over."""

EARLY_CHECKS = {"transactionTimeOut": "500", "transactionCheckInterval": "500"}
"""Of transactions whose producers did not say how they ended."""


@pytest.fixture(scope="package", autouse=True)
def address_may_guess() -> Iterator[None]:
    """The address of the tests is not slowed down: many wrong signatures a minute come from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brake, "MAX_GUESSES_A_MINUTE", 1_000_000)
        yield


class Sides(NamedTuple):
    theirs: Side
    ours: Side


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    require_java(*server_coordinates(SERVER_VERSION))
    folder = tmp_path_factory.mktemp("guarded")
    old = folder / "home" / "conf" / "plain_acl.yml"
    old.parent.mkdir(parents=True)
    old.write_text(OLD_ACCOUNTS, "utf-8")
    cluster = ApacheCluster(
        folder,
        broker_conf={**SETTINGS, "migrateAuthFromV1Enabled": "true"},
        jvm_options=QUICK_START,
        account=(ROOT.name, ROOT.secret),
    ).start()
    yield furnish(Side(cluster.namesrv, cluster.broker))
    cluster.kill()


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    old = tmp_path_factory.mktemp("old") / "plain_acl.yml"
    old.write_text(OLD_ACCOUNTS, "utf-8")
    migration = {"migrateAuthFromV1Enabled": "true", "rocketline.auth.v1Folder": str(old.parent)}
    with LocalCluster(config={**SETTINGS, **EARLY_CHECKS, **migration}) as cluster:
        yield furnish(Side(cluster.namesrv, cluster.brokers[0].address))


@pytest.fixture(scope="session")
def sides(theirs: Side, ours: Side) -> Sides:
    return Sides(theirs, ours)
