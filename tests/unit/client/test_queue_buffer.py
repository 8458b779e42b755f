from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketline.client.consumer.push.pull_loop import PullSettings
from rocketline.client.consumer.push.queue_buffer import QueueBuffer
from rocketline.errors import ConfigError
from rocketline.message import LogOffset, MessageView, QueueOffset

LIMITS = PullSettings().limits(1)


def message(offset: int, body: bytes = b"x") -> MessageView:
    return MessageView("T", body, {}, 0, QueueOffset(offset), LogOffset(0), 0, "", 0, "")


def filled(*offsets: int) -> QueueBuffer:
    buffer = QueueBuffer()
    buffer.add(message(offset) for offset in offsets)
    return buffer


def test_progress_stops_at_the_lowest_unfinished_message() -> None:
    buffer = filled(*range(10))
    assert buffer.remove([message(offset) for offset in range(1, 10)]) == 0
    assert buffer.remove([message(0)]) == 10


def test_finishing_in_an_empty_buffer_says_nothing() -> None:
    buffer = filled(3)
    buffer.clear()
    assert buffer.remove([message(3)]) is None


def test_finishing_twice_changes_nothing() -> None:
    buffer = filled(0, 1)
    assert buffer.remove([message(0)]) == 1
    assert buffer.remove([message(0)]) == 1
    assert (len(buffer), buffer.body_bytes) == (1, 1)


def test_offsets_may_have_gaps() -> None:
    buffer = filled(5, 9, 20)
    assert (buffer.min_offset, buffer.max_offset) == (5, 20)
    assert buffer.remove([message(5)]) == 9
    assert buffer.remove([message(9), message(20)]) == 21
    assert (buffer.min_offset, buffer.max_offset) == (None, None)


def test_what_was_here_before_is_not_taken_again() -> None:
    buffer = filled(4, 5)
    assert [added.queue_offset for added in buffer.add([message(4), message(5), message(6)])] == [6]
    assert len(buffer) == 3


@pytest.mark.parametrize(
    ("count", "limit", "full"), [(1000, 1000, False), (1001, 1000, True), (1, 1, False), (2, 1, True)]
)
def test_the_message_limit_is_passed_strictly(count: int, limit: int, full: bool) -> None:
    buffer = filled(*range(count))
    assert (buffer.over(replace(LIMITS, max_messages=limit)) is not None) is full


def test_the_size_limit_counts_whole_mebibytes() -> None:
    buffer = QueueBuffer()
    limits = replace(LIMITS, max_mib=1)
    buffer.add([message(0, bytes(2 * 1024 * 1024 - 1))])
    assert buffer.over(limits) is None
    buffer.add([message(1)])
    assert "2 MiB" in (buffer.over(limits) or "")


def test_the_span_limit_holds_back_what_runs_ahead_of_a_stuck_message() -> None:
    buffer = filled(0, 2000)
    assert buffer.over(LIMITS) is None
    buffer.add([message(2001)])
    assert "2001 offsets" in (buffer.over(LIMITS) or "")
    buffer.remove([message(2000), message(2001)])
    assert "2001 offsets" in (buffer.over(LIMITS) or "")
    buffer.remove([message(0)])
    assert buffer.over(LIMITS) is None


def test_limits_are_checked() -> None:
    with pytest.raises(ConfigError, match="max_span=0"):
        replace(LIMITS, max_span=0)


@settings(max_examples=100)
@given(st.data())
def test_like_a_set_of_unfinished_offsets(data: st.DataObject) -> None:
    buffer, unfinished, following = QueueBuffer(), set[int](), 0
    for _ in range(data.draw(st.integers(0, 30))):
        if unfinished and data.draw(st.booleans()):
            done = data.draw(st.sets(st.sampled_from(sorted(unfinished)), min_size=1))
            unfinished -= done
            assert buffer.remove([message(offset) for offset in done]) == min(unfinished, default=following)
        else:
            step, count = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
            offsets = range(following, following + step * count, step)
            buffer.add(message(offset) for offset in offsets)
            unfinished |= set(offsets)
            following = offsets[-1] + 1
        assert len(buffer) == buffer.body_bytes == len(unfinished)
        assert [held.queue_offset for held in buffer.oldest(3)] == sorted(unfinished)[:3]
