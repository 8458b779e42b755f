"""What the metrics of a broker say of groups that are behind: how many messages, and how old the first of them are."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import pytest
from tests.support.scraping import Scraped, parse
from tests.unit.broker.parts import MakeParts, Parts, fill, heartbeat, pull_request
from tests.unit.broker.popper import Popper

from rocketline.broker.config import PopConfig
from rocketline.broker.metrics import lag
from rocketline.broker.metrics.collector import BrokerMetrics
from rocketline.protocol.bodies import TopicConfig

NAMES = (
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_ready_messages",
    "rocketmq_consumer_lag_latency_milliseconds",
    "rocketmq_consumer_queueing_latency_milliseconds",
)


@dataclass
class Behind:
    """What is shown of a group and a topic."""

    lag: float = 0
    in_flight: float = 0
    ready: float = 0
    age_ms: float = 0
    queueing_ms: float = 0


async def scraped(parts: Parts) -> dict[str, Scraped]:
    return parse((await BrokerMetrics(parts, None).exporter()._scrape(False)).decode())


async def shown(parts: Parts, group: str = "readers") -> dict[str, Behind]:
    """By topic."""
    families = await scraped(parts)
    topics = {
        sample.labels["topic"] for sample in families[NAMES[0]].samples if sample.labels["consumer_group"] == group
    }
    return {
        topic: Behind(*(families[name].value(consumer_group=group, topic=topic) for name in NAMES)) for topic in topics
    }


def read_to(parts: Parts, *, committed: int | None = None, asked: int | None = None, queue_id: int = 0) -> None:
    """The group has committed, and asked for what is before an offset."""
    if committed is not None:
        parts.offsets.commit("test", "readers", "orders", queue_id, committed)
    if asked is not None:
        parts.offsets.note_pulled("readers", "orders", queue_id, asked)


@pytest.fixture
async def away(make_parts: MakeParts) -> Parts:
    """Ten messages in one queue, stored a second after each other; the last is a second old."""
    parts = make_parts()
    parts.put_topic("orders", 2)
    fill(parts, 10)
    return parts


@pytest.fixture
async def parts(away: Parts) -> Parts:
    """And a member of the group."""
    away.peer().ask(heartbeat())
    return away


async def test_messages_in_hand_and_messages_not_asked_for(parts: Parts) -> None:
    read_to(parts, committed=3, asked=7)
    assert await shown(parts) == {"orders": Behind(7, 4, 3, 7000, 3000)}


async def test_a_group_that_is_at_the_end(parts: Parts) -> None:
    read_to(parts, committed=10, asked=10)
    assert await shown(parts) == {"orders": Behind()}


async def test_messages_that_are_all_in_hand_were_asked_for(parts: Parts) -> None:
    read_to(parts, committed=0, asked=10)
    assert await shown(parts) == {"orders": Behind(10, 10, 0, 10_000, 0)}


async def test_a_group_that_committed_and_did_not_pull_since(parts: Parts) -> None:
    read_to(parts, committed=4)
    assert await shown(parts) == {"orders": Behind(6, 0, 6, 6000, 6000)}


async def test_a_group_that_was_set_back_has_in_hand_what_it_had(parts: Parts) -> None:
    read_to(parts, committed=9, asked=2)
    assert await shown(parts) == {"orders": Behind(1, 0, 1, 1000, 1000)}


async def test_a_group_that_pulled_and_never_committed(parts: Parts) -> None:
    read_to(parts, asked=8)
    assert await shown(parts) == {"orders": Behind(2, 0, 2, 2000, 2000)}


async def test_a_group_that_never_read_is_not_behind(parts: Parts) -> None:
    assert await shown(parts) == {"orders": Behind()}


async def test_queues_are_added_up_and_the_oldest_message_counts(parts: Parts) -> None:
    fill(parts, 5, queue_id=1)
    read_to(parts, committed=8, asked=9)
    read_to(parts, committed=0, asked=3, queue_id=1)
    assert await shown(parts) == {"orders": Behind(2 + 5, 1 + 3, 1 + 2, 7000, 6000)}
    read_to(parts, committed=10, asked=10)
    assert await shown(parts) == {"orders": Behind(5, 3, 2, 5000, 2000)}


async def test_what_was_removed_counts_and_has_no_age(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    read_to(parts, committed=2, asked=2)
    monkeypatch.setattr(parts.store, "min_offset", lambda topic, queue_id: 6)
    assert await shown(parts) == {"orders": Behind(8, 0, 8, 4000, 4000)}


async def test_a_group_that_is_online_is_behind_in_what_it_subscribes_to(away: Parts) -> None:
    parts, member = away, away.peer()
    member.ask(heartbeat())
    for topic in ("others", "gone"):
        parts.put_topic(topic, 1)
        fill(parts, 2, topic=topic)
        parts.offsets.commit("test", "readers", topic, 0, 1)
    read_to(parts, committed=10, asked=10)
    assert await shown(parts) == {"orders": Behind()}
    parts.topics.remove("gone")
    await member.close()
    assert await shown(parts) == {"orders": Behind(), "others": Behind(1, 0, 1, 3000, 3000)}, (
        "away: in all it ever read"
    )


async def test_retries_of_a_group_that_pulls(parts: Parts) -> None:
    retries = "%RETRY%readers"
    parts.put_topic(retries, 1)
    fill(parts, 3, topic=retries)
    assert await shown(parts) == {"orders": Behind()}, "it never read any"
    answer = parts.peer().ask(pull_request(retries))
    assert answer.code == 0
    parts.offsets.commit("test", "readers", retries, 0, 1)
    assert await shown(parts) == {"orders": Behind(), retries: Behind(2, 2, 0, 2000, 0)}
    family = (await scraped(parts))[NAMES[0]]
    assert {sample.labels["topic"]: sample.labels["is_retry"] for sample in family.samples} == {
        "orders": "false",
        retries: "true",
    }


async def test_a_group_that_pops(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig())
    parts.put_topic("orders", 1)
    fill(parts, 10)
    beat = heartbeat()
    beat.body = beat.body.replace(b"CONSUME_PASSIVELY", b"CONSUME_POP")
    parts.peer().ask(beat)
    popper = Popper(parts)
    taken = popper.pop(4, init_mode=0)
    assert [one.message.queue_offset for one in taken] == [0, 1, 2, 3]
    assert (await shown(parts))["orders"] == Behind(10, 4, 6, 10_000, 6000)
    popper.ack_all(taken[:3])
    assert (await shown(parts))["orders"] == Behind(7, 1, 6, 7000, 6000)


async def test_a_scrape_covers_so_many_queues_and_says_how_many_groups_it_left_out(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.topics.put([TopicConfig("wide", 3, 4)])
    parts.peer().ask(heartbeat("client-2", "others", {"wide": "*"}))
    for queues, left_out in ((6, 0), (5, 1), (4, 1), (3, 1), (1, 2)):
        monkeypatch.setattr(lag, "MAX_QUEUES", queues)
        assert (await scraped(parts))["rocketline_lag_left_out"].value() == left_out, queues


async def test_ages_that_were_not_read_are_not_shown_as_old(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    read_to(parts, committed=3, asked=7)
    monkeypatch.setattr(lag, "MAX_AGES", 1)
    assert astuple((await shown(parts))["orders"]) == (7, 4, 3, 7000, 0)
    monkeypatch.setattr(lag, "MAX_AGES", 0)
    assert astuple((await shown(parts))["orders"]) == (7, 4, 3, 0, 0)
