"""Families of series and their text."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.scraping import parse

from rocketline.metrics.exposition import exposition, family_text
from rocketline.metrics.families import OTHER, Distribution, Family, Tally, counter, gauge, histogram, in_turns

CONSTANT = (("cluster", "c"), ("node_id", "broker-a"))


async def text_of(*families: Family, openmetrics: bool = False) -> str:
    async def each() -> AsyncIterator[Family]:
        for family in families:
            yield family

    return (await exposition(each(), CONSTANT, openmetrics=openmetrics)).decode()


async def test_a_counter_a_gauge_and_a_histogram() -> None:
    messages = counter("messages_in_total", "Messages.")
    messages.add(3, topic="orders")
    age = gauge("age", "An age.", "milliseconds")
    age.add(1.5)
    took = histogram("took", "Times.", bounds=(1, 10))
    took.add_distribution(Distribution((2, 0, 1), 25.0), code="x")
    assert await text_of(messages, age, took) == (
        "# HELP messages_in_total Messages.\n"
        "# TYPE messages_in_total counter\n"
        'messages_in_total{cluster="c",node_id="broker-a",topic="orders"} 3\n'
        "# HELP age_milliseconds An age.\n"
        "# TYPE age_milliseconds gauge\n"
        'age_milliseconds{cluster="c",node_id="broker-a"} 1.5\n'
        "# HELP took Times.\n"
        "# TYPE took histogram\n"
        'took_bucket{cluster="c",node_id="broker-a",code="x",le="1.0"} 2\n'
        'took_bucket{cluster="c",node_id="broker-a",code="x",le="10.0"} 2\n'
        'took_bucket{cluster="c",node_id="broker-a",code="x",le="+Inf"} 3\n'
        'took_sum{cluster="c",node_id="broker-a",code="x"} 25.0\n'
        'took_count{cluster="c",node_id="broker-a",code="x"} 3\n'
    )


async def test_openmetrics_names_counters_without_their_suffix_and_says_where_it_ends() -> None:
    messages = counter("messages_in_total", "Messages.")
    messages.add(3)
    assert await text_of(messages, openmetrics=True) == (
        "# HELP messages_in Messages.\n"
        "# TYPE messages_in counter\n"
        'messages_in_total{cluster="c",node_id="broker-a"} 3\n'
        "# EOF\n"
    )


async def test_a_family_without_series_is_left_out() -> None:
    assert await text_of(gauge("nothing", "Nothing.")) == ""


@given(st.text(), st.text())
def test_any_label_value_survives(topic: str, help: str) -> None:
    family = gauge("size", help)
    family.add(1, topic=topic)
    text = family_text(family, CONSTANT)
    assert text.count("\n") == 3, "nobody writes lines of his own"
    assert parse(text)["size"].samples[0].labels["topic"] == topic


def test_what_is_over_the_limit_is_added_up() -> None:
    family = counter("messages_total", "Messages.", limit=2)
    for number in range(5):
        family.add(10, topic=f"t{number}", kind="normal")
    family.add(1, topic="t0", kind="normal")
    family.add(7, topic="t9", kind="fifo")
    assert {tuple(dict(labels).values()): value for labels, value in family.samples.items()} == {
        ("t0", "normal"): 11,
        ("t1", "normal"): 10,
        (OTHER, "normal"): 30,
        (OTHER, "fifo"): 7,
    }


def test_of_ages_over_the_limit_the_largest_counts() -> None:
    family = gauge("age", "An age.", limit=1, takes_largest=True)
    for topic, age in (("a", 1), ("b", 5), ("c", 3)):
        family.add(age, topic=topic)
    assert family.samples[("topic", OTHER),] == 5


def test_histograms_over_the_limit_are_added_up() -> None:
    family = histogram("size", "Sizes.", bounds=(1,), limit=1)
    for topic in "abc":
        family.add_distribution(Distribution((1, 2), 9), topic=topic)
    assert family.distributions[("topic", OTHER),] == Distribution((2, 4), 18)


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    tally = Tally((1, 10))
    for value in (0, 1, 2, 10, 11):
        tally.note(value)
    assert tally.distribution == Distribution((2, 2, 1), 24)


async def test_looking_at_many_things_leaves_time_for_others() -> None:
    import asyncio

    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other_work())
    assert [item async for item in in_turns(range(2560))] == list(range(2560))
    task.cancel()
    assert turns == 10


@pytest.mark.parametrize(
    "text",
    ["metric 1\n", "# HELP a .\n# TYPE a gauge\nb 1\n", '# HELP a .\n# TYPE a gauge\na{x="1",x="2"} 1\n',
     "# HELP a .\n# TYPE a gauge\na 1\na 2\n"],
)  # fmt: skip
def test_the_parser_of_the_tests_is_strict(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)
