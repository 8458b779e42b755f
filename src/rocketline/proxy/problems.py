"""Why a call is refused: RocketMQ's status codes, and those that a broker's answers stand for."""

from __future__ import annotations

import logging
from typing import Any

from rocketline.errors import NoPermission, ProtocolError, RequestTimeout, RocketlineError, TransportError
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command
from rocketline.proxy.proto import CODE_NAMES, Code, pb

log = logging.getLogger(__name__)


class Problem(RocketlineError):
    """A call that is answered with another status than OK."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def status(code: int, text: str | None = None) -> Any:
    """A status; its text is the name of the code where there is nothing more to say."""
    return pb.Status(code=code, message=CODE_NAMES.get(code, "") if text is None else text)


OK = status(Code.OK)

_BY_ANSWER: dict[int, int] = {
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.NO_MESSAGE: Code.MESSAGE_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}


def problem_of(answer: Command) -> Problem:
    """What a broker's answer means that is no success."""
    remark = answer.remark or f"the broker answered {answer.code}"
    if answer.code == ResponseCode.NO_PERMISSION:
        concerns_account = NoPermission(answer.code, remark).concerns_account
        return Problem(Code.UNAUTHORIZED if concerns_account else Code.FORBIDDEN, remark)
    return Problem(_BY_ANSWER.get(answer.code, Code.INTERNAL_SERVER_ERROR), remark)


def problem_from(error: Exception) -> Problem:
    """What a failure is told as."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestTimeout):
        return Problem(Code.PROXY_TIMEOUT, str(error))
    if isinstance(error, TransportError | ProtocolError):
        log.info("a call failed: %s", error)
        return Problem(Code.INTERNAL_SERVER_ERROR, str(error))
    log.error("a call failed", exc_info=error)
    return Problem(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
