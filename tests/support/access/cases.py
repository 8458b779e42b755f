"""Rows of the tables: a request, and what Apache's broker and ours must say to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.support.access.frames import Account
from tests.support.access.world import Side

from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command


class Said(NamedTuple):
    """What is compared of an answer: its code, and the remark of a refusal."""

    code: int
    remark: str | None = None


class Case(NamedTuple):
    name: str
    frame: bytes
    theirs: Said | None
    """Of Apache's broker; None: it is not asked."""
    ours: Said | None = None
    """Of ours; None: as theirs."""


PASSED = Said(0)
SUCCESSES = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
NO_ACCOUNT = Said(16, "username cannot be null.")
BAD_SIGNATURE = Said(16, "check signature failed.")


def not_found(name: str) -> Said:
    return Said(16, f"User:{name} is not found.")


def no_right(who: Account, resource: str) -> Said:
    return Said(16, f"User:{who.name} has no permission to access {resource} from 127.0.0.1, no matched policies.")


def denied(who: Account, resource: str) -> Said:
    return Said(16, f"User:{who.name} has no permission to access {resource} from 127.0.0.1, the decision is deny.")


def said(answer: Command) -> Said:
    """What a success says in its remark is not compared. A pull that found nothing passed too."""
    return PASSED if answer.code in SUCCESSES else Said(answer.code, answer.remark)


def check(sides: Iterable[Side], case: Case) -> None:
    """Both brokers say what the row says; where they say the same, their header fields have the same names."""
    theirs, ours = sides
    here = ours.ask(case.frame)
    assert said(here) == (case.ours or case.theirs), ours
    if case.theirs is not None:
        there = theirs.ask(case.frame)
        assert said(there) == case.theirs, theirs
        if case.ours is None and here.code:
            assert sorted(here.ext or ()) == sorted(there.ext or ()), (here, there)
