"""The simulated world itself: time, processes, network and disks behave as real ones do."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rocketline.client import ClientOptions, ConsumeFrom, Producer, PushConsumer
from rocketline.errors import ConfigError, RocketlineError
from rocketline.message import Message, MessageView
from rocketline.testing.disks import MemoryDisk
from rocketline.testing.sim import ProcessDied, SimLoop, SimWorld, belongs_to, run_world
from rocketline.testing.sim.network import SimConnection


class Ear(asyncio.Protocol):
    """Keeps what it hears; one that closes says so in `lost`."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost: list[Exception | None] = []
        self.paused = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


async def connected(world: SimWorld) -> tuple[Ear, Ear]:
    """The ends of a connection from host `one` to host `two`."""
    loop, ears = world.loop, [Ear()]
    address = (world.address_of("two"), 80)

    async def serve() -> None:
        listening = loop.listening_socket(0, address)
        await loop.create_server(lambda: ears[0], sock=listening)

    await world.inside(world.new_process("two"), serve())
    _, ear = await world.inside(world.new_process("one"), loop.create_connection(Ear, *address))
    return ear, ears[0]


def the_connection(world: SimWorld) -> SimConnection:
    (connection,) = world.network.connections.values()
    return connection


class TestTime:
    def test_a_day_takes_a_moment(self) -> None:
        async def scenario(world: SimWorld) -> tuple[float, int]:
            before_ms = world.clock.now_ms()
            await asyncio.sleep(86_400)
            return world.loop.time(), world.clock.now_ms() - before_ms

        passed_s, passed_ms = run_world(scenario)
        assert passed_s == pytest.approx(86_400)
        assert passed_ms == pytest.approx(86_400_000, abs=1)

    def test_threads_do_their_work_at_once(self) -> None:
        async def scenario(world: SimWorld) -> list[Any]:
            return [await asyncio.to_thread(max, 1, 2), world.loop.time()]

        assert run_world(scenario) == [2, 0.0]

    def test_a_world_in_which_nothing_can_happen_any_more_says_so(self) -> None:
        async def scenario(world: SimWorld) -> None:
            await world.loop.create_future()

        with pytest.raises(RuntimeError, match="the simulation is stuck"):
            run_world(scenario)


class TestProcesses:
    def test_a_frozen_process_does_everything_when_it_is_thawed(self) -> None:
        async def scenario(world: SimWorld) -> list[float]:
            ticks: list[float] = []

            async def tick() -> None:
                for _ in range(3):
                    await asyncio.sleep(1)
                    ticks.append(round(world.loop.time(), 3))

            with belongs_to("one#1"):
                task = world.loop.create_task(tick())
            await asyncio.sleep(1.5)
            world.loop.freeze("one#1")
            await asyncio.sleep(10)
            world.loop.thaw("one#1")
            await task
            return ticks

        assert run_world(scenario) == [1, 11.5, 12.5]

    def test_others_go_on_while_one_is_frozen(self) -> None:
        async def scenario(world: SimWorld) -> float:
            world.loop.freeze("one#1")
            await asyncio.sleep(5)
            return world.loop.time()

        assert run_world(scenario) == pytest.approx(5)

    def test_what_is_asked_of_a_killed_process_ends(self) -> None:
        async def scenario(world: SimWorld) -> None:
            process = world.new_process("one")
            world.loop.call_later(3, world.crash, "one")
            with pytest.raises(ProcessDied, match="one#1"):
                await world.inside(process, asyncio.sleep(100))
            assert world.loop.time() == pytest.approx(3)

        run_world(scenario)

    def test_the_dead_write_no_files(self) -> None:
        async def scenario(world: SimWorld) -> list[str]:
            written: list[str] = []

            async def work() -> None:
                try:
                    await asyncio.sleep(100)
                finally:
                    await asyncio.to_thread(written.append, "on the way out")

            with belongs_to(world.new_process("one")):
                task = world.loop.create_task(work())
            await asyncio.sleep(1)
            world.crash("one")
            await world.loop.gone("one#1")
            assert task.done()
            return written

        assert run_world(scenario) == []


class TestNetwork:
    def test_bytes_arrive_in_order_and_whole(self) -> None:
        async def scenario(world: SimWorld) -> bytes:
            world.network.split_share = 0.5
            one, two = await connected(world)
            for number in range(100):
                one.transport.write(b"%02d" % number)
            await asyncio.sleep(1)
            return two.heard

        assert run_world(scenario) == b"".join(b"%02d" % number for number in range(100))

    def test_a_way_blocked_in_one_direction(self) -> None:
        async def scenario(world: SimWorld) -> None:
            one, two = await connected(world)
            world.network.block("one", "two", both=False)
            one.transport.write(b"there")
            two.transport.write(b"back")
            await asyncio.sleep(60)
            assert (one.heard, two.heard) == (b"back", b"")
            world.network.unblock("one", "two")
            await asyncio.sleep(0.01)
            assert two.heard == b"there"

        run_world(scenario)

    def test_nobody_connects_over_a_blocked_way(self) -> None:
        async def scenario(world: SimWorld) -> None:
            await connected(world)
            world.network.block("two", "three", both=False)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    with belongs_to("three#1"):
                        await world.loop.create_connection(Ear, world.address_of("two"), 80)

        run_world(scenario)

    def test_a_cut_is_seen_at_both_ends(self) -> None:
        async def scenario(world: SimWorld) -> None:
            one, two = await connected(world)
            one.transport.write(b"0123456789")
            world.network.cut(the_connection(world))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert isinstance(one.lost[0], ConnectionResetError)
            assert isinstance(two.lost[0], ConnectionResetError)
            assert b"0123456789".startswith(two.heard)
            assert two.heard != b"0123456789"
            assert not world.network.connections

        for seed in range(10):
            run_world(scenario, seed)

    def test_closing_lets_what_was_written_arrive(self) -> None:
        async def scenario(world: SimWorld) -> None:
            one, two = await connected(world)
            one.transport.write(b"last words")
            one.transport.close()
            await asyncio.sleep(1)
            assert (two.heard, one.lost, two.lost) == (b"last words", [None], [None])

        run_world(scenario)

    def test_a_killed_process_leaves_its_peers_a_closed_connection(self) -> None:
        async def scenario(world: SimWorld) -> None:
            one, _ = await connected(world)
            world.crash("two")
            await asyncio.sleep(1)
            assert isinstance(one.lost[0], ConnectionResetError)

        run_world(scenario)

    def test_a_machine_without_power_says_nothing_until_it_is_back(self) -> None:
        async def scenario(world: SimWorld) -> None:
            one, _ = await connected(world)
            world.crash("two", power=True)
            one.transport.write(b"hello?")
            await asyncio.sleep(600)
            assert one.lost == []
            with belongs_to(world.new_process("two")):
                world.loop.listening_socket(0, (world.address_of("two"), 80))
            one.transport.write(b"hello?")
            await asyncio.sleep(1)
            assert isinstance(one.lost[0], ConnectionResetError)

        run_world(scenario)

    def test_writers_are_told_to_pause_while_nobody_reads(self) -> None:
        async def scenario(world: SimWorld) -> None:
            one, two = await connected(world)
            one.transport.set_write_buffer_limits(high=1000)
            two.transport.pause_reading()
            one.transport.write(bytes(2000))
            assert one.paused
            await asyncio.sleep(1)
            assert two.heard == b""
            two.transport.resume_reading()
            await asyncio.sleep(1)
            assert (len(two.heard), one.paused) == (2000, False)

        run_world(scenario)

    def test_a_port_is_taken_once(self) -> None:
        async def scenario(world: SimWorld) -> None:
            await connected(world)
            with pytest.raises(OSError, match="in use"):
                world.loop.listening_socket(0, (world.address_of("two"), 80))

        run_world(scenario)


def test_after_a_kill_a_disk_has_what_was_written_and_the_dead_change_nothing() -> None:
    disk, path = MemoryDisk(), Path("/d/f")
    disk.make_folder(path.parent)
    mapped = disk.open_mapped(path, 4)
    mapped.reserve(0, 4)
    mapped.buffer[:4] = b"left"
    disk.lock(Path("/d/lock"))
    after = disk.after_kill()
    mapped.buffer[:4] = b"late"
    assert after.read(path) == b"left"
    assert after.crash().read(path) is None  # written, and never flushed
    after.lock(Path("/d/lock"))


async def a_journey(world: SimWorld) -> list[str]:
    """Two messages, one of them after the only broker lost power and came back."""
    await world.start_name_server("names")
    await world.start_broker("broker-a")
    got: list[str] = []

    async def handle(message: MessageView) -> None:
        got.append(message.body.decode())

    options = ClientOptions(client_ip=world.address_of("app"), instance_name="app", clock=world.clock)

    async def app() -> None:
        async with (
            Producer(world.namesrv, group="p", options=options) as producer,
            PushConsumer(world.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=options) as consumer,
        ):
            await producer.send(Message("T", b"before"))
            consumer.subscribe("T", "*", handle)
            await consumer.start()
            world.crash("broker-a", power=True)
            await world.start_broker("broker-a")
            while "after" not in got:
                with suppress(RocketlineError):
                    await producer.send(Message("T", b"after"))
                await asyncio.sleep(5)

    await world.inside(world.new_process("app"), app())
    return got


class TestWorld:
    def test_acknowledged_messages_survive_a_power_cut(self) -> None:
        for seed in range(3):
            got = run_world(a_journey, seed)
            assert set(got) == {"before", "after"}

    def test_the_same_seed_gives_the_same_run(self) -> None:
        async def scenario(world: SimWorld) -> tuple[list[str], int, int, float]:
            got = await a_journey(world)
            return got, world.network.trace, world.network.delivered, world.loop.time()

        first = run_world(scenario, 5)
        assert run_world(scenario, 5) == first
        assert run_world(scenario, 6)[1] != first[1]

    def test_a_wrong_setting_is_refused(self) -> None:
        async def scenario(world: SimWorld) -> None:
            with pytest.raises(ConfigError, match="noSuchKey"):
                await world.start_broker("broker-a", {"noSuchKey": "1"})

        run_world(scenario)

    def test_nothing_is_left_when_it_ends(self) -> None:
        async def scenario(world: SimWorld) -> tuple[SimLoop, int]:
            await a_journey(world)
            await world.close()
            await asyncio.sleep(5)
            return world.loop, len(asyncio.all_tasks())

        loop, tasks = run_world(scenario)
        assert tasks == 1
        assert not loop.network.connections
