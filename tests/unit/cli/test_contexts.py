"""Contexts: kept in a file that only the owner can read, and used when neither flag nor environment names a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketline.cli.access import cluster_access
from rocketline.cli.contexts import (
    CONFIG_VARIABLE,
    CONTEXT_VARIABLE,
    Context,
    contexts_path,
    current_context,
    load_contexts,
)
from rocketline.errors import ConfigError
from rocketline.testing import LocalCluster

Called = Callable[..., Any]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "new" / "contexts.json"
    monkeypatch.setenv(CONFIG_VARIABLE, str(path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv(CONTEXT_VARIABLE, raising=False)
    return path


def test_contexts_are_added_used_shown_and_removed(called: Called, file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("very secret")
    assert called("context", "add", "dev", "--namesrv", "127.0.0.1:1").returncode == 0
    account = ("--access-key", "shop", "--secret-key-file", secret, "--ca-file", tmp_path / "ca.pem")
    assert called("context", "add", "prod", "-n", "10.0.0.1:9876;10.0.0.2:9876", *account).returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert current_context() == Context("127.0.0.1:1"), "the first one is used at once"
    assert called("context", "use", "prod").returncode == 0
    rows = json.loads(called("context", "list", "-o", "json").stdout)
    assert [(row["name"], row["in_use"], row["tls"]) for row in rows] == [("dev", False, False), ("prod", True, True)]
    shown = json.loads(called("context", "show", "--output", "json").stdout)
    assert (shown["access_key"], shown["secret_key_file"]) == ("shop", str(secret))
    assert "very secret" not in file.read_text() + json.dumps(shown)
    assert called("context", "remove", "prod").returncode == 0
    assert (list(load_contexts(file).contexts), current_context()) == (["dev"], None)


def test_one_command_takes_another_context(
    called: Called, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with LocalCluster() as cluster:
        for name, namesrv in (("gone", "127.0.0.1:1"), ("here", cluster.namesrv)):
            called("context", "add", name, "-n", namesrv)
        for arguments in (("--context", "here", "admin", "topicList"), ("admin", "topicList", "--context=here")):
            assert called(*arguments).returncode == 0, "whatever is in use"
        monkeypatch.setenv(CONTEXT_VARIABLE, "here")
        assert called("admin", "topicList").returncode == 0, "for a shell"
        monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
        assert called("admin", "topicList", "--context", "here").returncode == 0, "the flag says more than a variable"
        assert called("admin", "topicList").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("admin", "topicList", "--context", "missing"), 1, "there is no context 'missing'"),
        (("admin", "topicList", "--context"), 2, "--context needs the name"),
        (("admin", "topicList", "-n", "a:1", "--context", "c"), 2, "leave one out"),
        (("consume", "T", "-n", "a:1", "--context", "c"), 2, "leave one out"),
    ],
)
def test_mistakes_with_a_context_are_named(
    called: Called, file: Path, arguments: tuple[str, ...], code: int, named: str
) -> None:
    called("context", "add", "c", "-n", "127.0.0.1:1")
    result = called(*arguments)
    assert (result.returncode, named in result.stderr) == (code, True), result.stderr


def test_flags_win_over_the_environment_and_that_over_the_context(called: Called, file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    called("context", "add", "c", "-n", "context:1", "--access-key", "shop", "--secret-key-file", secret)
    environment = {CONFIG_VARIABLE: str(file)}
    by_context = cluster_access(None, environment=environment)
    assert (by_context.namesrv, by_context.access["credentials"].access_key) == ("context:1", "shop")
    named = environment | {"NAMESRV_ADDR": "environment:1"}
    for found, namesrv in (
        (cluster_access(None, environment=named), "environment:1"),
        (cluster_access("flag:1", environment=named), "flag:1"),
    ):
        # The account of a context is for its own cluster only.
        assert (found.namesrv, found.access["credentials"]) == (namesrv, None)
    other = cluster_access(
        None, environment=environment | {"ROCKETLINE_ACCESS_KEY": "me", "ROCKETLINE_SECRET_KEY": "t"}
    )
    assert other.access["credentials"].access_key == "me"
    assert cluster_access(None, environment={CONFIG_VARIABLE: str(tmp_path / "none")}).is_default


def test_verbs_and_commands_use_the_context(called: Called, file: Path) -> None:
    with LocalCluster() as cluster:
        called("context", "add", "here", "--namesrv", cluster.namesrv)
        assert called("produce", "orders", "hello", "-q").returncode == 0
        assert called("admin", "topicList").stdout == "topic\norders\n"
        read = called("consume", "orders", "--from-beginning", "--count", 1, "--format", "{body}")
        assert read.stdout == "hello\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["use", "nothing"], "there is no context 'nothing'"),
        (["show"], "no context is in use"),
        (["add", "x", "--namesrv", ""], "name server"),
        (["add", "x", "--namesrv", "a:1", "--access-key", "k"], "belong together"),
        (["add", "x"], "--namesrv"),
    ],
)
def test_mistakes_are_one_line(called: Called, file: Path, arguments: list[str], named: str) -> None:
    result = called("context", *arguments)
    (line,) = result.stderr.splitlines()
    assert (result.returncode > 0, named in line) == (True, True), line
    assert not file.exists()


def test_a_file_that_is_no_list_of_contexts_is_named(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("[1]")
    with pytest.raises(ConfigError, match=r"contexts\.json is not a file of contexts"):
        current_context()


def test_the_file_is_in_the_configuration_folder_of_the_user() -> None:
    assert contexts_path({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/rocketline/contexts.json")
    assert contexts_path({"HOME": "/h"}) == Path("/h/.config/rocketline/contexts.json")
    assert contexts_path({"HOME": "/h", CONFIG_VARIABLE: "/c.json"}) == Path("/c.json")


def test_a_certificate_to_show_comes_from_the_context_or_the_environment(called: Called, file: Path) -> None:
    assert called("context", "add", "c", "-n", "context:1", "--cert", "me.pem", "--key", "me.key").returncode == 0
    tls = cluster_access(None).access["tls"]
    assert (Path(tls.certificate), Path(tls.key)) == (Path.cwd() / "me.pem", Path.cwd() / "me.key")
    environment = {"ROCKETLINE_TLS_CERT": "a.pem", "ROCKETLINE_TLS_KEY": "a.key"}
    tls = cluster_access("flag:1", tls=True, environment=environment).access["tls"]
    assert (tls.certificate, tls.key) == ("a.pem", "a.key")
    assert called("context", "add", "c", "-n", "context:1", "--key", "me.key").returncode == 2
