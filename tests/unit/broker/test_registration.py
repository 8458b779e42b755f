"""Registration with name servers played by a real server on loopback: who is told what, and when one of them fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.broker.name_servers import FakeNameServer
from tests.unit.broker.parts import eventually

from rocketline.broker.config import RegistrationConfig, TopicConfigDefaults
from rocketline.broker.registration import Identity, Registration
from rocketline.broker.tables.json_table import JsonTable
from rocketline.broker.tables.topics import Topics, system_topics
from rocketline.clock import ManualClock
from rocketline.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper, decode_registration
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.headers import RegisterBrokerHeader, UnregisterBrokerHeader
from rocketline.testing.disks import MemoryDisk
from rocketline.transport import RemotingClient

IDENTITY = Identity("broker-a", "DefaultCluster", 0, "10.9.8.7:10911")
"""Never changed: each registration has a copy."""
NEVER_S = 1000.0


@pytest.fixture
def topics() -> Topics:
    disk = MemoryDisk()
    disk.make_folder(Path("/config"))
    file = JsonTable(disk, Path("/config/topics.json"), TopicConfigSerializeWrapper)
    topics = Topics(file, system_topics("DefaultCluster", "broker-a", TopicConfigDefaults()), ManualClock())
    topics.load()
    return topics


@asynccontextmanager
async def registering(
    topics: Topics, *addresses: str, interval_s: float = NEVER_S, timeout_s: float = PATIENCE_S, permission: int = 6
) -> AsyncIterator[Registration]:
    async with RemotingClient() as client:
        config = RegistrationConfig(";".join(addresses), round(interval_s * 1000), round(timeout_s * 1000))
        registration = Registration(replace(IDENTITY), config, topics, client, ManualClock(), permission)
        topics.subscribe(registration.topics_changed)
        yield registration


@asynccontextmanager
async def running(registration: Registration) -> AsyncIterator[None]:
    task = asyncio.create_task(registration.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_every_name_server_is_told_everything(topics: Topics) -> None:
    async with FakeNameServer() as first, FakeNameServer() as second:
        async with registering(topics, first.address, second.address) as registration:
            await registration.register_all()
        for name_server in (first, second):
            [request] = name_server.told
            header = RegisterBrokerHeader.decode(request)
            assert (header.broker_name, header.cluster_name, header.broker_id) == ("broker-a", "DefaultCluster", 0)
            assert (header.broker_addr, (request.ext or {})["haServerAddr"]) == (IDENTITY.address, "")
            assert (header.compressed, header.body_crc32) == (False, crc32(request.body) & 0x7FFFFFFF)
            wrapper = decode_registration(request.body, False, request.version).topic_config_serialize_wrapper
            assert wrapper.topic_config_table == topics.table
            assert wrapper.data_version == topics.version


async def test_a_changed_topic_is_announced_at_once_and_alone(topics: Topics) -> None:
    async with (
        FakeNameServer() as first,
        FakeNameServer() as second,
        registering(topics, first.address, second.address) as registration,
    ):
        await registration.register_all()
        async with running(registration):
            topics.put([TopicConfig("orders", 3, 3)])
            await eventually(lambda: len(first.told) == len(second.told) == 2)
            assert first.topics() == second.topics() == {"orders"}
            topics.put([TopicConfig("bills")])
            topics.put([TopicConfig("refunds")])
            await eventually(lambda: len(first.told) == 3)
            assert first.topics() == {"bills", "refunds"}


async def test_everything_is_told_again_and_again(topics: Topics) -> None:
    async with FakeNameServer() as name_server:
        async with registering(topics, name_server.address, interval_s=0.01) as registration, running(registration):
            await eventually(lambda: len(name_server.told) >= 3)
        assert all(name_server.topics(number) == set(topics.table) for number in range(3))


async def test_a_full_registration_takes_pending_changes_with_it(topics: Topics) -> None:
    async with FakeNameServer() as name_server, registering(topics, name_server.address) as registration:
        topics.put([TopicConfig("orders")])
        await registration.register_all()
        async with running(registration):
            topics.put([TopicConfig("bills")])
            await eventually(lambda: len(name_server.told) == 2)
        assert name_server.topics(0) == set(topics.table) - {"bills"}
        assert name_server.topics(1) == {"bills"}


async def test_one_that_is_down_does_not_hurt_and_gets_everything_when_it_is_back(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeNameServer() as gone:
        port = gone.port
    async with FakeNameServer() as up, registering(topics, f"127.0.0.1:{port}", up.address) as registration:
        with caplog.at_level(logging.INFO, "rocketline.broker.registration"):
            await registration.register_all()
            await registration.register_all()
            assert len(up.told) == 2
            assert caplog.text.count(f"name server 127.0.0.1:{port}") == 1
            async with running(registration), FakeNameServer(port) as back:
                await _until_told(back, lambda: topics.put([TopicConfig("orders")]))
                assert back.topics(0) == set(topics.table)
                await eventually(lambda: up.topics() == {"orders"})
                topics.put([TopicConfig("bills")])
                await eventually(lambda: back.topics() == {"bills"})
        assert "is back" in caplog.text


async def _until_told(name_server: FakeNameServer, change: Callable[[], None]) -> None:
    """A client that could not connect waits a moment before it tries again; so the change is repeated."""
    async with asyncio.timeout(PATIENCE_S):
        while not name_server.told:
            change()
            await asyncio.sleep(0.02)


async def test_one_that_never_answers_does_not_keep_news_from_the_others(topics: Topics) -> None:
    async with (
        FakeNameServer() as silent,
        FakeNameServer() as sound,
        registering(topics, silent.address, sound.address, timeout_s=NEVER_S) as registration,
        running(registration),
    ):
        silent.hangs = True
        topics.put([TopicConfig("orders")])
        await eventually(lambda: len(silent.told) == len(sound.told) == 1)
        topics.put([TopicConfig("bills")])
        await eventually(lambda: len(sound.told) == 2)
        assert sound.topics() == {"bills"}
        assert len(silent.told) == 1


async def test_one_that_never_answers_does_not_keep_a_broker_from_starting(
    topics: Topics, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketline.broker.registration.FIRST_ANSWER_S", 0.5)
    async with FakeNameServer() as silent, FakeNameServer() as sound:
        silent.hangs = True
        async with registering(topics, silent.address, sound.address, timeout_s=NEVER_S) as registration:
            await registration.register_all()
            await eventually(lambda: len(sound.told) == 1)
            assert f"name server {silent.address}" in caplog.text


async def test_one_that_refuses_a_single_topic_gets_all_of_them(topics: Topics) -> None:
    """A name server that was restarted does not know the broker, and takes its first registration only complete."""
    async with FakeNameServer() as name_server, registering(topics, name_server.address) as registration:
        await registration.register_all()
        async with running(registration):
            name_server.code = ResponseCode.SYSTEM_ERROR
            topics.put([TopicConfig("orders")])
            await eventually(lambda: len(name_server.told) == 3)
        assert name_server.topics(1) == {"orders"}
        assert name_server.topics(2) == set(topics.table)


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999", "127.0.0.1:0", ":9876", "127.0.0.1:1"])
async def test_an_address_that_leads_nowhere_is_a_log_line(
    topics: Topics, caplog: pytest.LogCaptureFixture, address: str
) -> None:
    async with FakeNameServer() as up, registering(topics, address, up.address) as registration:
        await registration.register_all()
        assert len(up.told) == 1
        assert f"name server {address}" in caplog.text


async def test_without_name_servers_nothing_happens(topics: Topics) -> None:
    async with registering(topics) as registration:
        await registration.register_all()
        topics.put([TopicConfig("orders")])
        await registration.run()
        await registration.unregister()


async def test_a_broker_that_stops_says_goodbye_to_all(topics: Topics) -> None:
    async with FakeNameServer() as first, FakeNameServer() as second:
        async with registering(topics, first.address, "127.0.0.1:1", second.address) as registration:
            await registration.register_all()
            await registration.unregister()
        for name_server in (first, second):
            assert [request.code for request in name_server.told] == [103, 104]
            header = UnregisterBrokerHeader.decode(name_server.told[1])
            assert (header.broker_name, header.cluster_name) == ("broker-a", "DefaultCluster")
            assert (header.broker_addr, header.broker_id) == (IDENTITY.address, 0)


async def test_a_new_number_is_told_at_once_whatever_other_name_servers_do(topics: Topics) -> None:
    async with FakeNameServer() as hanging, FakeNameServer() as sound:
        async with registering(topics, hanging.address, sound.address) as registration:
            await registration.register_all()
            hanging.hangs = True
            telling = asyncio.create_task(registration.register_as(2, 7))
            await eventually(lambda: len(sound.told) == 3)
            assert [request.code for request in hanging.told] == [103, 104]
            telling.cancel()
            await asyncio.wait([telling])
        assert UnregisterBrokerHeader.decode(sound.told[1]).broker_id == 0
        assert RegisterBrokerHeader.decode(sound.told[2]).broker_id == 2


@pytest.mark.parametrize(("permission", "seen"), [(6, 7), (4, 5), (2, 3), (0, 1)])
async def test_a_broker_that_may_not_be_used_says_so_for_every_topic(
    topics: Topics, permission: int, seen: int
) -> None:
    async with FakeNameServer() as name_server:
        async with registering(topics, name_server.address, permission=permission) as registration:
            await registration.register_all()
        [request] = name_server.told
        wrapper = decode_registration(request.body, False, request.version).topic_config_serialize_wrapper
        assert wrapper.topic_config_table["TBW102"].perm == seen
        assert wrapper.topic_config_table["TBW102"].write_queue_nums == 8
        assert topics.require("TBW102").perm == 7
