"""Key-value settings by namespace, kept in kvConfig.json as RocketMQ writes it.

A change is on disk before it is answered: the file is replaced as a whole (`rocketline.files`), so a crash leaves the old
table or the new one. The server does not start with a file that cannot be read: the next change would overwrite it.

Writing blocks the caller for the time of a flush; changes are rare, and made by operators.
"""

from __future__ import annotations

import errno
from pathlib import Path

from rocketline.errors import ConfigError, DiskFull, RequestRejected, StoreError
from rocketline.files import replace_file, sync_folder
from rocketline.protocol.bodies import KVConfigFile, decode_file, encode_body
from rocketline.protocol.codes import ResponseCode

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace of ordered topics: a key is a topic, a value its queues as `broker:count;broker:count`."""

MAX_TABLE_BYTES = 8 * 1024 * 1024
"""Largest size of the table as JSON; a namespace must fit into one answer."""

Tables = dict[str, dict[str, str]]


class KvConfig:
    """The table, and its file when it has one."""

    def __init__(self, tables: Tables, path: Path | None) -> None:
        self._tables = tables
        self._path = path

    @staticmethod
    def open(path: str) -> KvConfig:
        """The table of this file, which the first change creates; with an empty path the table is kept in memory only."""
        return KvConfig(_load(Path(path)), Path(path)) if path else KvConfig({}, None)

    def get(self, namespace: str, key: str) -> str | None:
        return self._tables.get(namespace, {}).get(key)

    def namespace(self, name: str) -> dict[str, str] | None:
        """All keys and values of a namespace; None when it never existed."""
        return self._tables.get(name)

    def put(self, namespace: str, key: str, value: str) -> None:
        self._change(namespace, {**self._tables.get(namespace, {}), key: value})

    def delete(self, namespace: str, key: str) -> None:
        """Delete a key, if it is there. A namespace stays when its last key goes, as in RocketMQ."""
        table = self._tables.get(namespace, {})
        if key in table:
            self._change(namespace, {name: value for name, value in table.items() if name != key})

    def _change(self, namespace: str, table: dict[str, str]) -> None:
        tables = {**self._tables, namespace: table}
        data = encode_body(KVConfigFile(tables))
        if len(data) > MAX_TABLE_BYTES:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the key-value table would have {len(data)} bytes, the limit is {MAX_TABLE_BYTES}",
            )
        if self._path is None:
            self._tables = tables
            return
        try:
            replace_file(self._path, data)
            self._tables = tables  # the file has it now, even if the next line fails
            sync_folder(self._path.parent)
        except OSError as error:
            kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
            raise kind(f"the key-value table was not saved: {self._path}: {error.strerror or error}") from error


def _load(path: Path) -> Tables:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes() if path.exists() else None
    except OSError as error:
        raise ConfigError(f"kvConfigPath={path}: cannot be used: {error.strerror}") from error
    if data is None:
        return {}
    try:
        return decode_file(KVConfigFile, data).config_table
    except ValueError as error:
        raise ConfigError(
            f"kvConfigPath={path}: not a readable key-value table ({error}); repair it, or move it away to start empty"
        ) from error
