"""Who is connected: members come, go, expire and replace what they subscribe to; the others are told."""

from __future__ import annotations

import pytest
from tests.unit.broker.parts import Peer

from rocketline.broker.registries import ClientInfo, ConsumerRegistry, ProducerRegistry
from rocketline.clock import ManualClock
from rocketline.protocol.bodies import ConsumerData, SubscriptionData
from rocketline.protocol.codes import RequestCode
from rocketline.transport import Router

GROUP = "readers"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry(clock: ManualClock) -> ConsumerRegistry:
    return ConsumerRegistry(clock, 120.0)


def new_peer() -> Peer:
    return Peer(Router())


def info(clock: ManualClock, client_id: str) -> ClientInfo:
    return ClientInfo(client_id, "PYTHON", 493, clock.monotonic())


def data(*topics: str, version: int = 1, model: str = "CLUSTERING", expression: str = "*") -> ConsumerData:
    subscriptions = [SubscriptionData(topic, expression, sub_version=version) for topic in topics]
    return ConsumerData(GROUP, message_model=model, subscription_data_set=subscriptions)


def notices(peer: Peer) -> list[str]:
    """Groups a member was told about."""
    told = peer.received()
    assert all(notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for notice in told)
    assert all(notice.is_oneway and not notice.is_response for notice in told)
    return [(notice.ext or {})["consumerGroup"] for notice in told]


async def test_a_new_member_is_announced_to_all(registry: ConsumerRegistry, clock: ManualClock) -> None:
    first, second = new_peer(), new_peer()
    assert registry.heartbeat(first.channel, info(clock, "c1"), data("orders"))
    assert notices(first) == [GROUP]
    assert registry.heartbeat(second.channel, info(clock, "c2"), data("orders"))
    assert (notices(first), notices(second)) == ([GROUP], [GROUP])
    group = registry.get(GROUP)
    assert group is not None
    assert group.client_ids == ["c1", "c2"]


async def test_a_heartbeat_without_news_tells_nobody(registry: ConsumerRegistry, clock: ManualClock) -> None:
    peer = new_peer()
    registry.heartbeat(peer.channel, info(clock, "c1"), data("orders"))
    notices(peer)
    assert not registry.heartbeat(peer.channel, info(clock, "c1"), data("orders", version=2))
    assert notices(peer) == []


async def test_another_client_on_the_same_connection_is_news(registry: ConsumerRegistry, clock: ManualClock) -> None:
    peer = new_peer()
    registry.heartbeat(peer.channel, info(clock, "c1"), data("orders"))
    assert registry.heartbeat(peer.channel, info(clock, "c2"), data("orders"))
    group = registry.get(GROUP)
    assert group is not None
    assert group.client_ids == ["c2"]


async def test_a_heartbeat_replaces_the_topics_of_the_group(registry: ConsumerRegistry, clock: ManualClock) -> None:
    peer, other = new_peer(), new_peer()
    registry.heartbeat(peer.channel, info(clock, "c1"), data("orders", "bills"))
    registry.heartbeat(other.channel, info(clock, "c2"), data("orders", "bills"))
    notices(peer), notices(other)
    assert registry.heartbeat(other.channel, info(clock, "c2"), data("bills", "refunds"))
    group = registry.get(GROUP)
    assert group is not None
    assert group.subscriptions.keys() == {"bills", "refunds"}
    assert (notices(peer), notices(other)) == ([GROUP], [GROUP])


async def test_only_a_newer_version_replaces_an_expression(registry: ConsumerRegistry, clock: ManualClock) -> None:
    peer = new_peer()
    for version, expression, kept in ((5, "a", "a"), (5, "b", "a"), (4, "c", "a"), (6, "d", "d")):
        registry.heartbeat(peer.channel, info(clock, "c1"), data("orders", version=version, expression=expression))
        group = registry.get(GROUP)
        assert group is not None
        assert group.subscriptions["orders"].sub_string == kept


async def test_the_last_heartbeat_says_how_the_group_consumes(registry: ConsumerRegistry, clock: ManualClock) -> None:
    peer = new_peer()
    registry.heartbeat(peer.channel, info(clock, "c1"), data("orders"))
    beat = data("orders", model="BROADCASTING")
    beat.consume_type, beat.consume_from_where = "CONSUME_ACTIVELY", "CONSUME_FROM_TIMESTAMP"
    registry.heartbeat(peer.channel, info(clock, "c1"), beat)
    group = registry.get(GROUP)
    assert group is not None
    assert (group.message_model, group.consume_type) == ("BROADCASTING", "CONSUME_ACTIVELY")
    assert group.consume_from_where == "CONSUME_FROM_TIMESTAMP"


async def test_a_leaver_is_announced_to_those_who_stay(registry: ConsumerRegistry, clock: ManualClock) -> None:
    stays, goes = new_peer(), new_peer()
    registry.heartbeat(stays.channel, info(clock, "c1"), data("orders"))
    registry.heartbeat(goes.channel, info(clock, "c2"), data("orders"))
    notices(stays), notices(goes)
    registry.leave(goes.channel, GROUP, "c2")
    assert (notices(stays), notices(goes)) == ([GROUP], [])
    registry.leave(stays.channel, GROUP)
    assert registry.get(GROUP) is None
    assert list(registry) == []


async def test_only_who_is_there_can_leave(registry: ConsumerRegistry, clock: ManualClock) -> None:
    peer, stranger = new_peer(), new_peer()
    registry.heartbeat(peer.channel, info(clock, "c1"), data("orders"))
    notices(peer)
    registry.leave(stranger.channel, GROUP)
    registry.leave(stranger.channel, "no-such-group")
    registry.leave(peer.channel, GROUP, "somebody-else")
    group = registry.get(GROUP)
    assert group is not None
    assert (group.client_ids, notices(peer)) == (["c1"], [])


async def test_a_closed_connection_leaves_all_its_groups(registry: ConsumerRegistry, clock: ManualClock) -> None:
    peer, other = new_peer(), new_peer()
    for name in ("g1", "g2"):
        beat = data("orders")
        beat.group_name = name
        registry.heartbeat(peer.channel, info(clock, "c1"), beat)
    registry.heartbeat(other.channel, info(clock, "c2"), ConsumerData("g2", subscription_data_set=[]))
    notices(other)
    registry.channel_closed(peer.channel)
    assert registry.get("g1") is None
    assert [group.name for group in registry] == ["g2"]
    assert notices(other) == ["g2"]


async def test_silence_for_two_minutes_ends_a_membership_and_its_connection(
    registry: ConsumerRegistry, clock: ManualClock
) -> None:
    silent, alive = new_peer(), new_peer()
    registry.heartbeat(silent.channel, info(clock, "silent"), data("orders"))
    clock.advance(60)
    registry.heartbeat(alive.channel, info(clock, "alive"), data("orders"))
    notices(alive)
    clock.advance(60)
    registry.drop_expired()
    assert (silent.channel.is_open, notices(alive)) == (True, [])
    clock.advance(0.5)
    registry.drop_expired()
    assert (silent.channel.is_open, alive.channel.is_open) == (False, True)
    group = registry.get(GROUP)
    assert group is not None
    assert (group.client_ids, notices(alive)) == (["alive"], [GROUP])


async def test_a_wall_clock_that_jumps_expires_nobody(registry: ConsumerRegistry, clock: ManualClock) -> None:
    peer = new_peer()
    registry.heartbeat(peer.channel, info(clock, "c1"), data("orders"))
    clock.jump_wall(86_400)
    registry.drop_expired()
    assert registry.get(GROUP) is not None


async def test_broadcasting_groups_share_nothing_out_and_are_not_told(
    registry: ConsumerRegistry, clock: ManualClock
) -> None:
    first, second = new_peer(), new_peer()
    registry.heartbeat(first.channel, info(clock, "c1"), data("orders", model="BROADCASTING"))
    registry.heartbeat(second.channel, info(clock, "c2"), data("orders", model="BROADCASTING"))
    assert (notices(first), notices(second)) == ([], [])


async def test_an_administrator_can_silence_a_group(clock: ManualClock) -> None:
    registry = ConsumerRegistry(clock, 120.0, lambda group: group != GROUP)
    peer = new_peer()
    registry.heartbeat(peer.channel, info(clock, "c1"), data("orders"))
    assert notices(peer) == []


async def test_a_member_whose_connection_is_closing_does_not_stop_the_others(
    registry: ConsumerRegistry, clock: ManualClock
) -> None:
    dying, alive = new_peer(), new_peer()
    registry.heartbeat(dying.channel, info(clock, "c1"), data("orders"))
    notices(dying)
    dying.transport.closing = True
    registry.heartbeat(alive.channel, info(clock, "c2"), data("orders"))
    assert (notices(dying), notices(alive)) == ([], [GROUP])


async def test_producers_come_and_go(clock: ManualClock) -> None:
    registry = ProducerRegistry(clock, 120.0)
    first, second = new_peer(), new_peer()
    registry.heartbeat(first.channel, info(clock, "p1"), "shop")
    registry.heartbeat(second.channel, info(clock, "p2"), "shop")
    registry.heartbeat(second.channel, info(clock, "p2"), "bank")
    assert [member.client_id for member in registry.members("shop").values()] == ["p1", "p2"]
    registry.leave(first.channel, "shop")
    registry.leave(first.channel, "shop")
    registry.leave(first.channel, "bank")
    assert list(registry.members("shop")) == [second.channel]
    registry.channel_closed(second.channel)
    assert (registry.members("shop"), registry.members("bank")) == ({}, {})


async def test_silent_producers_are_dropped(clock: ManualClock) -> None:
    registry = ProducerRegistry(clock, 120.0)
    silent, alive = new_peer(), new_peer()
    registry.heartbeat(silent.channel, info(clock, "p1"), "shop")
    clock.advance(121)
    registry.heartbeat(alive.channel, info(clock, "p2"), "shop")
    registry.drop_expired()
    assert list(registry.members("shop")) == [alive.channel]
