"""Topics and groups of a group with elections: a failover takes none away that was answered, and brings none back."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.replication.test_roles import GROUP, ask, in_sync, master_and_other, send, start

from rocketline.broker.replication.table_changes import FreshRuns
from rocketline.protocol.bodies import SubscriptionGroupConfig, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import CreateTopicHeader, DeleteTopicHeader
from rocketline.testing.sim import SimWorld, run_world
from rocketline.transport import RemotingClient


def topic_of(name: str) -> dict[str, str]:
    header = CreateTopicHeader(
        topic=name,
        default_topic="TBW102",
        read_queue_nums=3,
        write_queue_nums=3,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    return header.encode()


async def create_group(world: SimWorld, host: str, name: str) -> Command:
    async def work() -> Command:
        client = RemotingClient()
        try:
            body = encode_body(SubscriptionGroupConfig(name))
            command = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
            return await client.call(world.broker_address(host), command, 30.0)
        finally:
            await client.close()

    return await world.inside(world.new_process("operator"), work())


async def failed_over(world: SimWorld, master: str) -> str:
    world.crash(master)
    while not any(broker.parts.roles.is_master for broker in world.brokers.values()):
        await asyncio.sleep(0.01)
    return next(host for host, broker in world.brokers.items() if broker.parts.roles.is_master)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_created_is_there_after_a_failover(seed: int) -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        master, _ = master_and_other(world)
        answers = await asyncio.gather(
            *(ask(world, master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_of(f"t{number}")) for number in range(5)),
            create_group(world, master, "readers"),
        )
        assert {answer.code for answer in answers} == {0}
        parts = world.brokers[await failed_over(world, master)].parts
        assert {name: parts.topics.require(name).write_queue_nums for name in ("t0", "t4")} == {"t0": 3, "t4": 3}
        assert "readers" in parts.groups.table

    run_world(scenario, seed)


def test_a_member_that_has_just_joined_has_the_tables() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        master, other = master_and_other(world)
        world.crash(other)
        await in_sync(world, 1)
        assert (await ask(world, master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_of("meanwhile"))).code == 0
        await world.start_replica(other, GROUP)
        await in_sync(world, 2)
        assert world.brokers[await failed_over(world, master)].parts.topics.get("meanwhile")

    run_world(scenario, 1)


def test_what_a_member_in_sync_does_not_have_is_not_answered_as_done() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        master, other = master_and_other(world)
        world.loop.freeze(world.process_of(other))
        answer = await ask(world, master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_of("orders"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "not all members in sync have it" in (answer.remark or "")
        await in_sync(world, 1)
        assert (await ask(world, master, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_of("orders"))).code == 0
        world.loop.thaw(world.process_of(other))

    run_world(scenario, 2)


def test_a_deleted_topic_does_not_come_back_with_another_master() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        master, other = master_and_other(world)
        await send(world, *[b"x" * 200] * 20, topic="short-lived")
        await send(world, b"kept", topic="orders")
        assert world.brokers[other].parts.store.queue_ids("short-lived")
        deleting = DeleteTopicHeader(topic="short-lived").encode()
        assert (await ask(world, master, RequestCode.DELETE_TOPIC_IN_BROKER, deleting)).code == 0
        parts = world.brokers[await failed_over(world, master)].parts
        assert parts.topics.get("short-lived") is None
        assert not parts.store.queue_ids("short-lived")
        assert parts.topics.get("orders")

    run_world(scenario, 3)


async def consume_three(world: SimWorld, master: str, other: str) -> None:
    """A group has got the first three messages of a queue, and the replica knows that."""
    assert (await create_group(world, master, "readers")).code == 0
    commit = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", "commitOffset": "3"}
    assert (await ask(world, master, RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
    while not world.brokers[other].parts.offsets.of("readers", "orders"):
        await asyncio.sleep(0.1)


def test_a_group_that_is_made_anew_passes_over_nothing_with_another_master() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        master, other = master_and_other(world)
        await send(world, *[b"x"] * 20)
        await consume_three(world, master, other)
        deleting = {"groupName": "readers", "cleanOffset": "true"}
        assert (await ask(world, master, RequestCode.DELETE_SUBSCRIPTIONGROUP, deleting)).code == 0
        assert world.brokers[await failed_over(world, master)].parts.offsets.of("readers", "orders") == {}

    run_world(scenario, 5)


def test_of_a_topic_that_is_made_anew_while_a_member_is_away_nothing_is_lost() -> None:
    """As master that member lists messages of the former topic again, in queues that have no new ones: docs/reliability.md.
    All of the new ones are at their places, and a group passes over none."""

    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2", defaultTopicQueueNums="4")
        master, other = master_and_other(world)
        await send(world, *[b"former"] * 40)
        await consume_three(world, master, other)
        world.crash(other)
        await in_sync(world, 1)
        deleting = DeleteTopicHeader(topic="orders").encode()
        assert (await ask(world, master, RequestCode.DELETE_TOPIC_IN_BROKER, deleting)).code == 0
        await send(world, b"new")
        await world.start_replica(other, GROUP)
        await in_sync(world, 2)
        listed = world.brokers[master].parts.store.queue_ids("orders")
        parts = world.brokers[await failed_over(world, master)].parts
        assert [parts.store.max_offset("orders", queue) for queue in listed] == [1]
        assert parts.offsets.of("readers", "orders") == {}

    run_world(scenario, 6)


def test_only_a_replica_of_the_master_copies_for_it() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        for host in ("r1", "r2"):
            for epoch in (0, 7):
                ext = {"rocketlineCopyTables": str(epoch)}
                answer = await ask(world, host, RequestCode.EXCHANGE_BROKER_HA_INFO, ext)
                assert "does not follow the master" in (answer.remark or "")

    run_world(scenario, 4)


async def test_everybody_gets_a_run_that_began_after_he_asked() -> None:
    began: list[int] = []
    gate = asyncio.Event()

    async def work() -> None:
        began.append(len(began))
        await gate.wait()

    runs = FreshRuns(work)
    first = asyncio.ensure_future(runs())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert began == [0]
    others = [asyncio.ensure_future(runs()) for _ in range(3)]
    gate.set()
    await asyncio.gather(first, *others)
    assert began == [0, 1]
