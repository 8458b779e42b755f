from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.client.fakes import QUICK_OPTIONS, FakeCluster

from rocketline.client import MessageModel, PushConsumer
from rocketline.client.consumer.group.offsets import BrokerOffsets, LocalOffsets
from rocketline.client.session import open_session
from rocketline.errors import ConfigError
from rocketline.message import ConsumerOffset, MessageQueue

A = MessageQueue("T", "broker-a", 0)
B = MessageQueue("T", "broker-a", 1)


def local(folder: Path) -> LocalOffsets:
    return LocalOffsets(folder, "127.0.0.1@DEFAULT", "g")


def test_progress_only_grows_unless_reset(tmp_path: Path) -> None:
    offsets = local(tmp_path)
    offsets.update(A, ConsumerOffset(5))
    offsets.update(A, ConsumerOffset(3))
    assert offsets.get(A) == 5
    offsets.update(A, ConsumerOffset(3), may_decrease=True)
    assert offsets.get(A) == 3
    assert offsets.get(B) is None


async def test_local_progress_survives_a_restart(tmp_path: Path) -> None:
    offsets = local(tmp_path)
    await offsets.load()
    offsets.update(A, ConsumerOffset(5))
    offsets.update(B, ConsumerOffset(7))
    await offsets.persist([A])
    again = local(tmp_path)
    await again.load()
    assert (await again.read(A), await again.read(B)) == (5, 7)


async def test_the_file_is_the_one_javas_client_reads(tmp_path: Path) -> None:
    offsets = local(tmp_path)
    offsets.update(A, ConsumerOffset(5))
    await offsets.persist([A])
    path = tmp_path / "127.0.0.1@DEFAULT" / "g" / "offsets.json"
    text = '{\n\t"offsetTable":{\n\t\t{"brokerName":"broker-a","queueId":0,"topic":"T"}:5\n\t}\n}'
    assert path.read_text() == text, "the key bare: as a string Java 5.x cannot read it"


async def test_the_file_of_javas_client_is_read(tmp_path: Path) -> None:
    path = tmp_path / "127.0.0.1@DEFAULT" / "g" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text(
        '{\n\t"offsetTable":{{\n\t\t"brokerName":"broker-a",\n\t\t"queueId":0,\n\t\t"topic":"T"\n\t}:12\n\t}\n}'
    )
    offsets = local(tmp_path)
    await offsets.load()
    assert await offsets.read(A) == 12


@pytest.mark.parametrize("damage", ["", "{half", '{"offsetTable":[]}', '{"offsetTable":{"no queue":1}}'])
async def test_a_damaged_file_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    offsets = local(tmp_path)
    for value in (5, 6):
        offsets.update(A, ConsumerOffset(value))
        await offsets.persist([A])
    (tmp_path / "127.0.0.1@DEFAULT" / "g" / "offsets.json").write_text(damage)
    again = local(tmp_path)
    await again.load()
    assert await again.read(A) == 5


async def test_a_crash_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    offsets = local(tmp_path)
    offsets.update(A, ConsumerOffset(5))
    await offsets.persist([A])
    path = tmp_path / "127.0.0.1@DEFAULT" / "g" / "offsets.json"
    path.rename(path.with_suffix(".json.bak"))
    again = local(tmp_path)
    await again.load()
    assert await again.read(A) == 5


async def test_one_queue_that_cannot_be_committed_does_not_stop_the_others(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 2)
    session = open_session("127.0.0.1@offsets", [cluster.namesrv], QUICK_OPTIONS)
    offsets = BrokerOffsets(session, "g")
    ghost = MessageQueue("T", "ghost", 0)
    for queue in (ghost, A, B):
        offsets.update(queue, ConsumerOffset(4))
    cluster.broker.script(15, 1)
    await offsets.persist([ghost, A, B], wait=True)
    assert len(cluster.broker.committed) == 1
    await offsets.persist([A], wait=True)
    await offsets.persist([MessageQueue("T", "broker-a", 9)], wait=True)
    assert cluster.broker.committed["g", "T", 0] == 4
    offsets.forget(A)
    assert offsets.get(A) is None
    assert await offsets.read(A) == 4
    assert await offsets.read(MessageQueue("T", "broker-a", 9)) is None
    await session.release()


async def test_many_may_want_the_local_file_written_at_once(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "g")
    queues = [MessageQueue("T", "broker-a", number) for number in range(20)]
    for queue in queues:
        offsets.update(queue, ConsumerOffset(queue.queue_id))
    await asyncio.gather(*(offsets.persist([queue]) for queue in queues))
    again = LocalOffsets(tmp_path, "10.0.0.1@DEFAULT", "g")
    await again.load()
    assert [again.get(queue) for queue in queues] == list(range(20))


@pytest.mark.parametrize("backup", [None, "", "{half"])
async def test_without_a_readable_file_nothing_starts(tmp_path: Path, backup: str | None) -> None:
    """An empty table would make the consumer skip to the end of its queues without a word."""
    path = tmp_path / "127.0.0.1@DEFAULT" / "g" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text("{half")
    if backup is not None:
        path.with_name("offsets.json.bak").write_text(backup)
    with pytest.raises(ConfigError, match="neither the offsets of this consumer nor their backup") as caught:
        await local(tmp_path).load()
    assert str(path) in str(caught.value)
    assert "remove both" in str(caught.value)
    assert path.read_text() == "{half", "evidence is kept"


async def test_a_consumer_with_damaged_offsets_says_so_and_asks_for_nothing(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.add_topic("T", 1)
    consumer = PushConsumer(
        cluster.namesrv,
        group="g",
        model=MessageModel.BROADCASTING,
        offsets=tmp_path,
        options=QUICK_OPTIONS,
    )
    path = tmp_path / consumer.client_id / "g" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text("garbage")
    async with consumer:
        consumer.subscribe("T", "*", lambda message: None)
        with pytest.raises(ConfigError, match=r"offsets\.json"):
            await consumer.start()
        assert not cluster.broker.requests
        path.unlink()
        await consumer.start()
        assert len(consumer.assigned) == 1
