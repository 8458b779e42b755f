"""The verbs about accounts on our servers, and what clients then may do."""

from __future__ import annotations

import io
import json
import runpy
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.account_verbs import Verbs, try_all
from tests.support.patience import PATIENCE_S
from tests.unit.cli.conftest import Result

from rocketline.admin import Admin
from rocketline.admin.doctor_access import access_problems
from rocketline.cli.contexts import CONFIG_VARIABLE
from rocketline.cli.passwords import new_password
from rocketline.cli.servers.secure import secured
from rocketline.cli.usage import UsageProblem
from rocketline.client import ClientOptions, Credentials, blocking
from rocketline.clock import SYSTEM_CLOCK
from rocketline.errors import NoPermission
from rocketline.message import Message
from rocketline.testing import LocalCluster

ADMIN, SECRET = "admin", "admin-secret"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(users={ADMIN: SECRET}) as cluster:
        yield cluster


@pytest.fixture
def verbs(cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verbs:
    (tmp_path / "secret").write_text(SECRET)
    return Verbs(cluster.namesrv, cluster.brokers[0].address, ADMIN, tmp_path / "secret", capsys.readouterr)


def test_all_verbs(verbs: Verbs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_all(verbs, tmp_path, monkeypatch)


def test_a_password_does_not_come_back(verbs: Verbs) -> None:
    verbs.run("createUser", "-b", verbs.broker, "-u", "kept", "-p", "kept-secret")
    told = verbs.run("copyUser", "-f", verbs.broker, "-t", verbs.broker, "-u", "kept", code=1)
    assert "does not show the password of kept: set rocketline.auth.revealPasswords=true" in told
    assert "kept-secret" not in str(verbs.run("getUser", "-b", verbs.broker, "-u", "kept"))


def test_a_client_may_do_what_its_account_may(cluster: LocalCluster, verbs: Verbs) -> None:
    at = ("-b", verbs.broker)
    verbs.run("createUser", *at, "-u", "shop", "-p", "shop-secret")
    options = ClientOptions(credentials=Credentials("shop", "shop-secret", replay_protection=True))
    with blocking.Producer(cluster.namesrv, group="shop", timeout=PATIENCE_S, options=options) as producer:
        with pytest.raises(NoPermission, match="User:shop has no permission to access Topic:shop_orders"):
            producer.send(Message("shop_orders", b"x"))
        verbs.run("createAcl", *at, "-s", "shop", "-r", "Topic:shop_*", "-a", "Pub,Create", "-d", "Allow")
        producer.send(Message("shop_orders", b"x"))
        verbs.run("updateUser", *at, "-u", "shop", "-p", "other-secret", "--keep-old", 3600)
        producer.send(Message("shop_orders", b"the former password, which is kept"))
        verbs.run("updateUser", *at, "-u", "shop", "-s", "disable")
        with pytest.raises(NoPermission, match="User:shop is disabled"):
            producer.send(Message("shop_orders", b"x"))
    for account in (options.credentials, Credentials("shop", "wrong"), Credentials("nobody", "x")):
        with pytest.raises(NoPermission, match="answer 16 from"):
            blocking.Producer(cluster.namesrv, group="shop", options=ClientOptions(credentials=account)).__enter__()


@pytest.mark.parametrize(
    ("given", "file", "said"),
    [
        (" ", None, "-p: one line"),
        ("x", "two\nlines", "leave one out"),
        (None, "two\nlines", "--password-file .*: one line"),
        (None, None, "a password for shop is needed: -p -, --password-file FILE or ROCKETLINE_NEW_PASSWORD"),
        ("-", None, "standard input: one line"),
    ],
)
def test_passwords_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, file: str | None, said: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    path = None if file is None else tmp_path / "password"
    if path is not None and file is not None:
        path.write_text(file)
    with pytest.raises(UsageProblem, match=said):
        new_password("shop", given, path, needed=True, environment={})


def test_a_password_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    assert new_password("shop", "-", None, needed=True, environment={}) == "from a pipe"
    assert new_password("shop", None, None, needed=False, environment={}) is None


def test_what_a_broker_takes_from_every_account_is_explained(cluster: LocalCluster, verbs: Verbs) -> None:
    verbs.run("createUser", "-b", verbs.broker, "-u", "tracer", "-p", "tracer-secret")
    options = ClientOptions(credentials=Credentials("tracer", "tracer-secret"))
    with blocking.Producer(cluster.namesrv, group="t", timeout=PATIENCE_S, options=options) as producer:
        producer.send(Message("RMQ_SYS_TRACE_TOPIC", b"x"))
    asked = ("explainAcl", "-b", verbs.broker, "-a", "Pub", "-r", "Topic:RMQ_SYS_TRACE_TOPIC")
    (told,) = verbs.run(*asked, "-u", "tracer")
    assert told["allowed"] and told["reason"] == "every account may: traces of its own messages"
    (who,) = verbs.run(*asked)
    assert ("tracer", "every account may: traces of its own messages") in {
        (item["user"], item["because"]) for item in who["allowed"]
    }
    verbs.run("deleteUser", "-b", verbs.broker, "-u", "tracer")


USERS = """
users:
  team:
    password_file: team.secret
    rights:
    - allow: Pub,Sub on Topic:team_* from 10.0.0.0/8
    - deny: All on Topic:team_private
"""
OLD_ACCOUNTS = """
globalWhiteRemoteAddresses:
- 10.9.8.*
accounts:
- accessKey: old_shop
  secretKey: old_shop_secret
  topicPerms:
  - old_orders=PUB
"""


def test_accounts_of_a_cluster_from_a_file(
    cluster: LocalCluster, verbs: Verbs, called: Callable[..., Result], tmp_path: Path
) -> None:
    account = ("-n", cluster.namesrv, "--access-key", ADMIN, "--secret-key-file", verbs.secret_file)
    file = tmp_path / "users.yaml"
    file.write_text(USERS)
    (tmp_path / "team.secret").write_text("team-secret\n")
    planned = called("auth", "apply", file, "--dry-run", *account)
    assert "+ user team (Normal, enable)" in planned.stdout and "--dry-run" in planned.stdout
    assert "+ team: Deny All on Topic:team_private" in planned.stdout and "team-secret" not in planned.stdout
    assert verbs.users("team") == []
    assert called("auth", "apply", file, *account).returncode == 0
    assert verbs.users("team") == [("team", "Normal", "enable")]
    assert f"# {verbs.broker}: no changes" in called("auth", "apply", file, *account).stdout
    exported = called("auth", "export", *account)
    assert "deny: All on Topic:team_private" in exported.stdout and "secret" not in exported.stdout
    rows = json.loads(called("auth", "export", *account, "-o", "json").stdout)
    (team,) = [row for row in rows if row["name"] == "team"]
    assert (team["type"], {"deny": "All on Topic:team_private"} in team["rights"]) == ("Normal", True)
    (tmp_path / "plain_acl.yml").write_text(OLD_ACCOUNTS)
    imported = called("auth", "import-v1", tmp_path / "plain_acl.yml", *account)
    assert "note: " in imported.stderr and "10.9.8.*" in imported.stderr
    assert "+ old_shop: Allow Pub on Topic:old_orders" in imported.stdout
    pruned = called("auth", "apply", file, "--prune", *account)
    assert "- user old_shop" in pruned.stdout, pruned.stderr
    assert verbs.users("") == [(ADMIN, "Super", "enable"), ("team", "Normal", "enable")]


def test_whoever_has_the_files_gets_in_again(
    cluster: LocalCluster, verbs: Verbs, called: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "new").write_text("new-secret\n")
    nowhere = called("auth", "reset-admin", "--store", tmp_path, "--password-file", tmp_path / "new")
    assert nowhere.returncode == 2 and "neither users.json nor a folder `config`" in nowhere.stderr
    done = called(
        "auth", "reset-admin", "--store", cluster.data, "--user", "rescue", "--password-file", tmp_path / "new"
    )
    assert done.returncode == 0 and "new-secret" not in done.stdout
    (tmp_path / "secret").write_text("new-secret")
    rescued, deadline = verbs._replace(access_key="rescue"), SYSTEM_CLOCK.monotonic() + PATIENCE_S
    while called("admin", "listUser", "-b", verbs.broker, "-n", cluster.namesrv, "--access-key", "rescue",
                 "--secret-key-file", tmp_path / "secret").returncode:  # fmt: skip
        assert SYSTEM_CLOCK.monotonic() < deadline, "the broker did not read its accounts again"
        time.sleep(0.1)  # whoever guesses quickly is slowed down for a minute
    assert ("rescue", "Super", "enable") in rescued.users("rescue")


def test_up_secure_shows_a_client_and_a_context_that_get_in(
    called: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = secured(tmp_path)
    assert secured(tmp_path) == made, "the next start has the same administrator"
    with LocalCluster(config=made.settings) as cluster:
        shown = made.introduction(cluster.namesrv)
        (tmp_path / "client.py").write_text(shown)
        runpy.run_path(str(tmp_path / "client.py"))
        assert "SEND_OK" in capsys.readouterr().out
        monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "contexts.json"))
        listed = called("admin", "listUser", "-c", "DefaultCluster")
        assert "admin\tSuper\tenable" in listed.stdout, listed.stderr
    assert made.account.secret_key not in shown + repr(made)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("admin.json", "contexts.json")] == [0o600, 0o600]


async def test_the_doctor_sees_who_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async def problems(config: dict[str, str], credentials: Credentials | None) -> list[str]:
        async with LocalCluster(config=config) as cluster, Admin(cluster.namesrv, credentials=credentials) as admin:
            if config:
                (cluster.data / "config" / "users.json").chmod(0o644)
                cluster.data.chmod(0o755)
            return [finding.problem async for finding in access_problems(admin, await admin.brokers())]

    guarded = {"authenticationEnabled": "true", "initAuthenticationUser": '{"username":"admin","password":"admin"}'}
    assert await problems({}, None) == [], "what only this machine reaches may be open"
    monkeypatch.setattr("rocketline.admin.doctor_access.is_loopback", lambda host: False)
    broker, names = await problems({}, None)
    assert broker.startswith("asks for no accounts: whoever reaches its port")
    assert names.startswith("asks for no accounts: whoever reaches this name server may register")
    admins = Credentials("admin", "admin")
    known, plain, readable, entered, names = await problems(guarded, admins)
    assert known == "the account admin has the password of an example that everybody knows"
    assert plain.startswith("takes requests without TLS")
    assert readable.startswith("other users of this machine can read") and "users.json" in readable
    assert names == plain
    assert entered.startswith("other users of this machine can read the messages in")
    for mode, also_plain in (("permissive", True), ("enforcing", False)):
        local = LocalCluster(tls=True, config=guarded | {"tls.server.mode": mode})
        async with local as cluster, Admin(cluster.namesrv, credentials=admins, tls=local.tls or False) as admin:
            told = [finding.problem async for finding in access_problems(admin, await admin.brokers())]
        assert any(problem.startswith("takes requests without TLS") for problem in told) == also_plain
    ports = {"rocketline.haStrangers": "serve", "metricsPromExporterHost": "127.0.0.1"}
    *_, log, page, names = await problems(guarded | ports, admins)
    assert names.startswith("takes requests without TLS")
    *_, names = await problems({"grpcServerPort": "0"} | guarded, admins)
    assert [told for told in await problems({"grpcServerPort": "0"} | guarded, admins) if "gRPC calls without" in told]
    assert log.startswith("gives its whole log to whoever reaches its HA port at 127.0.0.1")
    assert page == "shows its metrics, with the names of topics and groups, to whoever reaches 127.0.0.1"
