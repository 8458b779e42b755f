from __future__ import annotations

import json

import pytest

from rocketline.errors import ProtocolError
from rocketline.protocol.fastjson import FastJsonError, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        ("{-1:2,1.5:3}", {"-1": 2, "1.5": 3}),
        ('{{"queueId":1,"topic":"T","brokerName":"b"}:5}', {'{"brokerName":"b","queueId":1,"topic":"T"}': 5}),
        ("{{b:1,a:{d:[1 , 2],c:null}}:1,{}:2}", {'{"a":{"c":null,"d":[1,2]},"b":1}': 1, "{}": 2}),
        ("{[1,'x']:3}", {'[1,"x"]': 3}),
        ("{'a':'it\"s'}", {"a": 'it"s'}),
        ("{name_1:1,$x:2,ключ:3,null:4,true:5}", {"name_1": 1, "$x": 2, "ключ": 3, "null": 4, "true": 5}),
        ("[1,2,]", [1, 2]),
        ("{a:1,}", {"a": 1}),
        ("[,,1,,2,,]", [1, 2]),
        ("{,a:1,,b:2,}", {"a": 1, "b": 2}),
        ("/* one */ [1, // two\n 2 /* * / */ ] // three", [1, 2]),
        ("[/**/]", []),
        ("[1L,2S,3B,1.5F,2D,1.,-0,007]", [1, 2, 3, 1.5, 2.0, 1.0, 0, 7]),
        ("[12345678901234567890123,]", [12345678901234567890123]),
        ("[true,false,null,]", [True, False, None]),
        ("{a:1,a:2}", {"a": 2}),
        ("{'@type':'java.lang.Thread',}", {"@type": "java.lang.Thread"}),
        ("['$ref']", ["$ref"]),
        ("\ufeff{a:1}", {"a": 1}),
        ('{"a":1}\0\0', {"a": 1}),
        ("'x'", "x"),
        (" 7 ", 7),
        ('{"a" : {0:{1:[{2:3}]}} }', {"a": {"0": {"1": [{"2": 3}]}}}),
    ],
)
def test_fastjson_forms(text: str, value: object) -> None:
    assert parse(text) == value
    assert parse(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"'\b\f\n\r\t\v\\\/\'\"'", "\b\f\n\r\t\v\\/'\""),
        (r"'\x41\u0042\0\7'", "AB\0\7"),
        (r"'\ud83d\ude00'", "😀"),
        (r"'\ud83dx\ude00'", "\ufffdx\ufffd"),
        (r'"\ud83d"', "\ufffd"),
        ("'raw\x01\x00\n\u2028'", "raw\x01\x00\n\u2028"),
    ],
)
def test_strings(text: str, value: str) -> None:
    assert parse(text) == value
    value.encode()


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert parse(b'{"a":"\xff"}') == {"a": "\ufffd"}


def test_standard_json_is_read_like_json() -> None:
    text = '{"a":[1,-2.5e3,"\\u00fc\\n",null,true,{"b":{}}],"a b":""}'
    assert parse(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0), ("  ", 2), ("{", 1), ("[1", 2), ("{a", 2), ("{a:", 3), ("{a:1", 4), ("[1 2]", 3), ("{a 1}", 3),
        ("{a:1 b:2}", 5), ("[1}", 2), ("{a:1]", 4), ("{]", 1), ("[}", 1), ("]", 0), (",", 0), (":", 0), ("{:1}", 1),
        ("{a:,}", 3), ("{a::1}", 3), ("[1]x", 3), ("[1]]", 3), ("{}{}", 2), ("'abc", 0), ('["abc]', 1), ("/* x", 0),
        ("[1,/]", 3), ("[undefined]", 1), ("[NaN]", 1), ("[-Infinity]", 1), ("[1e999]", 1), ("[+1]", 1), ("[.5]", 1),
        ("[--1]", 1), ("[" + "9" * 5000 + "]", 1), ("{a:1;}", 4), ("[1]\0x", 3), ("{{a:1}}", 6), ("{{a:1},b:2}", 6),
        ("{1 2:3}", 3),
    ],
)  # fmt: skip
def test_errors_name_the_position(text: str, position: int) -> None:
    with pytest.raises(FastJsonError, match=f"position {position}\\b"):
        parse(text)


@pytest.mark.parametrize("text", [r"'\q'", r"'\u12'", r"'\x4'", r"'\9'"])
def test_unknown_escapes(text: str) -> None:
    with pytest.raises(FastJsonError, match="unknown escape"):
        parse(text)


@pytest.mark.parametrize("text", ['{"$ref":"$"}', '{"a":[{"$ref":".."}]}', "{$ref:'@'}", '{{"$ref":"$"}:1}'])
def test_references_are_refused(text: str) -> None:
    with pytest.raises(FastJsonError, match="references are not supported"):
        parse(text)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ("{a:", "}"), ("{0:[", "]}")])
def test_depth_is_capped_alike_on_both_roads(opening: str, closing: str) -> None:
    levels = len(opening.replace('"a":', "").replace("a:", "").replace("0:", ""))
    deep = opening * (64 // levels) + "1" + closing * (64 // levels)
    assert parse(deep)
    with pytest.raises(FastJsonError, match="deeper than 64"):
        parse("[" + deep + "]")


def test_empty_containers_count_as_a_level() -> None:
    assert parse("[" * 64 + "]" * 64)
    with pytest.raises(FastJsonError, match="deeper"):
        parse("[" * 65 + "]" * 65)
    with pytest.raises(FastJsonError, match="deeper"):
        parse("[" * 64 + "{,}" + "]" * 64)


@pytest.mark.parametrize("text", ["[" * 10_000_000, '{"a":' * 2_000_000, "{" * 1_000_000, "[{a:" * 1_000_000])
def test_bombs_are_refused(text: str) -> None:
    with pytest.raises(FastJsonError):
        parse(text)


def test_keys_inside_keys_are_refused() -> None:
    # Written out, every such level doubles the backslashes of the one below.
    with pytest.raises(FastJsonError, match="inside another such key"):
        parse("{{{a:1}:1}:1}")
    with pytest.raises(FastJsonError, match="inside another such key"):
        parse("{{a:{b:{{c:1}:1}}}:1}")
    assert parse("{{a:1}:{{b:1}:2}}") == {'{"a":1}': {'{"b":1}': 2}}


def test_long_text_must_be_standard() -> None:
    numbers = "1," * 3_000_000
    assert len(parse("[" + numbers + "1]")) == 3_000_001
    with pytest.raises(FastJsonError, match="not standard JSON"):
        parse("[" + numbers + "]")
    assert len(parse("[1,1,]", max_loose_chars=6)) == 2
    with pytest.raises(FastJsonError):
        parse("[1,1,]", max_loose_chars=5)


def test_errors_belong_to_the_tree() -> None:
    assert issubclass(FastJsonError, ProtocolError)
    assert issubclass(FastJsonError, ValueError)
