"""Failures as people and programs see them: RFC 9457 problems with cause, address and advice."""

from __future__ import annotations

import logging
import secrets
from typing import Any

import msgspec

from rocketline.errors import (
    BrokerError,
    ClientError,
    ConfigError,
    InvalidExpression,
    InvalidMessage,
    RequestNotSupported,
    RocketlineError,
    RouteNotFound,
    StoreError,
    TransportError,
)

log = logging.getLogger("rocketline.console")


CHECK = "rocketline admin doctor"


class FieldProblem(msgspec.Struct, rename="camel"):
    field: str
    problem: str
    position: int | None = None


class ProblemView(msgspec.Struct, rename="camel", omit_defaults=True):
    """What the API answers, as `application/problem+json`."""

    type: str = "about:blank"
    title: str = ""
    status: int = 500
    detail: str = ""
    code: int | None = None
    """The answer code of a broker or name server."""
    address: str = ""
    role: str = ""
    """The role that is needed."""
    hint: str = ""
    """What helps."""
    log_id: str = ""
    fields: list[FieldProblem] = []
    retry_after_s: int | None = None


class Problem(Exception):
    """Ends a request; `title` is the key of a text under `problems`."""

    def __init__(self, status: int, title: str, detail: str = "", **more: Any) -> None:
        super().__init__(detail or title)
        self.title_key = title
        self.view = ProblemView(title=title, status=status, detail=detail, **more)


def field_problem(name: str, problem: str, position: int | None = None) -> Problem:
    return Problem(422, "invalid", problem, fields=[FieldProblem(name, problem, position)])


def problem_of(error: Exception) -> Problem:
    """Any failure of a request; what is nobody's fault but ours gets a log id and no detail."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidExpression):
        return field_problem("where", str(error), error.position)
    if isinstance(error, RequestNotSupported):
        return _refused("unknown_request", error)
    if isinstance(error, BrokerError):
        return _refused("refused", error)
    if isinstance(error, TransportError) or isinstance(error.__cause__, TransportError):
        return Problem(504, "silent", str(error), hint=CHECK)
    if isinstance(error, RouteNotFound):
        return Problem(404, "not_found", str(error))
    if isinstance(error, InvalidMessage | ClientError | ConfigError):
        return Problem(422, "invalid", str(error))
    if isinstance(error, StoreError | RocketlineError):
        return Problem(502, "refused", str(error))
    log_id = secrets.token_hex(4)
    log.error("request failed, log id %s", log_id, exc_info=error)
    return Problem(500, "failed", log_id=log_id)


def _refused(title: str, error: BrokerError) -> Problem:
    return Problem(
        502, title, str(error).removesuffix(error.hint), code=error.code, address=error.address,
        hint=error.hint.partition("Hint: ")[2],
    )  # fmt: skip
