"""Settings changed while a broker runs: what may be, what it does at once, and that it is there after a restart."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.broker.name_servers import FakeNameServer
from tests.unit.broker.parts import ROOT, Parts, eventually, pull_request, send_request

from rocketline.broker import Broker, BrokerConfig
from rocketline.broker.changes import CHANGEABLE, NUMBERS, SWITCHES, Change, SavedChanges
from rocketline.broker.config import RegistrationConfig, TopicConfigDefaults
from rocketline.protocol.bodies import DataVersion, decode_body, decode_registration, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers.read import SUBSCRIPTION, SUSPEND
from rocketline.settings import describe, parse_properties
from rocketline.store.config import StoreConfig
from rocketline.transport import RemotingClient

SMALL = StoreConfig(log_segment_bytes=1 << 20, queue_segment_bytes=2000, index_slots=100, index_entries=500)
HELD = SUBSCRIPTION | SUSPEND
FILE = ROOT / "config" / "rocketline.settings.json"


def change(text: str | bytes) -> Command:
    return Command(RequestCode.UPDATE_BROKER_CONFIG, {}, text if isinstance(text, bytes) else text.encode())


def shown(parts: Parts) -> dict[str, str]:
    answer = parts.peer().ask(Command(RequestCode.GET_BROKER_CONFIG))
    assert answer.code == ResponseCode.SUCCESS
    return parse_properties(answer.body.decode())


PRIVATE = ("auth", "password", "credential")


async def test_all_settings_with_a_key_are_shown_but_those_about_accounts(parts: Parts) -> None:
    values = shown(parts)
    keys = {item.key for item in describe(BrokerConfig) if item.key}
    assert set(values) == {key for key in keys if not any(word in key.lower() for word in PRIVATE)}
    assert keys - set(values) >= {"authenticationEnabled", "initAuthenticationUser", "rocketline.authPath"}
    assert (values["brokerPermission"], values["autoCreateTopicEnable"]) == ("6", "true")
    assert (values["flushDiskType"], values["storePathRootDir"]) == ("ASYNC_FLUSH", str(ROOT))


async def test_a_change_is_shown_saved_and_has_a_new_version(parts: Parts) -> None:
    assert parts.peer().ask(change("fileReservedTime=48\nslaveReadEnable = TRUE\n")).code == ResponseCode.SUCCESS
    values = shown(parts)
    assert (values["fileReservedTime"], values["slaveReadEnable"]) == ("48", "true")
    answer = parts.peer().ask(Command(RequestCode.GET_BROKER_CONFIG))
    assert answer.ext is not None
    version = decode_body(DataVersion, answer.ext["version"].encode())
    assert (version.counter, version.timestamp) == (1, parts.clock.now_ms())
    assert b'"fileReservedTime"' in (parts.disk.read(FILE) or b"")


async def test_a_change_to_what_is_there_changes_nothing(parts: Parts) -> None:
    assert parts.peer().ask(change("fileReservedTime=72")).code == ResponseCode.SUCCESS
    assert parts.disk.read(FILE) is None


def test_only_known_settings_of_harmless_kinds_can_be_changed() -> None:
    known = {item.key: item.default for item in describe(BrokerConfig)}
    assert known.keys() >= CHANGEABLE
    assert {key for key in CHANGEABLE if isinstance(known[key], bool)} == SWITCHES
    assert {key for key in CHANGEABLE if type(known[key]) is int} == set(NUMBERS)
    assert not [key for key in CHANGEABLE if "path" in key.lower() or "addr" in key.lower() or "dir" in key.lower()]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing to change"),
        ("# only a comment", "nothing to change"),
        ("storePathRootDir=/tmp/elsewhere", "'storePathRootDir' cannot be changed"),
        ("brokerConfigPath=/etc/passwd", "'brokerConfigPath' cannot be changed"),
        ("namesrvAddr=192.0.2.1:9876", "'namesrvAddr' cannot be changed"),
        ("rocketmqHome=`id`", "'rocketmqHome' cannot be changed"),
        ("filterServerNums=1", "'filterServerNums' cannot be changed"),
        ("listenPort=1", "'listenPort' cannot be changed"),
        ("brokerPermission=8", "a number from 0 to 6"),
        ("brokerPermission=5", "must be 0, 2, 4 or 6"),
        ("fileReservedTime=0", "a number from 1 to"),
        ("fileReservedTime=1e3", "a number from 1 to"),
        ("fileReservedTime=" + "9" * 400, "a number from 1 to"),
        ("fileReservedTime=", "a number from 1 to"),
        ("traceOn=perhaps", "not a valid bool"),
        ("deleteWhen=25", "not between 0 and 23"),
        ("deleteWhen=../..", "not a list of hours"),
        ("fileReservedTime=48\nstorePathRootDir=/x", "'storePathRootDir' cannot be changed"),
        (b"fileReservedTime=\xff", "can't decode"),
    ],
)
async def test_everything_else_is_refused_with_its_reason_and_changes_nothing(
    parts: Parts, text: str | bytes, reason: str
) -> None:
    before = shown(parts)
    answer = parts.peer().ask(change(text))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert reason in (answer.remark or "")
    assert shown(parts) == before
    assert parts.disk.read(FILE) is None


async def test_a_change_of_absurd_size_is_refused(parts: Parts) -> None:
    answer = parts.peer().ask(change("#" * 100_000))
    assert (answer.code, "100000 bytes" in (answer.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)


async def test_a_change_the_disk_refuses_has_not_happened(parts: Parts) -> None:
    parts.disk.fail("write", errno.ENOSPC)
    answer = parts.peer().ask(change("fileReservedTime=48"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert shown(parts)["fileReservedTime"] == "72"


# A whole broker


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    return BrokerConfig(port=0, store_root=str(tmp_path / "data"), store=SMALL)


class Running:
    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        self.broker = broker
        self._client = client

    async def ask(self, command: Command) -> Command:
        return await self._client.call(self.broker.address, command, PATIENCE_S)

    async def change(self, text: str) -> None:
        answer = await self.ask(change(text))
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def code(self, command: Command) -> int:
        return (await self.ask(command)).code


@asynccontextmanager
async def running(config: BrokerConfig) -> AsyncIterator[Running]:
    async with Broker(config) as broker, RemotingClient() as client:
        yield Running(broker, client)


async def test_a_broker_that_may_not_be_written_to_refuses_sends_until_it_may(config: BrokerConfig) -> None:
    async with FakeNameServer() as name_server:
        registration = RegistrationConfig(namesrv=name_server.address)
        async with running(replace(config, registration=registration)) as it:
            assert await it.code(send_request()) == ResponseCode.SUCCESS
            await it.change("brokerPermission=4")
            assert await it.code(send_request()) == ResponseCode.NO_PERMISSION
            assert await it.code(pull_request()) == ResponseCode.SUCCESS
            await eventually(lambda: told_permission(name_server) == 4)
            await it.change("brokerPermission=2")
            assert await it.code(pull_request()) == ResponseCode.NO_PERMISSION
            await it.change("brokerPermission=6")
            assert await it.code(send_request()) == ResponseCode.SUCCESS
            await eventually(lambda: told_permission(name_server) == 6)


def told_permission(name_server: FakeNameServer) -> int | None:
    for request in reversed(name_server.told):
        table = decode_registration(request.body, False, request.version).topic_config_serialize_wrapper
        if "orders" in table.topic_config_table:
            return table.topic_config_table["orders"].perm
    return None


async def test_topics_and_groups_are_made_by_themselves_or_not(config: BrokerConfig) -> None:
    async with running(config) as it:
        await it.change("autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false")
        assert await it.code(send_request("new")) == ResponseCode.TOPIC_NOT_EXIST
        assert await it.code(pull_request(group="new")) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        await it.change("autoCreateTopicEnable=true\nautoCreateSubscriptionGroup=true")
        assert await it.code(send_request("new")) == ResponseCode.SUCCESS
        assert await it.code(pull_request("new", group="new")) == ResponseCode.SUCCESS


async def test_topics_are_made_when_the_broker_was_started_without(config: BrokerConfig) -> None:
    topics = TopicConfigDefaults(auto_create=False, queue_count=3)
    async with running(replace(config, topics=topics)) as it:
        assert await it.code(send_request("new")) == ResponseCode.TOPIC_NOT_EXIST
        await it.change("autoCreateTopicEnable=true")
        assert await it.code(send_request("new")) == ResponseCode.SUCCESS
        assert it.broker.parts.topics.require("new").write_queue_nums == 3, "defaultTopicQueueNums counts"


async def test_pulls_are_woken_by_arrivals_or_not(config: BrokerConfig) -> None:
    async with running(config) as it:
        await it.ask(send_request())
        held = asyncio.ensure_future(it.ask(pull_request(queue_offset=1, sys_flag=HELD, suspend_ms=1_000_000)))
        await eventually(lambda: len(it.broker.parts.waiters) == 1)
        await it.change("longPollingEnable=false\nshortPollingTimeMills=60000")
        assert (await held).code == ResponseCode.PULL_NOT_FOUND, "held for longer than pulls are now: it asks anew"
        held = asyncio.ensure_future(it.ask(pull_request(queue_offset=1, sys_flag=HELD, suspend_ms=1_000_000)))
        await eventually(lambda: len(it.broker.parts.waiters) == 1)
        await it.ask(send_request())
        await eventually(lambda: it.broker.parts.store.max_offset("orders", 0) == 2)
        assert len(it.broker.parts.waiters) == 1
        await it.change("longPollingEnable=true")
        assert (await held).code == ResponseCode.SUCCESS


async def test_parts_that_live_on_work_by_the_new_settings(config: BrokerConfig) -> None:
    async with running(config) as it:
        await it.change("fileReservedTime=5\ntransactionCheckMax=3\ntimerStopDequeue=true")
        broker = it.broker
        assert broker.parts.store.config.retention.reserved_hours == 5
        assert broker.parts.store._threads is not None
        assert broker.parts.store._threads.retention.config.reserved_hours == 5
        assert (broker.parts.checker._config.max_checks, broker.parts.checker._keeps_ms) == (3, 5 * 3_600_000)
        assert broker.parts.timers._config.stop_delivering
        assert await it.code(send_request()) == ResponseCode.SUCCESS


async def test_changes_outlive_the_broker_unless_it_is_configured_anew(config: BrokerConfig) -> None:
    async with running(config) as it:
        await it.change("fileReservedTime=48\ntraceOn=false")
    async with running(config) as it:
        assert (it.broker.config.store.retention.reserved_hours, it.broker.config.trace_on) == (48, False)
        assert it.broker.parts.store.config.retention.reserved_hours == 48
        await it.change("traceOn=true")
    reserved = replace(config.store, retention=replace(config.store.retention, reserved_hours=24))
    async with running(replace(config, store=reserved)) as it:
        assert (it.broker.config.store.retention.reserved_hours, it.broker.config.trace_on) == (24, True)


async def test_a_file_that_says_more_than_it_may_is_not_believed(config: BrokerConfig) -> None:
    path = Path(config.store_root) / "config" / "rocketline.settings.json"
    path.parent.mkdir(parents=True)
    changes = {"storePathRootDir": Change("/x", config.store_root), "fileReservedTime": Change("-1", "72")}
    path.write_bytes(encode_body(SavedChanges(changes=changes)))
    async with running(config) as it:
        assert it.broker.config == config
