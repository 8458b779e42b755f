"""Requests with wrong fields, and the answers that servers must give to them."""

from __future__ import annotations

from typing import Protocol

from tests.support.request_table import Request

from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command

WRONG_BODIES = [b"", b"null", b"[]", b"7", b'"text"', b"{", b"\xff\xfe", b"\0" * 64, b'{"a":' * 5000, b"[" * 5000]
WRONG_NUMBERS = ["many", "", "1.5", "9" * 30, "-"]


class Peer(Protocol):
    """A client that is served in this process."""

    def ask(self, request: Command) -> Command: ...


def name_of(value: object) -> str | None:
    """The id of a parametrised test."""
    return value.name if isinstance(value, Request) else None


def check_missing_field(peer: Peer, item: Request, name: str) -> None:
    ext = {key: value for key, value in item.valid().items() if key != name}
    answer = peer.ask(Command(item.code, ext))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"header of request {item.code}: field {name} is missing"


def check_wrong_numbers(peer: Peer, item: Request, name: str) -> None:
    for value in WRONG_NUMBERS:
        answer = peer.ask(Command(item.code, {**item.valid(), name: value}))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"request {item.code}: field {name} is" in (answer.remark or "")


def check_unknown_fields(peer: Peer, item: Request) -> None:
    plain = peer.ask(Command(item.code, item.valid()))
    more = peer.ask(Command(item.code, {**item.valid(), "colour": "red", "\0": "x" * 1000}))
    assert (more.code, more.remark) == (plain.code, plain.remark)


def check_wrong_bodies(peer: Peer, item: Request) -> list[int]:
    """Every body is ignored, or refused with a text; returns the codes of the answers."""
    answers = [peer.ask(Command(item.code, item.valid(), body)) for body in WRONG_BODIES]
    for answer in answers:
        assert answer.code == ResponseCode.SUCCESS or answer.remark
        assert "Traceback" not in (answer.remark or "")
    return [answer.code for answer in answers]
