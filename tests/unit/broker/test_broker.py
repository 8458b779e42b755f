"""A whole broker on a free port: it starts, stops, starts again with everything; a failed start leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.replicas import WANTING_REPLICAS
from tests.unit.broker.name_servers import FakeNameServer
from tests.unit.broker.parts import GatedDisk, eventually, heartbeat, pull_request, send_request

from rocketline.auth.config import AuthConfig
from rocketline.broker import Broker, BrokerConfig
from rocketline.broker.config import GroupConfigDefaults, RegistrationConfig
from rocketline.clock import ManualClock
from rocketline.errors import ConfigError, ConnectFailed, ConnectionLost, RocketlineError, StoreError, StoreInUse
from rocketline.protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers.read import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.records import decode_messages
from rocketline.settings import with_values
from rocketline.store.config import FlushConfig, FlushDiskType, RetentionConfig, StoreConfig, TimerConfig
from rocketline.testing.disks import FaultyDisk, MemoryDisk
from rocketline.transport import RemotingClient, Router

SMALL = StoreConfig(log_segment_bytes=1 << 20, queue_segment_bytes=2000, index_slots=100, index_entries=500)
HELD = SUBSCRIPTION | SUSPEND


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    return BrokerConfig(port=0, store_root=str(tmp_path / "data"), store=SMALL)


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """No thread of the store outlives its broker; those of a cluster shared by the session stay."""
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in left if name.startswith("rocketline-")] == []


class Caller:
    """Calls of one broker."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self.client = client
        self.address = address

    async def ask(self, command: Command) -> Command:
        return await self.client.call(self.address, command, PATIENCE_S)

    async def offset(self, group: str = "readers", topic: str = "orders", queue_id: int = 0) -> int:
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        answer = await self.ask(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext))
        assert answer.ext is not None
        return int(answer.ext["offset"])

    async def bodies(self, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
        answer = await self.ask(pull_request(topic, queue_id=queue_id))
        return [message.body for message in decode_messages(answer.body)]

    async def close(self) -> None:
        await self.client.close()


def caller(broker: Broker) -> Caller:
    return Caller(RemotingClient(), broker.address)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
        return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def other_tasks() -> set[asyncio.Task[object]]:
    await asyncio.sleep(0)
    current = asyncio.current_task()
    return {task for task in asyncio.all_tasks() if task is not current}


async def assert_refused(config: BrokerConfig, error: type[RocketlineError], match: str, **options: object) -> None:
    """A start fails in these words and leaves no task, no thread, no lock and no taken port."""
    before = await other_tasks()
    port = config.port or free_port()
    broker = Broker(replace(config, port=port), **options)  # type: ignore[arg-type]
    with pytest.raises(error, match=match):
        await broker.start()
    await broker.close()
    assert await other_tasks() == before
    if error is not ConfigError or "listen" not in match:
        assert is_free(port)


# Starting and stopping


async def test_it_serves_at_the_address_it_names(config: BrokerConfig) -> None:
    async with Broker(config) as broker:
        assert broker.address == f"127.0.0.1:{broker.port}"
        assert broker.port != 0
        client = caller(broker)
        answer = await client.ask(send_request())
        assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0")
        assert await client.bodies() == [b"hello"]
        await client.close()


async def test_before_it_is_ready_and_after_it_stopped_nobody_gets_in(config: BrokerConfig) -> None:
    broker = Broker(config)
    await broker.start()
    client = caller(broker)
    await client.ask(send_request())
    await broker.close()
    with pytest.raises((ConnectFailed, ConnectionLost)):
        await client.ask(send_request())
    assert is_free(broker.port)
    await client.close()


async def test_stopping_twice_or_before_the_start_does_nothing(config: BrokerConfig) -> None:
    broker = Broker(config)
    await broker.close()
    await broker.start()
    await broker.close()
    await broker.close()


async def test_no_task_outlives_it(config: BrokerConfig) -> None:
    before = await other_tasks()
    async with Broker(config) as broker:
        client = caller(broker)
        client_calls = [asyncio.ensure_future(client.ask(pull_request(sys_flag=HELD))) for _ in range(3)]
        await client.ask(send_request())
        await asyncio.gather(*client_calls)
        await client.close()
        assert await other_tasks() > before
    assert await other_tasks() == before


async def test_a_restart_keeps_everything(config: BrokerConfig) -> None:
    async with Broker(config) as broker:
        client = caller(broker)
        for number in range(5):
            await client.ask(send_request(body=b"%d" % number, properties={"UNIQ_KEY": f"U{number}", "KEYS": "key"}))
        await client.ask(send_request("delayed", properties={"UNIQ_KEY": "U", "DELAY": "18"}))
        await client.ask(heartbeat())
        await client.ask(pull_request(sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=3))
        topics = (await client.ask(Command(RequestCode.GET_ALL_TOPIC_CONFIG))).body
        groups = (await client.ask(Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))).body
        await client.close()
    async with Broker(config) as broker:
        client = caller(broker)
        assert await client.bodies() == [b"0", b"1", b"2", b"3", b"4"]
        assert await client.bodies("SCHEDULE_TOPIC_XXXX", 17) == [b"hello"]
        assert await client.offset() == 3
        again = (await client.ask(Command(RequestCode.GET_ALL_TOPIC_CONFIG))).body
        assert decode_body(TopicConfigSerializeWrapper, again) == decode_body(TopicConfigSerializeWrapper, topics)
        again = (await client.ask(Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))).body
        assert decode_body(SubscriptionGroupWrapper, again) == decode_body(SubscriptionGroupWrapper, groups)
        answer = await client.ask(send_request(body=b"5"))
        assert answer.ext["queueOffset"] == "5"
        found = await client.ask(
            Command(
                RequestCode.QUERY_MESSAGE,
                {"topic": "orders", "key": "key", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str(1 << 62)},
            )
        )
        assert len(decode_messages(found.body)) == 5
        await client.close()


async def test_a_clean_stop_leaves_no_abort_file(config: BrokerConfig) -> None:
    async with Broker(config):
        assert (Path(config.store_root) / "abort").exists()
    assert not (Path(config.store_root) / "abort").exists()


async def test_held_pulls_are_answered_when_it_stops_and_new_ones_are_not_held(config: BrokerConfig) -> None:
    broker = Broker(config)
    await broker.start()
    client = caller(broker)
    await client.ask(send_request())
    answers: list[int] = []

    async def poll_for_ever() -> None:
        """As a consumer does: the next pull goes out as soon as one is answered."""
        while True:
            answers.append((await client.ask(pull_request(queue_offset=1, sys_flag=HELD))).code)

    poller = asyncio.create_task(poll_for_ever())
    await eventually(lambda: len(broker.parts.waiters) == 1)
    await broker.close()
    with pytest.raises((ConnectionLost, ConnectFailed)):
        await poller
    assert len(answers) >= 1
    assert set(answers) == {ResponseCode.PULL_NOT_FOUND}
    assert len(broker.parts.waiters) == 0
    await client.close()


# Starts that fail


async def test_it_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match="storePathRootDir"):
        Broker(BrokerConfig(port=0))


@pytest.mark.parametrize(("settings", "words"), WANTING_REPLICAS)
async def test_what_only_replication_could_do_is_refused_before_anything_is_touched(
    config: BrokerConfig, settings: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        Broker(with_values(config, settings))
    assert all(word in str(caught.value) for word in words), caught.value
    assert not Path(config.store_root).exists()


async def test_a_port_in_use_is_named_and_the_folder_stays_free(config: BrokerConfig) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        await assert_refused(replace(config, port=port), ConfigError, rf"cannot listen on 127\.0\.0\.1:{port}")
    async with Broker(config):
        pass


async def test_nobody_can_take_the_port_while_the_broker_starts(config: BrokerConfig) -> None:
    """The port is told to the name servers before anyone is accepted on it; it must be ours by then."""
    refusals: list[OSError] = []
    port = free_port()

    class Moment(FakeNameServer):
        def _note(self, channel, request):  # type: ignore[no-untyped-def]
            with socket.socket() as intruder:
                intruder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    intruder.bind(("127.0.0.1", port))
                    intruder.listen()
                except OSError as error:
                    refusals.append(error)
            return super()._note(channel, request)

    async with Moment() as name_server:
        registration = RegistrationConfig(namesrv=name_server.address)
        async with Broker(replace(config, port=port, registration=registration)) as broker:
            assert broker.port == port
    assert [request.code for request in name_server.told] == [
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
    ]
    assert len(refusals) == 2


async def test_a_folder_in_use_is_named_and_the_other_broker_is_not_disturbed(config: BrokerConfig) -> None:
    async with Broker(config) as broker:
        await assert_refused(config, StoreInUse, re.escape(config.store_root))
        client = caller(broker)
        assert (await client.ask(send_request())).code == ResponseCode.SUCCESS
        await client.close()


async def test_a_folder_that_is_a_file_is_refused(config: BrokerConfig, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    await assert_refused(config, StoreError, re.escape(config.store_root))
    assert (tmp_path / "data").read_text() == "not a folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_without_permission_is_refused(config: BrokerConfig, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    await assert_refused(config, StoreError, "Permission denied")


@pytest.mark.parametrize(
    ("operation", "part"),
    [("make_folder", ""), ("write", "abort"), ("write", "topics.json"), ("make_folder", "config"), ("open", "index")],
)
async def test_a_disk_that_cannot_be_written_is_refused_and_let_go(
    config: BrokerConfig, operation: str, part: str
) -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.fail(operation, errno.EROFS, part=part, forever=True)
    if operation == "open":
        await _fill_index(config, disk)
    await assert_refused(config, StoreError, "Read-only file system", disk=disk)
    disk.heal()
    async with Broker(config, disk=disk):
        pass


async def _fill_index(config: BrokerConfig, disk: FaultyDisk) -> None:
    """An index file to be opened by the next start."""
    disk.heal()
    async with Broker(config, disk=disk) as broker:
        client = caller(broker)
        await client.ask(send_request())
        await client.close()
    disk.fail("open", errno.EROFS, part="index", forever=True)


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"])
async def test_a_table_that_cannot_be_read_is_named_and_kept(config: BrokerConfig, name: str) -> None:
    async with Broker(config):
        pass
    table = Path(config.store_root) / "config" / name
    backup = table.with_name(name + ".bak")
    table.write_bytes(b"{broken")
    backup.write_bytes(b"{broken as well")
    await assert_refused(config, StoreError, re.escape(name))
    assert (table.read_bytes(), backup.read_bytes()) == (b"{broken", b"{broken as well")
    backup.write_bytes(b"{}")
    async with Broker(config):
        pass


async def test_an_address_nobody_can_reach_is_named(config: BrokerConfig) -> None:
    await assert_refused(replace(config, advertised_host="no such host"), ConfigError, "brokerIP1='no such host'")
    async with Broker(config):
        pass


async def test_a_start_that_is_cancelled_gives_everything_back(config: BrokerConfig) -> None:
    before = await other_tasks()
    async with FakeNameServer() as name_server:
        during = await other_tasks()
        name_server.hangs = True
        registration = RegistrationConfig(namesrv=name_server.address)
        broker = Broker(replace(config, registration=registration))
        start = asyncio.create_task(broker.start())
        await eventually(lambda: len(name_server.told) == 1)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await eventually(lambda: name_server.connection_count == 0)
        assert await other_tasks() == during
        assert is_free(broker.port)
    assert await other_tasks() == before
    async with Broker(config):
        pass


# Name servers


async def test_name_servers_are_told_at_start_of_new_topics_and_at_the_end(config: BrokerConfig) -> None:
    async with FakeNameServer() as first, FakeNameServer() as second:
        registration = RegistrationConfig(namesrv=f" {first.address};{second.address}; ")
        async with Broker(replace(config, registration=registration)) as broker:
            assert [len(server.told) for server in (first, second)] == [1, 1]
            assert {"TBW102", "broker-a"} <= first.topics()
            client = caller(broker)
            await client.ask(send_request("fresh"))
            await eventually(lambda: len(first.told) == len(second.told) == 2)
            assert first.topics() == {"fresh"}
            await client.ask(heartbeat())
            await eventually(lambda: len(first.told) == len(second.told) == 3)
            assert second.topics() == {"%RETRY%readers"}
            await client.close()
        assert [request.code for request in first.told] == [103, 103, 103, 104]
        # Apache's name server insists on the field; nobody listens there, so no address is in it.
        assert {(request.ext or {})["haServerAddr"] for request in first.told[:3]} == {""}


async def test_a_broker_starts_and_serves_while_its_name_server_is_down(
    config: BrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    registration = RegistrationConfig(namesrv=f"127.0.0.1:{port}")
    async with Broker(replace(config, registration=registration)) as broker:
        client = caller(broker)
        assert (await client.ask(send_request())).code == ResponseCode.SUCCESS
        await client.close()
    assert f"name server 127.0.0.1:{port}: cannot connect" in caplog.text


# While it runs


async def test_offsets_are_saved_now_and_then(config: BrokerConfig) -> None:
    async with Broker(replace(config, flush_offsets_ms=5)) as broker:
        client = caller(broker)
        await client.ask(send_request())
        await client.ask(pull_request(sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=1))
        saved = Path(config.store_root) / "config" / "consumerOffset.json"
        await eventually(lambda: saved.exists() and b'"orders@readers"' in saved.read_bytes())
        await client.close()


async def test_a_save_that_failed_is_made_up_for_at_the_end(
    config: BrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk(MemoryDisk())
    async with Broker(replace(config, flush_offsets_ms=5), disk=disk) as broker:
        client = caller(broker)
        await client.ask(send_request())
        disk.fail("write", errno.ENOSPC, part="consumerOffset", forever=True)
        await client.ask(pull_request(sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=1))
        await eventually(lambda: "No space left" in caplog.text)
        await client.close()
        disk.heal()
    async with Broker(config, disk=disk) as broker:
        client = caller(broker)
        assert await client.offset() == 1
        await client.close()


async def test_a_stop_waits_for_a_save_under_way_and_the_last_offsets_win(config: BrokerConfig) -> None:
    disk = GatedDisk(MemoryDisk(), "write")
    broker = Broker(replace(config, flush_offsets_ms=5), disk=disk)
    await broker.start()
    client = caller(broker)
    for _ in range(3):
        await client.ask(send_request())
    await client.ask(pull_request())
    disk.reached.clear()
    disk.gate.clear()
    await client.ask(pull_request(sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=1))
    await eventually(disk.reached.is_set)
    await client.ask(pull_request(sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=2))
    stop = asyncio.create_task(broker.close())
    await asyncio.sleep(0)
    assert not stop.done()
    disk.gate.set()
    await stop
    await client.close()
    async with Broker(config, disk=disk) as again:
        client = caller(again)
        assert await client.offset() == 2
        await client.close()


async def test_after_a_power_failure_no_group_is_ahead_of_its_queue(config: BrokerConfig) -> None:
    disk = MemoryDisk()
    sync = replace(config, store=replace(SMALL, flush=FlushConfig(disk_type=FlushDiskType.SYNC_FLUSH)))
    broker = Broker(sync, disk=disk)
    await broker.start()
    client = caller(broker)
    for number in range(3):
        await client.ask(send_request(body=b"%d" % number))
    await client.ask(pull_request(sys_flag=SUBSCRIPTION | COMMIT_OFFSET, commit_offset=3000))
    await client.close()
    data = broker.parts.offsets.take_changes()
    assert data is not None
    broker.parts.offsets.write(data)
    after = disk.crash()
    await broker.close()
    async with Broker(sync, disk=after) as again:
        client = caller(again)
        assert await client.bodies() == [b"0", b"1", b"2"]
        assert await client.offset() == 3
        await client.close()


async def test_silent_clients_are_dropped(config: BrokerConfig) -> None:
    clock = ManualClock()
    async with Broker(replace(config, client_scan_ms=5), clock=clock) as broker:
        client = caller(broker)
        await client.ask(heartbeat(producers=("shop",)))
        clock.advance(121)
        await eventually(lambda: broker.parts.consumers.get("readers") is None)
        await eventually(lambda: broker.parts.producers.members("shop") == {})
        await eventually(lambda: client.client.connected(client.address) is None)
        await client.close()


@pytest.mark.parametrize(("broker_tells", "group_tells"), [(True, True), (True, False), (False, True)])
async def test_members_are_told_unless_broker_or_group_says_no(
    config: BrokerConfig, broker_tells: bool, group_tells: bool
) -> None:
    told: list[Command] = []
    router = Router({RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: lambda _, notice: told.append(notice)})
    group = SubscriptionGroupConfig("readers", notify_consumer_ids_changed_enable=group_tells)
    async with Broker(replace(config, groups=GroupConfigDefaults(tells_members=broker_tells))) as broker:
        client = Caller(RemotingClient(router), broker.address)
        await client.ask(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(group)))
        await client.ask(heartbeat())  # the notice is written before the answer
        assert len(told) == (1 if broker_tells and group_tells else 0)
        await client.close()


async def test_a_queue_the_disk_has_no_room_for_is_made_up_for_when_it_has(
    config: BrokerConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The record is safe in the log and acknowledged; it becomes readable as soon as its queue can be written."""
    monkeypatch.setattr("rocketline.broker.broker.DISPATCH_AGAIN_S", 0.01)
    disk = FaultyDisk(MemoryDisk())
    async with Broker(config, disk=disk) as broker:
        client = caller(broker)
        disk.fail("reserve", errno.ENOSPC, part="consumequeue", forever=True)
        held = asyncio.ensure_future(client.ask(pull_request("BenchmarkTest", sys_flag=HELD)))
        for number in range(3):
            answer = await client.ask(send_request("BenchmarkTest", body=b"%d" % number))
            assert answer.code == ResponseCode.SUCCESS
        await eventually(lambda: "cannot be made readable now" in caplog.text)
        assert await client.bodies("BenchmarkTest") == []
        disk.heal()
        answer = await held
        assert [message.body for message in decode_messages(answer.body)] == [b"0", b"1", b"2"]
        await client.close()


async def test_when_the_disk_fails_reading_goes_on_and_writing_says_why(config: BrokerConfig) -> None:
    disk = FaultyDisk(MemoryDisk())
    sync = replace(config, store=replace(SMALL, flush=FlushConfig(disk_type=FlushDiskType.SYNC_FLUSH)))
    async with Broker(sync, disk=disk) as broker:
        client = caller(broker)
        assert (await client.ask(send_request(body=b"safe"))).code == ResponseCode.SUCCESS
        disk.fail("sync", errno.EIO, part="commitlog", forever=True)
        for _ in range(3):
            answer = await client.ask(send_request(body=b"lost"))
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "Input/output error" in answer.remark
        assert await client.bodies() == [b"safe"]
        await client.close()


async def test_a_disk_that_fills_up_is_noticed_and_old_files_make_room(config: BrokerConfig) -> None:
    retention = RetentionConfig(interval_ms=1, file_pause_ms=0)
    small = replace(SMALL, log_segment_bytes=4096, max_message_bytes=2048, retention=retention)
    inner = MemoryDisk()
    faulty = FaultyDisk(inner)
    async with Broker(replace(config, store=small), disk=faulty) as broker:
        client = caller(broker)
        for number in range(30):
            assert (await client.ask(send_request(body=b"%04d" % number + bytes(900)))).code == ResponseCode.SUCCESS
        broker.parts.store.flush_now()
        log = Path(config.store_root) / "commitlog"
        assert len(inner.list(log)) >= 10
        faulty.fail("usage", errno.EIO)
        inner.total_bytes = 1_000_000
        inner.used_elsewhere = 950_000
        await eventually(lambda: len(inner.list(log)) == 1)
        await eventually(lambda: not broker.parts.store.is_writable)
        answer = await client.ask(send_request())
        assert (answer.code, "% full" in answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
        inner.used_elsewhere = 0
        await eventually(lambda: broker.parts.store.is_writable)
        assert (await client.ask(send_request(body=b"again"))).code == ResponseCode.SUCCESS
        await client.close()


async def test_short_polling_ends_a_held_pull_early(config: BrokerConfig) -> None:
    async with Broker(replace(config, long_polling=False, short_polling_ms=1)) as broker:
        client = caller(broker)
        await client.ask(send_request())
        answer = await client.ask(pull_request(queue_offset=1, sys_flag=HELD, suspend_ms=1_000_000))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        await client.close()


async def test_a_delayed_message_is_delivered(config: BrokerConfig) -> None:
    async with Broker(replace(config, delay_levels="0s 1s")) as broker:
        client = caller(broker)
        held = asyncio.ensure_future(client.ask(pull_request("BenchmarkTest", sys_flag=HELD)))
        await client.ask(send_request("BenchmarkTest", properties={"UNIQ_KEY": "U", "DELAY": "1"}))
        [message] = decode_messages((await held).body)
        assert (message.body, message.properties["REAL_TOPIC"]) == (b"hello", "BenchmarkTest")
        await client.close()


async def test_bound_to_all_it_names_an_address_of_this_host(config: BrokerConfig) -> None:
    async with Broker(replace(config, bind_host="0.0.0.0", auth=AuthConfig(insecure=True))) as broker:
        host, _, port = broker.address.rpartition(":")
        assert (host not in ("0.0.0.0", ""), int(port)) == (True, broker.port)
        client = Caller(RemotingClient(), f"127.0.0.1:{port}")
        answer = await client.ask(send_request())
        assert answer.code == ResponseCode.SUCCESS
        await client.close()


async def test_it_can_be_told_what_to_name(config: BrokerConfig) -> None:
    async with Broker(replace(config, advertised_host="localhost")) as broker:
        assert broker.address == f"localhost:{broker.port}"
        client = caller(broker)
        answer = await client.ask(send_request())
        assert answer.ext["msgId"].startswith(("7F000001", "00000000000000000000000000000001"))
        await client.close()


@pytest.mark.parametrize("is_mapped", [True, False])
async def test_the_port_it_names_can_be_another_one(
    config: BrokerConfig, caplog: pytest.LogCaptureFixture, is_mapped: bool
) -> None:
    """As in a container: the port that is mapped to ours is registered and in message ids, and a wrong one is reported."""
    mapped = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = mapped.sockets[0].getsockname()[1]
    if not is_mapped:
        mapped.close()
    async with FakeNameServer() as name_server:
        registration = RegistrationConfig(namesrv=name_server.address)
        async with Broker(replace(config, advertised_port=port, registration=registration)) as broker:
            client = Caller(RemotingClient(), f"127.0.0.1:{broker.port}")
            answer = await client.ask(send_request())
            await client.close()
            await asyncio.wait_for(broker._background.finished("own address"), PATIENCE_S)
        told = f"127.0.0.1:{port}"
        assert broker.address == parse_offset_id(answer.ext["msgId"])[0] == told
        assert {command.ext["brokerAddr"] for command in name_server.told} == {told}
    mapped.close()
    assert (f"{told}, which cannot be reached from this broker" in caplog.text) is not is_mapped


async def test_timers_outlive_a_restart_and_a_stop_saves_the_latest(config: BrokerConfig) -> None:
    clock = ManualClock()
    timed = replace(config, store=replace(SMALL, timers=TimerConfig(flush_interval_ms=3_600_000)))
    properties = {"UNIQ_KEY": "U1", "TIMER_DELAY_SEC": "60"}
    async with Broker(timed, clock=clock) as broker:
        client = caller(broker)
        await client.ask(send_request(body=b"done", properties={**properties, "TIMER_DELAY_SEC": "1"}))
        await eventually(lambda: broker.parts.timers.counts.of("orders") == 1)
        broker.parts.timers.take_changes()  # waits for the log to be on disk, and is not the latest when the broker stops
        clock.advance(1)
        await eventually(lambda: broker.parts.timers.counts.of("orders") == 0)
        await client.ask(send_request(body=b"pending", properties=properties))
        await eventually(lambda: broker.parts.timers.counts.of("orders") == 1)
        await client.close()
    async with Broker(timed, clock=clock) as broker:
        client = caller(broker)
        assert await client.bodies() == [b"done"]
        clock.advance(61)
        await eventually(lambda: broker.parts.store.max_offset("orders", 0) == 2)
        assert await client.bodies() == [b"done", b"pending"]
        await client.close()
