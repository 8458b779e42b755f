"""Accounts from files: the form for git, its plan of changes, and the files of RocketMQ 4."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketline.auth.accounts import Accounts
from rocketline.auth.files import Change, apply, count_lines, differing, fetch, plan, read_users, write_users
from rocketline.auth.import_v1 import read_v1, v1_files
from rocketline.auth.model import AccountTable, Acl, Entry, User, UserStatus, UserType
from rocketline.auth.requests import AccessHandlers
from rocketline.auth.words import acl_info, entry_of, entry_text
from rocketline.clock import ManualClock
from rocketline.errors import ConfigError
from rocketline.protocol.bodies import AclInfo, PolicyEntryInfo, UserInfo, decode_body, encode_body
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.testing.disks import MemoryDisk

SHOP = """
users:
  shop:
    password_file: secrets/shop
    rights:
    - allow: Pub,Sub on Topic:orders* from 10.0.0.0/8, ::1
    - deny: all on Topic:orders-private
    default_rights:
    - allow: Get on *
  0123:
    type: super
    status: disable
    password: 007
  billing:
    password_env: BILLING
"""


def texts(entries: tuple[Entry, ...]) -> list[str]:
    return [entry_text(entry) for entry in entries]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def shop_table(folder: Path) -> AccountTable:
    write(folder / "secrets" / "shop", "shopsecret\n")
    return read_users(write(folder / "users.yaml", SHOP), {"BILLING": "billsecret"})


def test_a_file_is_read(tmp_path: Path) -> None:
    table = shop_table(tmp_path)
    assert list(table.users.values()) == [
        User("shop", "shopsecret"),
        User("0123", "007", UserType.SUPER, UserStatus.DISABLE),
        User("billing", "billsecret"),
    ]
    assert list(table.acls) == ["shop"]
    assert texts(table.acls["shop"].custom) == [
        "Allow Pub,Sub on Topic:orders* from 10.0.0.0/8,::1", "Deny All on Topic:orders-private",
    ]  # fmt: skip
    assert texts(table.acls["shop"].default) == ["Allow Get on *"]


USER = "users:\n  shop:\n    "


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expected `object`"),
        ("users: [topsecret", "near line 1"),
        ("users: {shop: {password: *topsecret}}", "not valid YAML"),
        ("users: {shop: {password: !!python/name:os.system topsecret}}", "not valid YAML"),
        ("users: {shop: {}, shop: {}}", "a key comes twice"),
        (USER + "pasword: topsecret", "pasword"),
        (USER + "password: [topsecret]", "Expected `str`"),
        (USER + "{password: topsecret, password_env: X}", "only one of"),
        (USER + "password_env: X", "X is empty or not set"),
        (USER + "password_file: nowhere", "nowhere"),
        (USER + "type: King", "Normal or Super"),
        (USER + "rights: [{allow: Fly on Topic:a}]", "'Fly' is no action"),
        (USER + "rights: [{permit: Pub on Topic:a}]", "decision"),
        (USER + "rights: [{allow: Pub on orders}]", "resource"),
        (USER + "rights: [{allow: Pub on Topic:a*b}]", "prefix"),
        (USER + "rights: [{allow: Pub Topic:a}]", "is not as"),
        (USER + "rights: [{allow: Pub on Topic:a from 10.*}]", "source ip is invalid"),
        (USER + "rights: [{allow: Pub on Topic:a}, {deny: Sub on Topic:a}]", "two lines"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_its_secrets(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path / "users.yaml", text)
    with pytest.raises(ConfigError) as error:
        read_users(path, {})
    assert problem in str(error.value)
    assert str(path) in str(error.value)
    assert "topsecret" not in str(error.value)


def test_the_extra_is_named_when_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"pip install 'rocketline\[yaml\]'"):
        read_users(write(tmp_path / "users.yaml", SHOP))


def test_what_is_written_is_read_again_but_for_passwords(tmp_path: Path) -> None:
    table = shop_table(tmp_path)
    text = write_users(table)
    again = read_users(write(tmp_path / "written.yaml", text))
    assert again.acls == table.acls
    assert [(user.name, user.type, user.status, user.password) for user in again.users.values()] == [
        (user.name, user.type, user.status, "") for user in table.users.values()
    ]
    assert "secret" not in text


# What must change on a server


class Peer:
    remote = "192.0.2.7:5000"


class WireServer:
    """A server behind its wire format; counts the changes that it is asked for."""

    def __init__(self, sees_passwords: bool = False, own: str = "") -> None:
        self.accounts = Accounts.open(None, MemoryDisk())
        handlers = AccessHandlers(self.accounts, ManualClock(), lambda *_: None, lambda *_: sees_passwords, lambda: own)
        self._router = handlers.router()
        self.changes = 0

    def _ask(self, code: int, body: bytes = b"", **fields: str | None) -> bytes:
        ext = {name: text for name, text in fields.items() if text is not None}
        answer = self._router.serve(Peer(), Command(RequestCode(code), ext, body))  # type: ignore[arg-type]
        assert isinstance(answer, Command)
        assert answer.code == 0, answer.remark
        return answer.body

    def _change(self, code: int, body: bytes = b"", **fields: str | None) -> None:
        self._ask(code, body, **fields)
        self.changes += 1

    async def users(self) -> list[UserInfo]:
        return decode_body(list[UserInfo], self._ask(3005, rocketlineOwn="true") or b"[]")

    async def acls(self) -> list[AclInfo]:
        return decode_body(list[AclInfo], self._ask(3010) or b"[]")

    async def create_user(self, user: UserInfo) -> None:
        self._change(3001, encode_body(user), username=user.username)

    async def update_user(self, user: UserInfo, keep_old_s: int | None = None) -> None:
        keep = None if keep_old_s is None else str(keep_old_s)
        self._change(3002, encode_body(user), username=user.username, rocketlineKeepOldSeconds=keep)

    async def delete_user(self, name: str) -> None:
        self._change(3003, username=name)

    async def put_acl(self, acl: AclInfo) -> None:
        self._change(3007, encode_body(acl), subject=acl.subject)

    async def delete_acl(self, subject: str, resource: str | None = None, policy: str | None = None) -> None:
        self._change(3008, subject=subject, resource=resource, policyType=policy)


def lines(changes: list[Change]) -> list[str]:
    return "\n".join(map(str, changes)).split("\n") if changes else []


async def test_a_server_becomes_as_the_file_says(tmp_path: Path) -> None:
    server, wanted = WireServer(), shop_table(tmp_path)
    changes = plan(await fetch(server), wanted)
    assert lines(changes) == [
        "+ user shop (Normal, enable)",
        "+ shop: Allow Pub,Sub on Topic:orders* from 10.0.0.0/8,::1",
        "+ shop: Deny All on Topic:orders-private",
        "+ shop: Allow Get on * by default",
        "+ user 0123 (Super, disable)",
        "+ user billing (Normal, enable)",
    ]
    assert "secret" not in repr(changes)
    await apply(server, changes)
    assert (dict(server.accounts._table.users), server.accounts._table.acls) == (wanted.users, wanted.acls)
    assert plan(await fetch(server), wanted) == []


async def test_the_plan_has_only_differences(tmp_path: Path) -> None:
    server = WireServer()
    await apply(server, plan(await fetch(server), shop_table(tmp_path)))
    changed = SHOP.replace("Pub,Sub on", "Pub on").replace("    - deny: all on Topic:orders-private\n", "")
    changed = changed.replace("status: disable", "status: enable").replace("Get on *", "Get on Topic:*")
    wanted = read_users(write(tmp_path / "users.yaml", changed.split("  billing")[0]), {})
    changes = plan(await fetch(server), wanted, prune=True)
    assert lines(changes) == [
        "- shop: Allow Pub,Sub on Topic:orders* from 10.0.0.0/8,::1",
        "+ shop: Allow Pub on Topic:orders* from 10.0.0.0/8,::1",
        "+ shop: Allow Get on Topic:* by default",
        "- shop: Deny All on Topic:orders-private",
        "- shop: Allow Get on * by default",
        "~ user 0123: Super, disable -> Super, enable",
        "- user billing",
    ]
    assert count_lines(changes) == len(lines(changes))
    await apply(server, changes)
    assert plan(await fetch(server), wanted, prune=True) == []


@pytest.mark.parametrize("sees_passwords", [False, True])
async def test_passwords_are_compared_where_they_are_shown_and_sent_when_ordered(sees_passwords: bool) -> None:
    server = WireServer(sees_passwords)
    server.accounts.create_user(User("shop", "old"))
    same, new = AccountTable({"shop": User("shop", "old")}), AccountTable({"shop": User("shop", "new")})
    assert lines(plan(await fetch(server), same)) == []
    assert lines(plan(await fetch(server), new)) == (["~ user shop: new password"] if sees_passwords else [])
    changes = plan(await fetch(server), new, set_passwords=True)
    assert lines(changes) == ["~ user shop: new password"]
    await apply(server, changes, keep_old_s=60)
    user = server.accounts.user("shop")
    assert user is not None
    assert user.passwords(ManualClock().now_ms()) == ("new", "old")


async def test_a_resource_that_a_server_has_twice_gets_one_entry() -> None:
    server = WireServer()
    server.accounts.create_user(User("shop", "s"))
    twice = Acl((right("Allow Pub on Topic:a"), right("Deny Pub on Topic:a"), right("Allow Pub on Topic:b")))
    await server.put_acl(acl_info("shop", twice))
    wanted = AccountTable({"shop": User("shop", "s")}, {"shop": Acl((twice.custom[0], twice.custom[2]))})
    changes = plan(await fetch(server), wanted)
    assert lines(changes) == [
        "- shop: Allow Pub on Topic:a",
        "- shop: Deny Pub on Topic:a",
        "+ shop: Allow Pub on Topic:a",
    ]
    await apply(server, changes)
    assert sorted(texts(server.accounts.acl("shop").custom)) == ["Allow Pub on Topic:a", "Allow Pub on Topic:b"]


async def test_what_is_taken_away_is_shown() -> None:
    server = WireServer()
    for name in ("shop", "old"):
        server.accounts.create_user(User(name, "s"))
    wide = PolicyEntryInfo(["Pub", "Sub"], "Allow", "Topic:a", ["10.0.0.0/8"])
    await server.put_acl(acl_info("shop", Acl((entry_of(wide), right("Allow Pub on Topic:b")))))
    await server.put_acl(acl_info("old", Acl((right("Allow Sub on Group:g"),))))
    narrow = PolicyEntryInfo(["Pub"], "Allow", "Topic:a", ["10.1.0.0/16"])
    wanted = AccountTable({"shop": User("shop", "s")}, {"shop": Acl((entry_of(narrow),))})
    changes = plan(await fetch(server), wanted, prune=True)
    assert lines(changes) == [
        "- shop: Allow Pub,Sub on Topic:a from 10.0.0.0/8",
        "+ shop: Allow Pub on Topic:a from 10.1.0.0/16",
        "- shop: Allow Pub on Topic:b",
        "- user old",
        "- old: Allow Sub on Group:g",
    ]
    assert count_lines(changes) == 5


@pytest.mark.parametrize("wanted", [{}, {"inner": User("inner", "s", UserType.NORMAL, UserStatus.DISABLE)}])
async def test_a_plan_leaves_the_account_of_the_server_as_it_must_be(wanted: dict[str, User]) -> None:
    server = WireServer(own="inner")
    server.accounts.create_user(User("inner", "s", UserType.SUPER))
    server.accounts.create_user(User("shop", "s"))
    changes = plan(await fetch(server), AccountTable(wanted), prune=True)
    note = "# user inner stays an enabled super user: the server signs its own requests with it"
    assert sorted(lines(changes)) == [note, "- user shop"]
    assert count_lines(changes) == 1
    await apply(server, changes)
    assert [user.name for user in server.accounts.users()] == ["inner"]


def test_what_two_servers_do_not_have_alike() -> None:
    shop, billing = User("shop", "s"), User("billing", "s")
    rights = right("Allow Pub on Topic:a"), right("Allow Pub on Topic:b")
    one = AccountTable({"shop": shop, "billing": billing, "amy": shop}, {"shop": Acl(rights), "billing": Acl(rights)})
    other = AccountTable(
        {"shop": replace(shop, password="x"), "billing": billing, "bob": shop},
        {"shop": Acl(rights[::-1]), "billing": Acl(rights[:1])},
    )
    assert differing(one, other) == ["-amy", "~billing", "+bob"]


def right(text: str) -> Entry:
    decision, action, _, resource = text.split(" ")
    return entry_of(PolicyEntryInfo([action], decision, resource))


RIGHTS = st.lists(
    st.builds(
        "{} {} on {}".format,
        st.sampled_from(["Allow", "Deny"]),
        st.sampled_from(["Pub", "Sub", "All"]),
        st.sampled_from(["Topic:a", "Topic:a*", "Topic:*", "*", "Group:a"]),
    ).map(right),
    max_size=4,
    unique_by=lambda entry: entry.target,
).map(tuple)
TABLES = st.dictionaries(
    st.sampled_from(["amy", "bob"]),
    st.tuples(st.sampled_from(UserType), st.sampled_from(UserStatus), RIGHTS, RIGHTS),
).map(
    lambda found: AccountTable(
        {name: User(name, "s", kind, status) for name, (kind, status, _, _) in found.items()},
        {name: Acl(custom, default) for name, (_, _, custom, default) in found.items() if custom or default},
    )
)


@settings(max_examples=40)
@given(TABLES, TABLES)
async def test_any_table_becomes_any_other(before: AccountTable, wanted: AccountTable) -> None:
    server = WireServer()
    await apply(server, plan(await fetch(server), before))
    await apply(server, plan(await fetch(server), wanted, prune=True))
    found = await fetch(server)
    assert {name: (user.type, user.status) for name, user in found.users.items()} == {
        name: (user.type, user.status) for name, user in wanted.users.items()
    }
    assert {name: (set(acl.custom), set(acl.default)) for name, acl in found.acls.items()} == {
        name: (set(acl.custom), set(acl.default)) for name, acl in wanted.acls.items()
    }
    asked = server.changes
    await apply(server, plan(found, wanted, prune=True))
    assert server.changes == asked


def test_a_new_user_needs_a_password() -> None:
    with pytest.raises(ConfigError, match="user shop does not exist yet"):
        plan(AccountTable(), AccountTable({"shop": User("shop", "")}))


# RocketMQ 4

PLAIN_ACL = """
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: 01234567
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC = SUB
  - topicD=PUBSUB
  - topicE
  - topic*=PUB
  groupPerms:
  - groupA=DENY
  - "%RETRY%groupB=SUB"
- accessKey: rocketmq2
  secretKey: "12345678"
  whiteRemoteAddress: 192.168.1.*
  admin: true
  topicPerms: [topicA=PUB]
- accessKey: keyless
dataVersion:
- counter: 1
  timestamp: 1700000000000
"""


def test_the_files_of_rocketmq_4_become_accounts_and_what_is_lost_is_told(tmp_path: Path) -> None:
    write(tmp_path / "plain_acl.yml", PLAIN_ACL)
    write(tmp_path / "acl" / "deep" / "more.yaml", "accounts: [{accessKey: rocketmq2, secretKey: firstcounts}]")
    write(tmp_path / "acl" / "tools.yml", "accessKey: tool\nsecretKey: toolsecret")
    write(tmp_path / "acl" / "empty.yml", "")
    found = read_v1(v1_files(tmp_path))
    assert found.users == {
        "rocketmq2": User("rocketmq2", "firstcounts"),
        "RocketMQ": User("RocketMQ", "01234567"),
    }
    assert list(found.acls) == ["RocketMQ"]
    assert texts(found.acls["RocketMQ"].custom) == [
        "Deny All on Topic:topicA", "Allow Pub,Sub on Topic:topicB", "Allow Sub on Topic:topicC",
        "Deny All on Topic:topicD", "Deny All on Group:groupA", "Allow Sub on Group:groupB",
    ]  # fmt: skip
    assert texts(found.acls["RocketMQ"].default) == ["Deny All on Topic:*", "Allow Sub on Group:*"]
    assert [note.removeprefix(f"{tmp_path / 'plain_acl.yml'}: ") for note in found.notes] == [
        "global white address '10.10.103.*' is dropped: its clients need an account now",
        "account 'RocketMQ': 'PUBSUB' is no permission and denies, as it did",
        "account 'RocketMQ': 'topicE' is dropped: it is not NAME=PERMISSION",
        "account 'RocketMQ': 'topic*=PUB' is dropped: it is not NAME=PERMISSION",
        "account 'rocketmq2' is dropped: another file has it already",
        "account 'keyless' is dropped: it has no access key or no secret key",
    ]


def test_an_admin_of_rocketmq_4_is_a_super_user(tmp_path: Path) -> None:
    found = read_v1([write(tmp_path / "plain_acl.yml", PLAIN_ACL)])
    assert found.users["rocketmq2"].type is UserType.SUPER
    assert [note for note in found.notes if "'rocketmq2'" in note] == [
        f"{tmp_path / 'plain_acl.yml'}: account 'rocketmq2': white address '192.168.1.*' is dropped: "
        "requests from there need a signature now",
        f"{tmp_path / 'plain_acl.yml'}: account 'rocketmq2': it is an admin, so that its entries bind it no more",
    ]


@pytest.mark.parametrize("text", ["accounts: topsecret", "- topsecret", "accounts: [{accessKey: [topsecret]}]", "a: ["])
def test_a_file_of_rocketmq_4_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "plain_acl.yml", text)
    with pytest.raises(ConfigError, match=r"plain_acl\.yml") as error:
        read_v1([path])
    assert "topsecret" not in str(error.value)
