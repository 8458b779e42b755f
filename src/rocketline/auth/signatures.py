"""Checking who signed a request. `protocol/signing.py` says what is signed, for both sides.

A header field without a value is signed in two ways, and both are accepted: as nothing, which is what a client does that has
an empty text, and as the word `null`, which is what Apache's brokers expect.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import NamedTuple

from rocketline.auth.model import User
from rocketline.protocol.command import Command
from rocketline.protocol.numbers import MAX_INT64, read_number
from rocketline.protocol.signing import SIGNATURE, SIGNED_CODE, SIGNED_FIELDS, SIGNED_MS, field_list, signed_fields

MAX_AGE_MS = 300_000
"""How far the time in a signed request may lie from ours, in either direction."""
MAX_PREPARED = 10_000


class _Prepared(NamedTuple):
    """The keyed hashes of an account's passwords, ready to be copied: the key is hashed once, not for each request."""

    user: User
    keys: tuple[hmac.HMAC, ...]


class Signatures:
    """Checks signatures, for all accounts of a server."""

    def __init__(self, *, demands_replay_fields: bool = False) -> None:
        """`demands_replay_fields`: refuse requests that do not say when and as what they were signed."""
        self._demands = demands_replay_fields
        self._prepared: dict[str, _Prepared] = {}

    def is_signed(self, user: User, request: Command, now_ms: int) -> bool:
        """Whether this account signed the request."""
        fields = request.ext or {}
        given = fields.get(SIGNATURE, "").encode()
        keys = self._keys_of(user, now_ms)
        contents = [signed_fields(fields, request.version)]
        if request.nulls:
            contents.append(signed_fields(fields | dict.fromkeys(request.nulls, "null"), request.version))
        return any(_fits(key, content, request.body, given) for key in keys for content in contents)

    def is_text_signed(self, user: User, text: bytes, signature: bytes, now_ms: int) -> bool:
        """Whether this account signed a text, with what is then its plain hash."""
        return any(_fits(key, text, b"", b64encode(signature)) for key in self._keys_of(user, now_ms))

    def _keys_of(self, user: User, now_ms: int) -> tuple[hmac.HMAC, ...]:
        """The keys that count now: that of the password, and for a while that of the one before."""
        return self._prepared_for(user).keys[: len(user.passwords(now_ms))]

    def _prepared_for(self, user: User) -> _Prepared:
        found = self._prepared.get(user.name)
        if found is None or found.user is not user:
            if len(self._prepared) >= MAX_PREPARED:
                self._prepared.clear()
            keys = tuple(map(_keyed, filter(None, (user.password, user.second_password))))
            found = self._prepared[user.name] = _Prepared(user, keys)
        return found

    def replay_problem(self, request: Command, now_ms: int) -> str:
        """Why a signed request may have been recorded and sent by somebody else; empty when nothing speaks for it."""
        fields, code = request.ext or {}, request.code
        signed_code, signed_ms, listed = (fields.get(name) for name in (SIGNED_CODE, SIGNED_MS, SIGNED_FIELDS))
        if self._demands and (signed_code is None or signed_ms is None):
            return f"the fields {SIGNED_CODE} and {SIGNED_MS} are missing: this server demands replay protection."
        if signed_code is not None and signed_code != str(code):
            return f"the request was signed as another one than {code}."
        if signed_ms is not None:
            at_ms = read_number(signed_ms, 0, MAX_INT64)
            if at_ms is None or abs(now_ms - at_ms) > MAX_AGE_MS:
                return (
                    f"the request was not signed within {MAX_AGE_MS // 1000} s of now: it was sent again, "
                    "or the clock of the client is wrong."
                )
        if (signed_code, signed_ms, listed) == (None, None, None):
            return ""
        # A name with a comma could pass for two fields. Our clients send no field without a text.
        if listed != field_list(fields) or request.nulls or any("," in name for name in fields):
            return f"the fields of the request are not those that were signed, which {SIGNED_FIELDS} lists."
        return ""


def _keyed(password: str) -> hmac.HMAC:
    return hmac.new(password.encode(), digestmod="sha1")


def _fits(key: hmac.HMAC, content: bytes, body: bytes, given: bytes) -> bool:
    digest = key.copy()
    digest.update(content)
    if body:
        digest.update(body)
    return hmac.compare_digest(b64encode(digest.digest()), given)
