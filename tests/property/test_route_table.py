"""The route tables under any order of comings and goings: always whole, and every visible change noticed."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketline.clock import ManualClock
from rocketline.errors import RequestRejected
from rocketline.nameserver.config import NameServerConfig
from rocketline.nameserver.routes import RouteTable
from rocketline.protocol.bodies import (
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    encode_route,
)
from rocketline.protocol.headers import RegisterBrokerHeader

TOPICS = ("t0", "t1", "t2", "t3")

names = st.sampled_from(["a", "b"])
clusters = st.sampled_from(["C", "D"])
addresses = st.sampled_from(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"])
broker_ids = st.sampled_from([0, 1, 2])
channels = st.sampled_from(["ch0", "ch1", "ch2"])
topics = st.sampled_from(TOPICS)
versions = st.builds(DataVersion, st.integers(0, 3), st.integers(0, 2), st.just(0))
configs = st.builds(TopicConfig, topics, st.integers(1, 3), st.integers(1, 3), st.sampled_from([4, 6]))
bodies = st.builds(
    lambda version, items, filters: RegisterBrokerBody(
        TopicConfigSerializeWrapper(version, {config.topic_name: config for config in items}), filters
    ),
    versions,
    st.lists(configs, max_size=4),
    st.sampled_from([[], ["f:1"]]),
)


class Tables(RuleBasedStateMachine):
    """What one broker says of itself is the model: who is known, since when, and through which connection."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.routes = RouteTable(NameServerConfig(), self.clock)
        self.live: dict[tuple[str, str], tuple[str, str, float]] = {}
        self.shown: dict[str, bytes | None] = dict.fromkeys(TOPICS)
        self.generation = self.routes.generation

    @rule(
        name=names,
        cluster=clusters,
        address=addresses,
        broker_id=broker_ids,
        acting=st.sampled_from([None, False, True]),
        body=bodies,
        channel=channels,
    )
    def register(
        self,
        name: str,
        cluster: str,
        address: str,
        broker_id: int,
        acting: bool | None,
        body: RegisterBrokerBody,
        channel: str,
    ) -> None:
        known = self.routes.member_group(cluster, name).broker_addrs
        first = broker_id not in known
        header = RegisterBrokerHeader(name, address, cluster, broker_id, enable_acting_master=acting)
        single = len(body.topic_config_serialize_wrapper.topic_config_table) == 1
        try:
            self.routes.register(header, body, channel)
        except RequestRejected:
            assert first
            assert single
            assert self._show() == self.shown
            assert self.routes.generation == self.generation
            return
        assert not (first and single)
        if self.routes.data_version(cluster, address) is None:
            self.live.pop((cluster, address), None)
            assert address not in self.routes.member_group(cluster, name).broker_addrs.values()
        else:
            self.live[cluster, address] = (name, channel, self.clock.monotonic())
            assert self.routes.member_group(cluster, name).broker_addrs[broker_id] == address

    @rule(cluster=clusters, address=addresses, name=names)
    def unregister(self, cluster: str, address: str, name: str) -> None:
        self.routes.unregister(cluster, address, name)
        if (entry := self.live.get((cluster, address))) and entry[0] == name:
            del self.live[cluster, address]
        assert address not in self.routes.member_group(cluster, name).broker_addrs.values()

    @rule(channel=channels)
    def close(self, channel: str) -> None:
        self.routes.channel_closed(channel)
        self.live = {key: entry for key, entry in self.live.items() if entry[1] != channel}

    @rule(cluster=clusters, address=addresses)
    def beat(self, cluster: str, address: str) -> None:
        self.routes.touch(cluster, address)
        if entry := self.live.get((cluster, address)):
            self.live[cluster, address] = (*entry[:2], self.clock.monotonic())

    @rule(seconds=st.sampled_from([1, 60, 121]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)
        oldest = self.clock.monotonic() - 120
        silent = {key for key, entry in self.live.items() if entry[2] < oldest}
        assert {tuple(live.key) for live in self.routes.scan_expired()} == silent
        self.live = {key: entry for key, entry in self.live.items() if key not in silent}

    @rule(topic=topics, name=names)
    def register_topic(self, topic: str, name: str) -> None:
        known = name in self.routes.cluster_info().broker_addr_table
        assert self.routes.register_topic(topic, [QueueData(name, 1, 1, 6)]) is known

    @rule(topic=topics, cluster=st.one_of(st.none(), clusters))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.routes.delete_topic(topic, cluster)
        assert topic not in self.routes.topics_of_cluster(cluster).topic_list if cluster else True

    @rule(name=names, give=st.booleans())
    def change_write_perm(self, name: str, give: bool) -> None:
        (self.routes.add_write_perm if give else self.routes.wipe_write_perm)(name)

    @rule(acting=st.booleans(), delete=st.booleans())
    def change_settings(self, acting: bool, delete: bool) -> None:
        self.routes.config = NameServerConfig(
            support_acting_master=acting, delete_topic_with_broker_registration=delete
        )
        self.shown = self._show()

    @invariant()
    def the_same_brokers_live(self) -> None:
        assert {key: (live.broker_name, live.channel) for key, live in self.routes._live.items()} == {
            key: entry[:2] for key, entry in self.live.items()
        }

    @invariant()
    def groups_have_addresses_and_a_cluster(self) -> None:
        info = self.routes.cluster_info()
        listed = {name for listing in info.cluster_addr_table.values() for name in listing}
        assert listed == info.broker_addr_table.keys()
        assert all(info.cluster_addr_table.values())
        for group in info.broker_addr_table.values():
            assert group.broker_addrs
            assert len(set(group.broker_addrs.values())) == len(group.broker_addrs)

    @invariant()
    def every_address_is_of_someone_alive(self) -> None:
        alive = {(entry[0], address) for (_, address), entry in self.live.items()}
        for group in self.routes.cluster_info().broker_addr_table.values():
            assert {(group.broker_name, address) for address in group.broker_addrs.values()} <= alive

    @invariant()
    def routes_are_whole(self) -> None:
        for topic in TOPICS:
            route = self.routes.route_of(topic)
            assert (route is not None) is (topic in self.routes.all_topics().topic_list)
            if route is not None:
                named = [group.broker_name for group in route.broker_datas]
                assert named == [queues.broker_name for queues in route.queue_datas] != []
                assert all(group.broker_addrs for group in route.broker_datas)

    @invariant()
    def a_visible_change_is_a_new_generation(self) -> None:
        shown = self._show()
        assert shown == self.shown or self.routes.generation > self.generation
        self.shown, self.generation = shown, self.routes.generation

    def _show(self) -> dict[str, bytes | None]:
        routes = {topic: self.routes.route_of(topic) for topic in TOPICS}
        return {topic: encode_route(route, standard=True) if route else None for topic, route in routes.items()}


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=60, stateful_step_count=40)
