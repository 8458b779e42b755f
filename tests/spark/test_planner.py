"""Planning without Spark and without brokers: ranges, limits, splits, and queues that come and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketline.message import MessageQueue
from rocketline.spark.live.planner import (
    QueueRange,
    advance,
    backlog,
    clamped,
    joined_ranges,
    limited,
    out_of_range,
    ranges_between,
    split_ranges,
)
from rocketline.spark.offsets import Offsets


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


def offsets(*values: int) -> Offsets:
    return {queue(number): value for number, value in enumerate(values)}


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), min_size=1, max_size=8)


@given(spans, st.none() | st.integers(1, 40), st.none() | st.integers(1, 60))
def test_a_split_reads_every_message_once_and_in_small_enough_pieces(
    sizes: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    start = {queue(number): begin for number, (begin, _) in enumerate(sizes)}
    end = {queue(number): begin + size for number, (begin, size) in enumerate(sizes)}
    ranges = ranges_between(start, end)
    parts = split_ranges(ranges, min_partitions, max_records)
    read = [(part.queue, offset) for part in parts for offset in range(part.start, part.end)]
    assert read == [(part.queue, offset) for part in ranges for offset in range(part.start, part.end)]
    assert all(part.rows > 0 for part in parts)
    assert max_records is None or all(part.rows <= max_records for part in parts)
    rows = sum(part.rows for part in ranges)
    assert len(parts) >= min(min_partitions or 0, rows)


@given(spans, st.integers(1, 300))
def test_a_limit_is_used_up_and_not_exceeded(sizes: list[tuple[int, int]], limit: int) -> None:
    start = {queue(number): begin for number, (begin, _) in enumerate(sizes)}
    end = {queue(number): begin + size for number, (begin, size) in enumerate(sizes)}
    chosen = limited(start, {}, end, limit)
    assert all(start[one] <= chosen[one] <= end[one] for one in end)
    taken = sum(chosen[one] - start[one] for one in end)
    assert taken == min(limit, sum(size for _, size in sizes))


def test_a_limit_is_shared_by_backlog_and_no_queue_is_forgotten() -> None:
    start, end = offsets(0, 0, 0), offsets(900, 100, 2)
    assert limited(start, {}, end, 100) == offsets(89, 10, 1)
    assert limited(start, {}, end, 1)[queue(2)] == 1, "the shortest one first"


def test_what_is_gone_does_not_count_against_a_limit() -> None:
    assert backlog(offsets(0, 5), offsets(80, 0), offsets(100, 5)) == {queue(0): 20}
    assert limited(offsets(0), offsets(80), offsets(100), 10) == offsets(90)


def test_a_stream_goes_on_to_the_end() -> None:
    step = advance(offsets(3, 5), offsets(0, 0), offsets(7, 5))
    assert (step.end, step.losses) == (offsets(7, 5), ())
    assert ranges_between(offsets(3, 5), step.end) == [QueueRange(queue(0), 3, 7)]


def test_a_new_queue_is_written_down_first_and_read_next() -> None:
    start = offsets(3)
    first = advance(start, offsets(0, 0), offsets(3, 50))
    assert (first.end, first.losses) == (offsets(3, 0), ())
    assert ranges_between(start, first.end) == []
    second = advance(first.end, offsets(0, 0), offsets(3, 50))
    assert ranges_between(first.end, second.end) == [QueueRange(queue(1), 0, 50)]


def test_a_new_queue_that_lost_its_head_is_a_loss_but_a_new_topic_is_not() -> None:
    (loss,) = advance(offsets(3), offsets(0, 20), offsets(3, 50)).losses
    assert "T@broker-a:1 is new and begins at 20" in loss
    other = queue(0, "U")
    step = advance(offsets(3), {other: 20}, {**offsets(3), other: 50})
    assert (step.end[other], step.losses) == (20, ())


def test_a_trimmed_head_is_a_loss() -> None:
    step = advance(offsets(10), offsets(25), offsets(40))
    assert step.end == offsets(40)
    assert "begins at 25: messages from 10 on are lost" in step.losses[0]


def test_a_queue_that_is_gone_keeps_its_position() -> None:
    step = advance(offsets(10, 20), {}, {queue(0): 10})
    assert step.end == offsets(10, 20)
    assert "T@broker-a:1 does not exist any more" in step.losses[0]


def test_a_queue_made_again_is_read_from_its_beginning() -> None:
    start = offsets(10)
    step = advance(start, offsets(0), offsets(4))
    assert step.end == offsets(0)
    assert "deleted and created again" in step.losses[0]
    assert ranges_between(start, step.end) == []
    again = advance(step.end, offsets(0), offsets(4))
    assert ranges_between(step.end, again.end) == [QueueRange(queue(0), 0, 4)]


def test_small_neighbours_are_read_by_one_task() -> None:
    sizes = [3, 4, 5, 100, 1, 1, 10, 1]
    ranges = [QueueRange(queue(number), 5, 5 + size) for number, size in enumerate(sizes)]

    def tasks(**limits: int) -> list[list[int]]:
        return [[part.rows for part in task] for task in joined_ranges(ranges, **limits)]

    assert tasks(enough=12) == [[3, 4, 5], [100], [1, 1, 10], [1]]
    assert tasks(enough=12, max_records=7) == [[3, 4], [5], [100], [1, 1], [10], [1]]
    assert tasks() == [sizes]
    assert joined_ranges([]) == []


def test_positions_beyond_either_end_are_told_and_moved() -> None:
    wanted, begins, ends = offsets(5, 50, 99), offsets(10, 10, 10), offsets(90, 90, 90)
    assert out_of_range(wanted, begins, ends) == [
        "T@broker-a:0 has offsets from 10 to 90, not 5",
        "T@broker-a:2 has offsets from 10 to 90, not 99",
    ]
    assert clamped(wanted, begins, ends) == offsets(10, 50, 90)
