"""Who gets in: links, passwords, sessions, tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.asgi import AsgiClient
from tests.unit.console.conftest import Console, Prepared, start

from rocketline.clock import ManualClock
from rocketline.console.access import Person, Role
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.logins import FREE_FAILURES, Throttle
from rocketline.console.sessions import IDLE_S, LIFE_S, MAX_SESSIONS, Sessions
from rocketline.console.users import UsersFile
from rocketline.errors import ConfigError


@pytest.fixture
async def with_users(prepared: Prepared, tmp_path: Path) -> AsyncIterator[Console]:
    path = tmp_path / "users.json"
    UsersFile(path).put_user("ann", "operator", "right horse")
    config = ConsoleConfig((ClusterPlace("default", prepared.namesrv),), users=path, audit=tmp_path / "audit.jsonl")
    async with start(config) as one:
        yield one


async def test_a_link_lets_one_person_in_once(console: Console) -> None:
    assert console.desk.logins.link is not None
    link = f"/login?token={console.desk.logins.link.token}"
    nobody = await console.client.get("/c/default/")
    assert (nobody.status, nobody.header("location")) == (303, "/login?next=/c/default/")
    assert "printed where the console was started" in (await console.client.get("/login")).shown
    entered = await console.client.get(link)
    assert (entered.status, entered.header("location")) == (303, "/c/default/")
    assert "HttpOnly" in entered.header("set-cookie")
    assert "SameSite=lax" in entered.header("set-cookie")
    assert (await console.client.get("/c/default/brokers")).status == 200
    elsewhere = AsgiClient(console.client.app)
    assert (await elsewhere.get(link)).status == 403
    assert (await elsewhere.get("/c/default/")).status == 303


async def test_a_wrong_token_is_refused_and_the_link_stays_good(console: Console) -> None:
    assert (await console.client.get("/login?token=guess")).status == 403
    assert console.desk.logins.link is not None
    assert (await console.client.get(f"/login?token={console.desk.logins.link.token}")).status == 303


async def test_password_and_logout(with_users: Console) -> None:
    client = with_users.client
    wrong = await client.post("/login", {"name": "ann", "password": "wrong"})
    unknown = await client.post("/login", {"name": "bob", "password": "wrong"})
    assert (wrong.status, unknown.status) == (403, 403)
    assert wrong.shown == unknown.shown
    entered = await client.post("/login", {"name": "ann", "password": "right horse", "next": "/c/default/topics"})
    assert (entered.status, entered.header("location")) == (303, "/c/default/topics")
    stolen = dict(client.cookies)
    assert (await client.get("/c/default/brokers")).status == 200
    assert (await client.post("/logout")).status == 303
    thief = AsgiClient(client.app, cookies=stolen)
    assert (await thief.get("/c/default/brokers")).status == 303


@pytest.mark.parametrize("target", ["//evil.example/", "https://evil.example/", "/c/../\\evil", "/c//evil"])
async def test_nobody_is_sent_to_another_site(with_users: Console, target: str) -> None:
    entered = await with_users.client.post("/login", {"name": "ann", "password": "right horse", "next": target})
    assert entered.header("location") == "/c/default/"


async def test_too_many_failures_make_wait(with_users: Console) -> None:
    for _ in range(FREE_FAILURES):
        assert (await with_users.client.post("/login", {"name": "ann", "password": "no"})).status == 403
    waits = await with_users.client.post("/login", {"name": "ann", "password": "right horse"})
    assert waits.status == 429
    assert int(waits.header("retry-after")) > 0
    assert [line.outcome for line in with_users.desk.audit.lines] == [*["refused"] * FREE_FAILURES, "told to wait"]


async def test_a_changed_account_ends_its_sessions(with_users: Console, tmp_path: Path) -> None:
    client = with_users.client
    await client.post("/login", {"name": "ann", "password": "right horse"})
    UsersFile(tmp_path / "users.json").disable_user("ann", True)
    assert (await client.get("/c/default/brokers")).status == 303
    assert (await client.post("/login", {"name": "ann", "password": "right horse"})).status == 403


async def test_a_token_is_for_programs(with_users: Console, tmp_path: Path) -> None:
    token = UsersFile(tmp_path / "users.json").put_token("robot", "viewer")
    program = AsgiClient(with_users.client.app, headers={"authorization": f"Bearer {token}"})
    assert (await program.call("GET", "/api/v1/c/default/brokers")).status == 200
    refused = await program.call("POST", "/api/v1/c/default/topics", {"name": "x"})
    assert (refused.status, refused.json["role"]) == (403, "operator")
    program.headers["authorization"] = "Bearer rlc_wrong"
    assert (await program.call("GET", "/api/v1/c/default/brokers")).status == 401


async def test_secrets_are_nowhere(with_users: Console, tmp_path: Path) -> None:
    await with_users.client.post("/login", {"name": "ann", "password": "right horse"})
    pages = [await with_users.client.get(path) for path in ("/c/default/audit", "/settings", "/api/v1/c/default/audit")]
    written = (tmp_path / "audit.jsonl").read_text() + (tmp_path / "users.json").read_text()
    assert "right horse" not in "".join(page.text for page in pages) + written
    assert "let in" in written


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", ""])
async def test_another_host_name_is_refused(console: Console, host: str) -> None:
    answer = await console.client.get("/login", host=host)
    assert answer.status == 421


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1:8090", "[::1]:8090"])
async def test_names_of_this_machine_are_served(console: Console, host: str) -> None:
    assert (await console.client.get("/login", host=host)).status == 200


def test_other_machines_need_users() -> None:
    place = (ClusterPlace("default", "127.0.0.1:1"),)
    assert "console users add" in (ConsoleConfig(place, host="0.0.0.0").open_problem or "")
    assert ConsoleConfig(place, host="0.0.0.0", broker_login=True).open_problem is None
    assert ConsoleConfig(place).open_problem is None


def test_a_users_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    UsersFile(path).put_user("ann", "viewer", "x")
    assert path.stat().st_mode & 0o077 == 0
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        UsersFile(path).checked("ann", "x")


def test_sessions_end() -> None:
    clock = ManualClock()
    sessions = Sessions(clock)
    idle = sessions.begin(Person("ann", Role.VIEWER))
    clock.advance(IDLE_S + 1)
    assert sessions.find(idle) is None
    busy = sessions.begin(Person("ann", Role.VIEWER))
    for _ in range(int(LIFE_S / IDLE_S) + 1):
        clock.advance(IDLE_S - 1)
        sessions.find(busy)
    assert sessions.find(busy) is None
    for _ in range(MAX_SESSIONS + 5):
        sessions.begin(Person("ann", Role.VIEWER))
    assert len(sessions) == MAX_SESSIONS


def test_form_tokens_differ_and_belong_to_a_session() -> None:
    sessions = Sessions()
    one, other = (sessions.find(sessions.begin(Person(name, Role.VIEWER))) for name in "ab")
    assert one is not None
    assert other is not None
    assert one.form_token() != one.form_token()
    assert one.accepts(one.form_token())
    assert not one.accepts(other.form_token())
    assert not any(map(one.accepts, ("", "zz", "00" * 64)))


def test_waits_grow_and_end() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    waits = []
    for _ in range(FREE_FAILURES + 3):
        throttle.failed("ann", "1.2.3.4")
        waits.append(throttle.wait_s("ann", "1.2.3.4"))
    assert waits[: FREE_FAILURES - 1] == [0] * (FREE_FAILURES - 1)
    assert waits[-1] > waits[-2] > 0
    assert throttle.wait_s("ann", "5.6.7.8") == 0
    clock.advance(waits[-1] + 0.1)
    assert throttle.wait_s("ann", "1.2.3.4") == 0
