"""What a member asks of the place where the group's record is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rocketline.coordination.record import GroupRecord
from rocketline.errors import CoordinationFailed


@dataclass(frozen=True)
class Agreed:
    """A record, and the revision by which a change of it is compared."""

    record: GroupRecord
    revision: int


@dataclass(frozen=True)
class Live:
    """What a running member says of itself; gone when its lease is."""

    incarnation: str
    last_epoch: int = 0
    log_end: int = 0
    may_lack: bool = False
    """A crash may have taken the end of its log."""
    is_broken: bool = False
    """Its disk failed or hangs."""

    def encode(self) -> bytes:
        value = {
            "incarnation": self.incarnation,
            "lastEpoch": self.last_epoch,
            "logEnd": self.log_end,
            "mayLack": self.may_lack,
            "isBroken": self.is_broken,
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, where: str) -> Live:
        try:
            value = json.loads(data)
            return cls(
                str(value["incarnation"]),
                int(value["lastEpoch"]),
                int(value["logEnd"]),
                may_lack=value.get("mayLack") is True,
                is_broken=value.get("isBroken") is True,
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CoordinationFailed(f"{where} is not what a member writes: {error!r}") from error


@dataclass(frozen=True)
class View:
    """Record and running members of a group at one moment."""

    agreed: Agreed | None
    live: Mapping[int, Live] = field(default_factory=dict)
    revisions: Mapping[int, int] = field(default_factory=dict)
    """Of each member's `Live`: what an election is compared with."""

    @property
    def has_master(self) -> bool:
        """Whether the process that was elected last holds its lease."""
        if self.agreed is None:
            return False
        record = self.agreed.record
        living = self.live.get(record.master)
        return living is not None and living.incarnation == record.incarnation


class Coordinator(Protocol):
    """One group's record and leases. After CoordinationFailed, and after False, only a `read` tells what was done; what
    failed may still be done later, as long as the revision that it was compared with stays."""

    @property
    def lease_s(self) -> float:
        """How long a member counts as running after its last renewal."""

    async def read(self) -> View:
        """What is agreed now: never older than what anybody was told before."""

    async def propose(self, old: Agreed | None, new: GroupRecord) -> bool:
        """Replace the record if it is still `old`; None: if there is none."""

    async def elect(self, view: View, new: GroupRecord) -> bool:
        """Replace the record of `view` if it is unchanged and its master still is as `view` shows it: not running, or
        another process than was elected."""

    async def renew(self, member_id: int, live: Live) -> None:
        """Say that this member runs, for `lease_s` from now."""

    async def resign(self) -> None:
        """End this process's lease now."""

    def changes(self) -> AsyncGenerator[None, None]:
        """Yields whenever the record or a running member may have changed."""

    async def close(self) -> None: ...
