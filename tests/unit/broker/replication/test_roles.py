"""What follows from the role of a broker in a group with elections, in virtual time, with whole brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rocketline.broker.broker import Broker
from rocketline.broker.delays.delay_levels import SCHEDULE_TOPIC
from rocketline.client import ConsumeFrom, Producer, PushConsumer
from rocketline.errors import CoordinationFailed
from rocketline.message import Message, MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PopMessageHeader, PullMessageHeader
from rocketline.protocol.headers.read import SUBSCRIPTION, SUSPEND
from rocketline.protocol.records import decode_messages
from rocketline.testing.sim import SimWorld, run_world
from rocketline.transport import RemotingClient

GROUP = "broker-a"


async def in_sync(world: SimWorld, count: int) -> None:
    group = world.group(GROUP)
    while group.agreed is None or len(group.agreed.record.in_sync) != count or not group.view().has_master:
        await asyncio.sleep(0.05)


async def start(world: SimWorld, *hosts: str, **settings: str) -> None:
    await world.start_name_server("n1")
    for host in hosts:
        await world.start_replica(host, GROUP, settings)
    await in_sync(world, len(hosts))


def master_and_other(world: SimWorld) -> tuple[str, str]:
    leading = [host for host, broker in world.brokers.items() if broker.parts.roles.is_master]
    return leading[0], next(host for host in world.brokers if host not in leading)


async def send(world: SimWorld, *bodies: bytes, topic: str = "orders", delay_level: int | None = None) -> None:
    async def work() -> None:
        async with Producer(world.namesrv, group="pg") as producer:
            for body in bodies:
                await producer.send(Message(topic, body, delay_level=delay_level), queue=None)

    await world.inside(world.new_process("producer"), work())


async def ask(world: SimWorld, host: str, code: RequestCode, ext: dict[str, str], calls: int = 1) -> Command:
    """The answer to the last of so many equal requests of one connection."""

    async def work() -> Command:
        client = RemotingClient()
        try:
            for _ in range(calls - 1):
                await client.call(world.broker_address(host), Command(code, dict(ext)), 60.0)
            return await client.call(world.broker_address(host), Command(code, dict(ext)), 60.0)
        finally:
            await client.close()

    return await world.inside(world.new_process("reader"), work())


def pull_of(queue_offset: int, suspend_ms: int = 0, queue_id: int = 0) -> dict[str, str]:
    header = PullMessageHeader(
        consumer_group="cg", topic="orders", queue_id=queue_id, queue_offset=queue_offset, max_msg_nums=32,
        sys_flag=SUBSCRIPTION | (SUSPEND if suspend_ms else 0), commit_offset=0, suspend_ms=suspend_ms, sub_version=0,
        subscription="*",
    )  # fmt: skip
    return header.encode()


def pop_of(world: SimWorld, poll_ms: int) -> dict[str, str]:
    header = PopMessageHeader(
        consumer_group="cg", topic="orders", queue_id=-1, max_msg_nums=32, invisible_ms=60_000, poll_ms=poll_ms,
        born_ms=world.clock.now_ms(), init_mode=0, exp_type="TAG", exp="*",
    )  # fmt: skip
    return header.encode()


def without_flushes(broker: Broker) -> Callable[[], None]:
    """Let the disk of a broker take its time, until what is returned is called."""
    threads = broker.parts.store._threads
    assert threads is not None
    flusher = threads.log_flusher
    really = flusher._round
    flusher._round = lambda everything: really(everything) if everything else None  # type: ignore[method-assign]

    def again() -> None:
        flusher._round = really  # type: ignore[method-assign]
        flusher.request()

    return again


def log_of(world: SimWorld, host: str) -> tuple[int, int]:
    store = world.brokers[host].parts.store
    return store.log_next_offset, store.flushed_offset


def stored(world: SimWorld, host: str) -> list[bytes]:
    """What can be read there."""
    found = world.brokers[host].parts.store.read("orders", 0, 0, 32)
    return [message.body for chunk in found.chunks for message in decode_messages(chunk)]


def test_a_replica_that_lost_its_connection_goes_on_though_its_disk_is_behind() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        await send(world, b"first")
        master, other = master_and_other(world)
        replica = world.brokers[other]
        again = without_flushes(replica)
        sending = asyncio.ensure_future(send(world, b"second"))
        while log_of(world, other)[0] < log_of(world, master)[0] or log_of(world, other)[0] == log_of(world, other)[1]:
            await asyncio.sleep(0.01)
        follower = replica.parts.roles.follower
        assert follower is not None
        former = follower.connection
        assert former is not None
        former._transport.abort()
        while follower.connection in (former, None):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        again()
        await sending
        await send(world, b"third")
        assert (follower.diverged, follower.problem) == (False, "")
        await asyncio.sleep(1)
        assert log_of(world, other)[1] == log_of(world, master)[0]

    run_world(scenario, 1)


def test_what_only_a_former_master_has_is_cut_off() -> None:
    """And so are the progress of groups in it, and its epoch: the log goes on as its new master writes it."""

    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2", defaultTopicQueueNums="1")
        await send(world, b"first")
        former, leading = master_and_other(world)
        parts, end = world.brokers[former].parts, log_of(world, former)[0]
        world.network.block(former, leading)
        world.group(GROUP).cut_off.add(former)
        await send(world, b"of the former master")  # told that no replica has it
        parts.offsets.commit("test", "cg", "orders", 0, 2)
        assert log_of(world, former)[0] > end
        while not world.brokers[leading].parts.roles.is_master:
            await asyncio.sleep(0.01)
        assert log_of(world, leading)[0] == end
        world.network.unblock()
        world.group(GROUP).cut_off.clear()
        await in_sync(world, 2)
        assert log_of(world, former)[0] == end
        assert parts.offsets.get("cg", "orders", 0) != 2
        await send(world, b"second")
        await asyncio.sleep(1)
        for host in (former, leading):
            assert stored(world, host) == [b"first", b"second"]
            assert [epoch.start for epoch in world.brokers[host].parts.roles.epochs] == [0, end]

    run_world(scenario, 9)


def test_a_new_master_gives_no_number_twice_though_its_disk_is_behind() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2", defaultTopicQueueNums="1")
        await send(world, b"first")
        master, other = master_and_other(world)
        replica = world.brokers[other]
        without_flushes(replica)
        sending = asyncio.ensure_future(send(world, b"not acknowledged"))
        while log_of(world, other)[0] < log_of(world, master)[0] or log_of(world, other)[0] == log_of(world, other)[1]:
            await asyncio.sleep(0.01)
        store = replica.parts.store
        copied = store.log_next_offset
        world.crash(master)
        while not replica.parts.roles.is_master:
            await asyncio.sleep(0.05)
        await asyncio.gather(sending, return_exceptions=True)
        assert store.max_offset("orders", 0) in (2, 3)  # the producer may have sent the second one again
        assert store.dispatched_offset >= copied
        listed = {store.unit_at("orders", 0, offset).log_offset for offset in range(store.max_offset("orders", 0))}  # type: ignore[union-attr,arg-type]
        assert len(listed) == store.max_offset("orders", 0)

    run_world(scenario, 2)


def test_tables_that_come_late_do_not_replace_those_of_a_new_master() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        await send(world, b"first")
        await asyncio.sleep(5)
        _, other = master_and_other(world)
        replica = world.brokers[other]
        await send(world, b"first", topic="late")
        client, before = replica.parts.environment.client, dict[str, object]()
        really = client.call

        async def call(address: str, command: Command, timeout_s: float) -> Command:
            answer = await really(address, command, timeout_s)
            if command.code == RequestCode.GET_ALL_TOPIC_CONFIG:
                replica.parts.roles.fence()
                await replica.parts.roles.become_master(7, frozenset({replica.parts.roles.own_id}))
                before.update(replica.parts.topics.table)
            return answer

        client.call = call  # type: ignore[method-assign,assignment]
        while not replica.parts.roles.is_master:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert replica.parts.topics.table == before

    run_world(scenario, 3)


def test_positions_are_handed_out_when_nothing_takes_the_delivered_messages_away() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        master, other = master_and_other(world)
        parts = world.brokers[master].parts
        await send(world, b"later", delay_level=1)
        assert parts.store.max_offset(SCHEDULE_TOPIC, 0) == 1
        again = without_flushes(world.brokers[other])
        while parts.delays.snapshot().offset_table != {1: 1}:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        assert parts.store.flushed_offset == parts.store.log_next_offset
        assert parts.delays.lasting().offset_table == {}
        assert parts.delays.take_changes() is None
        again()
        await asyncio.sleep(0.5)
        assert parts.delays.lasting().offset_table == {1: 1}

    run_world(scenario, 4)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("pops", [False, True])
@pytest.mark.parametrize("fast", ["true", "false"])
def test_nothing_is_given_out_after_the_lease(held: bool, pops: bool, fast: str) -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", **{"rocketline.fastPath": fast, "defaultTopicQueueNums": "1"})
        await send(world, b"first")
        code = RequestCode.POP_MESSAGE if pops else RequestCode.PULL_MESSAGE
        wait_ms = 15_000 if held else 0
        found = await ask(
            world, "r1", RequestCode.PULL_MESSAGE, pull_of(0, wait_ms), calls=3
        )  # the fast path knows it now
        assert found.code == ResponseCode.SUCCESS
        if pops and held:
            assert (await ask(world, "r1", code, pop_of(world, 1000))).code == ResponseCode.SUCCESS
        ext = pop_of(world, wait_ms) if pops else pull_of(1 if held else 0, wait_ms)
        asking = asyncio.ensure_future(ask(world, "r1", code, ext)) if held else None
        world.group(GROUP).cut_off.add("r1")
        await asyncio.sleep(4)
        assert world.brokers["r1"].parts.roles.is_master  # its log may still grow: nobody else can be elected
        await send(world, b"second")
        if pops:
            ext = pop_of(world, wait_ms)
        answer = await (asking or asyncio.ensure_future(ask(world, "r1", code, ext)))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "has not heard from the coordinator" in (answer.remark or "")
        world.group(GROUP).cut_off.clear()
        await asyncio.sleep(3)
        assert (await ask(world, "r1", RequestCode.PULL_MESSAGE, pull_of(0))).code == ResponseCode.SUCCESS

    run_world(scenario, 5)


def test_held_pops_take_nothing_when_the_broker_is_fenced() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", defaultTopicQueueNums="1")
        await send(world, b"first")
        assert (await ask(world, "r1", RequestCode.POP_MESSAGE, pop_of(world, 1000))).code == ResponseCode.SUCCESS
        asking = asyncio.ensure_future(ask(world, "r1", RequestCode.POP_MESSAGE, pop_of(world, 15_000)))
        await asyncio.sleep(1)
        parts = world.brokers["r1"].parts
        parts.store.copies.limit_reads(None)
        parts.roles.fence()
        answer = await asking
        assert (answer.code, answer.remark) == (
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "this broker is not the master of its group",
        )

    run_world(scenario, 6)


def test_a_silent_name_server_does_not_cost_a_new_master_its_lease() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        master, other = master_and_other(world)
        world.network.block(other, "n1")
        world.crash(master)
        roles = world.brokers[other].parts.roles
        while not roles.is_master:
            await asyncio.sleep(0.01)
        for _ in range(1000):
            await asyncio.sleep(0.01)
            assert roles.gives_out

    run_world(scenario, 7)


def test_what_the_disk_of_the_master_does_not_have_is_not_confirmed() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        await send(world, b"first")
        master, other = master_and_other(world)
        roles, store = world.brokers[master].parts.roles, world.brokers[master].parts.store
        again = without_flushes(world.brokers[master])
        before = store.flushed_offset
        sending = asyncio.ensure_future(send(world, b"second"))
        while log_of(world, other)[1] == before:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        assert roles.acks.limit > before
        assert roles.confirm_offset == before
        again()
        await sending
        assert roles.confirm_offset > before

    run_world(scenario, 8)


def test_a_restarted_replica_is_read_when_it_knows_what_is_confirmed() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2", "r3", slaveReadEnable="true", defaultTopicQueueNums="1")
        await send(world, b"first")
        await asyncio.sleep(70)  # the checkpoint is written
        master, other = master_and_other(world)
        assert (await ask(world, other, RequestCode.PULL_MESSAGE, pull_of(0))).code == ResponseCode.SUCCESS
        parts = world.brokers[other].parts
        await send(world, b"second")
        world.crash(other)
        world.network.block(master, other)
        await world.start_replica(other, GROUP)
        again = world.brokers[other].parts
        assert 0 < again.roles.confirm_offset <= parts.roles.confirm_offset, "it is remembered, as far as it was saved"
        again.roles.confirmed_as_replica = again.store.dispatched_offset - 1
        while again.roles.role.value != "replica":
            await asyncio.sleep(0.01)
        assert (await ask(world, other, RequestCode.PULL_MESSAGE, pull_of(0))).code == ResponseCode.SYSTEM_BUSY
        world.network.unblock()
        await asyncio.sleep(10)
        assert (await ask(world, other, RequestCode.PULL_MESSAGE, pull_of(0))).code == ResponseCode.SUCCESS

    run_world(scenario, 9)


def test_a_member_that_was_away_for_too_long_says_so_and_joins_with_an_empty_folder() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2", fileReservedTime="0")
        await send(world, b"first")
        master, other = master_and_other(world)
        world.crash(other)
        await in_sync(world, 1)
        await send(world, *[world.chance.randbytes(30_000) for _ in range(20)])
        store = world.brokers[master].parts.store
        store.delete_expired()
        while not store.log_min_offset:
            store.clean_up(wait=True)
            await asyncio.sleep(1)
        await world.start_replica(other, GROUP)
        member = world.brokers[other].parts.member
        assert member is not None
        while "away for too long" not in member.problem:
            await asyncio.sleep(0.1)
        assert "empty its data folder" in member.problem
        world.crash(other)
        del world.disks[other]
        await world.start_replica(other, GROUP)
        await in_sync(world, 2)
        assert log_of(world, other)[0] == log_of(world, master)[0]
        assert world.brokers[other].parts.store.log_min_offset == store.log_min_offset

    run_world(scenario, 11)


def test_consumers_go_on_with_the_next_master() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        found: list[bytes] = []

        async def handle(message: MessageView) -> None:
            found.append(bytes(message.body))

        async def consuming() -> None:
            async with PushConsumer(world.namesrv, group="cg", from_where=ConsumeFrom.FIRST) as consumer:
                consumer.subscribe("orders", handle)
                await consumer.run()

        running = asyncio.ensure_future(world.inside(world.new_process("consumer"), consuming()))
        bodies = [b"%d" % number for number in range(40)]
        await send(world, *bodies[:20])
        while len(set(found)) < 20:
            await asyncio.sleep(0.1)
        master, _ = master_and_other(world)
        world.crash(master)
        await in_sync(world, 1)
        await asyncio.sleep(1)
        await send(world, *bodies[20:])
        while set(found) != set(bodies):
            assert world.loop.time() < 600, sorted(set(bodies) - set(found))
            await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.wait([running])

    run_world(scenario, 10)


def test_what_only_the_new_master_has_is_not_read_after_a_hand_over_that_took_effect_late() -> None:
    """The old master gave the hand-over up and took one more message, which one of the others never got."""

    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2", "r3", defaultTopicQueueNums="1")
        await send(world, b"first")
        await asyncio.sleep(2)
        former, _ = master_and_other(world)
        new, third = sorted(world.brokers.keys() - {former})
        group, member = world.group(GROUP), world.brokers[former].parts.member
        assert member is not None
        assert group.agreed is not None
        new_id = next(
            each.id for each in group.agreed.record.members.values() if each.address == world.broker_address(new)
        )
        really = member._roles.settle

        async def settle_and_be_cut_off() -> None:
            await really()
            group.cut_off.add(former)

        member._roles.settle = settle_and_be_cut_off  # type: ignore[method-assign]
        group.lateness = lambda: 2.0
        with pytest.raises(CoordinationFailed):
            await world.inside(world.process_of(former), member.hand_over(new_id))
        for host in (former, new):
            world.network.block(third, host, both=True)
        sending = asyncio.ensure_future(send(world, b"second"))
        roles = world.brokers[new].parts.roles
        while not roles.is_master:
            await asyncio.sleep(0.001)
        assert log_of(world, new)[0] > log_of(world, third)[0]
        assert roles.confirm_offset <= log_of(world, third)[0]
        answer = await ask(world, new, RequestCode.PULL_MESSAGE, pull_of(1))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        for host in (former, new):
            world.network.unblock(third, host)
        group.cut_off.clear()
        await sending
        await in_sync(world, 3)
        assert (await ask(world, new, RequestCode.PULL_MESSAGE, pull_of(1))).code == ResponseCode.SUCCESS

    run_world(scenario, 11)


@pytest.mark.parametrize("is_copy", [True, False])
def test_a_log_from_before_the_elections_joins_only_if_it_is_the_masters(is_copy: bool) -> None:
    """It has no epochs that could be compared."""

    async def scenario(world: SimWorld) -> None:
        await world.start_name_server("n1")
        for host, body in (("r1", b"one"), ("r2", b"one" if is_copy else b"two")):
            await world.start_broker(host, {"brokerName": GROUP, "defaultTopicQueueNums": "1"})
            if host == "r2" and is_copy:
                world.crash(host)
                world.disks["r2"] = world.disks["r1"].after_kill()
                break
            await send(world, body)
            if host == "r1":
                await send(world, b"more")
            await world.stop(host)
        group = {"brokerName": GROUP, "rocketline.coordination": "etcd://simulated"}
        await world.start_replica("r1", GROUP, group)
        await in_sync(world, 1)
        await world.start_replica("r2", GROUP, group)
        await asyncio.sleep(10)
        agreed = world.group(GROUP).agreed
        assert agreed is not None
        assert len(agreed.record.members) == 2
        assert len(agreed.record.in_sync) == (2 if is_copy else 1)
        member = world.brokers["r2"].parts.member
        assert member is not None
        assert ("empty folder" in member.problem) is not is_copy

    run_world(scenario, 12)


def test_a_master_whose_flushes_hang_hands_over() -> None:
    async def scenario(world: SimWorld) -> None:
        await start(world, "r1", "r2")
        await send(world, b"first")
        master, other = master_and_other(world)
        await asyncio.sleep(60)
        assert world.brokers[master].parts.roles.is_master  # an idle disk is none that hangs
        threads = world.brokers[master].parts.store._threads
        assert threads is not None
        threads.log_flusher._round = lambda everything: None  # type: ignore[method-assign]
        sending = asyncio.ensure_future(send(world, b"second"))
        for _ in range(200):
            await asyncio.sleep(0.1)
        assert world.brokers[other].parts.roles.is_master
        await sending
        await send(world, b"third")

    run_world(scenario, 13)
