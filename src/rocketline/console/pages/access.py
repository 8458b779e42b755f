"""Accounts of the cluster and their rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec

from rocketline.admin.accounts import RemoteAccounts, account_servers, as_subject, one_entry, wait_until_known
from rocketline.admin.partial import Missing, Partial, merged
from rocketline.console.access import Role
from rocketline.console.endpoints import Change, Input, Name, PartialView, View, changes, reads
from rocketline.console.problems import Problem, field_problem
from rocketline.console.views import Item, NameInput, NameView, Result, on_each, silent
from rocketline.errors import RocketlineError
from rocketline.protocol.bodies import AclInfo, UserInfo

if TYPE_CHECKING:
    from rocketline.console.visit import Visit


T = TypeVar("T")

SWITCH_ON = "rocketline up --secure"


class AccessInput(Input, kw_only=True):
    q: Annotated[str, msgspec.Meta(max_length=255)] = ""


class AccountRow(View, kw_only=True):
    name: str
    type: str
    status: str
    brokers: list[str]


class RuleRow(View, kw_only=True):
    subject: str
    resource: str
    actions: list[str]
    source_ips: list[str]
    decision: str
    brokers: list[str]


class Access(PartialView, kw_only=True):
    is_off: bool
    """No broker of the cluster has access control."""
    users: list[AccountRow]
    rules: list[RuleRow]


def _is_off(code: int | None, problem: str) -> bool:
    """Our broker and Apache's answer 1 then, with a sentence that says nothing or with the stack of an exception."""
    says_nothing = "NullPointer" in problem or "An system error occurred" in problem
    return code == 3 or (code == 1 and says_nothing) or "AclException" in problem


def _no_access_control(missing: Sequence[Missing]) -> bool:
    """Whether all of those that gave no answer have none."""
    return bool(missing) and all(_is_off(item.code, item.problem) for item in missing)


def _access_off() -> Problem:
    return Problem(409, "access_off", hint=SWITCH_ON)


@reads("/access", Role.OPERATOR, "access.html")
async def access(visit: Visit, wanted: AccessInput) -> Access:
    """Accounts and rights on all brokers and on the name servers that have accounts. Passwords are never shown."""
    servers = await _servers(visit)
    users = await _of_each(visit, servers, lambda server: server.users(wanted.q))
    if not users.value and _no_access_control(users.missing):
        return Access(is_off=True, users=[], rules=[])
    acls = await _of_each(visit, servers, lambda server: server.acls())
    return Access(
        is_off=False, users=_accounts(users.value), rules=_rules(acls.value), partial=silent(merged(users, acls)),
    )  # fmt: skip


async def _servers(visit: Visit) -> list[RemoteAccounts]:
    return await account_servers(visit.admin, await visit.admin.brokers(slaves=True))


async def _of_each(
    visit: Visit, servers: list[RemoteAccounts], ask: Callable[[RemoteAccounts], Awaitable[T]]
) -> Partial[list[tuple[RemoteAccounts, T]]]:
    answers = await visit.admin.gather_or_errors(ask(server) for server in servers)
    found: list[tuple[RemoteAccounts, T]] = []
    missing: list[Missing] = []
    for server, answer in zip(servers, answers):
        if isinstance(answer, RocketlineError):
            missing.append(Missing.of(server.broker, server.address, answer))
        else:
            found.append((server, answer))
    return Partial(found, tuple(missing), bool(found))


def _accounts(found: list[tuple[RemoteAccounts, list[UserInfo]]]) -> list[AccountRow]:
    accounts: dict[tuple[str, str, str], AccountRow] = {}
    for server, users in found:
        for user in users:
            key = (user.username or "", user.user_type or "", user.user_status or "")
            row = accounts.setdefault(key, AccountRow(name=key[0], type=key[1], status=key[2], brokers=[]))
            row.brokers.append(server.broker or server.address)
    return sorted(accounts.values(), key=lambda row: row.name)


def _rules(found: list[tuple[RemoteAccounts, list[AclInfo]]]) -> list[RuleRow]:
    rules: dict[bytes, RuleRow] = {}
    for server, rights in found:
        for acl in rights:
            for policy in acl.policies or []:
                for entry in policy.entries or []:
                    rule = RuleRow(
                        subject=acl.subject or "", resource=entry.resource or "", actions=list(entry.actions or []),
                        source_ips=list(entry.source_ips or []), decision=entry.decision or "", brokers=[],
                    )  # fmt: skip
                    rules.setdefault(msgspec.json.encode(rule), rule).brokers.append(server.broker or server.address)
    return sorted(rules.values(), key=lambda row: (row.subject, row.resource))


async def _asked(
    visit: Visit, ask: Callable[[RemoteAccounts], Awaitable[list[T]]]
) -> Partial[list[tuple[RemoteAccounts, list[T]]]]:
    """The answers of all servers; a problem when there are none."""
    found = await _of_each(visit, await _servers(visit), ask)
    if not found.value and _no_access_control(found.missing):
        raise _access_off()
    found.some()
    return found


async def _is_off_everywhere(visit: Visit) -> bool:
    found = await _of_each(visit, await _servers(visit), lambda server: server.users("\0"))
    return not found.value and _no_access_control(found.missing)


async def _on_all(visit: Visit, do: Callable[[RemoteAccounts], Awaitable[None]]) -> list[Item]:
    """Make a change on each server; what became of it there."""
    items = await on_each(visit, await _servers(visit), do)
    if not any(item.ok for item in items) and await _is_off_everywhere(visit):
        raise _access_off()
    return items


class UsersView(PartialView, kw_only=True):
    items: list[AccountRow]


class RulesView(PartialView, kw_only=True):
    items: list[RuleRow]


@reads("/access/users", Role.OPERATOR)
async def access_users(visit: Visit, wanted: AccessInput) -> UsersView:
    """Accounts. Passwords are never shown."""
    found = await _asked(visit, lambda server: server.users(wanted.q))
    return UsersView(items=_accounts(found.value), partial=silent(found.missing), complete=found.complete)


@reads("/access/rules", Role.OPERATOR)
async def access_rules(visit: Visit, wanted: AccessInput) -> RulesView:
    """What accounts may do; `q` is a part of their names."""
    found = await _asked(visit, lambda server: server.acls(wanted.q))
    return RulesView(items=_rules(found.value), partial=silent(found.missing), complete=found.complete)


class NewAccountView(NameView, kw_only=True):
    is_off: bool


@reads("/access/users/new", Role.ADMIN, "access_user.html", in_api=False)
async def new_account(visit: Visit, wanted: NameInput) -> NewAccountView:
    """The form for an account."""
    return NewAccountView(name=wanted.name, is_off=await _is_off_everywhere(visit))


class PutAccount(Change, kw_only=True):
    name: Name
    password: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    type: Literal["Normal", "Super"] = "Normal"
    status: Literal["enable", "disable"] = "enable"

    def __repr__(self) -> str:
        return f"PutAccount({self.name!r})"


@changes("POST", "/access/users", Role.ADMIN, "/access/users/new")
async def put_account(visit: Visit, wanted: PutAccount) -> Result:
    """Create an account on all servers, or change it; without a password the old one stays."""
    user = UserInfo(
        username=wanted.name, password=wanted.password or None, user_type=wanted.type, user_status=wanted.status
    )

    items = await _on_all(visit, lambda server: server.put_user(user))
    if wanted.password and wanted.status == "enable" and all(item.ok for item in items):
        # A name server may read accounts from the files of a broker, a moment later.
        known = await wait_until_known(visit.admin, wanted.name, wanted.password)
        items += [] if known else [Item(where="namesrv", ok=False, problem=visit.look.t("access.not_known_yet"))]
    return Result(title="account_changed", about=wanted.name, items=items, back="/access")


class DeleteAccount(Change, kw_only=True):
    name: Name


class DeleteAccountInput(Input, kw_only=True):
    name: Name


class DeleteAccountView(View, kw_only=True):
    name: str
    rules: list[RuleRow]


@reads("/access/users/{name}/delete", Role.ADMIN, "access_delete.html", in_api=False)
async def account_to_delete(visit: Visit, wanted: DeleteAccountInput) -> DeleteAccountView:
    """What the deletion of an account would take away."""
    whole: Access = await access(visit, AccessInput())
    if whole.is_off or wanted.name not in {row.name for row in whole.users}:
        raise Problem(404, "no_account", wanted.name)
    subject = as_subject(wanted.name)
    return DeleteAccountView(name=wanted.name, rules=[row for row in whole.rules if row.subject == subject])


@changes("DELETE", "/access/users/{name}", Role.ADMIN, "/access/users/{name}/delete")
async def delete_account(visit: Visit, wanted: DeleteAccount) -> Result:
    """Delete an account and its rights on all servers."""
    visit.confirm(wanted.confirm, wanted.name)
    items = await _on_all(visit, lambda server: server.delete_user(wanted.name))
    return Result(title="account_deleted", about=wanted.name, items=items, back="/access")


class NewRuleInput(Input, kw_only=True):
    subject: Annotated[str, msgspec.Meta(max_length=255)] = ""


class NewRuleView(View, kw_only=True):
    subject: str
    is_off: bool
    actions: list[str]


ACTIONS = ["Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All"]


@reads("/access/rules/new", Role.ADMIN, "access_rule.html", in_api=False)
async def new_rule(visit: Visit, wanted: NewRuleInput) -> NewRuleView:
    """The form for a right."""
    return NewRuleView(subject=wanted.subject, actions=ACTIONS, is_off=await _is_off_everywhere(visit))


class PutRule(Change, kw_only=True):
    subject: Name
    resource: Name
    """`Topic:orders`, `Group:billing*`, `Cluster:*`."""
    actions: Annotated[list[Annotated[str, msgspec.Meta(max_length=32)]], msgspec.Meta(max_length=20)] = []
    decision: Literal["Allow", "Deny"] = "Allow"
    source_ips: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    """Addresses or networks, separated by spaces; empty: any."""


@changes("POST", "/access/rules", Role.ADMIN, "/access/rules/new")
async def put_rule(visit: Visit, wanted: PutRule) -> Result:
    """Set what an account may do with a resource, on all servers."""
    if not wanted.actions:
        raise field_problem("actions", visit.look.t("access.needs_action"))
    entry = one_entry(
        as_subject(wanted.subject), [wanted.resource], wanted.actions, wanted.decision, wanted.source_ips.split()
    )
    items = await _on_all(visit, lambda server: server.put_acl(entry))
    return Result(title="rule_changed", about=wanted.subject, items=items, back="/access")


class DeleteRule(Change, kw_only=True):
    subject: Name
    resource: Name


@changes("POST", "/access/rules/delete", Role.ADMIN, "/access")
async def delete_rule(visit: Visit, wanted: DeleteRule) -> Result:
    """Take a right away on all servers."""
    items = await _on_all(visit, lambda server: server.delete_acl(wanted.subject, wanted.resource))
    return Result(title="rule_deleted", about=f"{wanted.subject} {wanted.resource}", items=items, back="/access")
