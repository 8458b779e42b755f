"""Every route has a role, and every route checks it."""

from __future__ import annotations

import re

import pytest
from tests.support.asgi import AsgiClient
from tests.unit.console.conftest import Console, Prepared, start

from rocketline.console.access import Role
from rocketline.console.app import PUBLIC, RouteRow, make_app, route_table
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.endpoints import ENDPOINTS
from rocketline.console.limits import MAX_REQUEST_BYTES, Heavy, Limits
from rocketline.console.problems import Problem
from rocketline.console.responses import HEADERS


def _url(row: RouteRow) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: "default" if found[1] == "cluster" else "x", row.path)


async def _ask(client: AsgiClient, row: RouteRow) -> int:
    if row.method == "GET":
        return (await client.get(_url(row))).status
    if row.path.startswith("/api"):
        return (await client.call(row.method, _url(row), {})).status
    return (await client.post(_url(row))).status


async def test_every_route_refuses_strangers_and_lower_roles(console: Console) -> None:
    rows = [row for row in route_table(console.desk, lambda token: None) if row.role != PUBLIC]
    assert len(rows) > 80
    for row in rows:
        assert isinstance(row.role, Role)
        stranger = AsgiClient(console.client.app)
        expected = 401 if row.path.startswith("/api/v1") or row.path.endswith("/cells") or row.method != "GET" else 303
        assert await _ask(stranger, row) == expected, row.path
        if row.role > Role.VIEWER:
            assert await _ask(console.as_role(Role(row.role - 1)), row) == 403, row.path


async def test_public_routes_are_these(console: Console) -> None:
    public = {(row.method, row.path) for row in route_table(console.desk, lambda token: None) if row.role == PUBLIC}
    assert public == {
        ("GET", "/"), ("GET", "/login"), ("POST", "/login"), ("POST", "/login/link"), ("GET", "/healthz"),
        ("GET", "/static/{hash}/{name}"),
    }  # fmt: skip


def test_a_route_without_a_role_stops_the_start(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    import rocketline.console.app as app

    monkeypatch.setattr(app, "route_table", lambda *_: [RouteRow("GET", "/open", "", None)])  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="/open"):
        make_app(console.desk)


async def test_changes_need_a_token_of_the_session(console: Console) -> None:
    client, other = console.as_role(Role.ADMIN), console.as_role(Role.ADMIN)
    for token in ("", "00" * 64, other.token):
        client.token = token
        assert (await client.post("/c/default/topics/new", {"name": "never"})).status == 403
        assert (await client.call("POST", "/api/v1/c/default/topics", {"name": "never"})).status == 403
    assert "never" not in (await client.get("/c/default/topics")).text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_forms_of_other_sites_are_refused(admin_client: AsgiClient, site: str) -> None:
    answer = await admin_client.post("/c/default/topics/new", {"name": "never"}, sec_fetch_site=site)
    assert answer.status == 403
    assert "another site" in answer.shown


async def test_large_requests_are_refused(admin_client: AsgiClient) -> None:
    answer = await admin_client.post("/c/default/topics/new", {"name": "x" * MAX_REQUEST_BYTES})
    assert answer.status == 413


async def test_read_only_has_no_changes(prepared: Prepared) -> None:
    async with start(ConsoleConfig((ClusterPlace("default", prepared.namesrv),), read_only=True)) as console:
        client = console.as_role(Role.ADMIN)
        assert (await client.post("/c/default/topics/new", {"name": "never"})).status == 405
        assert (await client.call("DELETE", "/api/v1/c/default/topics/orders", {"confirm": "orders"})).status == 405
        for path in ("/topics", "/topics/orders", "/groups/billing", "/dead-letters/mailer", "/brokers/broker-a"):
            main = (await client.get(f"/c/default{path}")).text.partition("<main")[2]
            assert 'method="post"' not in main
            assert "/topics/new" not in main


async def test_every_answer_has_the_headers(console: Console, prepared: Prepared) -> None:
    client = console.as_role(Role.ADMIN)
    paths = ["/login", "/healthz", "/c/default/", "/c/default/nothing", "/api/v1/c/default/brokers", "/api/v1/nothing"]
    for path in paths:
        answer = await client.get(path)
        for name, value in HEADERS.items():
            assert answer.header(name) == value, (path, name)
    body = await client.get(f"/c/default/messages/{prepared.hostile_id}/body?topic=orders")
    assert body.header("content-security-policy").endswith("sandbox")
    assert body.header("content-disposition").startswith("attachment")
    assert body.header("content-type") == "application/octet-stream"


def test_work_at_once_is_limited() -> None:
    limits = Limits()
    with limits.hold(Heavy.SCAN, "ann"), limits.hold(Heavy.SCAN, "ann"):
        with pytest.raises(Problem) as refused, limits.hold(Heavy.SCAN, "ann"):
            pass
        assert refused.value.view.status == 429
        with limits.hold(Heavy.SCAN, "bob"):
            pass
    with limits.hold(Heavy.SCAN, "ann"):
        pass


def test_every_change_is_audited() -> None:
    assert all(item.audited for item in ENDPOINTS.values() if item.changes)


@pytest.mark.parametrize("path", ["/%2Fevil.example/x", "/%2F%2Fevil.example", "/%5Cevil.example"])
async def test_no_page_links_to_another_site(admin_client: AsgiClient, path: str) -> None:
    answer = await admin_client.get(path)
    assert answer.status == 404
    assert not re.search(r'(?:href|src|action)="(?://|/?\\|[a-z]+:)', answer.text)


async def test_behind_a_proxy_under_a_path(prepared: Prepared) -> None:
    config = ConsoleConfig((ClusterPlace("default", prepared.namesrv),), root_path="/mq", behind_proxy=True)
    async with start(config) as console:
        assert console.desk.logins.link is not None
        client = console.client
        entered = await client.get(f"/mq/login?token={console.desk.logins.link.token}", host="shop.example")
        assert entered.header("location") == "/mq/c/default/"
        assert "__Host-rocketline-8090-mq=" in entered.header("set-cookie")
        assert "Secure" in entered.header("set-cookie")
        for prefix in ("/mq", ""):  # some proxies take their path off
            page = await client.get(f"{prefix}/c/default/topics", host="shop.example")
            assert page.status == 200
            assert 'href="/mq/c/default/topics/orders"' in page.text
            assert not re.search(r'(?:href|src|action)="/(?!mq/)', page.text)
            for path in ("/c/default", "/c/default/topics/", "/api/v1/c/default/topics/"):  # a slash less or more
                assert (await client.get(f"{prefix}{path}", host="shop.example")).status == 200, path
        assert not page.header("strict-transport-security")  # it would bind all that the proxy's host serves
