"""Who this data folder is in its group: `rocketline.member`, and `brokerIdentity` as Apache's brokers write it.

The token is on disk before it is in the record, so a member that dies while it joins finds itself there afterwards. Noted as
well are the boot of the machine and what a crash can take from the log as it is written now: at the next start the settings
may be others. That a crash may have taken something is remembered until it does not matter any more, over any stops.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from secrets import token_hex

from rocketline.errors import ConfigError
from rocketline.files import OWNER_ONLY
from rocketline.store.files.disk import Disk

FILE_NAME = "rocketline.member"
APACHE_NAME = "brokerIdentity"


class Takes(StrEnum):
    """What a crash takes from the end of a log."""

    NOTHING = "nothing"
    POWER = "by power cut"
    KILL = "by any crash"


@dataclass(frozen=True)
class Identity:
    cluster: str
    group: str
    token: str = field(repr=False)
    member_id: int = 0
    epoch: int = 0
    """The highest that this member ever obeyed."""
    boot_id: str = ""
    """Of the machine, when this folder was opened last."""
    takes: str = Takes.POWER
    """What a crash can take since then."""
    may_lack: bool = False
    """A crash may have taken the end of the log."""

    def opened(self, boot_id: str, takes: Takes, *, after_crash: bool, is_shorter: bool) -> Identity:
        """At a start. `is_shorter`: the log ends before what it knew to be confirmed."""
        is_other_boot = not boot_id or boot_id != self.boot_id  # where nobody tells, another one is assumed
        is_taken = after_crash and (self.takes == Takes.KILL or (self.takes == Takes.POWER and is_other_boot))
        return replace(self, boot_id=boot_id, takes=takes, may_lack=self.may_lack or is_taken or is_shorter)


class IdentityFile:
    def __init__(self, root: Path, disk: Disk) -> None:
        self._root, self._disk = root, disk

    def open(self, cluster: str, group: str) -> Identity:
        """The folder's identity, made if it has none; ConfigError when it belongs to another group."""
        path = self._root / FILE_NAME
        data = self._disk.read(path)
        if data is None:
            identity = Identity(cluster, group, token_hex(16))
            self.save(identity)
            return identity
        try:
            value = _ADDED | json.loads(data)
            found = Identity(**{key: type(default)(value[key]) for key, default in _SHAPE.items()})
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"{path} is damaged ({error!r}): restore it from a copy of the folder") from error
        if (found.cluster, found.group) != (cluster, group):
            raise ConfigError(
                f"{self._root} belongs to group {found.group} of cluster {found.cluster}, not to {group} of {cluster}: "
                "set brokerName and brokerClusterName as before, or use an empty folder"
            )
        return found

    def save(self, identity: Identity) -> None:
        self._disk.make_folder(self._root)
        data = json.dumps(asdict(identity), separators=(",", ":")).encode()
        self._disk.write_atomic(self._root / FILE_NAME, data, mode=OWNER_ONLY)
        if identity.member_id:
            text = f"{identity.cluster}#{identity.group}#{identity.member_id}"
            self._disk.write_atomic(self._root / APACHE_NAME, text.encode())


_SHAPE = asdict(Identity("", "", ""))
_ADDED = {key: _SHAPE[key] for key in ("takes", "may_lack")}
"""What files of earlier versions do not have."""
