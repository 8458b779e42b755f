"""The verbs about accounts on our servers, and what clients then may do."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.account_verbs import Verbs, try_all
from tests.support.patience import PATIENCE_S

from rocketline.cli.passwords import new_password
from rocketline.cli.usage import UsageProblem
from rocketline.client import ClientOptions, Credentials, blocking
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
