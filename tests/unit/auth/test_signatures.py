"""Which signatures are accepted."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode
from dataclasses import replace

import pytest

from rocketline.auth.model import User
from rocketline.auth.signatures import MAX_AGE_MS, Signatures
from rocketline.clock import SYSTEM_CLOCK
from rocketline.protocol.command import JSON, ROCKETMQ, Command
from rocketline.protocol.header_codec import decode_header, encode_header
from rocketline.protocol.signing import SIGNED_CODE, SIGNED_FIELDS, SIGNED_MS, Credentials, field_list

NOW_MS = 1_700_000_000_000
ROOT = User("root", "rootsecret1")


def is_signed(request: Command, user: User = ROOT, now_ms: int = NOW_MS) -> bool:
    return Signatures().is_signed(user, request, now_ms)


def signed(request: Command, user: User = ROOT) -> Command:
    Credentials(user.name, user.password).sign(request)
    return request


def by_hand(content: bytes, user: User = ROOT) -> str:
    """The signature of some bytes."""
    return b64encode(hmac.digest(user.password.encode(), content, "sha1")).decode()


@pytest.mark.parametrize(
    ("code", "fields", "body", "signature"),
    [
        (3003, {"username": "w1"}, b"", "r7WPgR7s4gg9kraQ9Hv5No/aMTU="),
        (3004, {"username": "w1"}, b"", "r7WPgR7s4gg9kraQ9Hv5No/aMTU="),
        (3010, {"subjectFilter": "w1"}, b"", "r7WPgR7s4gg9kraQ9Hv5No/aMTU="),
        (
            3001,
            {"username": "w1"},
            b'{"password":"w1secret","userType":"Normal","username":"w1"}',
            "TPG+x10/J6UqbZDnIFxu98QfSE0=",
        ),
    ],
)
def test_signatures_of_mqadmin(code: int, fields: dict[str, str], body: bytes, signature: str) -> None:
    assert is_signed(Command(code, {"AccessKey": "root", **fields, "Signature": signature}, body))


@pytest.mark.parametrize("encoding", [JSON, ROCKETMQ])
def test_other_alphabets(encoding: int) -> None:
    user = User("jürgen", "geheimnis-ß")
    request = signed(Command(10, {"topic": "t", "\U0001f680": "ü", "\uffff": "é"}, b"body"), user)
    request.encoding = encoding
    assert is_signed(decode_header(encoding, encode_header(request), request.body), user)


@pytest.mark.parametrize(
    "change",
    [
        lambda request: request.ext.update(topic="other"),
        lambda request: request.ext.update(more="field"),
        lambda request: request.ext.pop("topic"),
        lambda request: request.ext.pop("Signature"),
        lambda request: request.ext.update(Signature=request.ext["Signature"].swapcase()),
        lambda request: request.ext.update(Signature=request.ext["Signature"] + "\n"),
        lambda request: request.ext.update(Signature="ü"),
        lambda request: setattr(request, "body", b"other"),
    ],
)
def test_what_was_changed_is_refused(change: object) -> None:
    request = signed(Command(10, {"topic": "t"}, b"body"))
    assert is_signed(request)
    change(request)  # type: ignore[operator]
    assert not is_signed(request)


@pytest.mark.parametrize("value", [None, 7, True, 1.5, ""])
@pytest.mark.parametrize("null", ["null", ""])
def test_json_values_that_are_no_text(value: object, null: str) -> None:
    text = null if value is None else value if isinstance(value, str) else json.dumps(value)
    fields = {"AccessKey": "root", "a": value, "Signature": by_hand(f"root{text}".encode())}
    header = json.dumps({"code": 10, "extFields": fields}).encode()
    assert is_signed(decode_header(JSON, header, b""))


@pytest.mark.parametrize("null", ["null", ""])
def test_a_binary_value_without_bytes(null: str) -> None:
    fields = {"AccessKey": "root", "a": "", "z": "end", "Signature": by_hand(f"root{null}end".encode())}
    entries = b"".join(
        len(name).to_bytes(2, "big") + name.encode() + len(value).to_bytes(4, "big") + value.encode()
        for name, value in fields.items()
    )
    start = encode_header(Command(10, None, encoding=ROCKETMQ))[:-4]
    header = start + len(entries).to_bytes(4, "big") + entries
    request = decode_header(ROCKETMQ, header, b"")
    assert request.nulls == ("a",)
    assert is_signed(request)


@pytest.mark.parametrize(("version", "covers"), [(399, False), (401, True), (493, True)])
def test_the_field_that_old_versions_do_not_sign(version: int, covers: bool) -> None:
    fields = {"AccessKey": "root", "_UNIQUE_KEY_QUERY": "true"}
    for content, accepted in ((b"roottrue", covers), (b"root", not covers)):
        request = Command(12, {**fields, "Signature": by_hand(content)}, version=version)
        assert is_signed(request) is accepted


def test_a_second_password_counts_for_a_while() -> None:
    user = User("root", "new", second_password="old", second_until_ms=NOW_MS + 1)
    for password, now_ms, accepted in (("new", NOW_MS, True), ("old", NOW_MS, True), ("old", NOW_MS + 1, False)):
        request = signed(Command(10, {}), replace(user, password=password))
        assert is_signed(request, user, now_ms) is accepted


def test_a_changed_password_counts_at_once() -> None:
    signatures = Signatures()
    request = signed(Command(10, {}))
    assert signatures.is_signed(ROOT, request, NOW_MS)
    assert not signatures.is_signed(replace(ROOT, password="changed"), request, NOW_MS)


@pytest.mark.parametrize(
    ("fields", "demands", "problem"),
    [
        ({}, False, ""),
        ({}, True, "demands replay protection"),
        ({SIGNED_CODE: "10"}, True, "demands replay protection"),
        ({SIGNED_CODE: "10", SIGNED_MS: str(NOW_MS)}, True, ""),
        ({SIGNED_CODE: "215", SIGNED_MS: str(NOW_MS)}, False, "signed as another one"),
        ({SIGNED_CODE: "010"}, False, "signed as another one"),
        ({SIGNED_MS: str(NOW_MS - MAX_AGE_MS)}, False, ""),
        ({SIGNED_MS: str(NOW_MS - MAX_AGE_MS - 1)}, False, "not signed within 300 s"),
        ({SIGNED_MS: str(NOW_MS + MAX_AGE_MS + 1)}, False, "not signed within 300 s"),
        ({SIGNED_MS: "9" * 5000}, False, "not signed within 300 s"),
        ({SIGNED_MS: "soon"}, False, "not signed within 300 s"),
    ],
)
def test_replays(fields: dict[str, str], demands: bool, problem: str) -> None:
    signatures = Signatures(demands_replay_fields=demands)
    listed = {**fields, SIGNED_FIELDS: field_list(fields)} if fields else {}
    found = signatures.replay_problem(Command(10, listed), NOW_MS)
    assert problem in found
    assert bool(problem) == bool(found)


DATED = Credentials(ROOT.name, ROOT.password, replay_protection=True)
SAME_SIGNATURE: dict[str, dict[str, str | None]] = {
    "a field without a value is added": {"x": ""},
    "a value has another name": {"topic": None, "tupic": "orders"},
    "a value begins in the field before it": {"queueId": "0or", "topic": "ders"},
    "the list has another name": {
        "_rl_fields": None,
        "_rl_fieldt": "AccessKey:4,_rl_code:2,_rl_time:13,group:0,queueId:1,topic:6,",
    },
    "one name passes for two fields": {"group": None, "queueId": None, "group:0,queueId": "0"},
}


@pytest.mark.parametrize("change", SAME_SIGNATURE.values(), ids=SAME_SIGNATURE)
def test_what_a_signature_leaves_open_is_refused_where_the_fields_are_listed(change: dict[str, str | None]) -> None:
    request = Command(10, {"group": "", "queueId": "0", "topic": "orders"})
    DATED.sign(request)
    now_ms = SYSTEM_CLOCK.now_ms()
    assert Signatures(demands_replay_fields=True).replay_problem(request, now_ms) == ""
    fields = {**(request.ext or {}), **change}
    request.ext = {name: value for name, value in fields.items() if value is not None}
    assert is_signed(request)
    assert "are not those that were signed" in Signatures().replay_problem(request, now_ms)


def test_the_end_of_the_fields_is_not_taken_for_the_body() -> None:
    request = Command(10, {"topic": "orders"}, b"body")
    DATED.sign(request)
    request.ext, request.body = {**(request.ext or {}), "topic": "order"}, b"sbody"
    assert is_signed(request)
    assert Signatures().replay_problem(request, SYSTEM_CLOCK.now_ms())
