"""Recall handles, judged by those Apache's broker gave out."""

from __future__ import annotations

import base64

import pytest

from rocketline.errors import ProtocolError
from rocketline.protocol.recall import RecallHandle

OF_APACHE = "djEgRl90aW1lciBicm9rZXItZyAxNzk0NzMzOTM3MDAxIEMwMDAwMjAyNDc2OTRFMEUyRjJBNEExMkE2MzEwMDFC"


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def test_a_handle_of_apache_is_read_and_written() -> None:
    handle = RecallHandle.decode(OF_APACHE)
    assert handle == ("F_timer", "broker-g", 1_794_733_937_001, "C000020247694E0E2F2A4A12A631001B")
    assert handle.encode() == OF_APACHE


def test_padding_may_be_missing() -> None:
    handle = RecallHandle("orders", "broker-a", 1, "U")
    assert RecallHandle.decode(handle.encode().rstrip("=")) == handle


@pytest.mark.parametrize(
    "handle",
    ["", "!", "a", "====", "djEg", "\u00fc", encoded("v1 t b 1"), encoded("v2 t b 1 u"), encoded("\u00fc")[:-2] + "_"],
)
def test_what_is_no_handle_is_refused(handle: str) -> None:
    with pytest.raises(ProtocolError, match="recall handle is invalid"):
        RecallHandle.decode(handle)


@pytest.mark.parametrize("time", ["soon", "-5", "1e3", "9" * 30, "\u0665"])
def test_a_time_that_is_no_number_is_one_nobody_accepts(time: str) -> None:
    assert RecallHandle.decode(encoded(f"v1 t b {time} u")).deliver_ms == -1
