"""Accounts and their rights on one server, a broker or a name server of ours, as an administrator manages them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from rocketline.auth.words import SYSTEM_ERROR, subject_name, subject_of
from rocketline.errors import BrokerError, ClientError, NoPermission, RequestNotSupported
from rocketline.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo, decode_body, encode_body
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    AclHeader,
    DeleteAclHeader,
    Header,
    ListAclsHeader,
    ListUsersHeader,
    UpdateUserHeader,
    UserHeader,
)
from rocketline.protocol.signing import Credentials

if TYPE_CHECKING:
    from rocketline.admin.cluster import Admin
    from rocketline.admin.remote import AdminBroker

T = TypeVar("T")

ASK_AGAIN_S = 0.1


class RemoteAccounts:
    """Requests about accounts to one server; BrokerError for every refusal. Passwords are in no `repr` and in no error."""

    __slots__ = ("_ask", "address", "broker")

    def __init__(
        self, ask: Callable[[int, Header, str, bytes], Awaitable[Command]], address: str, broker: str = ""
    ) -> None:
        self._ask = ask
        self.address = address
        self.broker = broker
        """The name of the broker; empty for a name server."""

    @property
    def where(self) -> str:
        return f"{self.broker} {self.address}".strip()

    async def put_user(self, user: UserInfo) -> None:
        """Change an account, or create it; ClientError for a new one without a password."""
        if await self.user(user.username or "") is not None:
            await self.update_user(user)
        elif user.password:
            await self.create_user(user)
        else:
            raise ClientError(f"{self.where} has no account {user.username}: a new one needs a password")

    async def create_user(self, user: UserInfo) -> None:
        """The type is Normal and the status enable unless given."""
        header, doing = UserHeader(user.username), f"creation of user {user.username}"
        await self._ask(RequestCode.AUTH_CREATE_USER, header, doing, encode_body(user))

    async def update_user(self, user: UserInfo, keep_old_s: int | None = None) -> None:
        """Change what is given. Our servers accept the former password for `keep_old_s` seconds more."""
        header, doing = UpdateUserHeader(user.username, keep_old_s), f"change of user {user.username}"
        await self._ask(RequestCode.AUTH_UPDATE_USER, header, doing, encode_body(user))

    async def delete_user(self, name: str) -> None:
        """Delete an account and its rights; one that does not exist is no error."""
        await self._ask(RequestCode.AUTH_DELETE_USER, UserHeader(name), f"deletion of user {name}", b"")

    async def user(self, name: str) -> UserInfo | None:
        """An account; its password only where the server shows passwords."""
        answer = await self._ask(RequestCode.AUTH_GET_USER, UserHeader(name), f"user {name}", b"")
        return decode_body(UserInfo, answer.body) if answer.body else None

    async def users(self, part: str = "") -> list[UserInfo]:
        """The accounts whose names contain a text."""
        return await self._list(
            UserInfo, RequestCode.AUTH_LIST_USER, ListUsersHeader(part or None, True), "list of users"
        )

    async def put_acl(self, acl: AclInfo) -> None:
        """Replace the entries about the same resources, and add the others."""
        # Apache's servers do the same for create (3006) and update (3007).
        doing = f"rights of {acl.subject}"
        await self._ask(RequestCode.AUTH_UPDATE_ACL, AclHeader(acl.subject), doing, encode_body(acl))

    async def delete_acl(self, subject: str, resource: str | None = None, policy: str | None = None) -> None:
        """Take away the entry about a resource, or without one all rights."""
        header, doing = DeleteAclHeader(subject, policy, resource), f"deletion of rights of {subject}"
        await self._ask(RequestCode.AUTH_DELETE_ACL, header, doing, b"")

    async def acl(self, subject: str) -> AclInfo | None:
        answer = await self._ask(RequestCode.AUTH_GET_ACL, AclHeader(subject), f"rights of {subject}", b"")
        return decode_body(AclInfo, answer.body) if answer.body else None

    async def acls(self, subject: str = "", resource: str = "") -> list[AclInfo]:
        """The rights of accounts; those whose subject and resource contain these texts."""
        header = ListAclsHeader(subject or None, resource or None)
        return await self._list(AclInfo, RequestCode.AUTH_LIST_ACL, header, "list of rights")

    async def _list(self, kind: type[T], code: int, header: Header, doing: str) -> list[T]:
        answer = await self._ask(code, header, doing, b"")
        return decode_body(list[kind], answer.body) if answer.body else []  # type: ignore[valid-type]


def one_entry(
    subject: str, resources: Iterable[str], actions: list[str], decision: str, source_ips: list[str] | None = None
) -> AclInfo:
    """Rights with the same actions, decision and addresses on several resources."""
    entries = [PolicyEntryInfo(actions, decision, resource, source_ips or None) for resource in resources]
    return AclInfo([PolicyInfo(entries)], subject)


def as_subject(name: str) -> str:
    """`User:name` of an account's name; a subject stays as it is.

    >>> as_subject("shop"), as_subject("User:shop")
    ('User:shop', 'User:shop')
    """
    return name if subject_name(name) is not None else subject_of(name)


async def copy_user(source: RemoteAccounts, target: RemoteAccounts, name: str) -> None:
    """Make an account of one server, with its password, one of another; ClientError when its password is not told."""
    user = await source.user(name)
    if user is None:
        raise ClientError(f"{source.address} has no user {name}")
    if not user.password:
        raise ClientError(
            f"{source.address} does not show the password of {name}: set rocketline.auth.revealPasswords=true there for "
            "the time of the copy, or give a password with createUser on the other server"
        )
    if await target.user(name) is None:
        await target.create_user(user)
    else:
        await target.update_user(user)


async def account_servers(admin: Admin, brokers: Iterable[AdminBroker]) -> list[RemoteAccounts]:
    """The servers that a change of an account must reach: some brokers, and the name servers that have accounts.

    Without the latter, a new account could send nothing, and a deleted one could still read routes.
    """
    return [*await account_name_servers(admin), *(broker.accounts for broker in brokers)]


async def account_name_servers(admin: Admin) -> list[RemoteAccounts]:
    """The name servers that manage accounts. Apache's do not, nor those that read the files of a broker."""
    servers = [server.accounts for server in admin.name_servers]
    answers = await admin.gather_or_errors(server.users("\0") for server in servers)
    return [server for server, answer in zip(servers, answers) if not _has_no_accounts(answer)]


def _has_no_accounts(answer: object) -> bool:
    if isinstance(answer, RequestNotSupported):
        return True
    return isinstance(answer, BrokerError) and answer.remark == SYSTEM_ERROR


async def wait_until_known(admin: Admin, name: str, password: str) -> bool:
    """Wait until all name servers take an account, for as long as a request of `admin` may last; whether they do."""
    async with admin.signed_by(Credentials(name, password)) as asking:
        try:
            async with asyncio.timeout(admin.timeout_s):
                while True:
                    answers = await asking.gather_or_errors(server.cluster_info() for server in asking.name_servers)
                    if not any(isinstance(answer, NoPermission) for answer in answers):
                        return True
                    await asyncio.sleep(ASK_AGAIN_S)
        except TimeoutError:
            return False
