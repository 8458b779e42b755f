"""Accounts of the cluster and their rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from rocketline.admin.accounts import as_subject, one_entry
from rocketline.console.access import Role
from rocketline.console.endpoints import Change, Input, Name, View, changes, reads
from rocketline.console.problems import Problem, field_problem
from rocketline.console.views import Result, Silent, on_each, silent
from rocketline.errors import BrokerError
from rocketline.protocol.bodies import UserInfo

if TYPE_CHECKING:
    from rocketline.console.visit import Visit


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


class Access(View, kw_only=True):
    is_off: bool
    """No broker of the cluster has access control."""
    users: list[AccountRow]
    rules: list[RuleRow]
    partial: list[Silent] = []


def _is_off(code: int | None, problem: str) -> bool:
    """Ours answers 3, Apache's with ACL off 1 with the stack of an exception."""
    return code == 3 or (code == 1 and "NullPointer" in problem) or "AclException" in problem


@reads("/access", Role.OPERATOR, "access.html")
async def access(visit: Visit, wanted: AccessInput) -> Access:
    """Accounts and rights on all brokers. Passwords are never shown."""
    brokers = await visit.admin.brokers()
    users = await visit.admin.ask_each(brokers, lambda broker: broker.accounts.users(wanted.q))
    if not users.value and users.missing and all(_is_off(item.code, item.problem) for item in users.missing):
        return Access(is_off=True, users=[], rules=[])
    acls = await visit.admin.ask_each(brokers, lambda broker: broker.accounts.acls())
    accounts: dict[tuple[str, str, str], AccountRow] = {}
    for broker, found in users.value:
        for user in found:
            key = (user.username or "", user.user_type or "", user.user_status or "")
            row = accounts.setdefault(key, AccountRow(name=key[0], type=key[1], status=key[2], brokers=[]))
            row.brokers.append(broker.name)
    rules: dict[bytes, RuleRow] = {}
    for broker, rights in acls.value:
        for acl in rights:
            for policy in acl.policies or []:
                for entry in policy.entries or []:
                    rule = RuleRow(
                        subject=acl.subject or "", resource=entry.resource or "", actions=list(entry.actions or []),
                        source_ips=list(entry.source_ips or []), decision=entry.decision or "", brokers=[],
                    )  # fmt: skip
                    rules.setdefault(msgspec.json.encode(rule), rule).brokers.append(broker.name)
    missing = {item.where: item for item in [*users.missing, *acls.missing]}
    return Access(
        is_off=False, users=sorted(accounts.values(), key=lambda row: row.name),
        rules=sorted(rules.values(), key=lambda row: (row.subject, row.resource)), partial=silent(missing.values()),
    )  # fmt: skip


class NewAccountInput(Input, kw_only=True):
    name: Annotated[str, msgspec.Meta(max_length=255)] = ""


class NewAccountView(View, kw_only=True):
    name: str


@reads("/access/users/new", Role.ADMIN, "access_user.html", in_api=False)
async def new_account(visit: Visit, wanted: NewAccountInput) -> NewAccountView:
    """The form for an account."""
    return NewAccountView(name=wanted.name)


class PutAccount(Change, kw_only=True):
    name: Name
    password: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    type: Literal["Normal", "Super"] = "Normal"
    status: Literal["enable", "disable"] = "enable"


@changes("POST", "/access/users", Role.ADMIN, "/access/users/new")
async def put_account(visit: Visit, wanted: PutAccount) -> Result:
    """Create an account on all brokers, or change it; without a password the old one stays."""
    user = UserInfo(
        username=wanted.name, password=wanted.password or None, user_type=wanted.type, user_status=wanted.status
    )

    async def put(broker: object) -> None:
        accounts = broker.accounts  # type: ignore[attr-defined]
        if await accounts.user(wanted.name) is not None:
            await accounts.update_user(user)
        elif wanted.password:
            await accounts.create_user(user)
        else:
            raise BrokerError(13, visit.look.t("access.needs_password"))

    items = await on_each(visit, await visit.admin.brokers(), put)
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
    """Delete an account and its rights on all brokers."""
    visit.confirm(wanted.confirm, wanted.name)
    items = await on_each(visit, await visit.admin.brokers(), lambda broker: broker.accounts.delete_user(wanted.name))
    return Result(title="account_deleted", about=wanted.name, items=items, back="/access")


class NewRuleInput(Input, kw_only=True):
    subject: Annotated[str, msgspec.Meta(max_length=255)] = ""


class NewRuleView(View, kw_only=True):
    subject: str
    actions: list[str]


ACTIONS = ["Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All"]


@reads("/access/rules/new", Role.ADMIN, "access_rule.html", in_api=False)
async def new_rule(visit: Visit, wanted: NewRuleInput) -> NewRuleView:
    """The form for a right."""
    return NewRuleView(subject=wanted.subject, actions=ACTIONS)


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
    """Set what an account may do with a resource, on all brokers."""
    if not wanted.actions:
        raise field_problem("actions", visit.look.t("access.needs_action"))
    entry = one_entry(
        as_subject(wanted.subject), [wanted.resource], wanted.actions, wanted.decision, wanted.source_ips.split()
    )
    items = await on_each(visit, await visit.admin.brokers(), lambda broker: broker.accounts.put_acl(entry))
    return Result(title="rule_changed", about=wanted.subject, items=items, back="/access")


class DeleteRule(Change, kw_only=True):
    subject: Name
    resource: Name


@changes("POST", "/access/rules/delete", Role.ADMIN, "/access")
async def delete_rule(visit: Visit, wanted: DeleteRule) -> Result:
    """Take a right away on all brokers."""
    items = await on_each(
        visit, await visit.admin.brokers(), lambda broker: broker.accounts.delete_acl(wanted.subject, wanted.resource)
    )
    return Result(title="rule_deleted", about=f"{wanted.subject} {wanted.resource}", items=items, back="/access")
