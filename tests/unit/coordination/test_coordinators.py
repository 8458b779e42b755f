"""What every coordinator does, asked of the one in memory and of a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.etcd import EtcdServers, need_etcd
from tests.support.patience import PATIENCE_S

from rocketline.clock import SYSTEM_CLOCK
from rocketline.coordination import Coordinator, GroupRecord, Live, Member, View
from rocketline.coordination.config import CoordinationConfig
from rocketline.coordination.etcd import EtcdCoordinator, _text
from rocketline.coordination.memory import MemoryGroup
from rocketline.errors import ConfigError, CoordinationFailed

Make = Callable[[], Coordinator]

A = Member(1, "10.0.0.1:10911", "10.0.0.1:10912", "a" * 32)
B = Member(2, "10.0.0.2:10911", "10.0.0.2:10912", "b" * 32, ha_tls=True)
GROUP = GroupRecord().with_member(A).with_member(B)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServers]:
    need_etcd()
    with EtcdServers(tmp_path_factory.mktemp("etcd")) as servers:
        yield servers


@pytest.fixture(params=["memory", "etcd"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Coordinators of one new group, with the shortest lease."""
    made: list[Coordinator] = []
    if request.param == "memory":
        group = MemoryGroup(SYSTEM_CLOCK, lease_s=2.0)
        new: Make = lambda: group.coordinator(f"m{len(made)}")  # noqa: E731
    else:
        url, name = request.getfixturevalue("etcd").url, uuid4().hex
        new = lambda: EtcdCoordinator(CoordinationConfig(url, lease_ms=2000), "c", name)  # noqa: E731

    def make() -> Coordinator:
        made.append(new())
        return made[-1]

    yield make
    for coordinator in made:
        await coordinator.close()


async def agree(coordinator: Coordinator, record: GroupRecord) -> View:
    view = await coordinator.read()
    assert await coordinator.propose(view.agreed, record)
    return await coordinator.read()


async def wait_for(coordinator: Coordinator, wanted: Callable[[View], bool]) -> View:
    async with asyncio.timeout(PATIENCE_S):
        while not wanted(view := await coordinator.read()):
            await asyncio.sleep(0.02)
        return view


async def test_a_new_group_has_no_record(make: Make) -> None:
    assert await make().read() == View(None)


async def test_what_one_proposes_the_other_reads(make: Make) -> None:
    one, other = make(), make()
    record = GROUP.with_master(1, "p1").with_in_sync(frozenset({1, 2}))
    assert await one.propose(None, record)
    view = await other.read()
    assert view.agreed is not None
    assert view.agreed.record == record
    assert (record.epoch, record.in_sync_epoch, record.next_id) == (1, 2, 3)


async def test_only_the_first_of_two_proposals_is_agreed(make: Make) -> None:
    one, other = make(), make()
    assert [await one.propose(None, GROUP), await other.propose(None, GROUP)] == [True, False]
    agreed = (await other.read()).agreed
    answers = await asyncio.gather(*(item.propose(agreed, GROUP.with_in_sync(frozenset({1}))) for item in (one, other)))
    assert sorted(answers) == [False, True]
    latest = (await one.read()).agreed
    assert latest is not None
    assert latest.record.in_sync_epoch == 1


async def test_a_master_that_holds_its_lease_is_not_replaced(make: Make) -> None:
    one, other = make(), make()
    await one.renew(1, Live("p1", 3, 400))
    view = await agree(other, GROUP.with_master(1, "p1"))
    assert view.has_master
    assert view.live == {1: Live("p1", 3, 400)}
    assert not await other.elect(view, GROUP.with_master(2, "p2"))


async def test_an_election_fails_if_the_master_came_back_after_the_look(make: Make) -> None:
    one, other = make(), make()
    stale = await agree(other, GROUP.with_master(1, "p1"))
    assert not stale.has_master
    await one.renew(1, Live("p1"))
    assert not await other.elect(stale, GROUP.with_master(2, "p2"))
    assert (await other.read()).has_master


async def test_an_election_fails_if_the_record_changed(make: Make) -> None:
    one, other = make(), make()
    stale = await agree(other, GROUP.with_master(1, "p1"))
    assert stale.agreed is not None
    assert await one.propose(stale.agreed, stale.agreed.record.with_in_sync(frozenset({1})))
    assert not await other.elect(stale, stale.agreed.record.with_master(2, "p2"))


async def test_a_master_without_a_lease_is_replaced(make: Make) -> None:
    one, other = make(), make()
    await one.renew(1, Live("p1"))
    await agree(other, GROUP.with_master(1, "p1"))
    # It renews no more, and its lease ends by itself.
    view = await wait_for(other, lambda view: not view.has_master)
    assert view.agreed is not None
    assert await other.elect(view, view.agreed.record.with_master(2, "p2"))
    assert [await one.elect(view, GROUP), (await one.read()).agreed] == [False, (await other.read()).agreed]


async def test_a_restarted_master_is_not_the_one_that_was_elected(make: Make) -> None:
    one = make()
    await one.renew(1, Live("p1"))
    await agree(one, GROUP.with_master(1, "p1"))
    again = make()
    await again.renew(1, Live("p2"))
    view = await again.read()
    assert not view.has_master
    assert view.agreed is not None
    assert await again.elect(view, view.agreed.record.with_master(1, "p2"))
    assert (await again.read()).has_master


async def test_renewing_keeps_the_lease(make: Make) -> None:
    one = make()
    for position in range(6):
        await one.renew(1, Live("p1", 1, position))
        await asyncio.sleep(0.5)
    found = (await one.read()).live[1]
    assert (found.incarnation, found.last_epoch) == ("p1", 1)


async def test_a_lease_that_ended_is_taken_anew(make: Make) -> None:
    one = make()
    await one.renew(1, Live("p1"))
    await wait_for(one, lambda view: not view.live)
    await one.renew(1, Live("p1"))
    assert (await one.read()).live == {1: Live("p1")}


async def test_resigning_ends_the_lease_at_once(make: Make) -> None:
    one, other = make(), make()
    await one.renew(1, Live("p1"))
    await other.renew(2, Live("p2"))
    await one.resign()
    assert (await other.read()).live == {2: Live("p2")}


async def test_changes_are_told(make: Make) -> None:
    one, other = make(), make()
    told = asyncio.Queue[None]()

    async def listen() -> None:
        async with aclosing(other.changes()) as changes:
            async for _ in changes:
                told.put_nowait(None)

    task = asyncio.create_task(listen())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while told.empty():  # a watch begins some time after it was asked for
                await agree(one, GROUP)
                await asyncio.sleep(0.05)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# What only a memory has: somebody is cut off.


async def test_who_is_cut_off_is_told_so_and_loses_its_lease() -> None:
    group = MemoryGroup(SYSTEM_CLOCK, lease_s=0.1)
    one = group.coordinator("m1")
    await one.renew(1, Live("p1"))
    group.cut_off.add("m1")
    with pytest.raises(CoordinationFailed, match="cut off"):
        await one.renew(1, Live("p1"))
    assert await wait_for(group.coordinator("m2"), lambda view: not view.live) == View(None)


# What only etcd has: servers that die, do not answer, or want to know who asks.


def config_of(url: str, **more: str) -> CoordinationConfig:
    return CoordinationConfig(url, lease_ms=2000, **more)


async def test_without_etcd_the_error_names_address_and_setting() -> None:
    coordinator = EtcdCoordinator(config_of("etcd://127.0.0.1:9"), "c", "g")
    with pytest.raises(CoordinationFailed, match=r"127\.0\.0\.1:9.*rocketline\.coordination names them"):
        await coordinator.read()
    await coordinator.close()


async def test_what_is_not_etcd_is_said_so() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"220 smtp ready\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        coordinator = EtcdCoordinator(config_of(f"etcd://127.0.0.1:{port}"), "c", "g")
        with pytest.raises(CoordinationFailed, match="does not speak HTTP"):
            await coordinator.read()


async def test_a_silent_server_is_left_for_another(etcd: EtcdServers) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        coordinator = EtcdCoordinator(config_of(f"etcd://127.0.0.1:{port},{etcd.servers[0].address}"), "c", "g-silent")
        assert await coordinator.propose(None, GROUP)
        assert (await coordinator.read()).agreed is not None
        await coordinator.close()


async def test_what_others_wrote_into_the_key_is_refused(etcd: EtcdServers) -> None:
    coordinator = EtcdCoordinator(config_of(etcd.url), "c", "g-strange")
    await coordinator._gateway.call("kv/put", {"key": _b64("/rocketline/c/g-strange/record"), "value": _b64("[]")})
    with pytest.raises(CoordinationFailed, match="g-strange/record in etcd holds no record of a group"):
        await coordinator.read()
    await coordinator.close()


async def test_with_a_leader_killed_the_rest_goes_on(tmp_path: Path) -> None:
    need_etcd()
    with EtcdServers(tmp_path, 3) as servers:
        coordinator = EtcdCoordinator(config_of(servers.url), "c", "g")
        await coordinator.renew(1, Live("p1"))
        assert await coordinator.propose(None, GROUP)
        servers.leader.kill()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    view = await coordinator.read()
                    await coordinator.renew(1, Live("p1", 2, 3))
                    break
                except CoordinationFailed:
                    await asyncio.sleep(0.1)
        assert view.agreed is not None
        assert view.agreed.record == GROUP
        await coordinator.close()


async def test_user_and_password(tmp_path: Path) -> None:
    need_etcd()
    with EtcdServers(tmp_path) as servers:
        admin = EtcdCoordinator(config_of(servers.url), "c", "g")
        call = admin._gateway.call
        await call("auth/user/add", {"name": "root", "password": "secret"})
        await call("auth/role/add", {"name": "root"})
        await call("auth/user/grant", {"user": "root", "role": "root"})
        await call("auth/enable", {})
        with pytest.raises(CoordinationFailed, match=r"rocketline\.coordinationUser"):
            await admin.read()
        wrong = EtcdCoordinator(config_of(servers.url, user="root", password="guess"), "c", "g")
        with pytest.raises(CoordinationFailed, match="does not let in user 'root'"):
            await wrong.read()
        right = EtcdCoordinator(config_of(servers.url, user="root", password="secret"), "c", "g")
        assert await right.propose(None, GROUP)
        right._gateway._token = "old.1"  # as after a restart of etcd
        assert (await right.read()).agreed is not None
        for coordinator in (admin, wrong, right):
            await coordinator.close()


@pytest.mark.parametrize(
    "url", ["127.0.0.1:2379", "http://a:1", "etcd://", "etcd://a:x", "etcd://a:1,,b:2", "etcd://u:p@a:1"]
)
def test_addresses_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"rocketline\.coordination"):
        CoordinationConfig(url)


def test_addresses() -> None:
    endpoints = CoordinationConfig("etcd://a:1,[::1]:2,c").endpoints()
    assert [(item.host, item.port) for item in endpoints] == [("a", 1), ("::1", 2), ("c", 2379)]


def _b64(text: str) -> str:
    from base64 import b64encode

    return b64encode(text.encode()).decode()


async def test_renewals_do_not_fill_etcd(etcd: EtcdServers) -> None:
    """etcd keeps every value that was ever put until somebody has it forget them."""
    one = EtcdCoordinator(CoordinationConfig(etcd.url, lease_ms=2000), "c", "fills")
    try:
        await one.propose(None, GroupRecord(epoch=1))
        await one.renew(1, Live("a", 1, 0))
        before = (await one.read()).revisions[1]
        for log_end in range(1, 20):
            await one.renew(1, Live("a", 1, log_end))
        view = await one.read()
        assert view.revisions[1] == before
        await one.renew(1, Live("a", 2, 20))
        view = await one.read()
        assert view.live[1] == Live("a", 2, 20)
        # What somebody took away is said again.
        await one._gateway.call("kv/deleterange", {"key": _text(one._live_key(1))})
        assert 1 not in (await one.read()).live
        await one.renew(1, Live("a", 2, 30))
        assert (await one.read()).live[1] == Live("a", 2, 30)
    finally:
        await one.close()
