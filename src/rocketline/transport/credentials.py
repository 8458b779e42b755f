"""Where a client's account comes from: a value, a function, or a file that may change while the client runs."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketline.errors import ConfigError
from rocketline.protocol.signing import Credentials

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""How often a file is looked at, at the most."""

_NAMES = {
    "accesskey": "access_key",
    "secretkey": "secret_key",
    "securitytoken": "security_token",
    "replayprotection": "replay_protection",
}
_FLAGS = {"true": True, "false": False}
_LINE = re.compile(r"""\s*([A-Za-z_]+)\s*[:=]\s*(["']?)(.*?)\2\s*""")


class CredentialsFile:
    """An account in a file, which is read again when it has changed.

        Producer("10.0.0.7:9876", group="shop", options=ClientOptions(credentials=CredentialsFile("shop.json")))

    The file is JSON, `{"accessKey": "shop", "secretKey": "..."}`, or has a line for each, `accessKey: shop`, as mqadmin's
    `tools.yml`. `securityToken` and `replayProtection: true` are optional. A file that cannot be read when a client is
    opened is a ConfigError; later the last account that could be read stays in use.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._current: Credentials | None = None
        self._seen: tuple[int, int, int] | None = None
        self._looked = 0.0

    def __call__(self) -> Credentials:
        now = time.monotonic()
        if self._current is not None and now - self._looked < LOOK_EVERY_S:
            return self._current
        self._looked = now
        try:
            self._read_if_changed()
        except ConfigError as error:
            if self._current is None:
                raise
            log.warning("%s; the account that was read before stays in use", error)
        assert self._current is not None
        return self._current

    def _read_if_changed(self) -> None:
        try:
            status = self.path.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen != self._seen:
                self._seen = seen  # also when it is unreadable: one warning for each change
                self._current = _parse(self.path, self.path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"credentials file {self.path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"credentials file {self.path}: is not UTF-8 text") from error

    def __repr__(self) -> str:
        return f"CredentialsFile({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CredentialsFile) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        # The secret itself never leaves the process: another one reads the file.
        return CredentialsFile, (str(self.path),)


CredentialsOption = Credentials | Callable[[], Credentials] | None
"""The account that signs every request. A function is called for every request, so it must be quick."""


def _parse(path: Path, text: str) -> Credentials:
    found: dict[str, Any] = {}
    for name, value in _pairs(path, text):
        known = _NAMES.get(name.replace("_", "").lower())
        if known is None:
            # The name is not quoted: in a file of another kind it may be the secret.
            raise ConfigError(
                f"credentials file {path}: only accessKey, secretKey, securityToken and replayProtection are known"
            )
        found[known] = _FLAGS.get(str(value).lower()) if known == "replay_protection" else value
    if found.get("replay_protection", False) is None:
        raise ConfigError(f"credentials file {path}: replayProtection is neither true nor false")
    missing = [name for name in ("access_key", "secret_key") if name not in found]
    if missing:
        raise ConfigError(f"credentials file {path}: accessKey and secretKey are needed")
    try:
        return Credentials(**found)
    except ConfigError as error:
        raise ConfigError(f"credentials file {path}: {error}") from None


def _pairs(path: Path, text: str) -> list[tuple[str, Any]]:
    if text.lstrip().startswith("{"):
        try:
            return list(json.loads(text).items())
        except ValueError:
            # The text of the error would quote the file, and so the secret.
            raise ConfigError(f"credentials file {path}: is not JSON") from None
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ConfigError(f"credentials file {path}: line {number} is not like `accessKey: NAME`")
        pairs.append((found[1], found[3]))
    return pairs
