"""The requests of accounts and rights, 3001 to 3010, step by step on Apache's broker and on ours: the same codes, the same
words, the same bodies byte for byte, but that ours never shows a password."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from tests.interop.access.conftest import Sides
from tests.support.access.cases import Said, no_right, said
from tests.support.access.frames import Account, signed
from tests.support.access.world import (
    CLUSTER,
    CREATE_ACL,
    CREATE_USER,
    DELETE_ACL,
    DELETE_USER,
    GET_ACL,
    GET_USER,
    LIST_ACL,
    LIST_USER,
    NOBODY,
    OPERATOR,
    ROOT,
    UPDATE_ACL,
    UPDATE_USER,
    Entry,
    allow,
    deny,
)

from rocketline.protocol.command import Command

pytestmark = pytest.mark.interop

DONE = Said(0)
BLANK = Said(29, "The username is blank")
MUST_BE_SUPER = "The super user can only be update by super user"
S1 = {"username": "step1"}
R1 = {"subject": "User:step1"}


class Step(NamedTuple):
    name: str
    who: Account
    code: int
    fields: Mapping[str, Any]
    body: object = None
    theirs: Said = DONE
    ours: Said | None = None
    """None: as theirs."""

    def frame(self) -> bytes:
        body = b"" if self.body is None else json.dumps(self.body).encode()
        return signed(self.who, self.code, self.fields, body)


def _user(name: str = "step1", **members: str) -> dict[str, str]:
    return {"username": name, **members}


def _rights(*entries: Entry, kind: str | None = None, subject: str = "User:step1") -> dict[str, Any]:
    policy: dict[str, Any] = {"entries": list(entries)}
    if kind is not None:
        policy["policyType"] = kind
    return {"subject": subject, "policies": [policy]}


def _less(member: str, entry: Entry) -> Entry:
    return {key: value for key, value in entry.items() if key != member}


ENTRY = allow("Topic:x", "Pub")
USERS = [
    Step("create", ROOT, CREATE_USER, S1, _user(password="p1", userType="Normal")),
    Step("show", ROOT, GET_USER, S1),
    Step("once more", ROOT, CREATE_USER, S1, _user(password="p1"), Said(16, "The user is existed")),
    Step("no password", ROOT, CREATE_USER, {"username": "a"}, _user("a"), Said(16, "password can not be blank")),
    Step(
        "blank password",
        ROOT,
        CREATE_USER,
        {"username": "a"},
        _user("a", password=" "),
        Said(16, "password can not be blank"),
    ),
    Step("create without a name", ROOT, CREATE_USER, {}, {"password": "p"}, BLANK),
    Step("update without a name", ROOT, UPDATE_USER, {"username": ""}, _user(" ", password="p"), BLANK),
    Step("show without a name", ROOT, GET_USER, {"username": ""}, None, BLANK),
    Step("delete without a name", ROOT, DELETE_USER, {"username": ""}, None, Said(16, "username can not be blank")),
    Step("two names: the field counts", ROOT, CREATE_USER, {"username": "step2"}, _user("step3", password="p")),
    Step("the one", ROOT, GET_USER, {"username": "step2"}),
    Step("not the other", ROOT, GET_USER, {"username": "step3"}),
    Step("another password", ROOT, UPDATE_USER, S1, _user(password="p2")),
    Step("blank: it stays", ROOT, UPDATE_USER, S1, _user(password="")),
    Step("disable", ROOT, UPDATE_USER, S1, _user(userStatus="DISABLE")),
    Step("show it disabled", ROOT, GET_USER, S1),
    Step("a disabled one", Account("step1", "p2"), GET_USER, S1, None, Said(16, "User:step1 is disabled.")),
    Step("enable", ROOT, UPDATE_USER, S1, _user(userStatus="Enable")),
    Step("an unknown status", ROOT, UPDATE_USER, S1, _user(userStatus="sleepy")),
    Step(
        "the new password counts",
        Account("step1", "p2"),
        GET_USER,
        S1,
        None,
        no_right(Account("step1", ""), f"Cluster:{CLUSTER}"),
    ),
    Step("an unknown type", ROOT, CREATE_USER, {"username": "step4"}, _user("step4", password="p", userType="King")),
    Step("is normal", ROOT, GET_USER, {"username": "step4"}),
    Step("update nobody", ROOT, UPDATE_USER, {"username": "no"}, _user("no"), Said(16, "The user is not exist")),
    Step("show nobody", ROOT, GET_USER, {"username": "no"}),
    Step("list", ROOT, LIST_USER, {"filter": "step"}),
    Step("list nobody", ROOT, LIST_USER, {"filter": "zzz"}),
    Step("delete", ROOT, DELETE_USER, {"username": "step4"}),
    Step("delete once more", ROOT, DELETE_USER, {"username": "step4"}),
]
RIGHTS = [
    Step(
        "of nobody",
        ROOT,
        CREATE_ACL,
        {"subject": "User:no"},
        _rights(ENTRY, subject="User:no"),
        Said(16, "The subject of User:no is not exist."),
    ),
    Step(
        "update of nobody",
        ROOT,
        UPDATE_ACL,
        {"subject": "User:no"},
        _rights(ENTRY, subject="User:no"),
        Said(16, "The subject of User:no is not exist."),
    ),
    Step("delete of nobody", ROOT, DELETE_ACL, {"subject": "User:no"}, None, Said(16, "The subject is not exist.")),
    Step("show of nobody", ROOT, GET_ACL, {"subject": "User:no"}, None, Said(16, "The subject is not exist.")),
    Step(
        "of no user",
        ROOT,
        CREATE_ACL,
        {"subject": "Role:a"},
        _rights(ENTRY, subject="Role:a"),
        Said(1, "An system error occurred, please try again later."),
    ),
    Step("show of no user", ROOT, GET_ACL, {"subject": "Role:a"}, None, Said(16, "The subject is null.")),
    Step("show none", ROOT, GET_ACL, R1),
    Step("delete none", ROOT, DELETE_ACL, R1, None, Said(16, "The acl is not exist.")),
    Step(
        "create",
        ROOT,
        CREATE_ACL,
        R1,
        _rights(allow("Topic:a", "Pub", "Sub"), deny("Group:g*", "All", ips=["10.0.0.0/8", "::1"])),
    ),
    Step("show", ROOT, GET_ACL, R1),
    Step("default entries", ROOT, CREATE_ACL, R1, _rights(allow("*", "Get"), kind="Default")),
    Step(
        "an equal resource is replaced",
        ROOT,
        UPDATE_ACL,
        R1,
        _rights(deny("Topic:a", "Get"), allow("Cluster:*", "List")),
    ),
    Step("show all", ROOT, GET_ACL, R1),
    Step("list", ROOT, LIST_ACL, {"subjectFilter": "step1"}),
    Step("list a resource", ROOT, LIST_ACL, {"subjectFilter": "step1", "resourceFilter": "Group"}),
    Step("list no resource", ROOT, LIST_ACL, {"subjectFilter": "step1", "resourceFilter": "zzz"}),
    Step("list nobody", ROOT, LIST_ACL, {"subjectFilter": "zzz"}),
    *[
        Step(name, ROOT, CREATE_ACL, R1, _rights(entry), Said(16, remark))
        for name, entry, remark in (
            ("no resource", _less("resource", ENTRY), "The resource is null."),
            ("an unknown kind of resource", allow("Thing:x", "Pub"), "The resource is null."),
            ("no action", allow("Topic:x"), "The actions is empty."),
            ("any action", allow("Topic:x", "Any"), "The actions can not be Any."),
            ("an unknown action", allow("Topic:x", "Fly"), "The actions is empty."),
            ("no network", allow("Topic:x", "Pub", ips=["10.*.1.1"]), "The source ip is invalid."),
            ("an empty address", allow("Topic:x", "Pub", ips=[""]), "The source ip is empty."),
            ("an unknown decision", {**ENTRY, "decision": "Maybe"}, "The decision is null or illegal."),
            ("no decision", _less("decision", ENTRY), "The decision is null or illegal."),
        )
    ],
    Step("no entries", ROOT, CREATE_ACL, R1, _rights(), Said(16, "The policies is empty.")),
    Step(
        "words in any case",
        ROOT,
        CREATE_ACL,
        {"subject": "user:step1"},
        _rights(allow("TOPIC:Ab", "pub"), subject="user:step1"),
    ),
    Step("show them", ROOT, GET_ACL, R1),
    Step("delete one", ROOT, DELETE_ACL, {**R1, "resource": "Topic:a"}),
    Step("delete one that is not there", ROOT, DELETE_ACL, {**R1, "resource": "Topic:nope"}),
    Step("delete a default one", ROOT, DELETE_ACL, {**R1, "resource": "*", "policyType": "Default"}),
    Step("show the rest", ROOT, GET_ACL, R1),
    Step("delete all", ROOT, DELETE_ACL, R1),
    Step("show nothing", ROOT, GET_ACL, R1),
    Step("rights again", ROOT, CREATE_ACL, R1, _rights(ENTRY)),
    Step("delete the user", ROOT, DELETE_USER, S1),
    Step("its rights are gone", ROOT, GET_ACL, R1, None, Said(16, "The subject is not exist.")),
    Step("the same name again", ROOT, CREATE_USER, S1, _user(password="p1")),
    Step("has no rights", ROOT, GET_ACL, R1),
    Step("delete it", ROOT, DELETE_USER, S1),
]
OTHERS = [
    Step("an operator makes a user", OPERATOR, CREATE_USER, {"username": "made"}, _user("made", password="p")),
    Step(
        "not a super user",
        OPERATOR,
        CREATE_USER,
        {"username": "b"},
        _user("b", password="p", userType="Super"),
        Said(1, "The super user can only be create by super user"),
    ),
    Step(
        "not of itself",
        OPERATOR,
        UPDATE_USER,
        {"username": OPERATOR.name},
        _user(OPERATOR.name, userType="Super"),
        Said(1, MUST_BE_SUPER),
    ),
    Step(
        "nor changes one",
        OPERATOR,
        UPDATE_USER,
        {"username": "root"},
        _user("root", password="x"),
        Said(16, MUST_BE_SUPER),
    ),
    Step("nor deletes one", OPERATOR, DELETE_USER, {"username": "root"}, None, Said(16, MUST_BE_SUPER)),
    Step("delete what it made", OPERATOR, DELETE_USER, {"username": "made"}),
    *[
        Step(
            f"{code} without rights",
            NOBODY,
            code,
            {**fields, "username": "nobody", "subject": "User:nobody"},
            body,
            no_right(NOBODY, f"Cluster:{CLUSTER}"),
        )
        for code, fields, body in (
            (CREATE_USER, {}, _user("nobody")),
            (UPDATE_USER, {}, _user("nobody")),
            (DELETE_USER, {}, None),
            (GET_USER, {}, None),
            (LIST_USER, {}, None),
            (CREATE_ACL, {}, _rights(ENTRY)),
            (UPDATE_ACL, {}, _rights(ENTRY)),
            (DELETE_ACL, {}, None),
            (GET_ACL, {}, None),
            (LIST_ACL, {}, None),
        )
    ],
]


def _without_passwords(body: bytes) -> bytes:
    """Users as ours shows them."""
    if b'"password"' not in body:
        return body
    shown = json.loads(body)
    for user in shown if isinstance(shown, list) else [shown]:
        del user["password"]
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode()


def _facts(answer: Command) -> tuple[int, str | None, list[str], bytes]:
    return answer.code, answer.remark, sorted(answer.ext or ()), answer.body


@pytest.mark.parametrize("step", [*USERS, *RIGHTS, *OTHERS], ids=lambda step: step.name)
def test_a_step(sides: Sides, step: Step) -> None:
    theirs, ours = (side.ask(step.frame()) for side in sides)
    assert said(theirs) == step.theirs
    if step.ours is not None:
        assert said(ours) == step.ours
    else:
        assert _facts(ours) == (*_facts(theirs)[:3], _without_passwords(theirs.body))
