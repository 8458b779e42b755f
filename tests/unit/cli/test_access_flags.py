"""Accounts and TLS from flags and the environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.tls import CA_FILE

from rocketline.cli.access import client_access, spark_access
from rocketline.client import Credentials, Tls
from rocketline.errors import ConfigError
from rocketline.testing import LocalCluster

NOBODY = "127.0.0.1:1"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("from-a-file\n")
    return path


def test_nothing_asked_for_is_nothing_done() -> None:
    assert client_access(environment={}) == {"credentials": None, "tls": False}


def test_flags_come_before_the_environment(secret_file: Path) -> None:
    environment = {
        "ROCKETLINE_ACCESS_KEY": "env",
        "ROCKETLINE_SECRET_KEY": "from-env",
        "ROCKETLINE_SECURITY_TOKEN": "t",
    }
    found = client_access(environment=environment)
    assert found["credentials"] == Credentials("env", "from-env", "t")
    found = client_access("flag", secret_file, environment={"ROCKETLINE_ACCESS_KEY": "env"})
    assert found["credentials"] == Credentials("flag", "from-a-file")


def test_tls_is_meant_by_any_of_its_flags() -> None:
    assert client_access(tls=True, environment={})["tls"] == Tls()
    assert client_access(ca_file=CA_FILE, environment={})["tls"] == Tls(ca_file=CA_FILE)
    assert client_access(insecure=True, environment={})["tls"] == Tls(verify=False)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--access-key", "shop"],
            "access key shop has no secret key: add --secret-key-file FILE or set ROCKETLINE_SECRET",
        ),
        (["--secret-key-file", "{secret}"], "without an access key: add --access-key"),
        (["--access-key", "shop", "--secret-key-file", "/nowhere"], "--secret-key-file /nowhere: No such file"),
        (["--access-key", "shop", "--secret-key-file", "{empty}"], "one line with the secret key is expected"),
        (["--insecure", "--ca-file", "ca.pem"], "--ca-file ca.pem has no effect"),
        (["--ca-file", "/nowhere/ca.pem"], "ca_file /nowhere/ca.pem cannot be used"),
    ],
)
def test_what_does_not_fit_is_a_mistake_of_the_command_line(
    called: Callable[..., Any],
    secret_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    problem: str,
) -> None:
    for name in ("ROCKETLINE_ACCESS_KEY", "ROCKETLINE_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    empty = secret_file.with_name("empty")
    empty.write_text("\n")
    filled = [item.format(secret=secret_file, empty=empty) for item in arguments]
    result = called("admin", "clusterList", "-n", NOBODY, *filled)
    assert (result.returncode, result.stdout) == (2, "")
    assert problem in result.stderr
    assert "from-a-file" not in result.stderr
    if "ca_file" not in problem:
        for command in (["produce", "T", "x"], ["consume", "T"]):
            result = called(*command, "-n", NOBODY, *filled)
            assert result.returncode == 2
            assert problem in " ".join(result.stderr.split())


def test_a_secret_is_no_argument(called: Callable[..., Any]) -> None:
    assert called("admin", "clusterList", "--secret-key", "x").returncode == 2
    assert called("produce", "T", "x", "--secret-key", "x").returncode == 2


def test_commands_sign_what_they_send(called: Callable[..., Any], secret_file: Path) -> None:
    account = ("--access-key", "shop", "--secret-key-file", secret_file)
    with LocalCluster() as cluster:
        server = ("-n", cluster.namesrv, *account)
        assert called("produce", "T", "hello", *server).returncode == 0
        assert "hello" in called("consume", "T", "--from-beginning", "--count", 1, *server).stdout
        assert "broker-a" in called("admin", "clusterList", *server).stdout
        assert called("admin", "sendMessage", "-t", "T", "-p", "more", *server).returncode == 0


def test_a_plain_server_asked_for_tls_is_told_in_one_line(called: Callable[..., Any]) -> None:
    with LocalCluster() as cluster:
        namesrv = cluster.namesrv
        result = called("admin", "clusterList", "-n", namesrv, "--tls")
    assert result.returncode == 1
    assert f"cannot connect to {namesrv}: it closed the connection during the TLS handshake" in result.stderr


def test_secrets_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        client_access("shop", tmp_path / "secret", environment={})


def test_pipelines_get_their_account_from_the_environment() -> None:
    environment = {
        "ROCKETLINE_ACCESS_KEY": "shop",
        "ROCKETLINE_SECRET_KEY": "from-env",
        "ROCKETLINE_SECURITY_TOKEN": "t",
    }
    assert spark_access(["rocketmq.tls=true", "rocketmq.tls.caFile=/a=b"], environment) == {
        "rocketmq.accessKey": "shop",
        "rocketmq.secretKey": "from-env",
        "rocketmq.securityToken": "t",
        "rocketmq.tls": "true",
        "rocketmq.tls.caFile": "/a=b",
    }
    assert spark_access([], {}) == {}


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("rocketmq.secretKey=hidden", "set ROCKETLINE_SECRET_KEY"),
        ("rocketmq.tls.keyPassword=hidden", "a key without a password"),
        ("spark.executor.memory=hidden", "an option like rocketmq.tls=true"),
        ("rocketmq.tls", "an option like rocketmq.tls=true"),
    ],
)
def test_pipelines_take_no_secret_as_an_argument(called: Callable[..., Any], option: str, problem: str) -> None:
    result = called("pipeline", "lag", "--namesrv", NOBODY, "--group", "g", "--option", option)
    assert result.returncode == 2
    assert problem in " ".join(result.stderr.split())
    assert "hidden" not in result.stderr
