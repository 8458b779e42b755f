"""The header of a send read in one step says what the general road reads, whatever a client writes."""

from __future__ import annotations

import pytest

from rocketline.errors import ProtocolError
from rocketline.protocol.command import JSON, ROCKETMQ, Command
from rocketline.protocol.header_codec import decode_header, encode_header
from rocketline.protocol.headers import SendMessageHeader, read_send

FIELDS = {
    "a": '"g"', "b": '"t"', "c": '"TBW102"', "d": '"4"', "e": '"1"', "f": '"0"', "g": '"1700"', "h": '"0"',
    "i": '"UNIQ_KEY\\u0001AB\\u0002"', "j": '"0"', "k": '"false"', "m": '"false"',
}  # fmt: skip
MEMBERS = {"flag": "0", "language": '"JAVA"', "opaque": "5", "version": "493", "code": "310"}
ODD = [
    '"+4"', '" 4"', '"4 "', '"04"', '"-0"', '"4.0"', '"1e3"', "4", "4.0", "4.5", "1e3", "-1", "null", "true", "false",
    '"true"', '"TRUE"', '"1"', '""', '"x"', "[]", "{}", '"9999999999"', "9999999999", '"9223372036854775808"', "1e400",
    '"0x4"', '"4_0"', '"\u0664"', '"null"', '"\\ud800"', '"\\u0000"', "0", "1", "2", '"2"', '"on"', '"x","e":"3"',
]  # fmt: skip


def written(fields: dict[str, str], members: dict[str, str]) -> bytes:
    ext = ",".join(f'"{name}":{value}' for name, value in fields.items())
    return "{{{},{}}}".format(
        ",".join(f'"{name}":{value}' for name, value in members.items()), f'"extFields":{{{ext}}}'
    ).encode()


def told(code: int, opaque: int, flag: int, header: SendMessageHeader) -> tuple[object, ...]:
    return code, opaque, flag, *(getattr(header, name) for name in SendMessageHeader.__struct_fields__)


def general(encoding: int, raw: bytes) -> tuple[object, ...] | None:
    try:
        command = decode_header(encoding, raw, b"")
        return told(command.code, command.opaque, command.flag, SendMessageHeader.decode(command))
    except ProtocolError:
        return None


def quick(encoding: int, raw: bytes) -> tuple[object, ...] | None:
    request = read_send(encoding, raw)
    return None if request is None else told(request.code, request.opaque, request.flag, request.header)


@pytest.mark.parametrize("name", [*"abcdefghijklmnz", *MEMBERS, "remark", "serializeTypeCurrentRPC", "other"])
def test_odd_values_mean_the_same_or_are_left_to_the_general_road(name: str) -> None:
    for value in ODD:
        changed = {name: value}
        raw = written(FIELDS | changed, MEMBERS) if len(name) == 1 else written(FIELDS, MEMBERS | changed)
        assert quick(JSON, raw) in (None, general(JSON, raw)), value


def test_a_send_as_clients_write_it_is_read() -> None:
    raw = written(FIELDS, MEMBERS | {"serializeTypeCurrentRPC": '"JSON"'})
    assert quick(JSON, raw) == general(JSON, raw) is not None
    header = SendMessageHeader("g", "t", "TBW102", 4, 1, 0, 1700, 0, "UNIQ_KEY\x01AB\x02")
    binary = encode_header(Command(310, header.encode(), opaque=7, encoding=ROCKETMQ))
    assert quick(ROCKETMQ, binary) == general(ROCKETMQ, binary) is not None
    assert [quick(encoding, binary[:30]) for encoding in (JSON, ROCKETMQ, 7)] == [None] * 3
    assert quick(JSON, b'{"code":310}') is None
    assert quick(JSON, b"\xff") is None
