"""Our reader of `.proto` files."""

from __future__ import annotations

import pytest

from rocketline.grpc.proto_text import ProtoSyntaxError, parse_proto
from rocketline.grpc.schema import Schema

TEXT = """
// A comment.
syntax = "proto3";
package a.b;
enum Colour { RED = 0; BLUE = 7; }
message Outer {
  enum Kind { NONE = 0; }
  optional string name = 1;
  repeated Inner inner = 2;
  map<string, int64> counts = 3;
  oneof choice { Colour colour = 4; Kind kind = 5; }
  bytes raw = 6;
}
message Inner { a.b.Outer outer = 1; double number = 2; }
service Talk { rpc Say(Inner) returns (stream Outer); }
"""


def test_messages_work() -> None:
    schema = Schema()
    schema.load("a.proto", TEXT)
    outer = schema.message("a.b.Outer")
    inner = schema.message("a.b.Inner")
    made = outer(name="x", inner=[inner(number=1.5)], counts={"k": 3}, colour=7, raw=b"\xff")
    again = outer.FromString(made.SerializeToString())
    assert again == made
    assert again.WhichOneof("choice") == "colour"
    assert again.HasField("name")
    assert not outer().HasField("name")
    method = schema.methods("a.b.Talk")["Say"]
    assert (method.path, method.streams_requests, method.streams_responses) == ("/a.b.Talk/Say", False, True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('syntax = "proto2";', "proto3"),
        ('syntax = "proto3"; message A { Nothing x = 1; }', "no type Nothing"),
        ('syntax = "proto3"; message A { string x = y; }', "number"),
        ('syntax = "proto3"; extend A { }', "not expected"),
        ('syntax = "proto3"; message A { string x = 1', "expected"),
        ('syntax = "proto3"; ?', "not expected"),
    ],
)
def test_what_is_not_in_the_subset_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(ProtoSyntaxError, match=problem):
        parse_proto("a.proto", text, {})


def test_two_pools_do_not_meet() -> None:
    for _ in range(2):
        Schema().load("a.proto", TEXT)
