"""Fronts for the tests of this folder, ours and Apache's proxy, and the cases that are run on both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.grpc_front.cases")  # before they are imported

from tests.grpc_front.cases import CASES  # noqa: E402
from tests.support.apache import QUICK_START, SERVER_VERSION  # noqa: E402
from tests.support.apache_proxy import ApacheProxy, proxy_coordinates  # noqa: E402
from tests.support.grpc_client import Account  # noqa: E402
from tests.support.grpc_front import Address, Front  # noqa: E402
from tests.support.java import require_java  # noqa: E402
from tests.support.proxy_process import ProxyProcess  # noqa: E402

from rocketline.cli.servers.child import ChildCluster  # noqa: E402

ROOT = Account("root", "rootsecret1")
_AUTH = "org.apache.rocketmq.auth"
SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{ROOT.name}","password":"{ROOT.secret}"}}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"innersecret"}',
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
}
"""Of both brokers."""
OF_APACHE = {**SETTINGS, "enableMixedMessageType": "true"}
OF_PROXY = {
    **SETTINGS,
    "authenticationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthorizationMetadataProvider",
}
"""Apache's proxy asks its broker for accounts."""
OURS = {
    key: SETTINGS[key]
    for key in SETTINGS
    if not key.endswith("Provider") and key != "innerClientAuthenticationCredentials"
}
RENEWING = {"defaultInvisibleTimeMills": 12_000, "renewAheadTimeMillis": 6_000, "renewSchedulePeriodMillis": 1_000}
"""What push consumers hold is renewed after seconds instead of a minute."""

SIDES = {
    "apache": "apache_front",
    "ours": "our_front",
    "our proxy": "our_proxy",
    "our proxy with accounts": "our_proxy_with_accounts",
}
Outcomes = dict[tuple[str, str], BaseException | None]


@pytest.fixture(scope="package")
def apache_front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    require_java(*proxy_coordinates(SERVER_VERSION))
    proxy = ApacheProxy(
        tmp_path_factory.mktemp("proxy"),
        broker_conf=OF_APACHE,
        proxy_conf={**OF_PROXY, **RENEWING},
        jvm_options=QUICK_START,
        account=(ROOT.name, ROOT.secret),
    ).start()
    yield Address(proxy.grpc, proxy.namesrv, is_ours=False, has_our_broker=False, asks_for_accounts=True, account=ROOT)
    proxy.kill()


@pytest.fixture(scope="package")
def our_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ours")


@pytest.fixture(scope="package")
def our_front(our_folder: Path) -> Iterator[Address]:
    settings = [f"--set={key}={value}" for key, value in (OURS | RENEWING).items()]
    with ChildCluster([f"--data={our_folder}", "--grpc-port=0", *settings]) as cluster:
        yield Address(
            cluster.grpc, cluster.namesrv, is_ours=True, has_our_broker=True, asks_for_accounts=True, account=ROOT
        )


@pytest.fixture(scope="package")
def our_proxy(apache_front: Address) -> Iterator[Address]:
    """Our front in a process of its own, before Apache's broker."""
    inner = f'{{"accessKey":"{ROOT.name}","secretKey":"{ROOT.secret}"}}'
    settings = {"innerClientAuthenticationCredentials": inner, **RENEWING}
    with ProxyProcess(apache_front.namesrv, settings) as proxy:
        yield Address(proxy.grpc, apache_front.namesrv, is_ours=True, has_our_broker=False, account=ROOT)


@pytest.fixture(scope="package")
def our_proxy_with_accounts(our_front: Address, our_folder: Path) -> Iterator[Address]:
    """Our front in a process of its own, before our broker, whose accounts it shares."""
    (users,) = our_folder.rglob("users.json")
    settings = {
        "authenticationEnabled": "true",
        "rocketline.authPath": str(users.parent),
        "innerClientAuthenticationCredentials": f'{{"accessKey":"{ROOT.name}","secretKey":"{ROOT.secret}"}}',
    }
    with ProxyProcess(our_front.namesrv, settings) as proxy:
        yield Address(
            proxy.grpc, our_front.namesrv, is_ours=True, has_our_broker=True, asks_for_accounts=True, account=ROOT
        )


@pytest.fixture(scope="package")
def outcomes(request: pytest.FixtureRequest) -> Outcomes:
    """How each case ended that this run wants to know about. All of them run at the same time, on all fronts."""
    wanted: dict[str, list[str]] = {side: [] for side in SIDES}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and "outcomes" in item.fixturenames:
            wanted[item.callspec.params["side"]].append(item.callspec.params["case"])
    found: Outcomes = {}
    addresses: dict[str, Address] = {}
    for side, names in wanted.items():
        try:
            if names:
                addresses[side] = request.getfixturevalue(SIDES[side])
        except (pytest.skip.Exception, pytest.fail.Exception) as missing:
            found |= {(side, name): missing for name in names}

    async def run_all() -> None:
        ended = await asyncio.gather(*(run_cases(address, wanted[side]) for side, address in addresses.items()))
        for side, outcomes in zip(addresses, ended, strict=True):
            found.update({(side, name): error for name, error in outcomes.items()})

    asyncio.run(run_all())
    return found


async def run_cases(address: Address, names: list[str]) -> dict[str, BaseException | None]:
    async with Front(address) as front:
        ended = await asyncio.gather(*(CASES[name](front) for name in names), return_exceptions=True)
    return dict(zip(names, ended, strict=True))
