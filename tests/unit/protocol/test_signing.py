"""Signatures as `openssl dgst -sha1 -hmac SECRET -binary | base64` makes them of what a broker would put together."""

from __future__ import annotations

import pickle

import pytest

from rocketline.errors import ConfigError
from rocketline.protocol.command import Command
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.protocol.signing import Credentials

SECRET = "12345678"


@pytest.mark.parametrize(
    ("credentials", "ext", "body", "signature"),
    [
        (
            Credentials("rocketline", SECRET),
            {"topic": "orders", "queueId": "3"},
            b"hello",
            "BpNR44cMIGeCj/xfT3f2w1xPCyk=",
        ),
        (
            Credentials("rocketline", "geheim", "token"),
            {"b": "grün", "a": "3"},
            b"\0\xff",
            "x6tExAU6DRsv3Qhs6SXKOKovT30=",
        ),
        (Credentials("rocketline", SECRET), None, b"", "n5OCGjPZYOQH2b8XTLHAM74IKQA="),
        # In UTF-16 the second name comes first.
        (Credentials("rocketline", SECRET), {"\uff5e": "C", "\U0001f600": "AB"}, b"", "9oYZC60fn+q9eUbKPS7vjr+IyeU="),
    ],
)
def test_known_signatures(credentials: Credentials, ext: dict[str, str] | None, body: bytes, signature: str) -> None:
    command = Command(310, ext, body)
    credentials.sign(command)
    token = {} if credentials.security_token is None else {"SecurityToken": credentials.security_token}
    assert command.ext == {**(ext or {}), "AccessKey": "rocketline", **token, "Signature": signature}
    (received,) = Connection().receive(frame_bytes(command))
    assert (received.ext or {})["Signature"] == signature


def test_a_query_is_signed_so_that_old_and_new_brokers_agree() -> None:
    """4.9 never counts that field, 5.x does not in requests of 4.9.3 (399) and before."""
    command = Command(12, {"topic": "orders", "queueId": "3", "_UNIQUE_KEY_QUERY": "true"}, b"hello")
    Credentials("rocketline", SECRET).sign(command)
    assert (command.ext or {})["Signature"] == "BpNR44cMIGeCj/xfT3f2w1xPCyk="
    assert (command.ext or {})["_UNIQUE_KEY_QUERY"] == "true"
    assert command.version == 399


def test_a_body_in_pieces_counts_as_one() -> None:
    whole, pieces = Command(310, {"a": "1"}, b"hello"), Command(310, {"a": "1"}, chunks=[b"he", memoryview(b"llo")])
    for command in (whole, pieces):
        Credentials("k", "s").sign(command)
    assert whole.ext == pieces.ext


def test_signing_again_forgets_the_signature_before_and_leaves_the_fields_of_the_caller_alone() -> None:
    fields = {"a": "1"}
    command = Command(310, fields)
    Credentials("k", "s").sign(command)
    first = command.ext
    Credentials("k", "s").sign(command)
    assert command.ext == first
    assert fields == {"a": "1"}


def test_what_is_secret_is_in_no_text() -> None:
    credentials = Credentials("shop", "very-secret", "also-secret")
    assert repr(credentials) == str(credentials) == f"{credentials}" == "Credentials(access_key='shop')"
    assert pickle.loads(pickle.dumps(credentials)) == credentials
    assert credentials != Credentials("shop", "other", "also-secret")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("", "secret-1"), "access_key is blank"),
        (("shop", " "), "secret_key is blank"),
        (("shop", "secret-1", ""), "security_token is blank"),
        (("shop", b"secret-1"), "secret_key must be a string, not bytes"),
        ((None, "secret-1"), "access_key must be a string, not NoneType"),
    ],
)
def test_half_an_account_is_refused_without_showing_it(given: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^credentials: {problem}$"):
        Credentials(*given)
