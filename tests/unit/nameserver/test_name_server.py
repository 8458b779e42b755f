"""A name server on a real port: every request and its answer, and what is removed when connections close."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.request_table import NOT_ANSWERED_CODES
from tests.unit.nameserver.brokers import body, header
from tests.unit.nameserver.conftest import Visitor

from rocketline.auth.config import AuthConfig
from rocketline.clock import ManualClock
from rocketline.errors import ConfigError
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.protocol.bodies import DataVersion, encode_body, encode_registration
from rocketline.protocol.command import Command
from rocketline.protocol.fastjson import parse
from rocketline.transport import Channel, RemotingServer, Router

MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


def _known(server: NameServer) -> list[str]:
    return list(server.routes.cluster_info().broker_addr_table)


class TestRoutes:
    async def test_a_registered_topic_has_a_route(self, visitor: Visitor, broker: Visitor):
        registered = await broker.register(header(), body())
        assert (registered.code, registered.ext, registered.body) == (0, {}, b"")
        answer = await visitor.ask(105, {"topic": "orders"})
        assert (answer.code, answer.remark) == (0, None)
        assert json.loads(answer.body) == {
            "brokerDatas": [
                {"brokerAddrs": {"0": MASTER}, "brokerName": "broker-a", "cluster": "C", "enableActingMaster": False}
            ],
            "filterServerTable": {},
            "queueDatas": [
                {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
            ],
        }

    async def test_an_unknown_topic_is_17_with_apaches_remark(self, visitor: Visitor):
        answer = await visitor.ask(105, {"topic": "unheard"})
        assert answer.code == 17
        assert (answer.remark or "").startswith("No topic route info in name server for the topic: unheard\n")

    @pytest.mark.parametrize(
        ("version", "standard_only", "bare"),
        [(401, None, False), (400, None, True), (0, "false", True), (0, "true", False), (493, "false", False)],
    )
    async def test_bare_integer_keys_are_for_old_clients_only(
        self, visitor: Visitor, broker: Visitor, version: int, standard_only: str | None, bare: bool
    ):
        await broker.register(header(), body())
        ext = {"topic": "orders"} | ({"acceptStandardJsonOnly": standard_only} if standard_only else {})
        for _ in range(2):
            answer = await visitor.ask(105, ext, version=version)
            assert (b'{0:"10.0.0.1:10911"}' in answer.body) is bare
            assert parse(answer.body)["brokerDatas"][0]["brokerAddrs"] == {"0": MASTER}

    async def test_a_route_asked_for_again_shows_every_change_at_once(self, visitor: Visitor, broker: Visitor):
        async def seen() -> tuple[object, ...]:
            answer = await visitor.ask(105, {"topic": "orders"})
            if answer.code:
                return (answer.code,)
            route = json.loads(answer.body)
            assert (await visitor.ask(105, {"topic": "orders"})).body == answer.body
            perms = {queues["brokerName"]: queues["perm"] for queues in route["queueDatas"]}
            return perms, {group["brokerName"]: group["brokerAddrs"] for group in route["brokerDatas"]}

        await broker.register(header(), body())
        assert await seen() == ({"broker-a": 6}, {"broker-a": {"0": MASTER}})
        await broker.register(header(address=SLAVE, broker_id=1), body())
        assert await seen() == ({"broker-a": 6}, {"broker-a": {"0": MASTER, "1": SLAVE}})
        await visitor.ask(205, {"brokerName": "broker-a"})
        assert await seen() == ({"broker-a": 4}, {"broker-a": {"0": MASTER, "1": SLAVE}})
        await visitor.ask(104, {"brokerName": "broker-a", "brokerAddr": SLAVE, "clusterName": "C", "brokerId": "1"})
        assert await seen() == ({"broker-a": 4}, {"broker-a": {"0": MASTER}})
        await visitor.ask(216, {"topic": "orders"})
        assert await seen() == (17,)

    async def test_the_order_of_a_topic_is_added_when_enabled(self, visitor: Visitor, broker: Visitor):
        await broker.register(header(), body())
        await visitor.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:4"})
        assert b"orderTopicConf" not in (await visitor.ask(105, {"topic": "orders"})).body
        await visitor.ask(318, body=b"orderMessageEnable=true\n")
        assert json.loads((await visitor.ask(105, {"topic": "orders"})).body)["orderTopicConf"] == "broker-a:4"
        assert b"orderTopicConf" not in (await visitor.ask(105, {"topic": "payments"})).body
        await visitor.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:2"})
        assert json.loads((await visitor.ask(105, {"topic": "orders"})).body)["orderTopicConf"] == "broker-a:2"
        await visitor.ask(102, {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"})
        assert b"orderTopicConf" not in (await visitor.ask(105, {"topic": "orders"})).body

    async def test_a_zone_is_shown_its_own_brokers_and_those_without_master(self, visitor: Visitor, broker: Visitor):
        await broker.register(header("near", MASTER, zone="z1"), body(filter_servers=["f:1"]))
        await broker.register(header("far", SLAVE, zone="z2"), body(filter_servers=["f:2"]))
        await broker.register(header("headless", "10.0.0.3:10911", 1, zone="z2"), body())

        async def names(**ext: str) -> set[str]:
            route = json.loads((await visitor.ask(105, {"topic": "orders", **ext})).body)
            shown = {group["brokerName"] for group in route["brokerDatas"]}
            assert {queues["brokerName"] for queues in route["queueDatas"]} == shown
            assert ("10.0.0.2:10911" in route["filterServerTable"]) is ("far" in shown)
            return shown

        assert await names() == {"near", "far", "headless"}
        assert await names(__ZONE_MODE="true", __ZONE_NAME="Z1") == {"near", "headless"}
        assert await names(__ZONE_MODE="false", __ZONE_NAME="z1") == {"near", "far", "headless"}
        assert await names(__ZONE_MODE="true") == {"near", "far", "headless"}
        assert await names() == {"near", "far", "headless"}

    async def test_routes_wait_for_brokers_to_register_when_so_configured(self, visitor: Visitor, clock: ManualClock):
        await visitor.ask(318, body=b"needWaitForService=true\nwaitSecondsForService=10")
        refused = await visitor.ask(105, {"topic": "orders"})
        assert (refused.code, refused.remark) == (1, "name server not ready")
        clock.advance(10)
        assert (await visitor.ask(105, {"topic": "orders"})).code == 17


class TestRegistration:
    async def test_the_body_must_match_its_checksum(self, broker: Visitor, server: NameServer):
        text = encode_registration(body())
        ext = header().encode()
        refused = await broker.ask(103, ext | {"bodyCrc32": "12345"}, text)
        assert (refused.code, refused.remark) == (1, "crc32 not match")
        assert _known(server) == []
        assert (await broker.ask(103, ext | {"bodyCrc32": str(zlib.crc32(text) & 0x7FFFFFFF)}, text)).code == 0
        assert (await broker.ask(103, ext | {"bodyCrc32": "0"}, text)).code == 0

    @pytest.mark.parametrize("said", ["true", "false"])
    async def test_compressed_registrations_are_read_even_when_the_header_forgets_to_say_so(
        self, broker: Visitor, visitor: Visitor, said: str
    ):
        ext = header().encode() | {"compressed": said}
        assert (await broker.ask(103, ext, encode_registration(body(), compressed=True))).code == 0
        assert (await visitor.ask(105, {"topic": "orders"})).code == 0

    async def test_a_broker_of_3_0_sends_its_topics_bare(self, broker: Visitor, visitor: Visitor):
        topics = encode_body(body().topic_config_serialize_wrapper)
        assert (await broker.ask(103, header().encode(), topics, version=36)).code == 0
        assert (await visitor.ask(105, {"topic": "orders"})).code == 0

    async def test_a_registration_without_body_has_no_topics(self, broker: Visitor, server: NameServer):
        assert (await broker.ask(103, header().encode())).code == 0
        assert _known(server) == ["broker-a"]

    async def test_a_single_topic_first_is_refused_as_apache_does(self, broker: Visitor, server: NameServer):
        refused = await broker.register(header(), body({"orders": 4}))
        assert (refused.code, refused.remark) == (1, "register broker failed")
        assert _known(server) == []

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"brokerName": ""}, "brokerName is empty"),
            ({"clusterName": ""}, "clusterName is empty"),
            ({"brokerAddr": "10.0.0.1"}, "brokerAddr '10.0.0.1' is not an address"),
            ({"brokerAddr": ""}, "brokerAddr '' is not an address"),
            ({"brokerId": "first"}, "field brokerId is 'first'"),
            ({"brokerId": str(1 << 70)}, "field brokerId is"),
            ({"enableActingMaster": "perhaps"}, "field enableActingMaster is 'perhaps'"),
        ],
    )
    async def test_nonsense_about_oneself_is_refused_by_name(
        self, broker: Visitor, server: NameServer, changes: dict[str, str], reason: str
    ):
        refused = await broker.ask(103, header().encode() | changes, encode_registration(body()))
        assert refused.code == 1
        assert reason in (refused.remark or "")
        assert _known(server) == []

    @pytest.mark.parametrize("missing", ["brokerName", "brokerAddr", "clusterName", "brokerId"])
    async def test_a_missing_field_is_named(self, broker: Visitor, missing: str):
        ext = header().encode()
        del ext[missing]
        refused = await broker.ask(103, ext, encode_registration(body()))
        assert (refused.code, refused.remark) == (1, f"header of request 103: field {missing} is missing")

    @pytest.mark.parametrize(
        "text", [b"{", b"[]", b'{"topicConfigSerializeWrapper":3}', b"\x78\x9cgarbage", b"\x00\x01"]
    )
    async def test_an_unreadable_body_is_refused_and_nothing_is_known(
        self, broker: Visitor, server: NameServer, text: bytes
    ):
        refused = await broker.ask(103, header().encode(), text)
        assert refused.code == 1
        assert refused.remark
        assert _known(server) == []

    async def test_a_slave_is_told_its_master_and_the_order_topics(self, broker: Visitor, visitor: Visitor):
        await broker.register(header(ha="10.0.0.1:10912"), body())
        await visitor.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:4"})
        answer = await broker.register(header(address=SLAVE, broker_id=1), body())
        assert answer.ext == {"haServerAddr": "10.0.0.1:10912", "masterAddr": MASTER}
        assert json.loads(answer.body) == {"table": {"orders": "broker-a:4"}}
        await visitor.ask(318, body=b"returnOrderTopicConfigToBroker=false")
        assert (await broker.register(header(address=SLAVE, broker_id=1), body())).body == b""

    async def test_data_versions_are_compared_and_count_as_life(
        self, broker: Visitor, server: NameServer, clock: ManualClock
    ):
        ext = {"brokerName": "broker-a", "brokerAddr": MASTER, "clusterName": "C", "brokerId": "0"}
        mine = DataVersion(3, 0, 42)
        unknown = await broker.ask(322, ext, encode_body(mine))
        assert (unknown.code, unknown.ext, unknown.body) == (0, {"changed": "true"}, b"")
        await broker.register(header(), body(version=mine))
        clock.advance(100)
        same = await broker.ask(322, ext, encode_body(mine))
        assert same.ext == {"changed": "false"}
        assert json.loads(same.body) == {"counter": 3, "stateVersion": 0, "timestamp": 42}
        assert (await broker.ask(322, ext, encode_body(DataVersion(4, 0, 42)))).ext == {"changed": "true"}
        clock.advance(100)
        server.scan()
        assert _known(server) == ["broker-a"]

    async def test_heartbeats_keep_a_broker_alive_and_silence_closes_its_connection(
        self, broker: Visitor, server: NameServer, clock: ManualClock
    ):
        await broker.register(header(timeout_ms=10_000), body())
        beat = {"clusterName": "C", "brokerAddr": MASTER, "brokerName": "broker-a"}
        for _ in range(3):
            clock.advance(8)
            assert (await broker.ask(904, beat)).code == 0
            server.scan()
        assert _known(server) == ["broker-a"]
        channel = broker.client.connected(server.address)
        assert channel is not None
        clock.advance(11)
        server.scan()
        assert _known(server) == []
        await asyncio.wait_for(channel.wait_closed(), PATIENCE_S)


class TestLeaving:
    async def test_a_closed_connection_takes_its_brokers_along(self, broker: Visitor, server: NameServer):
        await broker.register(header("a", MASTER), body())
        await broker.register(header("b", SLAVE), body())
        await broker.leave()
        await _until(lambda: _known(server) == [])

    async def test_a_broker_that_came_back_on_another_connection_stays(
        self, broker: Visitor, visitor: Visitor, server: NameServer
    ):
        await broker.register(header("a", MASTER), body())
        await broker.register(header("b", SLAVE), body())
        await visitor.register(header("a", MASTER), body())
        await broker.leave()
        await _until(lambda: _known(server) == ["a"])

    async def test_connections_of_clients_mean_nothing(self, broker: Visitor, visitor: Visitor, server: NameServer):
        await broker.register(header(), body())
        await visitor.ask(105, {"topic": "orders"})
        await visitor.leave()
        assert (await broker.ask(105, {"topic": "orders"})).code == 0

    async def test_unregistering_is_done_when_answered(self, broker: Visitor, visitor: Visitor):
        await broker.register(header(), body())
        gone = await broker.ask(
            104, {"brokerName": "broker-a", "brokerAddr": MASTER, "clusterName": "C", "brokerId": "0"}
        )
        assert gone.code == 0
        assert (await visitor.ask(105, {"topic": "orders"})).code == 17

    async def test_without_accounts_strangers_remove_no_broker(
        self, broker: Visitor, visitor: Visitor, server: NameServer
    ):
        handlers, registered = server._handlers, {"brokerName": "broker-a", "brokerAddr": MASTER, "clusterName": "C"}
        assert handlers is not None
        await broker.register(header(), body())
        registrar = server.routes.registrar("C", MASTER)
        assert isinstance(registrar, Channel)
        registrar.remote_ip = "192.0.2.1"
        handlers.trusts = lambda channel: False  # as from another machine
        refused = await visitor.ask(104, {**registered, "brokerId": "0"})
        assert (refused.code, "was registered from 192.0.2.1" in (refused.remark or "")) == (16, True)
        registrar.remote_ip = "127.0.0.1"
        assert (await visitor.ask(104, {**registered, "brokerId": "0"})).code == 0

    async def test_the_scan_runs_by_itself(self, clock: ManualClock):
        config = NameServerConfig(host="127.0.0.1", port=0, scan_interval_ms=100)
        async with NameServer(config, clock=clock) as server:
            broker = Visitor(server)
            await broker.register(header(), body())
            clock.advance(121)
            await _until(lambda: _known(server) == [])
            await broker.leave()

    async def test_routes_stay_whole_while_brokers_come_and_go(self, visitor: Visitor, server: NameServer):
        """A reader never sees queues of a broker that is missing, nor a broker without address."""
        brokers = [Visitor(server) for _ in range(3)]
        done = False

        async def come_and_go(number: int, broker: Visitor) -> None:
            name, address = f"b{number}", f"10.0.0.{number}:10911"
            ext = {"brokerName": name, "brokerAddr": address, "clusterName": "C", "brokerId": "0"}
            for turn in range(60):
                await broker.register(header(name, address), body(version=DataVersion(turn, 0, 0)))
                await broker.ask(104, ext)

        async def look() -> int:
            looks = 0
            while not done:
                for answer in await asyncio.gather(*(visitor.ask(105, {"topic": "orders"}) for _ in range(5))):
                    assert answer.code in (0, 17)
                    if answer.code == 0:
                        route = json.loads(answer.body)
                        names = [group["brokerName"] for group in route["brokerDatas"]]
                        assert names == [queues["brokerName"] for queues in route["queueDatas"]]
                        assert all(group["brokerAddrs"] for group in route["brokerDatas"])
                        looks += 1
            return looks

        looking = asyncio.ensure_future(look())
        await asyncio.gather(*(come_and_go(number, broker) for number, broker in enumerate(brokers)))
        done = True
        assert await looking > 0
        for broker in brokers:
            await broker.leave()


class TestOperators:
    async def test_cluster_and_members(self, visitor: Visitor, broker: Visitor):
        await broker.register(header(), body())
        await broker.register(header(address=SLAVE, broker_id=1), body())
        group = {
            "brokerAddrs": {"0": MASTER, "1": SLAVE}, "brokerName": "broker-a", "cluster": "C", "enableActingMaster": False,
        }  # fmt: skip
        assert json.loads((await visitor.ask(106)).body) == {
            "brokerAddrTable": {"broker-a": group}, "clusterAddrTable": {"C": ["broker-a"]},
        }  # fmt: skip
        del group["enableActingMaster"]
        members = await visitor.ask(901, {"clusterName": "C", "brokerName": "broker-a"})
        assert json.loads(members.body) == {"brokerMemberGroup": group}
        nobody = await visitor.ask(901, {"clusterName": "C", "brokerName": "nobody"})
        assert json.loads(nobody.body)["brokerMemberGroup"]["brokerAddrs"] == {}

    async def test_write_permission(self, visitor: Visitor, broker: Visitor):
        await broker.register(header(), body())
        assert (await visitor.ask(205, {"brokerName": "broker-a"})).ext == {"wipeTopicCount": "2"}
        assert (await visitor.ask(327, {"brokerName": "broker-a"})).ext == {"addTopicCount": "2"}
        assert (await visitor.ask(205, {"brokerName": "nobody"})).ext == {"wipeTopicCount": "0"}

    async def test_topics_are_registered_by_hand(self, visitor: Visitor, broker: Visitor):
        await broker.register(header(), body())
        queues = {"brokerName": "broker-a", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        route = json.dumps({"queueDatas": [queues], "brokerDatas": []}).encode()
        assert (await visitor.ask(217, {"topic": "made"}, route)).code == 0
        assert (await visitor.ask(105, {"topic": "made"})).code == 0
        unknown = json.dumps({"queueDatas": [queues | {"brokerName": "nobody"}]}).encode()
        assert (await visitor.ask(217, {"topic": "other"}, unknown)).code == 0
        assert (await visitor.ask(105, {"topic": "other"})).code == 17

    async def test_topic_lists(self, visitor: Visitor, broker: Visitor):
        await broker.register(header(), body({"a": 1, "b": 1}, flag=1))
        await broker.register(header("broker-b", SLAVE, cluster="D"), body({"b": 1, "c": 1}, flag=2))

        async def topics(code: int, **ext: str) -> list[str]:
            return sorted(json.loads((await visitor.ask(code, ext)).body)["topicList"])

        assert await topics(206) == ["a", "b", "c"]
        assert await topics(224, cluster="D") == ["b", "c"]
        assert await topics(224, cluster="E") == []
        assert await topics(304) == ["C", "D", "broker-a", "broker-b"]
        assert await topics(311) == ["a", "b"]
        assert await topics(312) == ["c"]
        assert await topics(313) == ["c"]

    @pytest.mark.parametrize(
        ("key", "codes"), [("enableAllTopicList", [206]), ("enableTopicList", [224, 311, 312, 313])]
    )
    async def test_topic_lists_can_be_switched_off(self, visitor: Visitor, key: str, codes: list[int]):
        await visitor.ask(318, body=f"{key}=false".encode())
        for code in codes:
            refused = await visitor.ask(code, {"cluster": "C"})
            assert (refused.code, refused.remark) == (1, "disable")

    async def test_key_value_settings(self, visitor: Visitor):
        assert (await visitor.ask(100, {"namespace": "NS", "key": "k", "value": "v ü"})).code == 0
        assert (await visitor.ask(101, {"namespace": "NS", "key": "k"})).ext == {"value": "v ü"}
        assert json.loads((await visitor.ask(219, {"namespace": "NS"})).body) == {"table": {"k": "v ü"}}
        assert (await visitor.ask(102, {"namespace": "NS", "key": "k"})).code == 0
        missing = await visitor.ask(101, {"namespace": "NS", "key": "k"})
        assert (missing.code, missing.remark) == (22, "No config item, Namespace: NS Key: k")
        unheard = await visitor.ask(219, {"namespace": "unheard"})
        assert (unheard.code, unheard.remark) == (22, "No config item, Namespace: unheard")

    async def test_settings_are_shown_and_changed(self, visitor: Visitor, server: NameServer):
        assert (await visitor.ask(318, body=b"supportActingMaster=true\nscanNotActiveBrokerInterval=2500\n")).code == 0
        text = (await visitor.ask(319)).body.decode()
        assert "supportActingMaster=true\n" in text
        assert "scanNotActiveBrokerInterval=2500\n" in text
        assert server.config.support_acting_master

    @pytest.mark.parametrize(
        "change",
        [b"kvConfigPath=/tmp/x", b"scanNotActiveBrokerInterval=-5", b"orderMessageEnable=perhaps", b"\xff\xfe"],
    )
    async def test_a_change_that_is_not_allowed_is_16_and_changes_nothing(
        self, visitor: Visitor, server: NameServer, change: bytes
    ):
        before = server.config
        refused = await visitor.ask(318, body=b"supportActingMaster=true\n" + change)
        assert refused.code == 16
        assert refused.remark
        assert server.config == before

    async def test_unknown_requests_are_3(self, visitor: Visitor):
        for code in (9999, *NOT_ANSWERED_CODES):
            assert (await visitor.ask(code)).code == 3, code


class TestLowestBrokerId:
    @pytest.mark.parametrize("switch", [{"support_acting_master": True}, {"notify_min_broker_id_changed": True}])
    async def test_a_group_is_told_on_its_own_port(self, config: NameServerConfig, switch: dict[str, bool]):
        heard: asyncio.Queue[Command] = asyncio.Queue()

        def listen(channel: Channel, command: Command) -> None:
            heard.put_nowait(command)

        async with (
            NameServer(replace(config, **switch)) as server,
            RemotingServer(Router({905: listen}), "127.0.0.1", 0) as slave_port,
        ):
            slave_address = f"127.0.0.1:{slave_port.port}"
            master, slave = Visitor(server), Visitor(server)
            await master.register(header(acting=True), body())
            await slave.register(header(address=slave_address, broker_id=1, acting=True), body())
            await master.leave()
            notice = await asyncio.wait_for(heard.get(), PATIENCE_S)
            assert notice.is_oneway
            assert notice.ext == {
                "minBrokerId": "1", "brokerName": "broker-a", "minBrokerAddr": slave_address, "offlineBrokerAddr": MASTER,
            }  # fmt: skip
            await slave.leave()

    async def test_a_broker_that_cannot_be_told_harms_nothing(self, config: NameServerConfig):
        async with NameServer(replace(config, support_acting_master=True)) as server:
            broker = Visitor(server)
            await broker.register(header(address="127.0.0.1:1", broker_id=2, acting=True), body())
            await broker.register(header(address="127.0.0.1:1", broker_id=1, acting=True), body())
            await _until(lambda: not server._notices)
            assert (await broker.ask(106)).code == 0
            await broker.leave()

    async def test_by_default_nobody_is_told(self, server: NameServer, broker: Visitor):
        await broker.register(header(address="127.0.0.1:1", broker_id=2, acting=True), body())
        await broker.register(header(address="127.0.0.1:1", broker_id=1, acting=True), body())
        assert not server._notices


class TestLife:
    async def test_key_value_settings_survive_a_restart(self, config: NameServerConfig, tmp_path: Path):
        config = replace(config, kv_config_path=str(tmp_path / "a" / "kvConfig.json"))
        for expected in (22, 0):
            async with NameServer(config) as server:
                visitor = Visitor(server)
                assert (await visitor.ask(101, {"namespace": "NS", "key": "k"})).code == expected
                await visitor.ask(100, {"namespace": "NS", "key": "k", "value": "v"})
                await visitor.leave()

    async def test_an_unreadable_key_value_file_stops_the_start(self, config: NameServerConfig, tmp_path: Path):
        path = tmp_path / "kvConfig.json"
        path.write_text("{")
        with pytest.raises(ConfigError, match=r"kvConfig\.json"):
            await NameServer(replace(config, kv_config_path=str(path))).start()

    async def test_a_port_in_use_stops_the_start(self, server: NameServer, config: NameServerConfig):
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{server.port}"):
            await NameServer(replace(config, port=server.port)).start()

    async def test_the_address_is_one_that_clients_can_use(self, config: NameServerConfig):
        async with NameServer(replace(config, host="0.0.0.0", auth=AuthConfig(insecure=True))) as server:
            assert server.address == f"127.0.0.1:{server.port}"
            visitor = Visitor(server)
            assert (await visitor.ask(106)).code == 0
            await visitor.leave()
        assert NameServer(replace(config, host="::1", port=7)).address == "[::1]:7"

    async def test_connections_beyond_the_limit_are_refused(self, config: NameServerConfig):
        async with NameServer(replace(config, max_connections=1)) as server:
            first, second = Visitor(server), Visitor(server)
            assert (await first.ask(106)).code == 0
            with pytest.raises(ConnectionError):
                await second.ask(106)
            await first.leave()
            await second.leave()

    async def test_closing_twice_or_unstarted_is_fine(self, config: NameServerConfig):
        server = NameServer(config)
        await server.close()
        await server.start()
        await server.close()
        await server.close()
