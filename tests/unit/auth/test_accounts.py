"""Accounts and their files: saved before in force, never guessed, and never overwritten when somebody else wrote them."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import stat
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.broker.parts import GatedDisk

from rocketline.async_table import OffLoop, Saving
from rocketline.auth import accounts as accounts_module
from rocketline.auth.account_files import decode_acls, decode_users, encode_acls, encode_users
from rocketline.auth.accounts import Accounts
from rocketline.auth.model import Acl, Action, Decision, Entry, PolicyType, Target, User, UserStatus, UserType
from rocketline.auth.words import parse_target
from rocketline.errors import ConfigError, RequestRejected, StoreError
from rocketline.store.files.disk import RealDisk
from rocketline.testing.disks import FaultyDisk, MemoryDisk

CONFIG = Path("/store/config")
USERS, ACLS = CONFIG / "users.json", CONFIG / "acls.json"


def right(resource: str, *actions: Action, decision: Decision = Decision.ALLOW, ips: tuple[str, ...] = ()) -> Entry:
    target = parse_target(resource)
    assert target is not None
    return Entry(target, actions or (Action.PUB,), decision, ips)


def anybody(user: User) -> None:
    """Lets everybody delete."""


def now(saving: Saving) -> None:
    """Changes of accounts without an event loop are saved at once."""
    assert saving is None


def opened(disk: MemoryDisk | FaultyDisk) -> Accounts:
    return Accounts.open(CONFIG, disk)


def filled() -> tuple[MemoryDisk, Accounts]:
    disk = MemoryDisk()
    accounts = opened(disk)
    now(accounts.create_user(User("amy", "secret1")))
    now(accounts.put_entries("amy", Acl((right("Topic:orders"),))))
    return disk, accounts


# The files

ROOT_VALUE = b'{"password":"rootsecret1","subjectType":1,"userStatus":1,"userType":1,"username":"root"}'
IP_VALUE = (
    b'{"policies":[{"entries":[{"actions":[3],"decision":1,"environment":{"sourceIps":["10.0.0.0/8"]},'
    b'"resource":{"resourceName":"orders","resourcePattern":2,"resourceType":4}}],"policyType":1}],'
    b'"subject":{"subjectType":1,"username":"ip1"}}'
)
ANY_VALUE = (
    b'{"policies":[{"entries":[{"actions":[1],"decision":2,"environment":{},"resource":{"resourcePattern":1,'
    b'"resourceType":5}}],"policyType":2}],"subject":{"subjectType":1,"username":"any1"}}'
)


def compact(data: bytes) -> bytes:
    return json.dumps(json.loads(data), separators=(",", ":")).encode()


def test_users_are_written_as_rocketmq_writes_them() -> None:
    data = b'{"root":' + ROOT_VALUE + b"}"
    users = decode_users(data)
    assert users == {"root": User("root", "rootsecret1", UserType.SUPER, UserStatus.ENABLE)}
    assert compact(encode_users(users)) == data


def test_rights_are_written_as_rocketmq_writes_them() -> None:
    data = b'{"User:any1":' + ANY_VALUE + b',"User:ip1":' + IP_VALUE + b"}"
    acls = decode_acls(data)
    assert acls == {
        "ip1": Acl((right("Topic:orders", ips=("10.0.0.0/8",)),)),
        "any1": Acl((), (right("Group:*", Action.ALL, decision=Decision.DENY),)),
    }
    assert compact(encode_acls(acls)) == data


def test_a_second_password_is_kept() -> None:
    user = User("amy", "new", second_password="old", second_until_ms=2000)
    assert decode_users(encode_users({"amy": user})) == {"amy": user}
    assert (user.passwords(1999), user.passwords(2000)) == (("new", "old"), ("new",))
    assert "old" not in repr(user)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_only_the_owner_reads_the_files(tmp_path: Path) -> None:
    accounts = Accounts.open(tmp_path / "config", RealDisk())
    now(accounts.create_user(User("amy", "secret1")))
    now(accounts.put_entries("amy", Acl((right("Topic:orders"),))))
    now(accounts.update_user("amy", lambda user: user))
    files = sorted((tmp_path / "config").iterdir())
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in files] == [
        ("acls.json", 0o600), ("users.json", 0o600),
    ]  # fmt: skip


def test_everything_is_there_after_a_restart() -> None:
    disk, accounts = filled()
    again = opened(disk)
    assert (list(again.users()), list(again.acls())) == (list(accounts.users()), list(accounts.acls()))


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (USERS, b""),
        (USERS, b'{"amy": {"password": "secret1"'),
        (USERS, b'{"amy": {"password": "secret1"}}'),
        (USERS, b'{"amy":' + ROOT_VALUE + b"}"),
        (USERS, b'{"root":' + ROOT_VALUE.replace(b'"userType":1', b'"userType":7') + b"}"),
        (ACLS, b"[]"),
        (ACLS, b'{"ip1":' + IP_VALUE + b"}"),
        (ACLS, b'{"User:ip1":' + IP_VALUE.replace(b"10.0.0.0/8", b"10.0.0.*") + b"}"),
    ],
)
def test_a_file_that_cannot_be_read_stops_the_start(path: Path, content: bytes) -> None:
    disk, _ = filled()
    disk.write_atomic(path, content)
    with pytest.raises(ConfigError, match=path.name) as error:
        opened(disk)
    assert "secret1" not in str(error.value)


def test_without_a_folder_accounts_are_in_memory() -> None:
    accounts = Accounts.open(None, MemoryDisk())
    now(accounts.create_user(User("amy", "secret1")))
    assert accounts.user("amy") is not None


# A write that fails

CHANGES: dict[str, Callable[[Accounts], Saving]] = {
    "create": lambda accounts: accounts.create_user(User("bob", "secret2")),
    "update": lambda accounts: accounts.update_user("amy", lambda user: User("amy", "secret3")),
    "put": lambda accounts: accounts.put_entries("amy", Acl((right("Topic:bills"),))),
    "delete entries": lambda accounts: accounts.delete_entries("amy", PolicyType.CUSTOM, None),
    "delete": lambda accounts: accounts.delete_user("amy", anybody),
    "import": lambda accounts: accounts.add_missing({"bob": User("bob", "s")}, {"bob": Acl((right("*"),))}),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("failing", [1, 2])
def test_a_kill_between_two_files_leaves_no_rights_to_a_name_without_account(name: str, failing: int) -> None:
    memory, before = filled()
    disk = FaultyDisk(memory)
    accounts = opened(disk)
    writes = 0
    real = disk.write_atomic

    def failing_write(path: Path, data: bytes, keep_backup: bool = False, mode: int = 0) -> None:
        nonlocal writes
        writes += 1
        if writes == failing:
            raise StoreError("killed")
        real(path, data, keep_backup, mode)

    disk.write_atomic = failing_write  # type: ignore[method-assign]
    version = accounts.version
    try:
        CHANGES[name](accounts)
    except StoreError:
        # What could not be saved is not in force.
        assert (list(accounts.users()), list(accounts.acls())) == (list(before.users()), list(before.acls()))
        assert accounts.version == version
    left = opened(memory)
    now(left.delete_user("amy", anybody))
    for user in ("amy", "bob"):
        if left.user(user) is None:
            now(left.create_user(User(user, "another")))
            assert not left.acl(user)


def test_a_refused_write_can_be_repeated() -> None:
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    accounts = opened(disk)
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(StoreError, match="No space left"):
        accounts.create_user(User("amy", "secret1"))
    assert accounts.user("amy") is None
    now(accounts.create_user(User("amy", "secret1")))
    assert opened(memory).user("amy") == User("amy", "secret1")


# Rules of changes


def test_entries_about_the_same_resource_are_replaced() -> None:
    _, accounts = filled()
    near = right("Topic:orders", Action.SUB, decision=Decision.DENY, ips=("10.0.0.1",))
    now(accounts.put_entries("amy", Acl((right("Topic:orders*"), near), (right("Topic:orders"),))))
    assert accounts.acl("amy") == Acl((near, right("Topic:orders*")), (right("Topic:orders"),))
    now(accounts.put_entries("amy", Acl((right("Topic:orders"),))))
    assert accounts.acl("amy").custom == (right("Topic:orders"), right("Topic:orders*"))


def test_equal_entries_of_a_first_order_are_both_kept_and_go_together() -> None:
    accounts = Accounts.open(None, MemoryDisk())
    now(accounts.create_user(User("amy", "secret1")))
    both = (right("Topic:a"), right("Topic:a", decision=Decision.DENY), right("Topic:b"))
    now(accounts.put_entries("amy", Acl(both)))
    assert accounts.acl("amy").custom == both
    now(accounts.delete_entries("amy", PolicyType.CUSTOM, target("Topic:a")))
    assert accounts.acl("amy").custom == both[2:]


def target(text: str) -> Target:
    return right(text).target


def test_the_last_entry_gone_is_no_rights_at_all() -> None:
    _, accounts = filled()
    now(accounts.delete_entries("amy", PolicyType.DEFAULT, target("Topic:orders")))
    now(accounts.delete_entries("amy", PolicyType.CUSTOM, target("Topic:other")))
    assert accounts.acl("amy") == Acl((right("Topic:orders"),))
    now(accounts.delete_entries("amy", PolicyType.CUSTOM, target("Topic:orders")))
    assert list(accounts.acls()) == []
    with pytest.raises(RequestRejected, match=r"The acl is not exist\."):
        accounts.delete_entries("amy", PolicyType.CUSTOM, target("Topic:orders"))


def test_an_import_leaves_existing_accounts_alone() -> None:
    _, accounts = filled()
    users = {"amy": User("amy", "other", UserType.SUPER), "bob": User("bob", "secret2")}
    now(accounts.add_missing(users, dict.fromkeys(users, Acl((right("*"),)))))
    assert accounts.user("amy") == User("amy", "secret1")
    assert (accounts.acl("amy"), accounts.acl("bob")) == (Acl((right("Topic:orders"),)), Acl((right("*"),)))


def test_the_version_grows_with_every_change() -> None:
    _, accounts = filled()
    versions = [accounts.version]
    for change in CHANGES.values():
        now(change(accounts))
        versions.append(accounts.version)
        if accounts.user("amy") and not accounts.acl("amy"):
            now(accounts.put_entries("amy", Acl((right("Topic:orders"),))))
        now(accounts.delete_user("bob", anybody))
    assert versions == sorted(set(versions))


def test_there_are_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = Accounts.open(None, MemoryDisk())
    monkeypatch.setattr(accounts_module, "MAX_USERS", 2)
    monkeypatch.setattr(accounts_module, "MAX_ENTRIES", 2)
    monkeypatch.setattr(accounts_module, "MAX_ENTRIES_IN_ALL", 3)
    for name in ("amy", "bob"):
        now(accounts.create_user(User(name, "secret1")))
    with pytest.raises(RequestRejected, match="3 users are more than 2"):
        accounts.create_user(User("eve", "secret1"))
    with pytest.raises(RequestRejected, match="3 users are more than 2"):
        accounts.add_missing({"eve": User("eve", "secret1")}, {})
    three = (right("Topic:a"), right("Topic:b"), right("Topic:c"))
    with pytest.raises(RequestRejected, match="would have 3 entries"):
        accounts.put_entries("amy", Acl(three))
    now(accounts.put_entries("amy", Acl(three[:2])))
    with pytest.raises(RequestRejected, match="all accounts 4"):
        accounts.put_entries("bob", Acl(three[:2]))
    now(accounts.put_entries("bob", Acl(three[:1])))


# On an event loop


class OnLoop:
    def __init__(self) -> None:
        self.memory = MemoryDisk()
        self.disk = GatedDisk(self.memory, "write")
        self.off_loop = OffLoop()
        self.accounts = Accounts.open(CONFIG, self.disk, self.off_loop)


@pytest.fixture
async def on_loop() -> AsyncIterator[OnLoop]:
    made = OnLoop()
    yield made
    made.disk.gate.set()
    await made.off_loop.finish()


async def test_a_change_is_in_force_when_it_is_saved(on_loop: OnLoop) -> None:
    accounts = on_loop.accounts
    on_loop.disk.gate.clear()
    saving = accounts.create_user(User("amy", "secret1"))
    assert saving is not None
    await asyncio.to_thread(on_loop.disk.reached.wait, PATIENCE_S)
    assert (accounts.user("amy"), saving.done()) == (None, False)
    on_loop.disk.gate.set()
    await saving
    assert accounts.user("amy") == opened(on_loop.memory).user("amy") != None  # noqa: E711


async def test_changes_that_come_together_are_checked_one_after_the_other(on_loop: OnLoop) -> None:
    accounts = on_loop.accounts
    on_loop.disk.gate.clear()
    orders = [
        accounts.create_user(User("amy", "first")),
        accounts.create_user(User("amy", "second")),
        accounts.put_entries("amy", Acl((right("Topic:orders"),))),
        accounts.put_entries("bob", Acl((right("Topic:orders"),))),
    ]
    on_loop.disk.gate.set()
    results = await asyncio.gather(*[order for order in orders if order is not None], return_exceptions=True)
    assert [None if result is None else str(result) for result in results] == [
        None, "16: The user is existed", None, "16: The subject of User:bob is not exist.",
    ]  # fmt: skip
    assert (accounts.user("amy"), accounts.acl("amy")) == (User("amy", "first"), Acl((right("Topic:orders"),)))
    version = accounts.version
    refused = accounts.create_user(User("amy", "second"))
    assert refused is not None
    with pytest.raises(RequestRejected):
        await refused
    assert accounts.version == version


# Files that somebody else changes


def rewritten(disk: MemoryDisk, users: dict[str, User]) -> None:
    disk.write_atomic(USERS, encode_users(users))


async def test_files_changed_by_others_are_read_again(on_loop: OnLoop) -> None:
    accounts = on_loop.accounts
    assert await accounts.reload() is False
    rewritten(on_loop.memory, {"bob": User("bob", "secret2")})
    version = accounts.version
    assert (await accounts.reload(), await accounts.reload()) == (True, False)
    assert (list(accounts.users()), accounts.version) == ([User("bob", "secret2")], version + 1)


async def test_who_was_changed_in_the_files_is_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rocketline.audit")
    disk, accounts = filled()
    rewritten(disk, {"amy": User("amy", "secret1"), "bob": User("bob", "secret2", UserType.SUPER)})
    assert await accounts.reload()
    disk.write_atomic(ACLS, encode_acls({"bob": Acl((right("Topic:orders"),))}))
    assert await accounts.reload()
    lines = [vars(record)["fields"] for record in caplog.records if record.name == "rocketline.audit"]
    assert [line["who"] for line in lines] == [f"files in {CONFIG}"] * 2
    assert [line["object"] for line in lines] == [{"users": ["bob"]}, {"rights": ["amy", "bob"]}]
    assert "secret2" not in caplog.text


async def test_our_own_writes_are_no_news(on_loop: OnLoop) -> None:
    saving = on_loop.accounts.create_user(User("amy", "secret1"))
    assert saving is not None
    await saving
    assert await on_loop.accounts.reload() is False


@pytest.mark.parametrize("content", [b"{", None])
async def test_what_was_in_force_stays_when_a_file_cannot_be_read_any_more(content: bytes | None) -> None:
    disk, accounts = filled()
    if content is None:
        disk.remove(USERS)
    else:
        disk.write_atomic(USERS, content)
    assert await accounts.reload() is False
    assert accounts.user("amy") is not None


async def test_what_others_wrote_is_never_overwritten_unread(on_loop: OnLoop) -> None:
    accounts = on_loop.accounts
    rewritten(on_loop.memory, {"bob": User("bob", "secret2")})
    saving = accounts.create_user(User("amy", "secret1"))
    assert saving is not None
    with pytest.raises(StoreError, match="changed by another program"):
        await saving
    assert await accounts.reload() is True
    again = accounts.create_user(User("amy", "secret1"))
    assert again is not None
    await again
    assert [user.name for user in opened(on_loop.memory).users()] == ["amy", "bob"]


async def test_a_change_that_waits_while_files_are_read_again_is_refused_not_lost(on_loop: OnLoop) -> None:
    """The change was made from accounts that are old when it is written."""
    accounts, files = on_loop.accounts, on_loop.accounts._files
    rewritten(on_loop.memory, {"bob": User("bob", "secret2")})
    assert files.load_changes() is not None  # as the thread of `reload` does, before the loop takes it
    saving = accounts.create_user(User("amy", "secret1"))
    assert saving is not None
    with pytest.raises(StoreError, match="repeat the change"):
        await saving
    assert [user.name for user in opened(on_loop.memory).users()] == ["bob"]
