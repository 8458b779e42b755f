"""Requests 3001 to 3010: codes, remarks and bodies as Apache RocketMQ 5.4.0 gives them, and what is safer here."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable
from typing import Any

import pytest

from rocketline.async_table import OffLoop
from rocketline.auth import requests as requests_module
from rocketline.auth.accounts import Accounts
from rocketline.auth.model import User, UserStatus, UserType
from rocketline.auth.requests import MAX_SOURCE_IPS, AccessHandlers
from rocketline.clock import ManualClock
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.testing.disks import MemoryDisk
from rocketline.transport.audit import audited

DONE = (0, "not set any response code")
SUPER_UPDATE = "The super user can only be update by super user"
ROOT = User("root", "rootsecret", UserType.SUPER)
ADMIN = User("admin", "adminsecret")


class Peer:
    remote = "192.0.2.7:5000"
    identity = certificate = ""


class Server:
    """Handlers on accounts in memory, asked by somebody."""

    def __init__(self, caller: User | None = ROOT, sees_passwords: bool = False, own: str = "") -> None:
        self.clock = ManualClock()
        self.accounts = Accounts.open(None, MemoryDisk())
        self.caller = caller
        for user in (ROOT, ADMIN, User("amy", "amysecret")):
            self.accounts.create_user(user)
        handlers = AccessHandlers(
            self.accounts, self.clock, lambda *_: self.caller, lambda *_: sees_passwords, lambda: own
        )
        self.router = audited(handlers.router())

    def ask(self, code: int, body: Any = None, **fields: str) -> Command:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        answer = self.router.serve(Peer(), Command(RequestCode(code), fields, data))  # type: ignore[arg-type]
        assert isinstance(answer, Command)
        assert not answer.ext
        return answer

    def told(self, code: int, body: Any = None, **fields: str) -> tuple[int, str | None]:
        answer = self.ask(code, body, **fields)
        return answer.code, answer.remark

    def right(self, resource: str = "Topic:orders", subject: str = "User:amy", code: int = 3006, **members: Any) -> Any:
        return self.told(code, acl(resource, **members), subject=subject)


def acl(
    resource: str | None, *, policy: str | None = None, subject: str | None = None, **members: Any
) -> dict[str, Any]:
    entry = {"resource": resource, "actions": ["Pub"], "decision": "Allow", **members}
    return {"subject": subject, "policies": [{"policyType": policy, "entries": [entry]}]}


# Users


def test_a_user_is_created_changed_and_deleted() -> None:
    server = Server()
    assert server.told(3001, {"password": "w1secret", "userType": "Normal", "username": "w1"}, username="w1") == DONE
    assert server.accounts.user("w1") == User("w1", "w1secret")
    assert server.told(3002, {"userType": "super", "userStatus": "DISABLE"}, username="w1") == DONE
    assert server.accounts.user("w1") == User("w1", "w1secret", UserType.SUPER, UserStatus.DISABLE)
    assert server.told(3002, {"password": " ", "userType": "Queen"}, username="w1") == DONE
    assert server.accounts.user("w1") == User("w1", "w1secret", UserType.SUPER, UserStatus.DISABLE)
    assert server.told(3003, username="w1") == DONE
    assert server.told(3003, username="w1") == DONE
    assert server.accounts.user("w1") is None


def test_the_name_in_the_header_counts_and_unknown_words_are_defaults() -> None:
    server = Server()
    body = {"password": "x", "userType": "Queen", "userStatus": "asleep", "username": "other"}
    assert server.told(3001, body, username="a b:*") == DONE
    assert server.accounts.user("a b:*") == User("a b:*", "x")


@pytest.mark.parametrize(
    ("code", "body", "fields", "told"),
    [
        (3001, {"password": "x"}, {"username": "amy"}, (16, "The user is existed")),
        (3002, {"password": "x"}, {"username": "bob"}, (16, "The user is not exist")),
        (3001, {}, {"username": "bob"}, (16, "password can not be blank")),
        (3001, {"password": " "}, {"username": "bob"}, (16, "password can not be blank")),
        (3003, None, {}, (16, "username can not be blank")),
        (3003, None, {"username": " "}, (16, "username can not be blank")),
        (3001, {"password": "x"}, {"username": " "}, (16, "username can not be blank")),
        (3001, {"password": "x"}, {}, (29, "The username is blank")),
        (3001, {"password": "x"}, {"username": ""}, (29, "The username is blank")),
        (3002, {"password": "x"}, {}, (29, "The username is blank")),
        (3004, None, {}, (29, "The username is blank")),
        (3004, None, {"username": " "}, (29, "The username is blank")),
        (3001, None, {"username": "bob"}, (29, "The body is empty")),
        (3002, None, {"username": "amy"}, (29, "The body is empty")),
        (3006, None, {"subject": "User:amy"}, (29, "The body is empty")),
        (3001, b'{"password":"topsecret"', {"username": "bob"}, (29, "The body is not a readable UserInfo")),
        (3001, b'{"userType":["topsecret"]}', {"username": "bob"}, (29, "The body is not a readable UserInfo")),
        (3006, b"topsecret", {"subject": "User:amy"}, (29, "The body is not a readable AclInfo")),
    ],
)  # fmt: skip
def test_refusals_about_users(code: int, body: Any, fields: dict[str, str], told: tuple[int, str]) -> None:
    assert Server().told(code, body, **fields) == told


def test_the_account_that_the_server_signs_with_stays_as_it_is_needed() -> None:
    server = Server(own="root")
    for code, body in ((3003, None), (3002, {"userStatus": "disable"}), (3002, {"userType": "Normal"})):
        answer, remark = server.told(code, body, username="root")
        assert answer == 16 and remark is not None
        assert "User:root is the account this server signs its own requests with" in remark
    assert server.accounts.user("root") == ROOT
    assert server.told(3002, {"password": "new", "userType": "Super"}, username="root") == DONE
    assert server.told(3002, {"userStatus": "disable"}, username="amy") == DONE
    assert all("rocketlineOwn" not in user for user in json.loads(server.ask(3005).body)), "mqadmin did not ask"
    listed = {user["username"]: user for user in json.loads(server.ask(3005, rocketlineOwn="true").body)}
    assert [name for name, user in listed.items() if user.get("rocketlineOwn")] == ["root"]
    assert set(listed["amy"]) == {"userStatus", "userType", "username"}


@pytest.mark.parametrize("caller", [ROOT, ADMIN, None])
def test_super_users_are_managed_by_super_users_only(caller: User | None) -> None:
    """Without authentication nobody is asked, and everybody may."""
    server = Server(caller)
    answers = [
        server.told(3001, {"password": "x", "userType": "Super"}, username="bob"),
        server.told(3002, {"userType": "Super"}, username="amy"),
        server.told(3002, {"password": "y"}, username="root"),
        server.told(3003, username="root"),
    ]
    if caller is ADMIN:
        assert answers == [
            (1, "The super user can only be create by super user"),
            (1, SUPER_UPDATE),
            (16, SUPER_UPDATE),
            (16, SUPER_UPDATE),
        ]
        assert server.accounts.user("root") == ROOT
    else:
        assert answers == [DONE] * 4
        assert server.accounts.user("root") is None


def test_users_are_shown_without_their_passwords() -> None:
    server = Server()
    assert server.ask(3004, username="amy").body == b'{"userStatus":"enable","userType":"Normal","username":"amy"}'
    names = [user["username"] for user in json.loads(server.ask(3005).body)]
    assert names == ["admin", "amy", "root"]
    assert [user["username"] for user in json.loads(server.ask(3005, filter="m").body)] == ["admin", "amy"]
    assert b"secret" not in server.ask(3005).body


def test_passwords_are_shown_to_those_who_may_see_them() -> None:
    assert Server(sees_passwords=True).ask(3004, username="root").body == (
        b'{"password":"rootsecret","userStatus":"enable","userType":"Super","username":"root"}'
    )


@pytest.mark.parametrize(
    ("code", "fields"),
    [(3004, {"username": "bob"}), (3005, {"filter": "zzz"}), (3009, {"subject": "User:amy"}), (3010, {})],
)
def test_what_is_not_found_has_no_body(code: int, fields: dict[str, str]) -> None:
    answer = Server().ask(code, **fields)
    assert ((answer.code, answer.remark), answer.body) == (DONE, b"")


def test_the_former_password_is_valid_for_a_while_when_asked() -> None:
    server = Server()

    def change(password: str, **fields: str) -> tuple[str, ...]:
        assert server.told(3002, {"password": password}, username="amy", **fields) == DONE
        user = server.accounts.user("amy")
        assert user is not None
        return user.passwords(server.clock.now_ms())

    assert change("new", rocketlineKeepOldSeconds="60") == ("new", "amysecret")
    assert change("new") == ("new", "amysecret")
    server.clock.advance(59)
    assert change("") == ("new", "amysecret")
    server.clock.advance(1)
    assert change("") == ("new",)
    assert change("newer", rocketlineKeepOldSeconds="60") == ("newer", "new")
    assert change("newer", rocketlineKeepOldSeconds="0") == ("newer",)
    change("newest", rocketlineKeepOldSeconds="60")
    assert change("leaked, so at once") == ("leaked, so at once",)


@pytest.mark.parametrize("seconds", ["-1", "99999999"])
def test_a_password_is_not_kept_for_ever(seconds: str) -> None:
    code, remark = Server().told(3002, {"password": "x"}, username="amy", rocketlineKeepOldSeconds=seconds)
    assert (code, "rocketlineKeepOldSeconds" in (remark or "")) == (29, True)


# Rights


def test_rights_are_given_shown_and_taken() -> None:
    server = Server()
    assert server.right(actions=["Pub", "sub"], sourceIps=["10.0.0.0/8"]) == DONE
    assert server.right("Group:*", code=3007, policy="default", decision="deny", actions=["All"]) == DONE
    body = server.ask(3009, subject="User:amy").body
    assert body == (
        b'{"policies":[{"entries":[{"actions":["Pub","Sub"],"decision":"Allow","resource":"Topic:orders",'
        b'"sourceIps":["10.0.0.0/8"]}],"policyType":"Custom"},{"entries":[{"actions":["All"],"decision":"Deny",'
        b'"resource":"Group:*"}],"policyType":"Default"}],"subject":"User:amy"}'
    )
    assert server.ask(3010).body == b"[" + body + b"]"
    assert server.told(3008, subject="User:amy", resource="Group:*") == DONE
    assert server.ask(3009, subject="User:amy").body == body
    assert server.told(3008, subject="User:amy", resource="Group:*", policyType="Default") == DONE
    assert server.told(3008, subject="user:amy") == DONE
    assert server.ask(3009, subject="User:amy").body == b""


def test_rights_are_listed_by_subject_and_resource() -> None:
    server = Server()
    for subject, resource in (("amy", "Topic:orders"), ("amy", "Topic:bills"), ("admin", "Group:amy")):
        assert server.right(resource, f"User:{subject}") == DONE

    def found(**fields: str) -> list[tuple[str, list[str]]]:
        body = server.ask(3010, **fields).body
        return [
            (item["subject"], [entry["resource"] for policy in item["policies"] for entry in policy["entries"]])
            for item in (json.loads(body) if body else [])
        ]

    every = [("User:admin", ["Group:amy"]), ("User:amy", ["Topic:orders", "Topic:bills"])]
    assert found() == every
    assert found(subjectFilter="User:am") == every[1:]
    assert found(resourceFilter="bill") == [("User:amy", ["Topic:bills"])]
    # A subject with that text is shown whole.
    assert found(resourceFilter="amy") == every
    assert found(subjectFilter="admin", resourceFilter="Topic") == []


@pytest.mark.parametrize(
    ("members", "remark"),
    [
        ({"resource": None}, "The resource is null."),
        ({"resource": "Queue:a"}, "The resource is null."),
        ({"actions": []}, "The actions is empty."),
        ({"actions": None}, "The actions is empty."),
        ({"actions": ["Fly"]}, "The actions is empty."),
        ({"actions": ["Any"]}, "The actions can not be Any."),
        ({"sourceIps": ["10.0.0.*"]}, "The source ip is invalid."),
        ({"sourceIps": ["10.0.0.1", " "]}, "The source ip is empty."),
        ({"decision": "Maybe"}, "The decision is null or illegal."),
        ({"decision": None}, "The decision is null or illegal."),
        ({"subject": "User:bob"}, "The subject of User:bob is not exist."),
    ],
)
def test_refusals_about_entries(members: dict[str, Any], remark: str) -> None:
    arguments = {"resource": "Topic:orders", **members}
    server = Server()
    subject = arguments.pop("subject", "User:amy")
    assert server.told(3006, acl(**arguments), subject=subject) == (16, remark)
    assert not server.accounts.acl("amy")


@pytest.mark.parametrize(
    ("code", "body", "fields", "told"),
    [
        (3006, {"policies": []}, {"subject": "User:amy"}, (16, "The policies is empty.")),
        (3006, {"policies": [{"entries": []}]}, {"subject": "User:amy"}, (16, "The policies is empty.")),
        (3006, acl("*"), {"subject": "amy"}, (1, "An system error occurred, please try again later.")),
        (3006, acl("*"), {}, (1, "An system error occurred, please try again later.")),
        (3008, None, {"subject": "amy"}, (16, "The subject is null.")),
        (3009, None, {"subject": "amy"}, (16, "The subject is null.")),
        (3008, None, {"subject": "User:bob"}, (16, "The subject is not exist.")),
        (3009, None, {"subject": "User:bob"}, (16, "The subject is not exist.")),
        (3008, None, {"subject": "User:amy"}, (16, "The acl is not exist.")),
    ],
)
def test_refusals_about_rights(code: int, body: Any, fields: dict[str, str], told: tuple[int, str]) -> None:
    assert Server().told(code, body, **fields) == told


@pytest.mark.parametrize("resource", ["Topic:a*b*", "Topic:a*b", "Any:x", "Namespace:x", "Topic:"])
def test_resources_that_are_not_what_they_seem_are_refused(resource: str) -> None:
    server = Server()
    assert server.right() == DONE
    assert server.right(resource)[0] == 29
    assert server.told(3008, subject="User:amy", resource=resource)[0] == 29
    assert server.accounts.acl("amy")


def test_a_resource_that_names_nothing_deletes_nothing() -> None:
    server = Server()
    assert server.right() == DONE
    assert server.told(3008, subject="User:amy", resource="orders")[0] == 29
    assert server.accounts.acl("amy")


def test_header_and_body_must_mean_the_same_account() -> None:
    server = Server()
    assert server.told(3006, acl("*", subject="User:admin"), subject="User:amy")[0] == 29
    assert server.told(3006, acl("*", subject="User:amy"), subject="User:amy") == DONE


@pytest.mark.parametrize(
    ("code", "body", "fields"),
    [
        (3001, {"password": "x"}, {"username": "n" * 2000}),
        (3001, {"password": "x" * 2000}, {"username": "bob"}),
        (3006, acl(f"Topic:{'x' * 2000}"), {"subject": "User:amy"}),
        (3002, {"password": "x" * 2000}, {"username": "amy"}),
        (3006, acl("*", sourceIps=["10.0.0.1"] * (MAX_SOURCE_IPS + 1)), {"subject": "User:amy"}),
    ],
)
def test_what_is_remembered_is_bounded(code: int, body: Any, fields: dict[str, str]) -> None:
    assert Server().told(code, body, **fields)[0] == 29


# On an event loop, and in the audit log


async def test_an_answer_waits_until_the_change_is_saved() -> None:
    off_loop = OffLoop()
    accounts = Accounts.open(None, MemoryDisk(), off_loop)
    router = AccessHandlers(accounts, ManualClock(), lambda *_: ROOT).router()
    request = Command(RequestCode.AUTH_CREATE_USER, {"username": "amy"}, b'{"password":"x"}')
    replies = [router.serve(Peer(), request) for _ in range(2)]  # type: ignore[arg-type]
    assert all(isinstance(reply, Awaitable) for reply in replies)
    results = await asyncio.gather(*replies, return_exceptions=True)  # type: ignore[arg-type]
    assert isinstance(results[0], Command)
    assert ((results[0].code, results[0].remark), str(results[1])) == (DONE, "16: The user is existed")
    await off_loop.finish()


async def test_long_lists_are_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    assert server.right() == DONE
    at_once = [server.ask(code).body for code in (3005, 3010)]
    monkeypatch.setattr(requests_module, "LISTED_AT_ONCE", 2)
    replies = [server.router.serve(Peer(), Command(code, {}, b"")) for code in (3005, 3010)]  # type: ignore[arg-type]
    server.accounts.create_user(User("bob", "bobsecret"))
    answers = await asyncio.gather(*replies)  # type: ignore[arg-type]
    assert [answer.body for answer in answers] == at_once


def test_every_change_is_audited_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = Server()
    server.told(
        3001, {"password": "topsecret", "userType": "Super"}, username="bob", AccessKey="root", Signature="c2ln"
    )
    server.told(3002, {"password": "topsecret2", "userStatus": "disable"}, username="bob")
    server.told(3001, b'{"password":"topsecret', username="eve")
    server.right(sourceIps=["10.0.0.1"], policy="Default")
    server.told(3008, subject="User:amy", resource="Topic:orders", policyType="Default")
    server.told(3003, username="bob")
    lines = [vars(record)["fields"] for record in caplog.records if record.name == "rocketline.audit"]
    assert [(line["what"], line["object"], line["result"]) for line in lines] == [
        ("AUTH_CREATE_USER", {"username": "bob", "names": ["Super", "password"]}, "SUCCESS"),
        ("AUTH_UPDATE_USER", {"username": "bob", "names": ["disable", "password"]}, "SUCCESS"),
        ("AUTH_CREATE_USER", {"username": "eve"}, "INVALID_PARAMETER"),
        (
            "AUTH_CREATE_ACL",
            {"subject": "User:amy", "names": ["Default Allow Pub on Topic:orders from 10.0.0.1"]},
            "SUCCESS",
        ),
        (
            "AUTH_DELETE_ACL",
            {"subject": "User:amy", "resource": "Topic:orders", "policyType": "Default"},
            "SUCCESS",
        ),
        ("AUTH_DELETE_USER", {"username": "bob"}, "SUCCESS"),
    ]
    assert "topsecret" not in caplog.text
    assert "c2ln" not in caplog.text
