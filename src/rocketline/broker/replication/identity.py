"""Who this data folder is in its group: `rocketline.member`, and `brokerIdentity` as Apache's brokers write it.

The token is on disk before it is in the record, so a member that dies while it joins finds itself there afterwards. The boot
of the machine is noted as well: after a crash in the same boot the page cache still had everything, after another one the
end of a log that is not flushed at once may be missing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from secrets import token_hex

from rocketline.errors import ConfigError
from rocketline.files import OWNER_ONLY
from rocketline.store.files.disk import Disk

FILE_NAME = "rocketline.member"
APACHE_NAME = "brokerIdentity"


@dataclass(frozen=True)
class Identity:
    cluster: str
    group: str
    token: str = field(repr=False)
    member_id: int = 0
    epoch: int = 0
    """The highest that this member ever obeyed."""
    boot_id: str = ""


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
            value = json.loads(data)
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
