"""Half messages that a broker has stored again."""

from __future__ import annotations

from rocketline.admin.transactions import OpenHalf, once_each
from rocketline.message import LogOffset, MessageView, QueueOffset
from rocketline.protocol.transactions import HALF_TOPIC


def half(name: str, offset: int, born_ms: int, checks: int) -> OpenHalf:
    message = MessageView(
        HALF_TOPIC, b"", {"UNIQ_KEY": name}, 0, QueueOffset(offset), LogOffset(0), born_ms, "", 0, "", broker_name="b"
    )
    return OpenHalf(message, "paid", "banks", 0, checks, "b")


def test_a_half_message_that_was_checked_is_shown_once() -> None:
    found = once_each([half("one", 0, 5, 1), half("two", 1, 6, 0), half("one", 2, 5, 2)])
    assert [(item.message.message_id, item.checks) for item in found] == [("one", 2), ("two", 0)]


def test_two_attempts_of_a_send_are_two() -> None:
    assert len(once_each([half("one", 0, 5, 0), half("one", 1, 9, 0)])) == 2
