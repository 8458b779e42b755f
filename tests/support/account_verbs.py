"""The verbs about accounts, run one after the other on a server that asks for accounts; ours or Apache's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rocketline.cli.entry import main
from rocketline.cli.passwords import PASSWORD_VARIABLE


class Verbs(NamedTuple):
    """Runs verbs as one account, on one server."""

    namesrv: str
    broker: str
    access_key: str
    secret_file: Path
    read: Callable[[], tuple[str, str]]
    """What was printed since the last call: standard output and standard error."""

    def run(self, verb: str, *arguments: object, code: int = 0) -> Any:
        """The JSON that a verb prints; with another exit code the error."""
        account = ["--access-key", self.access_key, "--secret-key-file", str(self.secret_file)]
        found = main(["admin", verb, *map(str, arguments), "-n", self.namesrv, *account, "--output", "json"])
        out, err = self.read()
        assert found == code, err
        return json.loads(out) if code == 0 else err

    def users(self, part: str) -> list[tuple[str, str, str]]:
        (found,) = self.run("listUser", "-b", self.broker, "-f", part)
        return [(item["user"], item["type"], item["status"]) for item in found["users"]]

    def rights(self, name: str) -> list[tuple[str, list[str], str]]:
        (found,) = self.run("getAcl", "-b", self.broker, "-s", name)
        return [(item["resource"], item["actions"], item["decision"]) for item in found["rights"]]


def try_all(verbs: Verbs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounts and rights come, change and go."""
    at = ("-b", verbs.broker)
    (folder / "password").write_text("from a file\n")
    verbs.run("createUser", *at, "-u", "verbs.one", "--password-file", folder / "password")
    verbs.run("createUser", *at, "-u", "verbs.two", "-p", "an argument", "-t", "super")
    monkeypatch.setenv(PASSWORD_VARIABLE, "from the environment")
    verbs.run("createUser", "-c", "DefaultCluster", "-u", "verbs.three")
    monkeypatch.delenv(PASSWORD_VARIABLE)
    assert verbs.users("verbs.") == [
        ("verbs.one", "Normal", "enable"), ("verbs.three", "Normal", "enable"), ("verbs.two", "Super", "enable"),
    ]  # fmt: skip
    assert "The user is existed" in verbs.run("createUser", *at, "-u", "verbs.one", "-p", "x", code=1)
    verbs.run("updateUser", *at, "-u", "verbs.two", "-t", "Normal", "-s", "disable")
    assert verbs.users("verbs.two") == [("verbs.two", "Normal", "disable")]
    _try_rights(verbs)
    verbs.run("deleteUser", "-c", "DefaultCluster", "-u", "verbs.three")
    for name in ("verbs.one", "verbs.two", "verbs.never"):
        verbs.run("deleteUser", *at, "-u", name)
    assert verbs.users("verbs.") == []
    assert verbs.run("getUser", *at, "-u", "verbs.one")[0]["users"] == []


def _try_rights(verbs: Verbs) -> None:
    at, one = ("-b", verbs.broker), ("-s", "verbs.one")
    verbs.run("createAcl", *at, *one, "-r", "Topic:orders,Group:bill*", "-a", "Pub,Sub", "-d", "Allow")
    verbs.run("updateAcl", *at, *one, "-r", "Topic:orders", "-a", "Pub", "-d", "deny", "-i", "10.0.0.0/8")
    assert verbs.rights("verbs.one") == [("Topic:orders", ["Pub"], "Deny"), ("Group:bill*", ["Pub", "Sub"], "Allow")]
    (listed,) = verbs.run("listAcl", *at, "-s", "verbs.", "-r", "bill")
    assert [item["resource"] for item in listed["rights"]] == ["Group:bill*"]
    asked = ("explainAcl", *at, "-u", "verbs.one", "-a", "Pub", "-r", "Topic:orders")
    assert [verbs.run(*asked, "-i", ip)[0]["allowed"] for ip in ("10.1.2.3", "11.1.2.3")] == [False, False]
    (explained,) = verbs.run("explainAcl", *at, "-u", "verbs.one", "-a", "sub", "-r", "Group:billing")
    assert explained["allowed"] and explained["reason"] == "decided by: Allow Pub,Sub on Group:bill*"
    (who,) = verbs.run("explainAcl", *at, "-a", "Sub", "-r", "Group:billing")
    assert {"verbs.one", verbs.access_key} <= {item["user"] for item in who["allowed"]}
    verbs.run("deleteAcl", *at, *one, "-r", "Topic:orders")
    assert verbs.rights("User:verbs.one") == [("Group:bill*", ["Pub", "Sub"], "Allow")]
    verbs.run("copyAcl", "-f", verbs.broker, "-t", verbs.broker, "-s", "User:verbs.one")
    verbs.run("deleteAcl", *at, *one)
    assert verbs.rights("verbs.one") == []
    for wrong in (
        ("-r", "Topic:a*b", "-a", "Pub", "-d", "Allow"), ("-r", "orders", "-a", "Pub", "-d", "Allow"),
        ("-r", "Topic:x", "-a", "Send", "-d", "Allow"), ("-r", "Topic:x", "-a", "Pub", "-d", "Maybe"),
    ):  # fmt: skip
        assert verbs.run("createAcl", *at, *one, *wrong, code=2).startswith("error: -r ")
