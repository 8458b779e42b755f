"""Message traces: text in the bodies of messages of a trace topic that says what happened to a message.

A record is its fields joined by 0x01 and ended by 0x02, a body is any number of records, absent values are the word
`null`. The order of the fields is Apache's (`TraceDataEncoder`, 5.4.0):

    Pub             time region group topic id tags keys store-host body-bytes cost kind offset-id success [client-host]
    SubBefore       time region group request id retries keys
    SubAfter        request id cost success keys outcome [time group]
    EndTransaction  time region group topic id tags keys store-host kind transaction-id state from-check
    Recall          time region group topic id success
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

import msgspec

from rocketline.errors import RemoteProtocolError
from rocketline.protocol.numbers import MAX_INT64, read_number

FIELD_END = "\x01"
RECORD_END = "\x02"
NULL = "null"


class TracedMessage(IntEnum):
    """What kind of message was sent."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3
    ORDERED = 4


class MessageTrace(msgspec.Struct, frozen=True):
    """The first fields of most records."""

    timestamp_ms: int
    region: str
    group: str
    topic: str
    message_id: str


class StoredMessageTrace(MessageTrace, frozen=True):
    """The first fields of records about a message that a broker has stored."""

    tags: str | None
    keys: str | None
    store_host: str


class Pub(StoredMessageTrace, frozen=True):
    """A message was sent."""

    body_bytes: int
    cost_ms: int
    kind: TracedMessage
    offset_id: str | None
    success: bool
    client_host: str | None = None
    """Written by some older clients; never by us."""


class SubBefore(msgspec.Struct, frozen=True):
    """A message is about to be handled; `request_id` joins it to its SubAfter."""

    timestamp_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str | None


class SubAfter(msgspec.Struct, frozen=True):
    """A message was handled; `outcome` is 0 success, 1 too slow, 2 an exception, 3 no result, 4 later."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None
    outcome: int = 0
    timestamp_ms: int | None = None
    group: str | None = None


class EndTransaction(StoredMessageTrace, frozen=True):
    """A transaction was decided."""

    kind: TracedMessage
    transaction_id: str | None
    state: str
    from_check: bool


class Recall(MessageTrace, frozen=True):
    """A timer message was recalled."""

    success: bool


TraceRecord = Pub | SubBefore | SubAfter | EndTransaction | Recall


def encode_trace(record: TraceRecord) -> str:
    """A record as text.

    >>> encode_trace(Recall(5, "R", "g", "T", "ID", True))
    'Recall\\x015\\x01R\\x01g\\x01T\\x01ID\\x01true\\x02'
    """
    if isinstance(record, Pub):
        values = msgspec.structs.astuple(record)[:13]
    elif isinstance(record, SubAfter) and record.timestamp_ms is None:
        return _joined("SubAfter", (*msgspec.structs.astuple(record)[:6], ""))  # the separator before them stays
    else:
        values = msgspec.structs.astuple(record)
    return _joined(type(record).__name__, values)


def _joined(kind: str, values: Iterable[object]) -> str:
    return FIELD_END.join([kind, *map(_field, values)]) + RECORD_END


def _field(value: object) -> str:
    if value is None:
        return NULL
    if value.__class__ is bool:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    text = str(value)
    # Keys may contain a separator, which would break this record and all after it.
    return text.translate(_SEPARATORS) if FIELD_END in text or RECORD_END in text else text


_SEPARATORS = {ord(FIELD_END): " ", ord(RECORD_END): " "}


def trace_keys(record: TraceRecord) -> list[str]:
    """The keys of a trace message for this record: the message's id and keys."""
    keys = None if isinstance(record, Recall) else record.keys
    return [record.message_id, *(keys.split() if keys else ())]


def decode_traces(body: bytes) -> list[TraceRecord]:
    """The records of a trace message, without unknown kinds; RemoteProtocolError for invalid ones."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a trace is not text: {error.reason} at byte {error.start}") from error
    lines = (line.split(FIELD_END) for line in text.split(RECORD_END) if line)
    return [_decode(line) for line in lines if line[0] in _READERS]


def _decode(line: list[str]) -> TraceRecord:
    try:
        return _READERS[line[0]](line)
    except (IndexError, ValueError) as error:
        raise RemoteProtocolError(f"a {line[0]} trace of {len(line)} fields cannot be read: {error}") from error


def _optional(text: str) -> str | None:
    return None if text == NULL else text


def _number(text: str) -> int:
    number = read_number(text, lowest=-MAX_INT64)
    if number is None:
        raise ValueError(f"{text[:40]!r} is no number")
    return number


def _flag(text: str) -> bool:
    return text.lower() == "true"


def _message(line: list[str]) -> tuple[int, str, str, str, str]:
    """The fields of a MessageTrace."""
    return _number(line[1]), line[2], line[3], line[4], line[5]


def _stored(line: list[str]) -> tuple[str | None, str | None, str]:
    """The fields that a StoredMessageTrace adds."""
    return _optional(line[6]), _optional(line[7]), line[8]


def _pub(line: list[str]) -> Pub:
    has_offset_id = len(line) > 13  # the oldest clients did not write it
    return Pub(
        *_message(line),
        *_stored(line),
        _number(line[9]),
        _number(line[10]),
        TracedMessage(_number(line[11])),
        _optional(line[12]) if has_offset_id else None,
        _flag(line[13] if has_offset_id else line[12]),
        line[14] if len(line) > 14 else None,
    )


def _sub_before(line: list[str]) -> SubBefore:
    return SubBefore(_number(line[1]), line[2], line[3], line[4], line[5], _number(line[6]), _optional(line[7]))


def _sub_after(line: list[str]) -> SubAfter:
    outcome = _number(line[6]) if len(line) > 6 else 0
    dated = len(line) > 8
    return SubAfter(
        line[1],
        line[2],
        _number(line[3]),
        _flag(line[4]),
        _optional(line[5]),
        outcome,
        _number(line[7]) if dated else None,
        line[8] if dated else None,
    )


def _end_transaction(line: list[str]) -> EndTransaction:
    return EndTransaction(
        *_message(line),
        *_stored(line),
        TracedMessage(_number(line[9])),
        _optional(line[10]),
        line[11],
        _flag(line[12]),
    )


def _recall(line: list[str]) -> Recall:
    return Recall(*_message(line), _flag(line[6]))


_READERS: dict[str, Callable[[list[str]], TraceRecord]] = {
    "Pub": _pub,
    "SubBefore": _sub_before,
    "SubAfter": _sub_after,
    "EndTransaction": _end_transaction,
    "Recall": _recall,
}
