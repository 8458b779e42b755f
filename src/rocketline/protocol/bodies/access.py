"""Bodies about accounts and their rights, in RocketMQ's words. Members are in the order in which RocketMQ writes them."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.bodies.json_body import Body


class UserInfo(Body):
    """An account; `userType` is Super or Normal, `userStatus` enable or disable."""

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None
    rocketline_own: bool | None = None
    """Our servers: they sign their own requests with this one, so it is not deleted, disabled or made Normal."""

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r})"  # the password stays out of logs


class PolicyEntryInfo(Body):
    """A line of an account's rights."""

    actions: list[str] = field(default_factory=list)
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class PolicyInfo(Body):
    """Lines of one policy, Custom or Default."""

    entries: list[PolicyEntryInfo] = field(default_factory=list)
    policy_type: str | None = None


class AclInfo(Body):
    """The rights of an account; its subject is `User:name`."""

    policies: list[PolicyInfo] = field(default_factory=list)
    subject: str | None = None
