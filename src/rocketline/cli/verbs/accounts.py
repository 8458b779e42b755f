"""Verbs about accounts and what they may do. With `-c` they also reach the name servers, if those have accounts."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rocketline.cli.passwords import PASSWORD_HELP, new_password
from rocketline.cli.tables import Table, facts, sentence
from rocketline.cli.usage import UsageProblem
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import BROKER, CLUSTER, chosen_brokers
from rocketline.errors import RocketlineError

if TYPE_CHECKING:
    from rocketline.admin import Admin
    from rocketline.admin.accounts import RemoteAccounts
    from rocketline.auth.explain import Permitted
    from rocketline.auth.model import AccountTable, Need
    from rocketline.auth.needs import Server
    from rocketline.protocol.bodies import AclInfo, UserInfo

USER = Flag("u", "username", "Name of the account.", required=True)
PASSWORD = Flag("p", "password", PASSWORD_HELP)
PASSWORD_FILE = Flag("", "passwordFile", "File with the password, one line.", kind=Path)
USER_TYPE = Flag("t", "userType", "Super, who may do everything, or Normal.")
USER_STATUS = Flag("s", "userStatus", "enable or disable.")
SUBJECT = Flag("s", "subject", "Whose rights: User:NAME, or only the name.", required=True)
RESOURCES = Flag(
    "r", "resources", "Topic:NAME, Group:NAME, Cluster:NAME, PREFIX* for names; commas between.", required=True
)
ACTIONS = Flag("a", "actions", "Pub, Sub, Create, Update, Delete, Get, List or All; commas between.", required=True)
DECISION = Flag("d", "decision", "Allow or Deny.", required=True)
SOURCE_IP = Flag("i", "sourceIp", "Addresses and networks it counts for, commas between; default: all.")
FROM_BROKER = Flag("f", "fromBroker", "Address of the server to copy from.", required=True)
TO_BROKER = Flag("t", "toBroker", "Address of the server to copy to.", required=True)

ACL_COLUMNS = ("subject", "policy", "resource", "actions", "source ips", "decision")


async def _servers(admin: Admin, args: Args) -> list[RemoteAccounts]:
    """The servers to ask: the one of `-b`; or all brokers of `-c`, and the name servers that have accounts."""
    from rocketline.admin.accounts import account_servers

    brokers = await chosen_brokers(admin, args, slaves=True)
    return [broker.accounts for broker in brokers] if args.broker_addr else await account_servers(admin, brokers)


async def _on_each(
    admin: Admin, args: Args, do: Callable[[RemoteAccounts], Awaitable[None]], done: str
) -> AsyncIterator[Table]:
    for server in await _servers(admin, args):
        await do(server)
        yield sentence(f"{server.address}: {done}")


async def _wait_for_name_servers(admin: Admin, user: UserInfo) -> None:
    """Return when the account can be used. A name server may read accounts from the files of a broker, a moment later."""
    from rocketline.admin.accounts import wait_until_known

    if user.username and user.password and not await wait_until_known(admin, user.username, user.password):
        print(f"warning: not all name servers take the account {user.username} yet", file=sys.stderr)


def _password(args: Args, *, needed: bool) -> str | None:
    return new_password(args.username, args.password, args.password_file, needed=needed)


def _one_of(flag: str, given: str | None, known: tuple[str, ...]) -> str | None:
    """The word as servers write it. They would take an unknown one for the default."""
    for word in known:
        if given is not None and given.lower() == word.lower():
            return word
    if given is not None:
        raise UsageProblem(f"{flag} {given}: {' or '.join(known)} is expected")
    return None


def _user_type(args: Args) -> str | None:
    return _one_of("-t", args.user_type, ("Super", "Normal"))


@verb("createUser", "Create an account.", BROKER, CLUSTER, USER, PASSWORD, PASSWORD_FILE, USER_TYPE)
async def create_user(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.protocol.bodies import UserInfo

    user = UserInfo(_password(args, needed=True), user_type=_user_type(args), username=args.username)
    async for table in _on_each(
        admin, args, lambda server: server.create_user(user), f"user {args.username} is created"
    ):
        yield table
    await _wait_for_name_servers(admin, user)


@verb(
    "updateUser",
    "Change the password, type or status of an account.",
    BROKER,
    CLUSTER,
    USER,
    PASSWORD,
    PASSWORD_FILE,
    USER_TYPE,
    USER_STATUS,
    Flag("", "keepOld", "The former password stays valid for so many seconds more (our servers).", kind=int),
)
async def update_user(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.protocol.bodies import UserInfo

    status = _one_of("-s", args.user_status, ("enable", "disable"))
    user = UserInfo(_password(args, needed=False), status, _user_type(args), args.username)
    if user.password is None and user.user_status is None and user.user_type is None:
        raise UsageProblem("nothing to change: give a password (-p -), a type (-t) or a status (-s)")
    async for table in _on_each(
        admin, args, lambda server: server.update_user(user, args.keep_old), f"user {args.username} is changed"
    ):
        yield table
    if user.user_status != "disable":
        await _wait_for_name_servers(admin, user)


@verb("deleteUser", "Delete an account and its rights.", BROKER, CLUSTER, USER)
async def delete_user(admin: Admin, args: Args) -> AsyncIterator[Table]:
    async for table in _on_each(
        admin, args, lambda server: server.delete_user(args.username), f"there is no user {args.username} any more"
    ):
        yield table


def _user_row(user: UserInfo) -> tuple[str | None, ...]:
    """Passwords are never shown."""
    return user.username, user.user_type, user.user_status


async def _show_users(
    admin: Admin, args: Args, ask: Callable[[RemoteAccounts], Awaitable[list[UserInfo]]]
) -> AsyncIterator[Table]:
    for server in await _servers(admin, args):
        rows = [_user_row(user) for user in await ask(server)]
        about = "" if rows else "there is no such user"
        yield Table(("user", "type", "status"), list(rows), "users", about, subject={"address": server.address})


@verb("getUser", "Show an account.", BROKER, CLUSTER, USER)
async def get_user(admin: Admin, args: Args) -> AsyncIterator[Table]:
    async def ask(server: RemoteAccounts) -> list[UserInfo]:
        found = await server.user(args.username)
        return [] if found is None else [found]

    async for table in _show_users(admin, args, ask):
        yield table


@verb(
    "listUser", "List accounts.", BROKER, CLUSTER, Flag("f", "filter", "Only names with this text in them.", default="")
)
async def list_user(admin: Admin, args: Args) -> AsyncIterator[Table]:
    async for table in _show_users(admin, args, lambda server: server.users(args.filter)):
        yield table


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _declare_put_acl(name: str, help: str) -> None:
    """The two verbs do the same, as in RocketMQ."""

    @verb(name, help, BROKER, CLUSTER, SUBJECT, RESOURCES, ACTIONS, DECISION, SOURCE_IP)
    async def run(admin: Admin, args: Args) -> AsyncIterator[Table]:
        from rocketline.admin.accounts import as_subject, one_entry
        from rocketline.auth.words import BadEntry, acl_of

        sources = _items(args.source_ip) if args.source_ip else None
        acl = one_entry(as_subject(args.subject), _items(args.resources), _items(args.actions), args.decision, sources)
        try:
            acl_of(acl)  # Apache's servers would take some mistakes for something else
        except BadEntry as error:
            raise UsageProblem(f"-r {args.resources} -a {args.actions} -d {args.decision}: {error}") from error
        except ValueError as error:
            raise UsageProblem(f"-r {error}") from error
        async for table in _on_each(
            admin, args, lambda server: server.put_acl(acl), f"{acl.subject} has the rights now"
        ):
            yield table


_declare_put_acl("createAcl", "Give rights to an account, or forbid it something.")
_declare_put_acl("updateAcl", "Change rights: the entry about the same resource is replaced, others stay.")


@verb(
    "deleteAcl",
    "Take rights away from an account.",
    BROKER,
    CLUSTER,
    SUBJECT,
    Flag("r", "resource", "Only the entry about this resource; default: all rights."),
    Flag("", "policyType", "With -r: Custom or Default; default Custom."),
)
async def delete_acl(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.accounts import as_subject

    subject, what = as_subject(args.subject), f"rights on {args.resource}" if args.resource else "any rights"
    policy = _one_of("--policy-type", args.policy_type, ("Custom", "Default"))
    async for table in _on_each(
        admin,
        args,
        lambda server: server.delete_acl(subject, args.resource, policy),
        f"{subject} has no {what.removeprefix('any ')} any more",
    ):
        yield table


def _acl_rows(acl: AclInfo) -> Iterator[tuple[object, ...]]:
    for policy in acl.policies:
        for entry in policy.entries:
            yield acl.subject, policy.policy_type, entry.resource, entry.actions, entry.source_ips, entry.decision


async def _show_acls(
    admin: Admin, args: Args, ask: Callable[[RemoteAccounts], Awaitable[list[AclInfo]]]
) -> AsyncIterator[Table]:
    for server in await _servers(admin, args):
        rows = [row for acl in await ask(server) for row in _acl_rows(acl)]
        yield Table(
            ACL_COLUMNS, rows, "rights", "" if rows else "there are no such rights", subject={"address": server.address}
        )


@verb("getAcl", "Show the rights of an account.", BROKER, CLUSTER, SUBJECT)
async def get_acl(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.accounts import as_subject

    async def ask(server: RemoteAccounts) -> list[AclInfo]:
        found = await server.acl(as_subject(args.subject))
        return [] if found is None else [found]

    async for table in _show_acls(admin, args, ask):
        yield table


@verb(
    "listAcl",
    "List rights of accounts.",
    BROKER,
    CLUSTER,
    Flag("s", "subject", "Only subjects with this text in them.", default=""),
    Flag("r", "resource", "Only resources with this text in them.", default=""),
)
async def list_acl(admin: Admin, args: Args) -> AsyncIterator[Table]:
    async for table in _show_acls(admin, args, lambda server: server.acls(args.subject, args.resource)):
        yield table


@verb(
    "copyUser",
    "Copy accounts, with their passwords, from one server to another.",
    FROM_BROKER,
    TO_BROKER,
    Flag("u", "usernames", "Names, commas between; default: all."),
)
async def copy_users(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.accounts import copy_user

    source, target = admin.broker_at(args.from_broker).accounts, admin.broker_at(args.to_broker).accounts
    names = _items(args.usernames) if args.usernames else [user.username or "" for user in await source.users()]
    for name in names:
        await copy_user(source, target, name)
        yield sentence(f"{target.address}: user {name} is as on {source.address}")


@verb(
    "copyAcl",
    "Copy rights of accounts from one server to another.",
    FROM_BROKER,
    TO_BROKER,
    Flag("s", "subjects", "Subjects, commas between; default: all."),
)
async def copy_acls(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.accounts import as_subject

    source, target = admin.broker_at(args.from_broker).accounts, admin.broker_at(args.to_broker).accounts
    if args.subjects:
        found = [await source.acl(as_subject(subject)) for subject in _items(args.subjects)]
        acls = [acl for acl in found if acl is not None]
    else:
        acls = await source.acls()
    for acl in acls:
        await target.put_acl(acl)
        yield sentence(f"{target.address}: {acl.subject} has the rights it has on {source.address}")


@verb(
    "explainAcl",
    "Show whether an account may do something, and which entry says so; without -u, who may.",
    BROKER,
    CLUSTER,
    Flag("u", "username", "Name of the account; default: show all who may."),
    Flag("a", "actions", "Pub, Sub, ...; of several, commas between, any one suffices.", required=True),
    Flag("r", "resource", "Topic:NAME, Group:NAME or Cluster:NAME.", required=True),
    Flag("i", "sourceIp", "Address the account comes from; default: any."),
    aliases=("who-may",),
)
async def explain_acl(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.auth.explain import parse_need
    from rocketline.auth.files import fetch

    try:
        need = parse_need(args.actions, args.resource)
    except ValueError as error:
        raise UsageProblem(str(error)) from error
    for server in await _servers(admin, args):
        accounts = await fetch(server)
        subject = {"address": server.address}
        rules = await _rules_of(admin, server)
        if args.username:
            for table in _explained(accounts, args.username, need, args.source_ip or "", rules, subject):
                yield table
        else:
            yield _permitted(accounts, need, args.source_ip, rules, subject)


async def _rules_of(admin: Admin, server: RemoteAccounts) -> Server:
    """What a server gives to every account: name servers and Apache's brokers nothing."""
    from rocketline.auth.needs import Server

    try:
        settings = await admin.broker_at(server.address).config()
    except RocketlineError:
        return Server()
    is_ours = any(key.startswith("rocketline.") for key in settings)
    return Server(trace_topic=settings.get("msgTraceTopicName", "") if is_ours else "")


def _explained(
    accounts: AccountTable, name: str, need: Need, ip: str, rules: Server, subject: dict[str, str]
) -> Iterator[Table]:
    from rocketline.auth.explain import explain
    from rocketline.auth.model import NO_RIGHTS
    from rocketline.auth.words import entry_text, word

    user = accounts.users.get(name)
    if user is None:
        yield facts([("allowed", False), ("reason", f"there is no user {name}")], subject=subject)
        return
    found = explain(user, accounts.acls.get(name, NO_RIGHTS), need, ip, rules)
    yield facts([("allowed", found.verdict.is_allowed), ("reason", found.reason)], subject=subject)
    rows = [(word(item.policy), entry_text(item.entry), item.why) for item in found.looked]
    yield Table(("policy", "entry", "why"), list(rows), "entries")


def _permitted(accounts: AccountTable, need: Need, ip: str | None, rules: Server, subject: dict[str, str]) -> Table:
    from rocketline.auth.explain import FOR_EVERY_ACCOUNT, who_may
    from rocketline.auth.model import NO_RIGHTS, UserType
    from rocketline.auth.words import entry_text

    def because(item: Permitted) -> str:
        if item.entry is not None:
            return entry_text(item.entry)
        return "is a super user" if item.user.type is UserType.SUPER else FOR_EVERY_ACCOUNT

    pairs = [(user, accounts.acls.get(name, NO_RIGHTS)) for name, user in accounts.users.items()]
    rows = [(item.user.name, item.ip, because(item)) for item in who_may(pairs, need, ip, rules)]
    about = "" if rows else "nobody may"
    return Table(("user", "from", "because"), list(rows), "allowed", about, subject=subject)
