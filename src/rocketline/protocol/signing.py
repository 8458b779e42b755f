"""Signing requests with the secret key of an account, as brokers with ACL require (4.9 and 5.x).

    AccessKey      the account
    SecurityToken  only for a temporary account
    Signature      base64(HMAC-SHA1(secret key, values of all other header fields in the order of their names + body))

The signature covers all header fields, so a request must not change after signing. Only requests are signed, one-way ones
too; answers never are. The secret appears in no text: not in `repr`, and not in errors.

Three fields of ours are signed like any other, and only our servers look at them: `_rl_code`, the request code, `_rl_time`,
the milliseconds since 1970 at which the request was signed, and `_rl_fields`, the names of the other fields and the sizes of
their values. With them a request that somebody recorded cannot be sent as another request, can be sent again for five
minutes only, and has no field more, and no part of a value in another field or in the body: the signature alone covers
values without their names and bounds. They are added only where it was asked for: they make a client whose clock is wrong
fail.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from dataclasses import dataclass, field

from rocketline.clock import SYSTEM_CLOCK
from rocketline.errors import ConfigError
from rocketline.protocol.command import JSON, Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105
SIGNATURE = "Signature"
SIGNED_CODE = "_rl_code"
SIGNED_MS = "_rl_time"
SIGNED_FIELDS = "_rl_fields"
ACCOUNT_FIELDS = frozenset({ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SIGNED_CODE, SIGNED_MS, SIGNED_FIELDS})
"""Fields that say who sent a request. They concern nobody but the server that it was sent to."""

_UNSIGNED = "_UNIQUE_KEY_QUERY"
_UNSIGNED_VERSION = 399
"""4.9.3. The signature of this field is not checked by brokers of 4.9, and by those of 5.x only in requests of up to this
version. So a request with this field is sent with this version: then all brokers agree."""


@dataclass(frozen=True)
class Credentials:
    """An account's access key and secret key.

    >>> Credentials("shop", "12345678")
    Credentials(access_key='shop')
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)
    replay_protection: bool = field(default=False, repr=False)
    """Sign the time, the request code and the names of all fields too. Apache's servers accept that, and ignore it."""

    def __post_init__(self) -> None:
        given = {"access_key": self.access_key, "secret_key": self.secret_key, "security_token": self.security_token}
        for name, value in given.items():
            if value is None and name == "security_token":
                continue
            if not isinstance(value, str):
                raise ConfigError(f"credentials: {name} must be a string, not {type(value).__name__}")
            if not value.strip():
                raise ConfigError(f"credentials: {name} is blank")

    def sign(self, command: Command) -> None:
        """Add account and signature to a request; a former signature is replaced."""
        fields = dict(command.ext or ())  # a copy: the caller may send its own fields again
        fields.pop(SIGNATURE, None)
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        if self.replay_protection:
            fields[SIGNED_CODE], fields[SIGNED_MS] = str(int(command.code)), str(SYSTEM_CLOCK.now_ms())
            # A binary header cannot have a field without a value: it is left out.
            sent = {name: value for name, value in fields.items() if value or command.encoding == JSON}
            fields[SIGNED_FIELDS] = field_list(sent)
        if _UNSIGNED in fields:
            command.version = _UNSIGNED_VERSION
        body = command.body if command.chunks is None else b"".join(command.chunks)
        content = signed_fields(fields, command.version) + body
        fields[SIGNATURE] = b64encode(hmac.digest(self.secret_key.encode(), content, "sha1")).decode()
        command.ext = fields


def signed_fields(fields: dict[str, str], version: int) -> bytes:
    """What is signed of the header fields of a request that announces this version; its body follows.

    >>> signed_fields({"username": "w1", "AccessKey": "root", "Signature": "..."}, 493)
    b'rootw1'
    """
    names = _in_java_order(fields)
    if SIGNATURE in fields:
        names.remove(SIGNATURE)
    if version <= _UNSIGNED_VERSION and _UNSIGNED in fields:
        names.remove(_UNSIGNED)
    return "".join([fields[name] for name in names]).encode()


def field_list(fields: dict[str, str]) -> str:
    """What `_rl_fields` says: each field that is signed, with the bytes of its value, but itself.

    >>> field_list({"b": "orders", "_rl_code": "310", "AccessKey": "shop", "Signature": "..."})
    'AccessKey:4,_rl_code:3,b:6,'
    """
    names = (name for name in _in_java_order(fields) if name not in (SIGNATURE, SIGNED_FIELDS))
    return "".join([f"{name}:{len(fields[name].encode())}," for name in names])


def _in_java_order(fields: dict[str, str]) -> list[str]:
    """Names in Java's order, by UTF-16 units, which differs from Python's only for characters beyond 16 bits."""
    if "".join(fields).isascii():
        return sorted(fields)
    return sorted(fields, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
