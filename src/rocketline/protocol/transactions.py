"""Transactions: outcomes, and the topics and properties of half messages."""

from __future__ import annotations

from enum import IntEnum

from rocketline.protocol.numbers import read_number

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
MAX_CHECKS_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"

TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"


class Transaction(IntEnum):
    """Outcome of a local transaction; the numbers are those of END_TRANSACTION and of a record's system flag."""

    UNKNOWN = 0
    """Not known yet: the broker asks again later."""
    COMMIT = 8
    ROLLBACK = 12


def is_half(properties: dict[str, str]) -> bool:
    """Whether a message with these properties is a half message.

    >>> is_half({"TRAN_MSG": "TRUE"}), is_half({"TRAN_MSG": "false"}), is_half({})
    (True, False, False)
    """
    return properties.get(TRAN_MSG, "").lower() == "true"


def immunity_ms(properties: dict[str, str], default_ms: int) -> int:
    """Age of a half message at which the broker asks about it; a property that is no number is ignored.

    >>> immunity_ms({"CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}, 6000), immunity_ms({}, 6000)
    (30000, 6000)
    """
    seconds = read_number(properties.get(CHECK_IMMUNITY_S))
    return default_ms if seconds is None else seconds * 1000
