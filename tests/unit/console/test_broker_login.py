"""Logging in with an account of the cluster: only with its own secret, and only where accounts mean something."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.asgi import AsgiClient
from tests.unit.console.conftest import Console, Prepared, start

from rocketline.admin import Admin
from rocketline.admin.accounts import account_servers, one_entry, wait_until_known
from rocketline.admin.proof import _lacks_right, prove_account
from rocketline.auth.config import AuthConfig
from rocketline.console.access import Role
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.serve import Console as Served
from rocketline.errors import BrokerError, ConfigError, NoPermission
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.protocol.bodies import TopicConfig, UserInfo
from rocketline.protocol.signing import Credentials
from rocketline.settings import load
from rocketline.testing import LocalCluster

ROOT = Credentials("root", "rootsecret1")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": f'{{"username":"{ROOT.access_key}","password":"{ROOT.secret_key}"}}',
}
SHOP = "shopsecret1"
TRAP = "permission"
"""A name that is a word of refusals."""


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with LocalCluster(config=SETTINGS) as cluster:
        yield cluster.namesrv


@pytest.fixture
async def console(guarded: str) -> AsyncIterator[Console]:
    async with Admin(guarded, credentials=ROOT) as admin:
        for server in await account_servers(admin, await admin.brokers()):
            await server.put_user(UserInfo(username="shop", password=SHOP))
            await server.put_acl(one_entry("User:shop", ["Topic:orders"], ["Sub"], "Allow"))
        assert await wait_until_known(admin, "shop", SHOP)
    async with start(ConsoleConfig((ClusterPlace("default", guarded),), broker_login=True)) as one:
        yield one


async def enter(console: Console, name: str, password: str) -> tuple[AsgiClient, int]:
    client = AsgiClient(console.client.app)
    return client, (await client.post("/login", {"name": name, "password": password})).status


NAMES = [
    "nobody", TRAP, "",
    f"x has no {TRAP} to access ", "User:shop has no permission to access ", "shop has no permission to access",
]  # fmt: skip


@pytest.mark.parametrize("name", [*NAMES, "shop", "root"])
async def test_a_wrong_secret_lets_nobody_in(console: Console, name: str) -> None:
    client, status = await enter(console, name, "wrongsecret")
    assert status == 403
    assert (await client.get("/c/default/")).status == 303


async def test_the_brokers_decide_what_an_account_may_do(console: Console) -> None:
    shop, status = await enter(console, "shop", SHOP)
    assert status == 303
    refused = await shop.get("/api/v1/c/default/topics")
    assert (refused.json["items"], refused.json["partial"][0]["code"]) == ([], 16)
    root, status = await enter(console, ROOT.access_key, ROOT.secret_key)
    assert status == 303
    assert (await root.get("/c/default/topics")).status == 200


async def test_what_no_broker_guards_is_for_super_users(console: Console) -> None:
    shop, _ = await enter(console, "shop", SHOP)
    root, _ = await enter(console, ROOT.access_key, ROOT.secret_key)
    for page in ("audit", "store", "jobs"):
        assert (await shop.get(f"/c/default/{page}")).status == 403, page
        assert (await shop.get(f"/api/v1/c/default/{page}")).status == 403, page
    assert (await root.get("/c/default/audit")).status == 200
    assert (await root.get("/c/default/store")).status == 404  # none was given


async def test_charts_say_why_there_are_none(console: Console) -> None:
    root, _ = await enter(console, ROOT.access_key, ROOT.secret_key)
    for page in ("", "charts", "brokers/broker-a"):
        answer = await root.get(f"/c/default/{page}")
        assert "collects no samples" in answer.shown, page
        assert "data-chart=" not in answer.text, page


async def test_a_secret_is_forgotten_with_the_session(console: Console, guarded: str) -> None:
    shop, _ = await enter(console, "shop", SHOP)
    await shop.get("/c/default/brokers")
    assert len(console.desk._admins) == 1
    await shop.get("/settings")
    await shop.post("/logout")
    assert not console.desk._admins
    root, _ = await enter(console, ROOT.access_key, ROOT.secret_key)
    await root.get("/c/default/brokers")
    async with Admin(guarded, credentials=ROOT) as admin:
        for server in await account_servers(admin, await admin.brokers()):
            await server.put_user(UserInfo(username="shop", password="another1"))
        assert await wait_until_known(admin, "shop", "another1")
    assert (await enter(console, "shop", SHOP))[1] == 403
    assert (await enter(console, "shop", "another1"))[1] == 303


async def test_the_access_page_reaches_brokers_and_name_servers(console: Console) -> None:
    root, _ = await enter(console, ROOT.access_key, ROOT.secret_key)
    await root.get("/c/default/access")
    made = await root.post("/c/default/access/users/new", {"name": "clerk", "password": "clerksecret1"})
    assert made.text.count('data-result="ok"') == 1, made.shown
    (row,) = (await root.get("/api/v1/c/default/access/users?q=clerk")).json["items"]
    assert row["brokers"] == ["broker-a"]  # its name server reads the broker's file
    clerk, status = await enter(console, "clerk", "clerksecret1")
    assert status == 303
    assert (await clerk.get("/api/v1/c/default/topics")).json["partial"][0]["code"] == 16
    rule = {"subject": "clerk", "resource": "Cluster:*", "actions": ["Get", "List"]}
    assert 'data-result="ok"' in (await root.post("/c/default/access/rules/new", rule)).text
    assert (await clerk.get("/c/default/brokers")).status == 200
    (rule_row,) = (await root.get("/api/v1/c/default/access/rules?q=clerk")).json["items"]
    assert rule_row["subject"] == "User:clerk"
    gone = await root.post("/c/default/access/users/clerk/delete", {"confirm": "clerk"})
    assert 'data-result="ok"' in gone.text
    assert (await enter(console, "clerk", "clerksecret1"))[1] == 403
    assert (await root.get("/api/v1/c/default/access/users?q=clerk")).json["items"] == []


async def test_offsets_of_a_topic_that_may_not_be_seen_are_left_out(console: Console, guarded: str) -> None:
    async with Admin(guarded, credentials=ROOT) as admin:
        for broker in await admin.brokers():
            await broker.put_topics([TopicConfig(name, 1, 1) for name in ("seen", "hidden")])
        for server in await account_servers(admin, await admin.brokers()):
            await server.put_user(UserInfo(username="looker", password=SHOP))
            await server.put_acl(one_entry("User:looker", ["Topic:seen"], ["Get"], "Allow"))
        assert await wait_until_known(admin, "looker", SHOP)
    async with Admin(guarded, credentials=Credentials("looker", SHOP)) as admin:
        (broker,) = await admin.brokers()
        assert (await broker.stats_of_topics(["seen", "hidden"])).keys() == {"seen"}
        with pytest.raises(NoPermission):
            await broker.stats_of_topics(["hidden", "seen"])


async def test_name_servers_with_accounts_of_their_own_are_changed_too(guarded: str, tmp_path: Path) -> None:
    values = {**SETTINGS, "rocketline.authPath": str(tmp_path)}
    auth = load(AuthConfig, values)[0]
    async with NameServer(NameServerConfig(port=0, auth=auth)) as server:
        place = ClusterPlace("default", f"{guarded};{server.address}", {"credentials": ROOT})
        async with start(ConsoleConfig((place,))) as console:
            client = console.as_role(Role.ADMIN)
            call = {"name": "both", "password": "bothsecret1"}
            made = (await client.call("POST", "/api/v1/c/default/access/users", call)).json
            assert sorted(item["where"].split()[0] for item in made["items"] if item["ok"]) == [
                server.address,
                "broker-a",
            ]
            rule = {"subject": "both", "resource": "Topic:a", "actions": ["Pub"]}
            assert (await client.call("POST", "/api/v1/c/default/access/rules", rule)).json["ok"]
            (row,) = (await client.get("/api/v1/c/default/access/rules?q=both")).json["items"]
            assert sorted(row["brokers"]) == [server.address, "broker-a"]
            async with Admin(server.address, credentials=Credentials("both", "bothsecret1")) as both:
                await both.cluster_info()
                gone = {"confirm": "both"}
                assert (await client.call("DELETE", "/api/v1/c/default/access/users/both", gone)).json["ok"]
                both.forget()
                with pytest.raises(NoPermission):
                    await both.cluster_info()


async def test_only_clusters_that_know_an_account_may_be_entered(guarded: str, console: Console) -> None:
    places = (ClusterPlace("gone", "127.0.0.1:1"), ClusterPlace("default", guarded))
    async with start(ConsoleConfig(places, broker_login=True)) as two:
        client = two.client
        entered = await client.post("/login", {"name": "shop", "password": SHOP})
        assert entered.header("location") == "/c/default/"
        assert (await client.get("/c/gone/brokers")).status == 403


async def test_a_cluster_that_takes_anybody_lets_nobody_in(prepared: Prepared) -> None:
    config = ConsoleConfig((ClusterPlace("default", prepared.namesrv),), broker_login=True, port=0)
    async with start(config) as console:
        client, status = await enter(console, "anybody", "anything")
        assert status == 403
        assert (await client.get("/c/default/")).status == 303
    with pytest.raises(ConfigError, match="takes any account"):
        async with Served(config):
            pass


async def test_an_open_cluster_beside_a_guarded_one_lets_nobody_in(guarded: str, prepared: Prepared) -> None:
    places = (ClusterPlace("default", guarded), ClusterPlace("open", prepared.namesrv))
    async with start(ConsoleConfig(places, broker_login=True)) as console:
        assert (await enter(console, ROOT.access_key, ROOT.secret_key))[1] == 403


async def test_proof(guarded: str, prepared: Prepared) -> None:
    async with Admin(guarded) as admin:
        root = await prove_account(admin, ROOT.access_key, ROOT.secret_key)
        assert (root.is_known, root.is_super, root.open_at) == (True, True, "")
        assert not (await prove_account(admin, ROOT.access_key, "wrong")).is_known
    async with Admin(prepared.namesrv) as admin:
        proof = await prove_account(admin, "any", "thing")
        assert (proof.is_known, bool(proof.open_at)) == (False, True)


@pytest.mark.parametrize(
    ("remark", "is_known"),
    [
        ("User:shop has no permission to access Cluster:c from 10.0.0.1, no matched policies.", True),
        ("User:shop has no permission to access Cluster:c from 10.0.0.1, the decision is deny.", True),
        ("User:shop is not found.", False),
        ("User:shop is disabled.", False),
        ("check signature failed.", False),
        ("Authorization failed. Please verify your access rights and try again.", False),
        ("User:shop2 has no permission to access Cluster:c from 10.0.0.1, no matched policies.", False),
        ("User:permission is not found.", False),
    ],
)
def test_words_of_apaches_brokers(remark: str, is_known: bool) -> None:
    assert _lacks_right(BrokerError.of(16, remark), "shop") is is_known
    assert not _lacks_right(BrokerError.of(1, remark), "shop")
