"""What stays of a pull when its three numbers are cut out, and what only looks like a number of a pull."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from rocketline import _impl
from rocketline.protocol.command import JSON, ROCKETMQ, Command
from rocketline.protocol.connection import MAX_FRAME_BYTES, MAX_HEADER_BYTES, frame_bytes
from rocketline.protocol.known_pulls import take_pulls

TakePulls = Callable[..., Any]
LIMITS = MAX_FRAME_BYTES, MAX_HEADER_BYTES
EXT = {"consumerGroup": "g", "queueOffset": "7", "topic": "t", "commitOffset": "0", "queueId": "1"}


@pytest.fixture(params=_impl.TWINS.get("take_pulls", (take_pulls,)))
def take(request: pytest.FixtureRequest) -> Any:
    return request.param


def pull(queue_offset: int, commit_offset: int = 0, opaque: int = 1, encoding: int = JSON, **others: str) -> bytes:
    ext = EXT | {"queueOffset": str(queue_offset), "commitOffset": str(commit_offset)} | others
    return frame_bytes(Command(11, ext, opaque=opaque, encoding=encoding))


def framed(header: bytes, encoding: int = JSON) -> bytes:
    return struct.pack(">II", 4 + len(header), encoding << 24 | len(header)) + header


@pytest.mark.parametrize("encoding", [JSON, ROCKETMQ])
def test_a_pull_is_found_again_with_other_numbers(take: TakePulls, encoding: int) -> None:
    _, key = take(pull(7, encoding=encoding), *LIMITS, {})
    numbers = [(0, 0, 0), (10**17, -1, 2**31 - 1), (5, 123456, 77)]
    data = b"".join(pull(*own, encoding=encoding) for own in numbers)
    found, unknown = take(data, *LIMITS, {key: "plan"})
    assert [row[:4] for row in found] == [("plan", opaque, at, done) for at, done, opaque in numbers]
    assert (found[-1][4], unknown) == (len(data), None)


@pytest.mark.parametrize("encoding", [JSON, ROCKETMQ])
def test_any_other_difference_is_another_pull(take: TakePulls, encoding: int) -> None:
    keys = {
        take(pull(7, encoding=encoding, **others), *LIMITS, {})[1]
        for others in ({}, {"topic": "u"}, {"queueId": "2"}, {"x": "7"}, {"consumerGroup": ""})
    }
    assert None not in keys
    assert len(keys) == 5


def test_the_order_of_fields_does_not_matter_but_is_kept_in_mind(take: TakePulls) -> None:
    texts = [b'"opaque":3', b'"extFields":{"commitOffset":"2","queueOffset":"1"}', b'"code":11', b'"flag":0']
    one, other = framed(b"{" + b",".join(texts) + b"}"), framed(b"{" + b",".join(texts[1:] + texts[:1]) + b"}")
    _, key = take(one, *LIMITS, {})
    assert take(one, *LIMITS, {key: "plan"})[0] == [("plan", 3, 1, 2, len(one))]
    assert take(other, *LIMITS, {key: "plan"})[0] == []


@pytest.mark.parametrize("is_opaque_first", [False, True])
@pytest.mark.parametrize("names", [("queueOffset", "commitOffset"), ("commitOffset", "queueOffset")])
def test_numbers_are_told_apart_in_any_order(take: TakePulls, names: tuple[str, str], is_opaque_first: bool) -> None:
    def written(numbers: dict[str, int]) -> bytes:
        opaque = b'"opaque":%d' % numbers["opaque"]
        fields = ",".join(f'"{name}":"{numbers[name]}"' for name in names).encode()
        texts = [b'"code":11', b'"extFields":{"topic":"t",%b,"queueId":"1"}' % fields, b'"flag":0']
        return framed(b"{" + b",".join([opaque, *texts] if is_opaque_first else [*texts, opaque]) + b"}")

    _, key = take(written({"opaque": 1, "queueOffset": 2, "commitOffset": 3}), *LIMITS, {})
    data = written({"opaque": -7, "queueOffset": 88, "commitOffset": -1})
    assert take(data, *LIMITS, {key: "plan"}) == ([("plan", -7, 88, -1, len(data))], None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"queueOffset":"7"', b'"queueOffset":"07"'),
        (b'"queueOffset":"7"', b'"queueOffset":"+7"'),
        (b'"queueOffset":"7"', b'"queueOffset":"-0"'),
        (b'"queueOffset":"7"', b'"queueOffset":"7x"'),
        (b'"queueOffset":"7"', b'"queueOffset":"1234567890123456789"'),
        (b'"queueOffset":"7"', b'"queueOffset":"7","queueOffset":"8"'),
        (b'"queueOffset":"7"', b'"queueOffseT":"7"'),
        (b'"queueOffset":"7"', b'"queueOffset":7'),
        (b'"queueOffset":"7"', b'"commitOffset":"7"'),
        (b'"queueOffset":"7"', b'"QueueOffset":"7"'),
        (b'"commitOffset":"0"', b'"otherOffset":"0"'),
        (b'"opaque":1', b'"opaque":2147483648'),
        (b'"opaque":1', b'"opaque":1.5'),
        (b'"opaque":1', b'"opaque":"1"'),
        (b'"opaque":1', b'"opaque":1,"opaque":2'),
    ],
)
def test_what_is_not_written_as_clients_do(take: TakePulls, before: bytes, after: bytes) -> None:
    header = pull(7)[8:]
    assert before in header
    assert take(framed(header.replace(before, after)), *LIMITS, {}) == ([], None)


def test_a_number_that_is_part_of_another_text(take: TakePulls) -> None:
    """The real one is a bare number, which no client writes: what is cut out is not what the request says."""
    header = pull(7)[8:].replace(b'"queueOffset":"7"', b'"queueOffset":7')
    outside = header.replace(b'"extFields"', b'"queueOffset":"7","extFields"')
    assert take(framed(outside), *LIMITS, {}) == ([], None)
    hidden = "\0\x0bqueueOffset\0\0\0\x017"
    binary = pull(7, encoding=ROCKETMQ, consumerGroup=hidden)
    _, key = take(binary, *LIMITS, {})
    found, _ = take(binary.replace(b"\0\0\0\x017\0\0", b"\0\0\0\x018\0\0"), *LIMITS, {key: "plan"})
    assert all(row[2] == 7 for row in found)


@pytest.mark.parametrize("data", [b"", pull(7)[:-1], pull(7)[:7], framed(b"{}"), framed(pull(7)[8:], 2)])
def test_what_is_no_whole_plain_pull(take: TakePulls, data: bytes) -> None:
    assert take(data, *LIMITS, {}) == ([], None)


def test_a_frame_that_is_too_long_is_left_alone(take: TakePulls) -> None:
    data = pull(7)
    assert take(data, len(data) - 1, MAX_HEADER_BYTES, {})[1] is None
    assert take(data, MAX_FRAME_BYTES, len(data) - 9, {})[1] is None
    assert take(data, len(data), len(data) - 8, {})[1] is not None
