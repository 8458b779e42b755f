"""Accounts and their rights over the wire, on brokers and name servers: requests 3001 to 3010.

Codes and remarks are RocketMQ's, also where they are odd. Three things differ. Answers have no passwords, unless that is
switched on and the sender may see them. A body that cannot be read is 29, and its text is never repeated. A resource that
would mean something else than it seems is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, TypeVar

from rocketline.async_table import Saving, when_saved
from rocketline.auth.accounts import Accounts
from rocketline.auth.model import Acl, PolicyType, Target, User, UserStatus, UserType
from rocketline.auth.words import (
    SYSTEM_ERROR,
    BadEntry,
    acl_info,
    acl_of,
    by_word,
    parse_target,
    subject_name,
    subject_of,
    target_text,
    word,
)
from rocketline.clock import Clock
from rocketline.errors import RemoteProtocolError, RequestRejected
from rocketline.protocol.bodies import AclInfo, UserInfo, decode_body, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.connection import MAX_FRAME_BYTES, MAX_HEADER_BYTES
from rocketline.protocol.headers import (
    AclHeader,
    DeleteAclHeader,
    ListAclsHeader,
    ListUsersHeader,
    UpdateUserHeader,
    UserHeader,
)
from rocketline.transport import Channel, Handler, Reply, Router

T = TypeVar("T")

MAX_TEXT_CHARS = 1024
"""Of a name, a password, a resource."""
MAX_SOURCE_IPS = 1000
"""Of one entry."""
MAX_KEEP_OLD_S = 30 * 24 * 3600
LISTED_AT_ONCE = 1000
"""Of more accounts a list is made in a thread: other requests do not wait for it."""

SUPER_CREATE = "The super user can only be create by super user"
SUPER_UPDATE = "The super user can only be update by super user"
NAME_IS_BLANK = "The username is blank"

Ask = Callable[[Channel, Command], T]


def _nobody(channel: Channel, request: Command) -> bool:
    return False


@dataclass(frozen=True)
class AccessHandlers:
    accounts: Accounts
    clock: Clock
    caller: Ask[User | None]
    """Who sent a request; None where nobody has to say so, and everybody may do everything."""
    sees_passwords: Ask[bool] = _nobody
    """Whether answers to a request have passwords in them."""
    own_account: Callable[[], str] = str
    """The account that the server signs its own requests with; "" when there is none. It stays as it is needed."""

    def router(self) -> Router:
        return Router(self.routes())

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.put_acl,
            RequestCode.AUTH_UPDATE_ACL: self.put_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    def create_user(self, channel: Channel, request: Command) -> Reply:
        name = UserHeader.decode(request).username or _invalid(NAME_IS_BLANK)
        info = _body(UserInfo, request)
        kind = by_word(UserType, info.user_type) or UserType.NORMAL
        if kind is UserType.SUPER and not self._is_super(channel, request):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, SUPER_CREATE)
        _require_name(name)
        password = info.password or ""
        if _is_blank(password):
            _refuse("password can not be blank")
        _check_length(name, password)
        status = by_word(UserStatus, info.user_status) or UserStatus.ENABLE
        return _when_saved(request, self.accounts.create_user(User(name, password, kind, status)))

    def update_user(self, channel: Channel, request: Command) -> Reply:
        header = UpdateUserHeader.decode(request)
        name = header.username or _invalid(NAME_IS_BLANK)
        info = _body(UserInfo, request)
        is_super = self._is_super(channel, request)
        if by_word(UserType, info.user_type) is UserType.SUPER and not is_super:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, SUPER_UPDATE)
        _require_name(name)
        _check_length(info.password or "")
        keep_s = header.rocketline_keep_old_seconds
        if keep_s is not None and not 0 <= keep_s <= MAX_KEEP_OLD_S:
            _invalid(f"rocketlineKeepOldSeconds is {keep_s}; it may be 0 to {MAX_KEEP_OLD_S}")
        change = partial(_changed, info, keep_s, self.clock.now_ms())
        changed = partial(self._checked, lambda user: change(_allowed(user, is_super)))
        return _when_saved(request, self.accounts.update_user(name, changed))

    def _checked(self, change: Callable[[User], User], user: User) -> User:
        new = change(user)
        if (new.type, new.status) not in {(user.type, user.status), (UserType.SUPER, UserStatus.ENABLE)}:
            self._refuse_own(user)
        return new

    def _refuse_own(self, user: User) -> None:
        """Refuse to change the server's own account so that it could not work any more."""
        if user.name == self.own_account():
            _refuse(
                f"User:{user.name} is the account this server signs its own requests with: it stays an enabled super user. "
                "Name another one in innerClientAuthenticationCredentials first."
            )

    def delete_user(self, channel: Channel, request: Command) -> Reply:
        name = UserHeader.decode(request).username or ""
        _require_name(name)
        is_super = self._is_super(channel, request)
        return _when_saved(
            request, self.accounts.delete_user(name, lambda user: self._refuse_own(_allowed(user, is_super)))
        )

    def get_user(self, channel: Channel, request: Command) -> Reply:
        name = UserHeader.decode(request).username or ""
        if _is_blank(name):
            _invalid(NAME_IS_BLANK)
        user = self.accounts.user(name)
        return _answer(request, None if user is None else _info("", self.sees_passwords(channel, request), user))

    def list_users(self, channel: Channel, request: Command) -> Reply:
        header = ListUsersHeader.decode(request)
        own = self.own_account() if header.rocketline_own else ""
        info = partial(_info, own, self.sees_passwords(channel, request))
        return self._listed(request, partial(_users_with, header.filter or "", self.accounts.users(), info))

    def put_acl(self, channel: Channel, request: Command) -> Reply:
        """Create and update are the same."""
        subject = AclHeader.decode(request).subject
        info = _body(AclInfo, request)
        name = subject_name(info.subject or subject)
        if name is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, SYSTEM_ERROR)
        if subject_name(subject) not in (None, name):
            _invalid(f"the header is about {subject!r}, and the body about {info.subject!r}")
        return _when_saved(request, self.accounts.put_entries(name, _acl(info)))

    def delete_acl(self, channel: Channel, request: Command) -> Reply:
        header = DeleteAclHeader.decode(request)
        name = _require_subject(header.subject)
        policy = by_word(PolicyType, header.policy_type) or PolicyType.CUSTOM
        return _when_saved(request, self.accounts.delete_entries(name, policy, _target(header.resource or "")))

    def get_acl(self, channel: Channel, request: Command) -> Reply:
        name = _require_subject(AclHeader.decode(request).subject)
        if self.accounts.user(name) is None:
            _refuse("The subject is not exist.")
        acl = self.accounts.acl(name)
        return _answer(request, acl_info(name, acl) if acl else None)

    def list_acls(self, channel: Channel, request: Command) -> Reply:
        header = ListAclsHeader.decode(request)
        filters = header.subject_filter or "", header.resource_filter or ""
        return self._listed(request, partial(_rights_with, *filters, self.accounts.acls()))

    def _listed(self, request: Command, make: Callable[[], list[Any]]) -> Reply:
        if self.accounts.user_count <= LISTED_AT_ONCE:
            return _answer(request, make())
        return asyncio.get_running_loop().run_in_executor(None, lambda: _answer(request, make()))

    def _is_super(self, channel: Channel, request: Command) -> bool:
        caller = self.caller(channel, request)
        return caller is None or caller.type is UserType.SUPER


def _when_saved(request: Command, saving: Saving) -> Reply:
    return when_saved([saving], lambda: _answer(request))


def _answer(request: Command, content: Any = None) -> Command:
    """RocketMQ sets no remark here; this one is what its answers begin with. Nothing found is no body at all."""
    body = encode_body(content) if content else b""
    if len(body) > MAX_FRAME_BYTES - MAX_HEADER_BYTES:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"the list has {len(body)} bytes and fits into no answer; ask with a filter"
        )
    return request.reply(ResponseCode.SUCCESS, body=body, remark="not set any response code")


def _refuse(remark: str) -> NoReturn:
    raise RequestRejected(ResponseCode.NO_PERMISSION, remark)


def _invalid(remark: str) -> NoReturn:
    raise RequestRejected(ResponseCode.INVALID_PARAMETER, remark)


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _require_name(name: str) -> None:
    if _is_blank(name):
        _refuse("username can not be blank")


def _require_subject(subject: str | None) -> str:
    name = subject_name(subject)
    return _refuse("The subject is null.") if name is None else name


def _check_length(*texts: str) -> None:
    if any(len(text) > MAX_TEXT_CHARS for text in texts):
        _invalid(f"names, passwords and resources have at most {MAX_TEXT_CHARS} characters")


def _body(kind: type[T], request: Command) -> T:
    """The body. What cannot be read is not shown: it may have a password."""
    if not request.body:
        _invalid("The body is empty")
    try:
        return decode_body(kind, request.body)
    except RemoteProtocolError:
        raise RequestRejected(ResponseCode.INVALID_PARAMETER, f"The body is not a readable {kind.__name__}") from None


def _allowed(user: User, is_super: bool) -> User:
    """The same user, if the sender may change it."""
    if user.type is UserType.SUPER and not is_super:
        _refuse(SUPER_UPDATE)
    return user


def _changed(info: UserInfo, keep_s: int | None, now_ms: int, user: User) -> User:
    """What is not given stays."""
    kind = by_word(UserType, info.user_type) or user.type
    status = by_word(UserStatus, info.user_status) or user.status
    return _with_password(replace(user, type=kind, status=status), info.password or "", keep_s, now_ms)


def _with_password(user: User, password: str, keep_s: int | None, now_ms: int) -> User:
    """A new password ends the former ones, unless they are to be kept for a while. The same one again changes nothing, and
    `keep_s` of 0 then ends the second one."""
    if _is_blank(password) or password == user.password:
        return replace(user, second_password="", second_until_ms=0) if keep_s == 0 else user
    if not keep_s:
        return replace(user, password=password, second_password="", second_until_ms=0)
    return replace(user, password=password, second_password=user.password, second_until_ms=now_ms + keep_s * 1000)


def _info(own: str, with_password: bool, user: User) -> UserInfo:
    return UserInfo(
        user.password if with_password else None,
        word(user.status).lower(),
        word(user.type),
        user.name,
        rocketline_own=True if user.name == own else None,
    )


def _users_with(part: str, users: Iterable[User], info: Callable[[User], UserInfo]) -> list[UserInfo]:
    return [info(user) for user in users if _is_blank(part) or part in user.name]


def _rights_with(subject: str, resource: str, acls: Iterable[tuple[str, Acl]]) -> list[AclInfo]:
    found = []
    for name, acl in acls:
        key = subject_of(name)
        if _is_blank(subject) or subject in key:
            shown = acl if _is_blank(resource) or resource in key else _about(resource, acl)
            if shown:
                found.append(acl_info(name, shown))
    return found


def _about(part: str, acl: Acl) -> Acl:
    custom, default = (
        tuple(entry for entry in entries if part in target_text(entry.target)) for entries in (acl.custom, acl.default)
    )
    return Acl(custom, default)


def _acl(info: AclInfo) -> Acl:
    try:
        acl = acl_of(info)
    except BadEntry as error:
        raise RequestRejected(ResponseCode.NO_PERMISSION, str(error)) from error
    except ValueError as error:
        raise RequestRejected(ResponseCode.INVALID_PARAMETER, str(error)) from error
    for entry in (*acl.custom, *acl.default):
        _check_length(entry.target.name)
        if len(entry.source_ips) > MAX_SOURCE_IPS:
            _invalid(f"{len(entry.source_ips)} addresses in one entry are more than {MAX_SOURCE_IPS}")
    return acl


def _target(resource: str) -> Target | None:
    """The resources to delete the entry of; None: all entries. A text that names nothing must not delete everything."""
    if _is_blank(resource):
        return None
    try:
        target = parse_target(resource)
    except ValueError as error:
        raise RequestRejected(ResponseCode.INVALID_PARAMETER, str(error)) from error
    return target or _invalid(f"{resource!r} is no resource, as Topic:orders or Group:* is")
