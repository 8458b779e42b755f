from __future__ import annotations

import json
import struct

import pytest

from rocketline.errors import LocalProtocolError, RemoteProtocolError
from rocketline.protocol.command import JSON, ROCKETMQ, Command
from rocketline.protocol.header_codec import decode_header, encode_header


def read_json(text: str | bytes) -> Command:
    return decode_header(JSON, text.encode() if isinstance(text, str) else text, b"")


def binary(
    *entries: tuple[bytes, bytes], code: int = 310, language: int = 0, remark: bytes = b"", version: int = 493
) -> bytes:
    ext = b"".join(struct.pack(">h", len(k)) + k + struct.pack(">i", len(v)) + v for k, v in entries)
    fixed = struct.pack(">hBhiii", code, language, version, 5, 0, len(remark))
    return fixed + remark + struct.pack(">i", len(ext)) + ext


def read_binary(header: bytes) -> Command:
    return decode_header(ROCKETMQ, header, b"")


def test_json_members() -> None:
    command = read_json(
        '{"code":310,"extFields":{"a":"x"},"flag":2,"language":"GO","opaque":-5,"remark":"r","version":407,'
        '"serializeTypeCurrentRPC":"JSON","unknown":[1,{"x":null}]}'
    )
    assert (command.code, command.ext, command.flag, command.opaque) == (310, {"a": "x"}, 2, -5)
    assert (command.language, command.remark, command.version, command.encoding) == ("GO", "r", 407, JSON)


def test_json_defaults() -> None:
    command = read_json('{"code":0}')
    assert (command.ext, command.language, command.remark, command.version) == (None, "JAVA", None, 0)


@pytest.mark.parametrize(
    "text",
    [
        "{code:11,extFields:{'a':'1','b':true,'c':null},language:1}",
        '{"code":"11","extFields":{"a":1,"b":true,"c":null},"language":1,"remark":null,}',
        '/* hello */ {"code":11,"extFields":{"a":"1","b":"true"},"language":"CPP"}\0',
    ],
)
def test_json_as_fastjson_takes_it(text: str) -> None:
    command = read_json(text)
    assert (command.code, command.ext, command.language) == (11, {"a": "1", "b": "true"}, "CPP")


def test_json_field_values_of_any_kind_become_text() -> None:
    command = read_json('{"code":11,"extFields":{"a":1.5,"b":{"x":[1]},"c":false,"d":12345678901234567890}}')
    assert command.ext == {"a": "1.5", "b": '{"x":[1]}', "c": "false", "d": "12345678901234567890"}


def test_json_raw_control_characters_in_strings() -> None:
    assert read_json('{"code":11,"extFields":{"i":"KEYS\x01k\x02"}}').ext == {"i": "KEYS\x01k\x02"}


def test_json_bytes_that_are_not_utf8_are_replaced() -> None:
    assert read_json(b'{"code":11,"extFields":{"i":"\xe9"}}').ext == {"i": "\ufffd"}


@pytest.mark.parametrize(("number", "name"), [(3, "PYTHON"), (13, "NODE_JS"), (14, "OTHER"), (-1, "OTHER")])
def test_json_language_as_number(number: int, name: str) -> None:
    assert read_json(f'{{"code":0,"language":{number}}}').language == name


@pytest.mark.parametrize("opaque", [-(2**31), 2**31 - 1])
def test_json_numbers_have_32_bits(opaque: int) -> None:
    assert read_json(f'{{"code":0,"opaque":{opaque}}}').opaque == opaque
    with pytest.raises(RemoteProtocolError, match="opaque"):
        read_json(f'{{"code":0,"opaque":{opaque + (1 if opaque > 0 else -1)}}}')


def test_json_duplicates_last_wins() -> None:
    assert read_json('{"code":1,"code":2,"extFields":{"a":"1","a":"2"}}').ext == {"a": "2"}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", "7", '"x"', "{", "{}", '{"code":null}', '{"code":"x"}', '{"code":1.5}', '{"code":2147483648}',
        '{"code":1,"opaque":4294967296}', '{"code":1,"extFields":[]}', '{"code":1,"extFields":"x"}',
        '{"code":1,"remark":[]}',
        '{"code":1,"flag":{}}', '{"code":1}{"code":2}', '{"code":1,"extFields":{"$ref":1}}',
    ],
)  # fmt: skip
def test_json_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="header"):
        read_json(text)


@pytest.mark.parametrize("opening", ["[", '{"a":', "{a:"])
@pytest.mark.parametrize("start", ["", '{"code":1,"x":', '{"code":1,"extFields":{"a":'])
def test_json_bombs_are_refused(opening: str, start: str) -> None:
    with pytest.raises(RemoteProtocolError):
        read_json(start + opening * 1_000_000)


def test_json_that_is_both_long_and_loose_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="not standard JSON"):
        read_json("{code:1,extFields:{" + "a:1," * 100_000 + "}}")


def test_json_that_is_long_and_standard_is_taken() -> None:
    ids = "7F000001000051AF000000000001617A," * 20_000
    assert read_json('{"code":0,"extFields":{"msgId":"' + ids + '"}}').ext == {"msgId": ids}


def test_json_written_as_java_does() -> None:
    header = encode_header(Command(310, {"i": "KEYS\x01k\x02", "t": "ü東"}, opaque=3, flag=1, remark="no\n"))
    assert b"KEYS\\u0001k\\u0002" in header
    assert "ü東".encode() in header
    assert json.loads(header) == {
        "code": 310, "extFields": {"i": "KEYS\x01k\x02", "t": "ü東"}, "flag": 1, "language": "PYTHON", "opaque": 3,
        "remark": "no\n", "version": 493, "serializeTypeCurrentRPC": "JSON",
    }  # fmt: skip


def test_json_leaves_null_members_out() -> None:
    header = json.loads(encode_header(Command(34)))
    assert "remark" not in header
    assert "extFields" not in header


def test_binary_members() -> None:
    command = read_binary(binary((b"a", b"x"), (b"b", "ü".encode()), remark=b"why", language=9, version=407))
    assert (command.code, command.ext, command.language, command.remark) == (310, {"a": "x", "b": "ü"}, "GO", "why")
    assert (command.opaque, command.version, command.encoding) == (5, 407, ROCKETMQ)


def test_binary_duplicates_last_wins_and_empty_entries_do_not_exist() -> None:
    command = read_binary(binary((b"a", b"1"), (b"a", b"2"), (b"e", b""), (b"", b"x")))
    assert command.ext == {"a": "2"}


def test_binary_without_fields() -> None:
    assert read_binary(binary()).ext == {}


@pytest.mark.parametrize(("number", "name"), [(13, "NODE_JS"), (14, "OTHER"), (255, "OTHER")])
def test_binary_language(number: int, name: str) -> None:
    assert read_binary(binary(language=number)).language == name


def test_binary_bytes_that_are_not_utf8_are_replaced() -> None:
    assert read_binary(binary((b"i", b"caf\xe9"))).ext == {"i": "caf\ufffd"}


def test_binary_codes_are_signed_16_bits() -> None:
    for code in (-0x8000, 0x7FFF):
        assert read_binary(encode_header(Command(code, encoding=ROCKETMQ))).code == code
    with pytest.raises(LocalProtocolError, match="use JSON"):
        encode_header(Command(200050, encoding=ROCKETMQ))


def test_binary_cut_anywhere_is_refused() -> None:
    whole = binary((b"key", b"value"), remark=b"remark")
    assert read_binary(whole).ext == {"key": "value"}
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            read_binary(whole[:size])


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 30])
def test_binary_lengths_that_lie_are_refused(length: int) -> None:
    lie = struct.pack(">i", length)
    fixed = struct.pack(">hBhii", 310, 0, 493, 5, 0)
    for header in (
        fixed + lie + b"abc",
        fixed + bytes(4) + lie + b"abc",
        fixed + bytes(4) + b"\0\0\0\x07\0\x01a" + lie,
    ):
        with pytest.raises(RemoteProtocolError):
            read_binary(header)


def test_a_remark_of_negative_length_is_not_read_as_fields() -> None:
    fixed = struct.pack(">hBhii", 310, 0, 493, 5, 0)
    with pytest.raises(RemoteProtocolError):
        read_binary(fixed + struct.pack(">i", -8) + b"abc")  # eight bytes back stands a zero: no fields


def test_binary_value_may_not_run_over_its_block() -> None:
    whole = binary((b"key", b"value"))
    short_block = whole[:17] + struct.pack(">i", 10) + whole[21:]
    assert len(short_block) == len(whole)
    with pytest.raises(RemoteProtocolError, match="does not fit"):
        read_binary(short_block)


def test_binary_names_too_long_to_write_are_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="does not fit"):
        encode_header(Command(310, {"k" * 40_000: "v"}, encoding=ROCKETMQ))


@pytest.mark.parametrize("encoding", [2, 255])
def test_unknown_encoding(encoding: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"encoding {encoding}"):
        decode_header(encoding, b"{}", b"")
