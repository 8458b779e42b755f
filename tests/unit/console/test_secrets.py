"""Secrets are nowhere: not on a page, not in the API, the audit, the log or a file."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.support.asgi import AsgiClient
from tests.unit.console.conftest import start

from rocketline.admin import Admin
from rocketline.admin.accounts import account_servers, one_entry, wait_until_known
from rocketline.client import ClientOptions, Producer
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.endpoints import ENDPOINTS, Stream
from rocketline.console.users import UsersFile
from rocketline.message import Message
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig, UserInfo
from rocketline.protocol.signing import Credentials
from rocketline.testing import LocalCluster

ROOT = Credentials("root", "a-secret-of-root")
SHOP, KEY, PASSWORD = "a-secret-of-the-shop", "a-password-of-a-key", "a password of ann"
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": f'{{"username":"{ROOT.access_key}","password":"{ROOT.secret_key}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{ROOT.access_key}","secretKey":"{ROOT.secret_key}"}}',
    "tls.client.keyPassword": KEY,
}
PARTS = {"broker": "broker-a", "topic": "orders", "group": "billing", "name": "shop", "client": "nobody"}


@pytest.fixture(scope="module")
def guarded() -> str:
    with LocalCluster(config=SETTINGS) as cluster:
        yield cluster.namesrv


@pytest.fixture
async def message_id(guarded: str) -> str:
    async with Admin(guarded, credentials=ROOT) as admin:
        for server in await account_servers(admin, await admin.brokers()):
            await server.put_user(UserInfo(username="shop", password=SHOP))
            await server.put_acl(one_entry("User:shop", ["Topic:orders"], ["Sub"], "Allow"))
        assert await wait_until_known(admin, "shop", SHOP)
        for broker in await admin.brokers():
            await broker.put_topic(TopicConfig("orders", 1, 1))
            await broker.put_group(SubscriptionGroupConfig("billing"))
    async with Producer(guarded, group="tests", options=ClientOptions(credentials=ROOT)) as producer:
        return (await producer.send(Message("orders", b"x"))).message_id


async def everything(client: AsgiClient, message_id: str) -> str:
    """All that pages and API say, whatever their status."""
    texts = []
    for endpoint in ENDPOINTS.values():
        if endpoint.changes or endpoint.gives is Stream:
            continue
        for tab in ("", "?tab=settings", "?changed=true&tab=settings"):
            path = endpoint.path.format(**PARTS, id=quote(message_id)) + tab
            api = endpoint.api_path.format(**PARTS, id=quote(message_id)) + tab
            place = "/c/default" if endpoint.in_cluster else ""
            if endpoint.page not in (None, "-"):
                texts.append((await client.get(place + path)).text)
            if endpoint.in_api:
                texts.append((await client.get(f"/api/v1{place}{api}")).text)
    for name in ("tls.client.keyPassword", "initAuthenticationUser", "innerClientAuthenticationCredentials"):
        texts.append((await client.get(f"/c/default/brokers/broker-a/settings?name={name}")).text)
    wrong = {"name": "shop", "password": SHOP, "type": "?"}
    texts.append((await client.post("/c/default/access/users/new", wrong)).text)
    texts.append((await client.call("POST", "/api/v1/c/default/access/users", wrong)).text)
    return "".join(texts)


def config(guarded: str, folder: Path, **more: object) -> ConsoleConfig:
    place = ClusterPlace("default", guarded, {} if "broker_login" in more else {"credentials": ROOT})
    return ConsoleConfig((place,), audit=folder / "audit.jsonl", runs=folder, **more)


@pytest.mark.parametrize("how", ["users", "broker"])
async def test_secrets_are_nowhere(
    guarded: str, message_id: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level(logging.DEBUG)
    users = UsersFile(tmp_path / "users.json")
    users.put_user("ann", "admin", PASSWORD)
    token = users.put_token("robot", "admin")
    more = {"users": tmp_path / "users.json"} if how == "users" else {"broker_login": True}
    name, password = ("ann", PASSWORD) if how == "users" else (ROOT.access_key, ROOT.secret_key)
    async with start(config(guarded, tmp_path, **more)) as console:
        client = console.client
        assert (await client.post("/login", {"name": name, "password": "not-" + password})).status == 403
        assert (await client.post("/login", {"name": name, "password": password})).status == 303
        said = await everything(client, message_id)
        if how == "users":
            said += await everything(AsgiClient(client.app, headers={"authorization": f"Bearer {token}"}), message_id)
        session = client.cookies[console.desk.config.cookie]
    assert "keyPassword" in said
    assert "broker-a" in said
    written = (tmp_path / "audit.jsonl").read_text() + (tmp_path / "users.json").read_text()
    for secret in (ROOT.secret_key, SHOP, KEY, PASSWORD, token, session):
        for place, text in (("answers", said), ("files", written), ("log", caplog.text)):
            assert secret not in text, (place, secret)
