"""Orders and questions of operators about a group that elects its master: by the functions that the verbs use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.unit.broker.replication.test_roles import GROUP, in_sync, log_of, master_and_other, send, start

from rocketline.admin import Admin
from rocketline.admin.doctor_replication import replication_problems
from rocketline.errors import RocketlineError
from rocketline.testing.sim import SimWorld, run_world

T = TypeVar("T")


async def operate(world: SimWorld, work: Callable[[Admin], Awaitable[T]]) -> T:
    async def inside() -> T:
        async with Admin(world.namesrv) as admin:
            return await work(admin)

    return await world.inside(world.new_process("operator"), inside())


async def problems(world: SimWorld) -> list[str]:
    async def ask(admin: Admin) -> list[str]:
        brokers = [admin.broker_at(world.broker_address(host), GROUP) for host in world.brokers]
        return [f"{found.level}: {found.problem}" async for found in replication_problems(admin, brokers)]

    return await operate(world, ask)


def test_a_member_that_is_gone_is_removed_and_a_running_one_is_not() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2", "r3")
        master, other = master_and_other(world)
        gone = world.brokers[other].parts.roles.own_id

        async def remove(admin: Admin) -> None:
            await admin.broker_at(world.broker_address(master), GROUP).elections.remove_member(gone, GROUP)

        with pytest.raises(RocketlineError, match="runs: stop it first"):
            await operate(world, remove)
        world.crash(other)
        await in_sync(world, 2)
        await asyncio.sleep(5)
        await operate(world, remove)
        record = world.group(GROUP).history[-1]
        assert (gone in record.members, record.next_id) == (False, 4)
        await world.start_replica(other, GROUP)
        await asyncio.sleep(5)
        member = world.brokers[other].parts.member
        assert member is not None
        assert "was it removed?" in member.problem

    run_world(scenario, 1)


def test_an_unclean_election_is_for_groups_whose_complete_members_are_gone() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        master, other = master_and_other(world)
        await send(world, b"on both")
        world.crash(other)
        await in_sync(world, 1)
        await send(world, b"on one")
        await world.start_replica(other, GROUP)
        world.network.block(master, other)
        await asyncio.sleep(3)
        member = world.brokers[other].parts.roles.own_id
        end = log_of(world, other)[0]

        async def elect(admin: Admin) -> None:
            broker = admin.broker_at(world.broker_address(other), GROUP)
            await broker.elections.elect_master(member, GROUP, unclean=True)

        with pytest.raises(RocketlineError, match="has a master"):
            await operate(world, elect)
        await asyncio.sleep(70)  # the checkpoint of the master says what is confirmed
        world.crash(master)
        await asyncio.sleep(10)
        assert not world.brokers[other].parts.roles.is_master
        await operate(world, elect)
        await in_sync(world, 1)
        await asyncio.sleep(1)
        assert world.brokers[other].parts.roles.is_master
        await send(world, b"afterwards")
        # The former master has what was lost, and says so instead of cutting it off.
        world.network.unblock()
        await world.start_replica(master, GROUP)
        await asyncio.sleep(10)
        follower = world.brokers[master].parts.roles.follower
        assert follower is not None
        assert follower.diverged
        assert f"the same log up to {end} only" in follower.problem

    run_world(scenario, 2)


def test_the_doctor_names_members_that_are_missing_and_those_without_etcd() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2", "r3")
        await asyncio.sleep(5)
        assert await problems(world) == []
        master, other = master_and_other(world)
        third = next(host for host in world.brokers if host not in (master, other))
        world.group(GROUP).cut_off.add(third)
        await asyncio.sleep(8)
        assert any(
            "takes no part in elections: the record of the group is out of reach" in text
            for text in await problems(world)
        )
        world.group(GROUP).cut_off.clear()
        world.crash(third)
        world.crash(other)
        await in_sync(world, 1)
        await asyncio.sleep(5)
        found = await problems(world)
        assert any(text.startswith("warning: members do not run: ") for text in found)
        assert any(text.startswith("error: only member ") for text in found)

    run_world(scenario, 3)


def test_every_member_tells_which_master_wrote_what() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        await send(world, b"first")
        await asyncio.sleep(2)

        async def ask(admin: Admin) -> list[list[tuple[int, int]]]:
            found = [await admin.broker_at(world.broker_address(host), GROUP).epochs() for host in world.brokers]
            return [[(entry.epoch, entry.start_offset) for entry in table.epoch_list] for table in found]

        assert await operate(world, ask) == [[(1, 0)], [(1, 0)]]

    run_world(scenario, 4)
