"""Every request code: who answers it, what kind of request it is, and its fields. Read from the source, but for the kind,
which somebody must think about: a new code has none, and the build fails until it is entered here.

docs/reference/requests.md is written from it by tools/write_request_reference.py.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import msgspec

from rocketline.protocol.codes import RequestCode
from rocketline.protocol.headers import REQUEST_HEADERS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "requests.md"
ACCESS = ROOT / "src/rocketline/auth/requests.py"
SOURCES = {
    "broker": (*sorted((ROOT / "src/rocketline/broker/handlers").rglob("*.py")), ACCESS),
    "name server": (ROOT / "src/rocketline/nameserver/handlers.py", ACCESS),
    "client": (ROOT / "src/rocketline/client/incoming.py",),
}


class Kind(Enum):
    """What a request does, which is who should be let to send it."""

    MESSAGES = "messages"
    MEMBER = "membership and progress"
    QUESTION = "question"
    CHANGE = "change"
    SERVERS = "between servers"


KINDS: dict[Kind, tuple[int, ...]] = {
    Kind.MESSAGES: (
        10, 11, 12, 33, 36, 37, 310, 320, 324, 325, 361, 370, 200050, 200051, 200052, 200053, 200054, 200151, 326, 39,
    ),
    Kind.MEMBER: (14, 15, 34, 35, 38, 40, 41, 42, 46, 400, 220, 221, 200055),
    Kind.QUESTION: (907, 1004, 1005, 1006, 1007,
        21, 26, 28, 29, 30, 31, 32, 101, 105, 106, 201, 202, 203, 204, 206, 208, 219, 223, 224, 300, 303, 304, 305, 307, 308,
        311, 312, 313, 315, 317, 319, 321, 328, 343, 345, 351, 352, 3004, 3005, 3009, 3010,
    ),
    Kind.CHANGE: (
        17, 18, 25, 100, 102, 200, 205, 207, 215, 216, 222, 225, 306, 309, 314, 316, 318, 323, 327, 329, 353, 401, 513,
        1002, 1008, 1011, 3001, 3002, 3003, 3006, 3007, 3008,
    ),
    Kind.SERVERS: (43, 45, 60, 61, 103, 104, 217, 322, 402, 901, 904, 905, 906, 908),
}  # fmt: skip

NOT_ANSWERED = {
    "controllers and containers": (
        "ADD_BROKER 902, REMOVE_BROKER 903, CONTROLLER_ALTER_SYNC_STATE_SET 1001, CONTROLLER_REGISTER_BROKER 1003, "
        "UPDATE_CONTROLLER_CONFIG 1009, GET_CONTROLLER_CONFIG 1010, "
        "CONTROLLER_GET_NEXT_BROKER_ID 1012, CONTROLLER_APPLY_BROKER_ID 1013"
    ),
    "ACL of RocketMQ 4.9 and early 5.x, gone from 5.4": (
        "UPDATE_AND_CREATE_ACL_CONFIG 50, DELETE_ACL_CONFIG 51, GET_BROKER_CLUSTER_ACL_INFO 52, "
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG 53, GET_BROKER_CLUSTER_ACL_CONFIG 54"
    ),
    "lite topics, new in 5.5": (
        "POP_LITE_MESSAGE 200070, LITE_SUBSCRIPTION_CTL 200071, ACK_LITE_MESSAGE 200072, NOTIFY_UNSUBSCRIBE_LITE 200073, "
        "GET_BROKER_LITE_INFO 200074, GET_PARENT_TOPIC_INFO 200075, GET_LITE_TOPIC_INFO 200076, "
        "GET_LITE_CLIENT_INFO 200077, GET_LITE_GROUP_INFO 200078, TRIGGER_LITE_DISPATCH 200079"
    ),
    "cold data": (
        "UPDATE_COLD_DATA_FLOW_CTR_CONFIG 2001, REMOVE_COLD_DATA_FLOW_CTR_CONFIG 2002, GET_COLD_DATA_FLOW_CTR_INFO 2003, "
        "SET_COMMITLOG_READ_MODE 2004"
    ),
    "RocksDB": (
        "CHECK_ROCKSDB_CQ_WRITE_PROGRESS 354, EXPORT_ROCKSDB_CONFIG_TO_JSON 355, SWITCH_TIMER_ENGINE 5001, "
        "POP_ROLLBACK 200056"
    ),
    "numbers without a use, Apache answers 3 as well": (
        "QUERY_BROKER_OFFSET 13, GET_TOPIC_CONFIG_LIST 22, GET_TOPIC_NAME_LIST 23, TRIGGER_DELETE_FILES 27, "
        "GET_CLIENT_CONFIG 47, SUSPEND_CONSUMER 209, RESUME_CONSUMER 210, RESET_CONSUMER_OFFSET_IN_CONSUMER 211, "
        "RESET_CONSUMER_OFFSET_IN_BROKER 212, ADJUST_CONSUMER_THREAD_POOL 213, WHO_CONSUME_THE_MESSAGE 214, "
        "REGISTER_FILTER_SERVER 301, REGISTER_MESSAGE_FILTER_CLASS 302"
    ),
}

NOT_ANSWERED_CODES = sorted(int(number) for names in NOT_ANSWERED.values() for number in re.findall(r" (\d+)", names))

INTRODUCTION = """# Requests

Written by `python tools/write_request_reference.py` from the source; change that, not this page.

Every request code, who answers it and with which fields; `?` marks a field that may be missing, all others must be there. A
field that is missing, or that is no number where one is wanted, is refused with code 1 and its name; fields nobody knows are
passed over. *Question* and *change* are what operators' tools send; a question changes nothing, but that asking for a group
(352) makes it where groups are made by themselves, as with Apache. Without accounts (`authenticationEnabled`), whoever
reaches a port may send any of them: keep ports to those who may.
"""


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    required: bool

    def __str__(self) -> str:
        kind = "" if self.type == "text" else f": {self.type}"
        return f"{self.name}{'' if self.required else '?'}{kind}"


@dataclass(frozen=True)
class Request:
    code: int
    name: str
    kind: Kind
    answered_by: tuple[str, ...]
    fields: tuple[Field, ...]

    def valid(self) -> dict[str, str]:
        """Every field with some value of its type."""
        values = {"text": "orders", "integer": "0", "true or false": "true"}
        return {field.name: values[field.type] for field in self.fields}


def requests() -> list[Request]:
    """All of them; KeyError for a code whose kind is not entered above."""
    kinds = {code: kind for kind, codes in KINDS.items() for code in codes}
    served = {server: served_by(server) for server in SOURCES}
    return [
        Request(
            int(code),
            code.name,
            kinds[code],
            tuple(server for server, codes in served.items() if code in codes),
            tuple(_fields(code)),
        )
        for code in sorted(RequestCode)
    ]


def served_by(server: str) -> frozenset[int]:
    """The codes in the tables of a server's handlers, as its source has them; each code has one handler."""
    text = "".join(source.read_text("utf-8") for source in SOURCES[server])
    codes = [RequestCode[name] for name in re.findall(r"RequestCode\.(\w+): \w", text)]
    assert len(codes) == len(set(codes)), "two handlers for one code"
    return frozenset(codes)


def _fields(code: int) -> Iterator[Field]:
    header = REQUEST_HEADERS.get(code)
    for item in msgspec.structs.fields(header) if header is not None else ():
        yield Field(item.encode_name, _type(item.type), item.required)


def _type(kind: Any) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    text = str(kind)
    if "bool" in text:
        return "true or false"
    return "integer" if "int" in text or "Offset" in text else "text"


def page() -> str:
    lines = ["| code | name | answered by | kind | fields |", "| --- | --- | --- | --- | --- |"]
    for item in requests():
        fields = ", ".join(f"`{field}`" for field in item.fields)
        answered = ", ".join(item.answered_by) or "nobody here"
        lines.append(f"| {item.code} | {item.name} | {answered} | {item.kind.value} | {fields} |")
    refused = ["| what for | names and numbers |", "| --- | --- |"]
    refused += [f"| {what} | {names} |" for what, names in NOT_ANSWERED.items()]
    rest = "\n".join(refused)
    return (
        f"{INTRODUCTION}\n" + "\n".join(lines) + "\n\n## Not answered\n\nCodes of RocketMQ that are answered with 3 "
        f"(not supported):\n\n{rest}\n"
    )
