"""Tables written off the loop: nobody waits who need not, versions stay in order, and what the disk refuses is told."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.broker.parts import GatedDisk, eventually, send_request

from rocketline.async_table import AsyncTable, Edit, OffLoop, when_saved
from rocketline.broker import Broker, BrokerConfig
from rocketline.broker.tables.json_table import JsonTable
from rocketline.errors import StoreError
from rocketline.protocol.bodies import ConsumerOffsetTable, TopicConfigSerializeWrapper
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.store.config import StoreConfig
from rocketline.testing.disks import FaultyDisk, MemoryDisk
from rocketline.transport import RemotingClient

FILE = Path("/config/numbers.json")
SMALL = StoreConfig(log_segment_bytes=1 << 20, queue_segment_bytes=2000, index_slots=100, index_entries=500)


def adding(name: str) -> Edit[ConsumerOffsetTable]:
    """An edit as tables have them: what there was, and one more, numbered."""

    def edit(former: ConsumerOffsetTable) -> ConsumerOffsetTable:
        table = former.offset_table
        return ConsumerOffsetTable(offset_table=table | {name: {0: len(table)}})

    return edit


class TableOnDisk:
    """A table of numbered names on a disk whose writes can be held up."""

    def __init__(self) -> None:
        memory = MemoryDisk()
        memory.make_folder(FILE.parent)
        self.disk = GatedDisk(memory, "write")
        self.file = JsonTable(self.disk, FILE, ConsumerOffsetTable)
        self.off_loop = OffLoop()
        self.counts: list[str] = []
        self.table = AsyncTable(self.file, ConsumerOffsetTable(), self._use, self.off_loop)

    def _use(self, content: ConsumerOffsetTable) -> None:
        self.counts = list(content.offset_table)

    def saved(self) -> list[str]:
        found = self.file.load()
        return [] if found is None else list(found.offset_table)


@pytest.fixture
async def table_on_disk() -> AsyncIterator[TableOnDisk]:
    made = TableOnDisk()
    yield made
    made.disk.gate.set()
    await made.off_loop.finish()


async def test_what_comes_by_itself_counts_while_the_disk_stalls(table_on_disk: TableOnDisk) -> None:
    table_on_disk.disk.gate.clear()
    table_on_disk.table.change(adding("a"))
    assert table_on_disk.counts == ["a"]
    assert table_on_disk.saved() == []
    table_on_disk.disk.gate.set()
    await table_on_disk.off_loop.finish()
    assert table_on_disk.saved() == ["a"]


async def test_an_order_counts_when_it_is_saved(table_on_disk: TableOnDisk) -> None:
    table_on_disk.disk.gate.clear()
    told: list[list[str]] = []
    saving = table_on_disk.table.change_saved(adding("a"), lambda: told.append(table_on_disk.counts))
    assert saving is not None
    await asyncio.to_thread(table_on_disk.disk.reached.wait, PATIENCE_S)
    assert (table_on_disk.counts, told, saving.done()) == ([], [], False)
    table_on_disk.disk.gate.set()
    await saving
    assert (table_on_disk.counts, told, table_on_disk.saved()) == (["a"], [["a"]], ["a"])


async def test_many_changes_during_one_slow_write_are_one_more_write(table_on_disk: TableOnDisk) -> None:
    writes = 0
    real = table_on_disk.disk.write_atomic

    def counted(path: Path, data: bytes, keep_backup: bool = False) -> None:
        nonlocal writes
        writes += 1
        real(path, data, keep_backup)

    table_on_disk.disk.write_atomic = counted  # type: ignore[method-assign]
    table_on_disk.disk.gate.clear()
    names = [f"n{number:02}" for number in range(50)]
    for name in names:
        table_on_disk.table.change(adding(name))
    table_on_disk.disk.gate.set()
    await table_on_disk.off_loop.finish()
    assert (table_on_disk.saved(), writes) == (names, 2)


async def test_orders_and_what_came_by_itself_meanwhile_are_both_kept(table_on_disk: TableOnDisk) -> None:
    table_on_disk.disk.gate.clear()
    order = table_on_disk.table.change_saved(adding("ordered"))
    assert order is not None
    table_on_disk.table.change(adding("by itself"))
    assert table_on_disk.counts == ["by itself"]
    table_on_disk.disk.gate.set()
    await order
    # Numbered anew: the second came to count first.
    assert table_on_disk.counts == ["by itself", "ordered"]
    await table_on_disk.off_loop.finish()
    assert table_on_disk.saved() == table_on_disk.counts


async def test_an_order_the_disk_refuses_has_not_happened(table_on_disk: TableOnDisk) -> None:
    table_on_disk.disk.fail("write", errno.ENOSPC)
    saving = table_on_disk.table.change_saved(adding("a"), pytest.fail)
    assert saving is not None
    with pytest.raises(StoreError, match="No space left"):
        await saving
    assert table_on_disk.counts == []
    table_on_disk.table.save_again()
    await table_on_disk.off_loop.finish()
    assert table_on_disk.saved() == []


async def test_what_came_by_itself_is_saved_when_the_disk_takes_it_again(table_on_disk: TableOnDisk) -> None:
    table_on_disk.disk.fail("write", errno.ENOSPC)
    table_on_disk.table.change(adding("a"))
    await table_on_disk.off_loop.finish()
    assert (table_on_disk.counts, table_on_disk.saved()) == (["a"], [])
    table_on_disk.table.save_again()
    await table_on_disk.off_loop.finish()
    assert table_on_disk.saved() == ["a"]


async def test_a_stop_saves_the_rest(table_on_disk: TableOnDisk) -> None:
    table_on_disk.disk.fail("write", errno.ENOSPC)
    table_on_disk.table.change(adding("a"))
    await table_on_disk.off_loop.finish()
    table_on_disk.table.save_rest()
    assert table_on_disk.saved() == ["a"]


async def test_an_order_whose_asker_left_is_carried_out(table_on_disk: TableOnDisk) -> None:
    table_on_disk.disk.gate.clear()
    saving = table_on_disk.table.change_saved(adding("a"))
    assert saving is not None
    saving.cancel()
    table_on_disk.disk.gate.set()
    await table_on_disk.off_loop.finish()
    assert table_on_disk.counts == table_on_disk.saved() == ["a"]


async def test_a_failure_after_the_save_is_told_and_the_next_order_works(table_on_disk: TableOnDisk) -> None:
    def fail() -> None:
        raise StoreError("queues cannot be deleted")

    saving = table_on_disk.table.change_saved(adding("a"), fail)
    assert saving is not None
    with pytest.raises(StoreError, match="cannot be deleted"):
        await saving
    following = table_on_disk.table.change_saved(adding("b"))
    assert following is not None
    await following
    assert table_on_disk.counts == ["a", "b"]


async def test_an_answer_is_made_when_everything_is_saved() -> None:
    answer = Command(0)
    assert when_saved([None, None], lambda: answer) is answer
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reply = when_saved([None, first], lambda: when_saved([first], lambda: answer))
    first.set_result(None)
    assert not isinstance(reply, Command)
    assert await reply is answer  # type: ignore[misc]


# A whole broker


class OneTableStalls(GatedDisk):
    """Holds up writes of topics.json only."""

    def check(self, operation: str, path: Path) -> None:
        super().check(operation if path.name == "topics.json" else "", path)


class Served:
    """A broker on a disk in memory, and a client."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.broker = Broker(BrokerConfig(port=0, store_root="/data", store=SMALL), disk=disk)
        self.client = RemotingClient()

    async def __aenter__(self) -> Served:
        await self.broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.broker.close()

    async def ask(self, command: Command) -> Command:
        return await self.client.call(self.broker.address, command, PATIENCE_S)

    async def create(self, topic: str) -> Command:
        ext = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        return await self.ask(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext))


async def test_a_send_to_a_new_topic_does_not_wait_for_the_table_and_an_order_does() -> None:
    disk = OneTableStalls(MemoryDisk(), "write")
    async with Served(disk) as served:
        disk.gate.clear()
        assert (await served.ask(send_request("made-by-a-send"))).code == ResponseCode.SUCCESS
        order = asyncio.create_task(served.create("ordered"))
        # Others are served meanwhile, and the topic does not count yet.
        assert (await served.ask(send_request("another"))).code == ResponseCode.SUCCESS
        topics = served.broker.parts.topics
        assert not order.done()
        assert topics.get("ordered") is None
        disk.gate.set()
        assert (await order).code == ResponseCode.SUCCESS
        assert {"made-by-a-send", "another", "ordered"} <= set(topics.table)
    saved = JsonTable(disk, Path("/data/config/topics.json"), TopicConfigSerializeWrapper).load()
    assert saved is not None
    assert (saved.topic_config_table, saved.data_version) == (topics.table, topics.version)


async def test_a_topic_lost_by_a_crash_is_found_by_its_queues() -> None:
    memory = MemoryDisk()
    disk = OneTableStalls(memory, "write")
    async with Served(disk) as served:
        disk.gate.clear()
        answer = await served.ask(send_request("orders", b"kept", queue_id=3))
        assert answer.code == ResponseCode.SUCCESS
        await served.ask(send_request("%RETRY%readers", b"again"))
        await eventually(lambda: served.broker.parts.store.topics() >= {"orders", "%RETRY%readers"})
        after = memory.after_kill()
        disk.gate.set()
    async with Served(FaultyDisk(after)) as again:
        found = again.broker.parts.topics.require("orders")
        assert (found.read_queue_nums, found.write_queue_nums, found.perm) == (8, 8, 6)
        assert again.broker.parts.topics.require("%RETRY%readers").write_queue_nums == 1
        assert again.broker.parts.store.max_offset("orders", 3) == 1
        saved = JsonTable(FaultyDisk(after), Path("/data/config/topics.json"), TopicConfigSerializeWrapper)
        await eventually(lambda: "orders" in (saved.load() or TopicConfigSerializeWrapper()).topic_config_table)


async def test_a_stop_that_cannot_save_topics_is_followed_by_a_search_for_them() -> None:
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    async with Served(disk) as served:
        disk.fail("write", errno.ENOSPC, part="topics.json", forever=True)
        assert (await served.ask(send_request("orders", b"kept"))).code == ResponseCode.SUCCESS
    disk.heal()
    async with Served(disk) as again:
        assert again.broker.parts.topics.get("orders") is not None
        assert again.broker.parts.store.max_offset("orders", 0) == 1


async def test_a_deleted_topic_stays_away_after_a_crash() -> None:
    memory = MemoryDisk()
    async with Served(FaultyDisk(memory)) as served:
        await served.ask(send_request("orders", b"old"))
        await served.ask(send_request("bills", b"kept"))
        await eventually(lambda: served.broker.parts.store.topics() >= {"orders", "bills"})
        assert (await served.ask(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}))).code == 0
        after = memory.after_kill()
    async with Served(FaultyDisk(after)) as again:
        assert again.broker.parts.topics.get("orders") is None
        assert again.broker.parts.topics.get("bills") is not None
        answer = await again.ask(send_request("orders", b"new"))
        assert (answer.ext or {})["queueOffset"] == "0"
