"""The record of a group: what its members agree on, as values and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rocketline.errors import CoordinationFailed

NOBODY = 0
"""In the place of a member's id: none."""
MAX_MEMBERS = 100
"""Members that a record may have: everybody reads all of it at every change."""


@dataclass(frozen=True)
class Member:
    """A broker of the group, on a data folder of its own."""

    id: int
    """1, 2, 3, ...; kept for ever, in the data folder too."""
    address: str
    """`host:port` for clients."""
    ha_address: str
    """`host:port` for members that follow this one."""
    token: str = field(repr=False)
    """Known to members alone: whoever has it on the HA port is this member."""
    ha_tls: bool = False
    """Whether its HA port takes TLS, and nothing else."""


@dataclass(frozen=True)
class GroupRecord:
    epoch: int = 0
    """Number of elections so far."""
    master: int = NOBODY
    incarnation: str = ""
    """The process that was elected. After a restart its member is master only if it is elected again."""
    in_sync: frozenset[int] = frozenset()
    """Members that have everything acknowledged: only they can be elected."""
    in_sync_epoch: int = 0
    """Number of changes of `in_sync` so far."""
    members: Mapping[int, Member] = field(default_factory=dict)
    next_id: int = 1

    def with_member(self, member: Member) -> GroupRecord:
        """With a new member, or with other addresses of one that is there."""
        return replace(self, members={**self.members, member.id: member}, next_id=max(self.next_id, member.id + 1))

    def without_member(self, member_id: int) -> GroupRecord:
        """Without one that never comes back; its number is not given again. If it was the master, there is none."""
        members = {key: member for key, member in self.members.items() if key != member_id}
        master = NOBODY if self.master == member_id else self.master
        return replace(self, members=members, master=master).with_in_sync(self.in_sync - {member_id})

    def with_in_sync(self, in_sync: frozenset[int]) -> GroupRecord:
        return replace(self, in_sync=in_sync, in_sync_epoch=self.in_sync_epoch + 1)

    def with_master(
        self, member_id: int, incarnation: str, last_epoch: int = 0, others: frozenset[int] = frozenset()
    ) -> GroupRecord:
        """After an election, in an epoch above `last_epoch`, the new master's last one: of it alone it is certain that it
        has everything, and of `others` to whom a master hands over."""
        epoch = max(self.epoch, last_epoch) + 1
        elected = replace(self, epoch=epoch, master=member_id, incarnation=incarnation)
        return elected.with_in_sync(others | {member_id})

    def member_with(self, token: str) -> Member | None:
        return next((member for member in self.members.values() if member.token == token), None)

    def encode(self) -> bytes:
        value = {
            "epoch": self.epoch,
            "master": self.master,
            "incarnation": self.incarnation,
            "inSync": sorted(self.in_sync),
            "inSyncEpoch": self.in_sync_epoch,
            "members": [_member_value(member) for _, member in sorted(self.members.items())],
            "nextId": self.next_id,
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> GroupRecord:
        """CoordinationFailed for what is not a record; `where` says where it was found."""
        try:
            value: dict[str, Any] = json.loads(data)
            members = [_member_of(item) for item in value["members"]]
            if len(members) > MAX_MEMBERS:
                raise CoordinationFailed(f"{where} has {len(members)} members, more than {MAX_MEMBERS}")
            return cls(
                epoch=int(value["epoch"]),
                master=int(value["master"]),
                incarnation=str(value["incarnation"]),
                in_sync=frozenset(int(item) for item in value["inSync"]),
                in_sync_epoch=int(value["inSyncEpoch"]),
                members={member.id: member for member in members},
                next_id=int(value["nextId"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise CoordinationFailed(f"{where} holds no record of a group: {error!r}") from error


def _member_value(member: Member) -> dict[str, Any]:
    return {
        "id": member.id,
        "address": member.address,
        "haAddress": member.ha_address,
        "haTls": member.ha_tls,
        "token": member.token,
    }


def _member_of(item: Mapping[str, Any]) -> Member:
    return Member(
        int(item["id"]),
        str(item["address"]),
        str(item["haAddress"]),
        str(item["token"]),
        ha_tls=item.get("haTls") is True,
    )
