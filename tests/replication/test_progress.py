"""R6: the rule by which repeats after a switch are judged can be broken in both directions."""

from __future__ import annotations

from tests.replication.load import REPEATS_S, Progress

QUEUE = ("orders", 1)


def progress() -> Progress:
    """Ten messages a second, a commit each second."""
    found = Progress(REPEATS_S)
    for second in range(20):
        found.asks(QUEUE, 10 * second)
        found.committed(QUEUE, 10 * second, float(second))
    return found


def test_a_group_goes_on_where_it_was_or_a_little_before() -> None:
    assert not list(progress().goes_on(QUEUE, 190))
    assert not list(progress().goes_on(QUEUE, 10 * (19 - int(REPEATS_S))))


def test_a_group_is_never_past_what_it_committed_itself() -> None:
    assert list(progress().goes_on(QUEUE, 191)) == ["R6: the group is at 191 of ('orders', 1), and has committed 190"]


def test_a_group_does_not_begin_anew() -> None:
    assert [text[:36] for text in progress().goes_on(QUEUE, 0)] == ["R6: the group is at 0 of ('orders', "]


def test_what_one_switch_lost_the_next_one_need_not_have() -> None:
    found = progress()
    found.gone_on(QUEUE, 150)
    found.committed(QUEUE, 160, 30.0)
    assert not list(found.goes_on(QUEUE, 150))
    assert list(found.goes_on(QUEUE, 140))


def test_a_queue_of_which_nothing_was_committed_begins_where_it_likes() -> None:
    assert not list(Progress().goes_on(QUEUE, 0))
