"""What goes on for somebody ends when that person may see no more; and what is held of limits is held until then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message as AsgiMessage
from tests.support.asgi import AsgiClient
from tests.support.patience import PATIENCE_S
from tests.unit.console.conftest import Console, Prepared, start

from rocketline.cli.console_commands import show_audit
from rocketline.cli.usage import UsageProblem
from rocketline.clock import ManualClock
from rocketline.console.access import Person, Role
from rocketline.console.audit import Audit, audit_line
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.limits import Heavy
from rocketline.console.logins import MAX_CHECKS_OF_ADDRESS, Logins
from rocketline.console.problems import Problem
from rocketline.console.sessions import IDLE_S, Sessions
from rocketline.console.users import UsersFile

STREAMS = ["/c/default/groups/cells", "/c/default/topics/orders/tail"]


@pytest.fixture
async def with_users(prepared: Prepared, tmp_path: Path) -> AsyncIterator[Console]:
    path = tmp_path / "users.json"
    UsersFile(path).put_user("ann", "operator", "right horse")
    async with start(ConsoleConfig((ClusterPlace("default", prepared.namesrv),), users=path)) as one:
        yield one


@dataclass
class Watched:
    """A stream that somebody looks at, and never leaves."""

    began: asyncio.Event = field(default_factory=asyncio.Event)
    parts: list[AsgiMessage] = field(default_factory=list)
    held_back: asyncio.Event | None = None
    """The viewer takes nothing more before this is set."""

    async def send(self, message: AsgiMessage) -> None:
        self.parts.append(message)
        if message.get("body"):
            self.began.set()
            if self.held_back is not None:
                await self.held_back.wait()

    @property
    def is_whole(self) -> bool:
        return bool(self.parts) and self.parts[-1].get("more_body") is False


def look(client: AsgiClient, path: str, watched: Watched) -> asyncio.Task[None]:
    return asyncio.create_task(client._run("GET", path, b"", {}, watched.send, asyncio.Event()))


async def enter(console: Console) -> AsgiClient:
    client = AsgiClient(console.client.app)
    assert (await client.post("/login", {"name": "ann", "password": "right horse"})).status == 303
    return client


def logs_out(console: Console, users: UsersFile) -> None:
    for key in list(console.desk.sessions._by_hash):
        console.desk.sessions._end(key)


def gets_another_password(console: Console, users: UsersFile) -> None:
    users.put_user("ann", "operator", "another horse")


def gets_another_role(console: Console, users: UsersFile) -> None:
    users.disable_user("ann", True)


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("end", [logs_out, gets_another_password, gets_another_role])
async def test_streams_end_with_the_session(
    with_users: Console, tmp_path: Path, path: str, end: Callable[[Console, UsersFile], None]
) -> None:
    client, watched = await enter(with_users), Watched()
    looking = look(client, path, watched)
    async with asyncio.timeout(PATIENCE_S):
        await watched.began.wait()
        end(with_users, UsersFile(tmp_path / "users.json"))
        await looking
    assert watched.is_whole
    assert not with_users.desk.limits._running


async def test_streams_end_with_the_token(with_users: Console, tmp_path: Path) -> None:
    users, watched = UsersFile(tmp_path / "users.json"), Watched()
    headers = {"authorization": f"Bearer {users.put_token('robot', 'reader')}"}
    looking = look(AsgiClient(with_users.client.app, headers=headers), "/api/v1/c/default/topics/orders/tail", watched)
    async with asyncio.timeout(PATIENCE_S):
        await watched.began.wait()
        users.remove("tokens", "robot")
        await looking


async def test_a_password_change_ends_sessions(with_users: Console, tmp_path: Path) -> None:
    client = await enter(with_users)
    assert (await client.get("/c/default/brokers")).status == 200
    UsersFile(tmp_path / "users.json").put_user("ann", "operator", "another horse")
    assert (await client.get("/c/default/brokers")).status == 303


async def test_an_export_is_held_until_it_was_sent_and_is_cut_off_visibly(with_users: Console) -> None:
    client, watched = await enter(with_users), Watched(held_back=asyncio.Event())
    looking = look(client, "/c/default/topics/orders/export", watched)
    async with asyncio.timeout(PATIENCE_S):
        await watched.began.wait()
        (held,) = with_users.desk.limits._running
        assert held[0] is Heavy.SCAN
        logs_out(with_users, UsersFile(Path()))
        await looking
    assert not watched.is_whole  # a file that lacks a part does not look whole
    assert not with_users.desk.limits._running


async def test_one_live_page_too_many_is_told_before_the_stream(console: Console) -> None:
    client = console.as_role(Role.READER, "ann")
    holds = [console.desk.limits.hold(Heavy.CELLS, Person("ann", Role.READER).key) for _ in range(Heavy.CELLS.each)]
    for hold in holds:
        hold.__enter__()
    answer = await client.get("/c/default/groups/cells")
    assert (answer.status, answer.header("retry-after")) == (429, "2")


def test_sessions_tell_whether_they_go_on() -> None:
    clock, ended = ManualClock(), list[str]()
    sessions = Sessions(clock, lambda person: ended.append(person.name))
    first, second = sessions.begin(Person("ann", Role.VIEWER)), sessions.begin(Person("bob", Role.VIEWER))
    ann, bob = sessions.find(first), sessions.find(second)
    assert ann is not None
    assert bob is not None
    sessions.end(first)
    assert (sessions.is_alive(ann), sessions.is_alive(bob)) == (False, True)
    clock.advance(IDLE_S - 1)
    assert sessions.is_alive(bob)  # to ask is not to be there
    clock.advance(2)
    assert not sessions.is_alive(bob)
    sessions.forget_ended()
    assert (ended, len(sessions)) == (["ann", "bob"], 0)


async def test_many_attempts_at_once_are_not_free(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    UsersFile(path).put_user("ann", "viewer", "right horse")
    logins = Logins(ConsoleConfig((ClusterPlace("default", "127.0.0.1:1"),), users=path))
    tries = [logins.checked("ann", f"guess {number}", "192.0.2.1") for number in range(40)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(outcome is None for outcome in outcomes) == MAX_CHECKS_OF_ADDRESS
    assert all(
        isinstance(outcome, Problem) and outcome.view.status == 429 for outcome in outcomes if outcome is not None
    )
    assert await logins.checked("ann", "right horse", "192.0.2.2") is not None
    assert not logins._checking


@pytest.mark.parametrize(
    "path",
    [
        "/topics/new", "/topics/orders/edit", "/topics/orders/delete", "/topics/orders/send", "/groups/new",
        "/groups/billing/edit", "/groups/billing/delete", "/groups/billing/reset", "/brokers/broker-a/writing",
        "/brokers/broker-a/settings?name=fileReservedTime", "/access/users/new", "/access/rules/new",
    ],
)  # fmt: skip
async def test_read_only_has_no_forms(prepared: Prepared, path: str) -> None:
    async with start(ConsoleConfig((ClusterPlace("default", prepared.namesrv),), read_only=True)) as console:
        assert (await console.as_role(Role.ADMIN).get(f"/c/default{path}")).status == 404
        for page in ("/access", "/audit", "/delayed", "/transactions", "/dead-letters/mailer"):
            assert (await console.as_role(Role.ADMIN).get(f"/c/default{page}")).status == 200


async def test_the_overview_shows_changes_only_to_those_who_may_see_the_audit(console: Console) -> None:
    boss = console.as_role(Role.ADMIN, "boss")
    await boss.post("/c/default/topics/orders/delete", {"confirm": "wrong"})
    await boss.get("/c/default/topics/orders/messages?tag=new")  # reading changes nothing
    shown = {role: (await console.as_role(role).get("/api/v1/c/default/overview")).json["changes"] for role in Role}
    assert [[line["action"] for line in shown[role]] for role in Role] == [[], [], ["delete_topic"], ["delete_topic"]]
    read, change = (await boss.get("/api/v1/c/default/audit?sort=-time")).json["items"]
    assert (read["action"], read["parameters"]) == ("messages", {"tag": "new"})  # and not what was not asked for
    assert change["action"] == "delete_topic"


async def test_a_key_counts_for_the_same_change_only(console: Console, prepared: Prepared) -> None:
    client = console.as_role(Role.OPERATOR)
    await client.get("/c/default/topics/paid/send")
    for body in ("one", "two"):
        form = {"body": body, "idempotencyKey": "same", "keys": "by-key"}
        assert 'data-result="ok"' in (await client.post("/c/default/topics/paid/send", form)).text
    found = await client.get("/api/v1/c/default/topics/paid/messages?key=by-key")
    assert sorted(item["preview"] for item in found.json["items"]) == ["one", "two"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_of_the_audit_is_no_failure_of_what_was_done(tmp_path: Path) -> None:
    audit = Audit(Path("/dev/full"))
    audit.write(_line("first"))
    assert audit.problem
    assert [line.action for line in audit.lines] == ["first"]
    audit.close()
    whole = Audit(tmp_path / "audit.jsonl")
    whole.write(_line("second"))
    assert not whole.problem
    whole.close()


def test_the_audit_is_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    for action in ("login", "delete_topic\x1b[2J", "login"):
        audit.write(_line(action))
    audit.close()
    with path.open("ab") as file:
        file.write(b'{"timeMs": 1, "per')  # a line that was cut
    show_audit(path, None, "login", 1)
    show_audit(path, "ann", None, 100)
    shown = capsys.readouterr().out
    assert [line.split()[5] for line in shown.splitlines()] == ["login", "login", "delete_topic?[2J", "login"]
    with pytest.raises(UsageProblem, match="No such file"):
        show_audit(tmp_path / "none", None, None, 1)


def _line(action: str) -> Any:
    return audit_line(action, "ann", "admin", "", ok=True, outcome="ok")


@pytest.mark.parametrize("host", ["10.0.0.5:8090", "[fe80::1]:8090", "192.0.2.1"])
async def test_addresses_are_served_where_people_log_in(with_users: Console, console: Console, host: str) -> None:
    assert (await with_users.client.get("/login", host=host)).status == 200
    assert (await console.client.get("/login", host=host)).status == 421  # only for this machine


async def test_own_names_are_served_and_others_by_flag(prepared: Prepared, tmp_path: Path) -> None:
    import socket

    path = tmp_path / "users.json"
    UsersFile(path).put_user("ann", "viewer", "right horse")
    place = (ClusterPlace("default", prepared.namesrv),)
    config = ConsoleConfig(place, host="0.0.0.0", users=path, allowed_hosts=("mq.example",))
    async with start(config) as console:
        for host in (socket.gethostname(), socket.gethostname().upper(), "mq.example:8090"):
            assert (await console.client.get("/login", host=host)).status == 200, host
        refused = await console.client.get("/login", host="evil.example")
        assert (refused.status, "--allow-host evil.example" in refused.shown) == (421, True)
