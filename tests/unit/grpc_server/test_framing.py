"""Messages inside streams, time limits, and texts of a status."""

from __future__ import annotations

import gzip

import pytest

from rocketline.grpc.framing import MAX_MESSAGE_BYTES, MessageReader, framed, read_timeout
from rocketline.grpc.status import CallFailed, Status, percent_encoded


def test_messages_in_pieces() -> None:
    reader = MessageReader(b"")
    whole = framed(b"one") + framed(b"") + framed(b"three" * 100)
    found = []
    for position in range(len(whole)):
        found += reader.receive(whole[position : position + 1])
    assert found == [b"one", b"", b"three" * 100]
    assert reader.is_empty


def test_how_much_is_missing() -> None:
    reader = MessageReader(b"")
    assert reader.receive(framed(b"x" * 100)[:25]) == []
    assert reader.missing_bytes == 80


def test_gzip() -> None:
    packed = gzip.compress(b"hello" * 100)
    data = b"\x01" + len(packed).to_bytes(4, "big") + packed
    assert MessageReader(b"gzip").receive(data) == [b"hello" * 100]
    with pytest.raises(CallFailed) as failed:
        MessageReader(b"").receive(data)
    assert failed.value.status is Status.INTERNAL


def test_a_message_that_is_too_long_is_refused_before_it_comes() -> None:
    with pytest.raises(CallFailed) as failed:
        MessageReader(b"").receive(b"\0" + (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"))
    assert failed.value.status is Status.RESOURCE_EXHAUSTED


def test_a_message_that_unpacks_to_too_much() -> None:
    packed = gzip.compress(bytes(MAX_MESSAGE_BYTES + 1))
    with pytest.raises(CallFailed) as failed:
        MessageReader(b"gzip").receive(b"\x01" + len(packed).to_bytes(4, "big") + packed)
    assert failed.value.status is Status.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("packed", [b"no gzip", gzip.compress(b"cut off", mtime=0)[:5]])
def test_what_is_no_gzip(packed: bytes) -> None:
    data = b"\x01" + len(packed).to_bytes(4, "big") + packed
    with pytest.raises(CallFailed):
        MessageReader(b"gzip").receive(data)


def test_time_limits() -> None:
    read = [read_timeout(text) for text in (b"1H", b"2M", b"3S", b"4m", b"5u", b"6n")]
    assert read == pytest.approx([3600, 120, 3, 4e-3, 5e-6, 6e-9])
    for text in (b"", b"5", b"S", b"-1S", b"123456789S", b"1x"):
        with pytest.raises(CallFailed):
            read_timeout(text)


def test_texts_of_a_status() -> None:
    assert percent_encoded("a\nb%") == b"a%0Ab%25"
