"""What operators ask a group that elects its master, and its hand-over, in virtual time."""

from __future__ import annotations

import asyncio
import json

import pytest

from rocketline.protocol.bodies import SyncStateSet, SyncStateTable, decode_body
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ControllerMetadataHeader, ElectMasterHeader, GroupMasterHeader
from rocketline.testing.sim import SimWorld, run_world
from rocketline.transport import RemotingClient

GROUP = "broker-a"
HOSTS = ("r1", "r2")


async def whole(world: SimWorld) -> None:
    group = world.group(GROUP)
    while group.agreed is None or len(group.agreed.record.in_sync) < len(HOSTS) or not group.view().has_master:
        await asyncio.sleep(0.1)


async def start(world: SimWorld) -> None:
    await world.start_name_server("n1")
    for host in HOSTS:
        await world.start_replica(host, GROUP)
    await whole(world)


def master_of(world: SimWorld) -> str:
    return next(host for host in HOSTS if world.brokers[host].parts.roles.is_master)


async def ask(world: SimWorld, host: str, command: Command) -> Command:
    async def call() -> Command:
        client = RemotingClient()
        try:
            return await client.call(world.broker_address(host), command, 10.0)
        finally:
            await client.close()

    return await world.inside(world.new_process("operator"), call())


@pytest.mark.parametrize("host", HOSTS)
def test_every_member_tells_who_leads_and_who_is_in_sync(host: str) -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world)
        await asyncio.sleep(2)
        body = json.dumps([GROUP]).encode()
        answer = await ask(world, host, Command(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, body))
        found = decode_body(SyncStateTable, answer.body).replicas_info_table[GROUP]
        assert found.master_address == world.broker_address(master_of(world))
        assert [(item.broker_id, item.alive) for item in found.in_sync_replicas] == [(1, True), (2, True)]
        assert (found.not_in_sync_replicas, found.master_epoch) == ([], 1)

        answer = await ask(world, host, Command(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": GROUP}))
        assert GroupMasterHeader.decode(answer).master_broker_id == found.master_broker_id
        assert decode_body(SyncStateSet, answer.body).sync_state_set == [1, 2]

        answer = await ask(world, host, Command(RequestCode.CONTROLLER_GET_METADATA_INFO, {}))
        metadata = ControllerMetadataHeader.decode(answer)
        assert metadata.controller_leader_address == found.master_address
        assert metadata.is_leader == (host == master_of(world))

    run_world(scenario, 1)


def test_an_operator_has_another_member_lead() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world)
        former = master_of(world)
        other = next(host for host in HOSTS if host != former)
        wanted = world.brokers[other].parts.roles.own_id
        header = ElectMasterHeader("DefaultCluster", GROUP, wanted, True)
        answer = await ask(world, former, Command(RequestCode.CONTROLLER_ELECT_MASTER, header.encode()))
        assert (answer.code, GroupMasterHeader.decode(answer).master_broker_id) == (0, wanted)
        await whole(world)
        assert master_of(world) == other
        history = world.group(GROUP).history
        assert next(record.epoch for record in history if record.master == wanted) == 2

    run_world(scenario, 2)


def test_who_does_not_lead_cannot_hand_over() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world)
        other = next(host for host in HOSTS if host != master_of(world))
        header = ElectMasterHeader("DefaultCluster", GROUP, 0, True)
        answer = await ask(world, other, Command(RequestCode.CONTROLLER_ELECT_MASTER, header.encode()))
        assert answer.code == 2012
        assert "not the master" in (answer.remark or "")

    run_world(scenario, 3)


def test_without_another_one_in_sync_the_master_goes_on() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world)
        former = master_of(world)
        other = next(host for host in HOSTS if host != former)
        world.crash(other)
        await asyncio.sleep(8)
        header = ElectMasterHeader("DefaultCluster", GROUP, 0, True)
        answer = await ask(world, former, Command(RequestCode.CONTROLLER_ELECT_MASTER, header.encode()))
        assert answer.code == 2012
        assert master_of(world) == former
        assert not world.brokers[former].parts.store.reason

    def master_of(world: SimWorld) -> str:
        return next(host for host in world.brokers if world.brokers[host].parts.roles.is_master)

    run_world(scenario, 4)


def test_a_clean_stop_hands_over_before_the_lease_ends() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world)
        former = master_of(world)
        began = world.loop.time()
        await world.stop(former)
        other = next(host for host in HOSTS if host != former)
        while not world.brokers[other].parts.roles.is_master:
            await asyncio.sleep(0.01)
        assert world.loop.time() - began < 1.0

    run_world(scenario, 5)
