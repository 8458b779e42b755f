"""The users file: names, roles, scrypt hashes of passwords, and hashes of tokens. Only its owner may read it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from rocketline.console.access import ROLE_WORDS, Person, Role
from rocketline.errors import ConfigError
from rocketline.files import OWNER_ONLY, replace_file
from rocketline.system.files import others_may_read

SCRYPT = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 64 << 20}
SALT_BYTES = 16
TOKEN_BYTES = 32
MAX_NAME_CHARS = 64


class StoredUser(msgspec.Struct, rename="camel"):
    name: str
    role: str
    salt: str
    hash: str
    disabled: bool = False


class StoredToken(msgspec.Struct, rename="camel"):
    name: str
    role: str
    sha256: str


class _Content(msgspec.Struct):
    users: list[StoredUser] = []
    tokens: list[StoredToken] = []


def hashed(password: str, salt: bytes) -> str:
    return hashlib.scrypt(password.encode(), salt=salt, dklen=32, **SCRYPT).hex()


class UsersFile:
    """Read again when it changes. Checking a password takes some 50 ms: call it in a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._content = _Content()
        self._nobody = StoredUser("", "viewer", secrets.token_hex(SALT_BYTES), "")

    @property
    def users(self) -> list[StoredUser]:
        return self._read().users

    @property
    def tokens(self) -> list[StoredToken]:
        return self._read().tokens

    def checked(self, name: str, password: str) -> Person | None:
        """The person with this name and password. Unknown and disabled ones take as long as a wrong password."""
        user = next((item for item in self.users if item.name == name), self._nobody)
        given = hashed(password, bytes.fromhex(user.salt))
        if not hmac.compare_digest(given, user.hash) or user.disabled:
            return None
        return Person(user.name, Role.of(user.role), "password", stamp=user.salt)

    def token_owner(self, token: str) -> Person | None:
        digest = hashlib.sha256(token.encode()).hexdigest()
        for item in self.tokens:
            if hmac.compare_digest(item.sha256, digest):
                return Person(item.name, Role.of(item.role), "token", stamp=item.sha256)
        return None

    def still_has(self, person: Person) -> bool:
        """Whether somebody who was let in may stay: account or token exist and have the same role and password."""
        if person.how == "token":
            return any(item.sha256 == person.stamp and item.role == person.role.word for item in self.tokens)
        return any(
            item.name == person.name
            and item.salt == person.stamp
            and not item.disabled
            and item.role == person.role.word
            for item in self.users
        )

    def put_user(self, name: str, role: str, password: str) -> None:
        _check(name, role)
        salt = secrets.token_bytes(SALT_BYTES)
        self._put("users", StoredUser(name, role, salt.hex(), hashed(password, salt)))

    def disable_user(self, name: str, disabled: bool) -> None:
        found = [user for user in self.users if user.name == name]
        if not found:
            raise ConfigError(f"{self._path} has no user {name}")
        self._put("users", msgspec.structs.replace(found[0], disabled=disabled))

    def put_token(self, name: str, role: str) -> str:
        """Make a token; it is shown now and never again."""
        _check(name, role)
        token = "rlc_" + secrets.token_urlsafe(TOKEN_BYTES)
        self._put("tokens", StoredToken(name, role, hashlib.sha256(token.encode()).hexdigest()))
        return token

    def remove(self, kind: str, name: str) -> bool:
        content = self._read(may_be_missing=True)
        before = getattr(content, kind)
        after = [item for item in before if item.name != name]
        setattr(content, kind, after)
        self._write(content)
        return len(after) < len(before)

    def _put(self, kind: str, new: StoredUser | StoredToken) -> None:
        content = self._read(may_be_missing=True)
        setattr(content, kind, [*(item for item in getattr(content, kind) if item.name != new.name), new])
        self._write(content)

    def _write(self, content: _Content) -> None:
        try:
            replace_file(self._path, msgspec.json.format(msgspec.json.encode(content)) + b"\n", mode=OWNER_ONLY)
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}") from error

    def _read(self, *, may_be_missing: bool = False) -> _Content:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            if may_be_missing:
                return _Content()
            raise ConfigError(f"{self._path}: there is no such users file") from None
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp != self._stamp:
            self._content, self._stamp = self._load(status), stamp
        return self._content

    def _load(self, status: os.stat_result) -> _Content:
        if others_may_read(status):
            raise ConfigError(f"{self._path}: others may read it; run `chmod 600 {self._path}`")
        decode: Callable[[bytes], _Content] = msgspec.json.Decoder(_Content).decode
        try:
            return decode(self._path.read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{self._path}: {error}") from error


def _check(name: str, role: str) -> None:
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise ConfigError(f"a name of 1 to {MAX_NAME_CHARS} printable characters is expected")
    if role not in ROLE_WORDS:
        raise ConfigError(f"role {role!r}: there are {', '.join(ROLE_WORDS)}")
