"""Headers of tools that manage accounts and their rights."""

from __future__ import annotations

from rocketline.protocol.headers.base import Header, Int32


class UserHeader(Header):
    """3001, 3003, 3004."""

    username: str | None = None


class UpdateUserHeader(Header):
    """3002; the second field is ours: so long the former password stays valid beside the new one."""

    username: str | None = None
    rocketline_keep_old_seconds: Int32 | None = None


class ListUsersHeader(Header):
    """3005; with the second field, which is ours, the answer marks the account that the server itself signs with."""

    filter: str | None = None
    rocketline_own: bool | None = None


class AclHeader(Header):
    """3006, 3007, 3009; the subject is `User:name`."""

    subject: str | None = None


class DeleteAclHeader(Header):
    """3008; without a resource all rights of the subject."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsHeader(Header):
    """3010."""

    subject_filter: str | None = None
    resource_filter: str | None = None
