"""The route tables, called directly: registration, routes, and how brokers are removed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.nameserver.brokers import body, header

from rocketline.clock import ManualClock
from rocketline.errors import RequestRejected
from rocketline.nameserver.config import NameServerConfig
from rocketline.nameserver.routes import MinBrokerIdChange, RouteTable
from rocketline.nameserver.topic_queues import UNIT, UNIT_SUB
from rocketline.protocol.bodies import DataVersion, QueueData

MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"
SLAVE_2 = "10.0.0.3:10911"


class Tables(RouteTable):
    """A route table on a clock that stands still, with what it told."""

    def __init__(self, **settings: bool) -> None:
        self.clock = ManualClock()
        self.told: list[MinBrokerIdChange] = []
        super().__init__(NameServerConfig(**settings), self.clock, self.told.append)

    def addresses(self, topic: str) -> dict[str, dict[int, str]] | None:
        route = self.route_of(topic)
        return route and {group.broker_name: group.broker_addrs for group in route.broker_datas}

    def perms(self, topic: str) -> dict[str, int]:
        route = self.route_of(topic)
        return {queues.broker_name: queues.perm for queues in route.queue_datas} if route else {}

    def counts(self, topic: str) -> dict[str, int]:
        route = self.route_of(topic)
        return {queues.broker_name: queues.write_queue_nums for queues in route.queue_datas} if route else {}


@pytest.fixture
def tables() -> Tables:
    return Tables()


class TestRegistration:
    def test_a_topic_on_two_pairs_shows_both_with_all_addresses(self, tables: Tables):
        for name, host in (("broker-a", "10.0.0.1"), ("broker-b", "10.0.1.1")):
            tables.register(header(name, f"{host}:10911"), body(), "m")
            tables.register(header(name, f"{host}:20911", 1), body(), "s")
        assert tables.addresses("orders") == {
            "broker-a": {0: "10.0.0.1:10911", 1: "10.0.0.1:20911"},
            "broker-b": {0: "10.0.1.1:10911", 1: "10.0.1.1:20911"},
        }
        assert tables.counts("orders") == {"broker-a": 4, "broker-b": 4}
        assert tables.route_of("orders").filter_server_table == {}

    def test_an_unknown_topic_has_no_route(self, tables: Tables):
        tables.register(header(), body(), "c")
        assert tables.route_of("unheard") is None

    def test_a_first_registration_with_a_single_topic_is_refused_and_leaves_no_trace(self, tables: Tables):
        with pytest.raises(RequestRejected, match="register broker failed") as refused:
            tables.register(header(), body({"orders": 4}), "c")
        assert refused.value.code == 1
        assert tables.cluster_info().broker_addr_table == {}
        assert tables.cluster_info().cluster_addr_table == {}
        assert tables.generation == 0

    @pytest.mark.parametrize("topics", [{}, {"a": 1, "b": 1}])
    def test_a_first_registration_with_no_or_several_topics_is_taken(self, tables: Tables, topics: dict[str, int]):
        tables.register(header(), body(topics), "c")
        assert tables.member_group("C", "broker-a").broker_addrs == {0: MASTER}

    def test_a_known_broker_adds_a_single_topic_and_keeps_the_others(self, tables: Tables):
        tables.register(header(), body(), "c")
        tables.register(header(), body({"new": 2}, version=DataVersion(2, 0, 2000)), "c")
        assert tables.all_topics().topic_list == ["orders", "payments", "new"]
        assert tables.data_version("C", MASTER) == DataVersion(2, 0, 2000)

    def test_a_slave_that_tries_to_become_master_with_a_single_topic_stays_what_it_was(self, tables: Tables):
        tables.register(header(broker_id=1), body(), "c")
        with pytest.raises(RequestRejected):
            tables.register(header(broker_id=0), body({"orders": 4}), "c")
        assert tables.member_group("C", "broker-a").broker_addrs == {1: MASTER}

    def test_the_same_data_version_does_not_rewrite_queues(self, tables: Tables):
        tables.register(header(), body({"orders": 4, "payments": 8}), "c")
        before = tables.generation
        tables.register(header(), body({"orders": 99, "payments": 8}), "c")
        assert tables.counts("orders") == {"broker-a": 4}
        assert tables.generation == before

    @pytest.mark.parametrize("version", [DataVersion(2, 0, 1000), DataVersion(1, 1, 1000), DataVersion(1, 0, 1001)])
    def test_any_other_data_version_rewrites_them(self, tables: Tables, version: DataVersion):
        tables.register(header(), body({"orders": 4, "payments": 8}), "c")
        tables.register(header(), body({"orders": 99, "payments": 8}, version=version), "c")
        assert tables.counts("orders") == {"broker-a": 99}

    def test_a_topic_deleted_here_comes_back_with_the_same_data_version(self, tables: Tables):
        tables.register(header(), body(), "c")
        tables.delete_topic("orders")
        assert tables.route_of("orders") is None
        tables.register(header(), body(), "c")
        assert tables.counts("orders") == {"broker-a": 4}

    def test_missing_topics_go_only_when_so_configured(self):
        for delete in (False, True):
            tables = Tables(delete_topic_with_broker_registration=delete)
            tables.register(header(), body({"orders": 4, "payments": 8, "x": 1}), "c")
            tables.register(header(), body({"orders": 4, "x": 1}, version=DataVersion(2, 0, 2)), "c")
            assert (tables.route_of("payments") is None) is delete
            assert tables.route_of("orders") is not None

    def test_a_broker_that_changes_its_id_is_listed_once(self, tables: Tables):
        tables.register(header(broker_id=1), body(), "c")
        tables.register(header(broker_id=0), body(), "c")
        assert tables.addresses("orders") == {"broker-a": {0: MASTER}}

    def test_a_broker_that_changes_its_name_leaves_the_old_one(self, tables: Tables):
        tables.register(header("old"), body({"a": 1, "b": 1}), "c")
        tables.register(header("new"), body({"b": 1, "c": 1}), "c")
        assert list(tables.cluster_info().broker_addr_table) == ["new"]
        assert tables.cluster_info().cluster_addr_table == {"C": ["new"]}
        assert tables.route_of("a") is None
        assert tables.addresses("b") == {"new": {0: MASTER}}

    def test_a_newer_holder_of_the_id_wins_over_a_master_that_comes_back(self, tables: Tables):
        tables.register(header(address=SLAVE), body(version=DataVersion(1, 5, 1000)), "new master")
        answer = tables.register(header(address=MASTER), body({"x": 1, "y": 1}, version=DataVersion(9, 4, 9000)), "old")
        assert answer.encode() == {}
        assert tables.member_group("C", "broker-a").broker_addrs == {0: SLAVE}
        assert tables.route_of("x") is None
        assert tables.data_version("C", MASTER) is None

    @pytest.mark.parametrize("state_version", [5, 6])
    def test_an_equal_or_newer_one_takes_the_id_over(self, tables: Tables, state_version: int):
        tables.register(header(address=MASTER), body(version=DataVersion(1, 5, 1000)), "old")
        tables.register(header(address=SLAVE), body(version=DataVersion(1, state_version, 1000)), "new")
        assert tables.member_group("C", "broker-a").broker_addrs == {0: SLAVE}
        tables.channel_closed("old")
        assert tables.member_group("C", "broker-a").broker_addrs == {0: SLAVE}
        tables.clock.advance(1000)
        assert {live.key.address for live in tables.scan_expired()} == {SLAVE}

    def test_two_clusters_may_use_one_address(self, tables: Tables):
        tables.register(header("a", cluster="C1"), body({"x": 1, "y": 1}), "one")
        tables.register(header("b", cluster="C2"), body({"y": 1, "z": 1}), "two")
        tables.channel_closed("one")
        assert tables.cluster_info().cluster_addr_table == {"C2": ["b"]}
        assert tables.addresses("y") == {"b": {0: MASTER}}

    def test_a_slave_learns_its_master_while_that_lives(self, tables: Tables):
        assert tables.register(header(address=SLAVE, broker_id=1), body(), "s").encode() == {}
        assert tables.register(header(ha="10.0.0.1:10912"), body(), "m").encode() == {}
        answer = tables.register(header(address=SLAVE, broker_id=1), body(), "s")
        assert answer.encode() == {"haServerAddr": "10.0.0.1:10912", "masterAddr": MASTER}
        tables.unregister("C", MASTER, "broker-a")
        assert tables.register(header(address=SLAVE, broker_id=1), body(), "s").encode() == {}

    def test_a_master_without_replication_is_named_without_an_address_for_it(self, tables: Tables):
        tables.register(header(ha=""), body(), "m")
        answer = tables.register(header(address=SLAVE, broker_id=1), body(), "s")
        assert answer.encode() == {"masterAddr": MASTER}

    def test_filter_servers_are_shown_with_their_broker_and_leave_with_it(self, tables: Tables):
        tables.register(header(), body(filter_servers=["10.0.0.1:1", "10.0.0.1:2"]), "c")
        assert tables.route_of("orders").filter_server_table == {MASTER: ["10.0.0.1:1", "10.0.0.1:2"]}
        tables.register(header(), body(), "c")
        assert tables.route_of("orders").filter_server_table == {}

    def test_static_mappings_are_handed_out_and_leave_with_their_broker(self, tables: Tables):
        mapping = {"bname": "broker-a", "topic": "orders", "totalQueues": 4}
        tables.register(header(), body(mappings={"orders": mapping}), "m")
        tables.register(header("broker-b", SLAVE), body(), "n")
        assert tables.route_of("orders").topic_queue_mapping_by_broker == {"broker-a": mapping}
        before = tables.generation
        changed = {**mapping, "totalQueues": 8}
        tables.register(header(), body(mappings={"orders": changed}, version=DataVersion(1, 0, 1001)), "m")
        assert tables.route_of("orders").topic_queue_mapping_by_broker == {"broker-a": changed}
        assert tables.generation > before, "encoded routes are kept until it grows"
        tables.channel_closed("m")
        assert tables.route_of("orders").topic_queue_mapping_by_broker is None


class TestSlaves:
    def test_a_slave_of_an_older_broker_never_changes_routes(self, tables: Tables):
        tables.register(header(broker_id=1, acting=None), body(), "s")
        assert tables.all_topics().topic_list == []
        assert tables.member_group("C", "broker-a").broker_addrs == {1: MASTER}

    def test_a_slave_beside_its_master_changes_nothing(self, tables: Tables):
        tables.register(header(), body({"a": 1, "b": 1}), "m")
        tables.register(header(address=SLAVE, broker_id=1), body({"a": 9, "c": 9}, version=DataVersion(7, 0, 7)), "s")
        assert tables.counts("a") == {"broker-a": 1}
        assert tables.route_of("c") is None

    def test_the_lowest_slave_alone_brings_its_topics(self, tables: Tables):
        tables.register(header(address=SLAVE, broker_id=1), body(perm=6), "s")
        assert tables.perms("orders") == {"broker-a": 6}

    def test_an_acting_master_brings_its_topics_read_only(self, tables: Tables):
        tables.register(header(address=SLAVE, broker_id=1, acting=True), body(perm=6), "s")
        assert tables.perms("orders") == {"broker-a": 4}
        tables.register(header(acting=True), body(perm=6), "m")
        assert tables.perms("orders") == {"broker-a": 6}


class TestActingMaster:
    @staticmethod
    def _group(**settings: bool) -> Tables:
        tables = Tables(**settings)
        for address, broker_id in ((MASTER, 0), (SLAVE, 1), (SLAVE_2, 2)):
            sync_topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
            tables.register(
                header(address=address, broker_id=broker_id, acting=True), body({"a": 4, sync_topic: 1}), address
            )
        return tables

    def test_the_lowest_slave_is_shown_as_a_read_only_master(self):
        tables = self._group(support_acting_master=True)
        tables.channel_closed(MASTER)
        assert tables.addresses("a") == {"broker-a": {0: SLAVE, 2: SLAVE_2}}
        assert tables.perms("a") == {"broker-a": 4}
        assert tables.member_group("C", "broker-a").broker_addrs == {1: SLAVE, 2: SLAVE_2}

    def test_without_the_setting_everyone_keeps_their_id(self):
        tables = self._group()
        tables.channel_closed(MASTER)
        assert tables.addresses("a") == {"broker-a": {1: SLAVE, 2: SLAVE_2}}

    def test_the_topic_for_finding_members_shows_the_truth(self):
        tables = self._group(support_acting_master=True)
        tables.channel_closed(MASTER)
        assert tables.addresses("rmq_sys_SYNC_BROKER_MEMBER_broker-a") == {"broker-a": {1: SLAVE, 2: SLAVE_2}}

    def test_a_group_that_may_still_be_written_is_not_relabelled(self):
        tables = self._group(support_acting_master=True)
        tables.channel_closed(MASTER)
        assert tables.add_write_perm("broker-a") == 2
        assert tables.addresses("a") == {"broker-a": {1: SLAVE, 2: SLAVE_2}}

    def test_a_group_that_did_not_ask_for_it_is_not_relabelled(self):
        tables = Tables(support_acting_master=True)
        tables.register(header(address=SLAVE, broker_id=1), body(perm=4), "s")
        assert tables.addresses("orders") == {"broker-a": {1: SLAVE}}

    def test_the_setting_counts_from_the_next_query_on(self):
        tables = self._group()
        tables.channel_closed(MASTER)
        tables.config = replace(tables.config, support_acting_master=True)
        assert tables.addresses("a") == {"broker-a": {0: SLAVE, 2: SLAVE_2}}


class TestLowestBrokerId:
    def test_those_left_are_told_who_went_and_who_is_lowest_now(self):
        tables = TestActingMaster._group()
        tables.told.clear()
        tables.unregister("C", MASTER, "broker-a")
        (change,) = tables.told
        assert change.addresses == [SLAVE, SLAVE_2]
        assert change.header.encode() == {
            "minBrokerId": "1", "brokerName": "broker-a", "minBrokerAddr": SLAVE, "offlineBrokerAddr": MASTER,
        }  # fmt: skip

    def test_the_others_are_told_when_a_lower_one_comes(self):
        tables = TestActingMaster._group()
        tables.unregister("C", MASTER, "broker-a")
        tables.told.clear()
        tables.register(header(acting=True, ha="10.0.0.1:10912"), body(), "m")
        (change,) = tables.told
        assert change.addresses == [SLAVE, SLAVE_2]
        assert change.header.encode() == {
            "minBrokerId": "0", "brokerName": "broker-a", "minBrokerAddr": MASTER, "haBrokerAddr": "10.0.0.1:10912",
        }  # fmt: skip

    def test_nobody_is_told_of_an_address_that_is_none(self):
        tables = TestActingMaster._group()
        tables.unregister("C", MASTER, "broker-a")
        tables.told.clear()
        tables.register(header(acting=True, ha=""), body(), "m")
        (change,) = tables.told
        assert change.header.encode() == {"minBrokerId": "0", "brokerName": "broker-a", "minBrokerAddr": MASTER}

    def test_a_lone_broker_under_a_lower_id_is_told_itself(self, tables: Tables):
        tables.register(header(broker_id=3), body(), "c")
        tables.register(header(broker_id=1), body(), "c")
        assert [change.addresses for change in tables.told] == [[MASTER]]

    def test_nobody_is_told_when_the_lowest_stays(self):
        tables = TestActingMaster._group()
        tables.unregister("C", SLAVE, "broker-a")
        tables.register(header(address=SLAVE, broker_id=1, acting=True), body(), "s")
        assert tables.told == []

    def test_groups_without_acting_master_are_not_told_of_a_loss(self, tables: Tables):
        tables.register(header(), body(), "m")
        tables.register(header(address=SLAVE, broker_id=1), body(), "s")
        tables.unregister("C", MASTER, "broker-a")
        assert tables.told == []


class TestLeaving:
    def test_the_last_address_takes_the_topics_along(self, tables: Tables):
        tables.register(header("a", MASTER), body({"x": 1, "y": 1}), "one")
        tables.register(header("b", SLAVE), body({"y": 1, "z": 1}), "two")
        tables.unregister("C", MASTER, "a")
        assert sorted(tables.all_topics().topic_list) == ["y", "z"]
        assert tables.addresses("y") == {"b": {0: SLAVE}}
        assert tables.cluster_info().cluster_addr_table == {"C": ["b"]}
        tables.unregister("C", SLAVE, "b")
        assert tables.all_topics().topic_list == []
        assert tables.cluster_info().cluster_addr_table == {}

    def test_a_master_that_leaves_its_slave_leaves_the_route(self, tables: Tables):
        tables.register(header(), body(), "m")
        tables.register(header(address=SLAVE, broker_id=1), body(), "s")
        tables.unregister("C", MASTER, "broker-a")
        assert tables.addresses("orders") == {"broker-a": {1: SLAVE}}
        assert tables.perms("orders") == {"broker-a": 6}

    def test_leaving_twice_or_unknown_is_nothing(self, tables: Tables):
        tables.register(header(), body(), "c")
        before = tables.generation
        tables.unregister("C", "10.9.9.9:1", "broker-a")
        tables.unregister("C", MASTER, "nobody")
        tables.channel_closed("stranger")
        assert tables.generation == before
        assert tables.addresses("orders") == {"broker-a": {0: MASTER}}

    def test_the_connection_that_registered_last_counts(self, tables: Tables):
        tables.register(header(), body(), "first")
        tables.register(header(), body(), "second")
        tables.channel_closed("first")
        assert tables.route_of("orders") is not None
        tables.channel_closed("second")
        assert tables.route_of("orders") is None

    def test_one_connection_may_carry_several_brokers(self, tables: Tables):
        tables.register(header("a", MASTER), body({"x": 1, "y": 1}), "shared")
        tables.register(header("b", SLAVE), body({"x": 1, "y": 1}), "shared")
        tables.channel_closed("shared")
        assert tables.cluster_info().broker_addr_table == {}

    def test_silence_of_120_s_is_forgiven_and_not_a_moment_more(self, tables: Tables):
        tables.register(header(), body(), "c")
        tables.clock.advance(120)
        assert tables.scan_expired() == []
        tables.clock.advance(0.001)
        (live,) = tables.scan_expired()
        assert (live.channel, live.key.address) == ("c", MASTER)
        assert tables.route_of("orders") is None
        assert tables.scan_expired() == []

    def test_a_broker_may_promise_to_speak_more_often(self, tables: Tables):
        tables.register(header("quick", timeout_ms=10_000), body(), "q")
        tables.register(header("slow", SLAVE), body(), "s")
        tables.clock.advance(10.5)
        assert [live.broker_name for live in tables.scan_expired()] == ["quick"]

    @pytest.mark.parametrize("sign", ["registration", "heartbeat"])
    def test_a_sign_of_life_starts_the_time_again(self, tables: Tables, sign: str):
        tables.register(header(), body(), "c")
        tables.clock.advance(100)
        if sign == "heartbeat":
            tables.touch("C", MASTER)
            tables.touch("C", "10.9.9.9:1")
        else:
            tables.register(header(), body(), "c")
        tables.clock.advance(100)
        assert tables.scan_expired() == []

    def test_setting_the_wall_clock_expires_nobody(self, tables: Tables):
        tables.register(header(), body(), "c")
        tables.clock.jump_wall(86_400)
        assert tables.scan_expired() == []


class TestOperators:
    def test_write_permission_is_taken_and_given_back(self, tables: Tables):
        tables.register(header("a", MASTER), body({"x": 1, "y": 1}, perm=7), "m")
        tables.register(header("b", SLAVE), body({"x": 1, "z": 1}), "n")
        assert tables.wipe_write_perm("a") == 2
        assert tables.perms("x") == {"a": 5, "b": 6}
        tables.register(header("a", MASTER), body({"x": 1, "y": 1}, perm=7), "m")
        assert tables.perms("x") == {"a": 5, "b": 6}
        assert tables.add_write_perm("a") == 2
        assert tables.perms("x") == {"a": 6, "b": 6}
        assert tables.wipe_write_perm("nobody") == 0

    def test_a_topic_is_deleted_in_one_cluster_or_in_all(self, tables: Tables):
        tables.register(header("a", MASTER, cluster="C1"), body({"x": 1, "y": 1}), "m")
        tables.register(header("b", SLAVE, cluster="C2"), body({"x": 1, "y": 1}), "n")
        tables.delete_topic("x", "nowhere")
        assert tables.addresses("x").keys() == {"a", "b"}
        tables.delete_topic("x", "C1")
        assert tables.addresses("x").keys() == {"b"}
        tables.delete_topic("y")
        assert tables.route_of("y") is None
        tables.delete_topic("x", "C2")
        assert tables.all_topics().topic_list == []

    def test_a_topic_is_added_to_known_brokers_only_and_to_all_or_none(self, tables: Tables):
        tables.register(header(), body(), "c")
        known, unknown = QueueData("broker-a", 3, 3, 6), QueueData("nobody", 3, 3, 6)
        assert not tables.register_topic("new", [known, unknown])
        assert not tables.register_topic("new", [])
        assert tables.route_of("new") is None
        assert tables.register_topic("new", [known])
        assert tables.counts("new") == {"broker-a": 3}


class TestLists:
    def test_topics_of_a_cluster(self, tables: Tables):
        tables.register(header("a", MASTER, cluster="C1"), body({"x": 1, "y": 1}), "m")
        tables.register(header("b", SLAVE, cluster="C1"), body({"x": 1, "y": 1}), "n")
        tables.register(header("c", SLAVE_2, cluster="C2"), body({"y": 1, "z": 1}), "o")
        assert tables.topics_of_cluster("C1").topic_list == ["x", "y"]
        assert tables.topics_of_cluster("C2").topic_list == ["y", "z"]
        assert tables.topics_of_cluster("C3").topic_list == []

    def test_system_topics_are_clusters_and_brokers(self, tables: Tables):
        assert (tables.system_topics().topic_list, tables.system_topics().broker_addr) == ([], None)
        tables.register(header("b", MASTER, broker_id=1), body(), "m")
        tables.register(header("a", SLAVE), body(), "n")
        assert tables.system_topics().topic_list == ["C", "a", "b"]
        assert tables.system_topics().broker_addr == MASTER

    def test_unit_topics_by_their_flag(self, tables: Tables):
        for flag in range(4):
            address = f"10.0.0.{flag}:10911"
            tables.register(header(f"b{flag}", address), body({f"t{flag}": 1, f"u{flag}": 1}, flag=flag), address)
        assert tables.topics_with_flags(UNIT).topic_list == ["t1", "u1", "t3", "u3"]
        assert tables.topics_with_flags(UNIT_SUB).topic_list == ["t2", "u2", "t3", "u3"]
        assert tables.topics_with_flags(UNIT_SUB, forbidden=UNIT).topic_list == ["t2", "u2"]
