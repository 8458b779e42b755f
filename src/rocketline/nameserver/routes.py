"""The route tables: live brokers, and the queues of each topic on them.

Plain synchronous tables, as RocketMQ 5 keys them:

    topic -> broker name -> queues (`TopicQueues`)     broker name -> broker group: addresses by broker id
    (cluster, address) -> live broker                  cluster -> broker names
    (cluster, address) -> filter servers

Rules:

* No method awaits anything, so a reader sees the tables before or after a change, never in between. A refused change changes
  nothing.
* Queues belong to a broker group with at least one address: when the last address leaves, they leave with it.
* A broker leaves by unregistering, by silence (its own time-out, 120 s by default), or when the connection that last
  registered it closes.
* `generation` grows with every change that may be visible in a route.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.nameserver.config import NameServerConfig
from rocketline.nameserver.topic_queues import TopicQueues
from rocketline.protocol.bodies import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.headers import (
    NotifyMinBrokerIdChangeHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
)

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_MS = 120_000

MEMBER_SYNC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Brokers use topics with this prefix to find the real members of a group: their routes show no acting master."""


class BrokerKey(NamedTuple):
    """Cluster and address of a broker: two clusters may use the same address."""

    cluster: str
    address: str


@dataclass(slots=True)
class LiveBroker:
    """A broker that is thought to be alive, and the connection that last registered it."""

    key: BrokerKey
    broker_name: str
    data_version: DataVersion
    channel: object
    ha_address: str
    timeout_s: float
    last_seen: float


class MinBrokerIdChange(NamedTuple):
    """A change of the lowest broker id of a group, and the brokers to notify."""

    header: NotifyMinBrokerIdChangeHeader
    addresses: list[str]


class RouteTable:
    """The tables; `notify` is called after each change of a lowest broker id."""

    def __init__(
        self, config: NameServerConfig, clock: Clock, notify: Callable[[MinBrokerIdChange], None] | None = None
    ) -> None:
        self.config = config
        self._clock = clock
        self._notify = notify or (lambda change: None)
        self._changes = 0
        self._topics = TopicQueues()
        self._groups: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[BrokerKey, LiveBroker] = {}
        self._filter_servers: dict[BrokerKey, list[str]] = {}

    def broker_counts(self) -> dict[str, int]:
        """Brokers that are thought to be alive, by cluster."""
        return dict(Counter(key.cluster for key in self._live))

    @property
    def topic_count(self) -> int:
        return len(self.all_topics().topic_list)

    @property
    def generation(self) -> int:
        return self._changes + self._topics.generation

    def register(
        self, header: RegisterBrokerHeader, body: RegisterBrokerBody, channel: object
    ) -> RegisterBrokerResponseHeader:
        """Add or refresh a broker and its topics; the answer tells a slave the address of its master."""
        key = BrokerKey(header.cluster_name, header.broker_addr)
        topics = body.topic_config_serialize_wrapper
        addresses = self._addresses(header.broker_name)
        first = header.broker_id not in addresses
        if first and len(topics.topic_config_table) == 1:
            # A broker registers a new topic alone. Accepted as its first registration, its other topics would stay unknown.
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "register broker failed")
        self._leave_former_group(key, header.broker_name)
        if self._is_outdated(header, topics.data_version, addresses):
            self.unregister(*key, header.broker_name)
            return RegisterBrokerResponseHeader()
        lowest_before = min(addresses, default=MASTER_ID)
        group = self._add_to_group(header)
        if _speaks_for_group(header, group):
            self._apply_topics(header, group, topics, first)
        self._live[key] = self._live_broker(key, header, topics.data_version, channel)
        self._set_filter_servers(key, body.filter_server_list)
        if header.broker_id < lowest_before:
            self._notify(_min_id_change(group, ha_address=header.ha_server_addr or None))
        return self._master_of(header, group)

    def registrar(self, cluster: str, address: str) -> object | None:
        """The connection that last registered a broker; None: it is not registered."""
        live = self._live.get(BrokerKey(cluster, address))
        return None if live is None else live.channel

    def unregister(self, cluster: str, address: str, broker_name: str) -> None:
        """Remove a broker, and everything that only it had."""
        key = BrokerKey(cluster, address)
        if (live := self._live.get(key)) and live.broker_name == broker_name:
            del self._live[key]
            self._set_filter_servers(key, [])
        lowest_before = min(self._addresses(broker_name), default=MASTER_ID)
        if not self._drop_address(broker_name, address):
            return
        log.info("broker %s at %s left", broker_name, address)
        group = self._groups[broker_name]
        if not group.broker_addrs:
            self._forget_group(broker_name)
        elif group.enable_acting_master and (lowest := min(group.broker_addrs)) > lowest_before:
            if lowest > MASTER_ID:
                self.wipe_write_perm(broker_name)
            self._notify(_min_id_change(group, offline_address=address))

    def channel_closed(self, channel: object) -> None:
        """Remove every broker whose last registration came over this connection."""
        self._unregister_all(live for live in self._live.values() if live.channel is channel)

    def scan_expired(self) -> list[LiveBroker]:
        """Remove the brokers that were silent for longer than their time-out; the caller closes their connections."""
        now = self._clock.monotonic()
        return self._unregister_all(live for live in self._live.values() if live.last_seen + live.timeout_s < now)

    def touch(self, cluster: str, address: str) -> None:
        """Record a sign of life of a broker."""
        if live := self._live.get(BrokerKey(cluster, address)):
            live.last_seen = self._clock.monotonic()

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the topics that a broker registered last."""
        live = self._live.get(BrokerKey(cluster, address))
        return live.data_version if live else None

    def register_topic(self, topic: str, queues: list[QueueData]) -> bool:
        """Add a topic to brokers; False, and no change, when any of them is unknown."""
        if not queues or any(item.broker_name not in self._groups for item in queues):
            return False
        for item in queues:
            self._topics.put(topic, item)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic from the brokers of a cluster, or from all."""
        self._topics.remove(topic, self._clusters.get(cluster, ()) if cluster else self._groups)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Make the topics of a broker read-only; returns how many it has."""
        return self._topics.change_perms(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Make all topics of a broker readable and writable; returns how many it has."""
        return self._topics.change_perms(broker_name, lambda perm: PERM_READ | PERM_WRITE)

    def route_of(self, topic: str) -> TopicRouteData | None:
        """The route of a topic; None when no broker has it."""
        queues = self._topics.of(topic)
        if not queues:
            return None
        relabel = self.config.support_acting_master and not topic.startswith(MEMBER_SYNC_PREFIX)
        groups = [self._shown_group(item, relabel) for item in queues.values()]
        filter_servers = {
            address: servers
            for group in groups
            for address in group.broker_addrs.values()
            if (servers := self._filter_servers.get(BrokerKey(group.cluster, address)))
        }
        mappings = self._topics.mappings_of(topic)
        return TopicRouteData(groups, list(queues.values()), filter_servers, topic_queue_mapping_by_broker=mappings)

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(self._groups, {name: sorted(names) for name, names in self._clusters.items()})

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        return BrokerMemberGroup(cluster, broker_name, self._addresses(broker_name))

    def all_topics(self) -> TopicList:
        return TopicList(self._topics.all())

    def topics_of_cluster(self, cluster: str) -> TopicList:
        return TopicList(self._topics.on_any(self._clusters.get(cluster, ())))

    def topics_with_flags(self, required: int, forbidden: int = 0) -> TopicList:
        return TopicList(self._topics.with_flags(required, forbidden))

    def system_topics(self) -> TopicList:
        """The topics named after clusters and brokers; the answer also names a broker that knows more system topics."""
        names = (name for cluster in self._clusters for name in (cluster, *sorted(self._clusters[cluster])))
        group = next(iter(self._groups.values()), None)
        return TopicList(list(dict.fromkeys(names)), group.broker_addrs[min(group.broker_addrs)] if group else None)

    def _addresses(self, broker_name: str) -> dict[int, str]:
        group = self._groups.get(broker_name)
        return group.broker_addrs if group else {}

    def _is_outdated(self, header: RegisterBrokerHeader, version: DataVersion, addresses: dict[int, str]) -> bool:
        """Whether a newer broker has this id at another address: then this one was replaced and came back."""
        holder = addresses.get(header.broker_id, header.broker_addr)
        if holder == header.broker_addr:
            return False
        live = self._live.get(BrokerKey(header.cluster_name, holder))
        if live is None or live.data_version.state_version <= version.state_version:
            return False
        name, broker_id = header.broker_name, header.broker_id
        log.warning(
            "broker %s id %d at %s ignored: the broker at %s is newer", name, broker_id, header.broker_addr, holder
        )
        return True

    def _leave_former_group(self, key: BrokerKey, broker_name: str) -> None:
        """Remove a renamed broker from the group of its old name, where nothing would refresh or remove it."""
        live = self._live.get(key)
        if live is not None and live.broker_name != broker_name:
            self.unregister(*key, live.broker_name)

    def _add_to_group(self, header: RegisterBrokerHeader) -> BrokerData:
        """Put the broker into its group under its id, and under no other; returns the group."""
        group = self._groups.get(header.broker_name)
        if group is None:
            group = self._groups[header.broker_name] = BrokerData(header.cluster_name, header.broker_name)
        before = (group.broker_addrs, group.enable_acting_master, group.zone_name)
        others = {number: address for number, address in group.broker_addrs.items() if address != header.broker_addr}
        group.broker_addrs = dict(sorted((others | {header.broker_id: header.broker_addr}).items()))
        group.enable_acting_master = bool(header.enable_acting_master)
        group.zone_name = header.zone_name
        if (group.broker_addrs, group.enable_acting_master, group.zone_name) != before:
            log.info("broker %s id %d registered at %s", header.broker_name, header.broker_id, header.broker_addr)
            self._changes += 1
        self._clusters.setdefault(header.cluster_name, set()).add(header.broker_name)
        return group

    def _apply_topics(
        self, header: RegisterBrokerHeader, group: BrokerData, topics: TopicConfigSerializeWrapper, first: bool
    ) -> None:
        """Add the registered topics. Topics that are not listed stay, because a broker registers a new topic alone."""
        name = header.broker_name
        configs = topics.topic_config_table.values()
        mappings = topics.topic_queue_mapping_info_map or {}
        if self.config.delete_topic_with_broker_registration and not mappings:
            self._topics.remove_broker(name, but={config.topic_name for config in configs})
        changed = first or topics.data_version != self.data_version(header.cluster_name, header.broker_addr)
        read_only = group.enable_acting_master and header.broker_id != MASTER_ID
        for config in configs:
            if changed or name not in self._topics.of(config.topic_name):
                self._topics.put(config.topic_name, _queue_data(name, config, read_only))
        if changed:
            for topic, mapping in mappings.items():
                self._topics.put_mapping(topic, name, mapping)

    def _live_broker(
        self, key: BrokerKey, header: RegisterBrokerHeader, version: DataVersion, channel: object
    ) -> LiveBroker:
        timeout_ms = DEFAULT_TIMEOUT_MS if header.heartbeat_timeout_ms is None else header.heartbeat_timeout_ms
        now = self._clock.monotonic()
        return LiveBroker(key, header.broker_name, version, channel, header.ha_server_addr, timeout_ms / 1000, now)

    def _set_filter_servers(self, key: BrokerKey, servers: list[str]) -> None:
        if servers == self._filter_servers.get(key, []):
            return
        self._changes += 1
        if servers:
            self._filter_servers[key] = servers
        else:
            del self._filter_servers[key]

    def _master_of(self, header: RegisterBrokerHeader, group: BrokerData) -> RegisterBrokerResponseHeader:
        master = group.broker_addrs.get(MASTER_ID)
        if header.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResponseHeader()
        live = self._live.get(BrokerKey(header.cluster_name, master))
        return RegisterBrokerResponseHeader(live.ha_address or None, master) if live else RegisterBrokerResponseHeader()

    def _unregister_all(self, leaving: Iterable[LiveBroker]) -> list[LiveBroker]:
        brokers = list(leaving)
        for live in brokers:
            self.unregister(*live.key, live.broker_name)
        return brokers

    def _drop_address(self, broker_name: str, address: str) -> bool:
        addresses = self._addresses(broker_name)
        numbers = [number for number, known in addresses.items() if known == address]
        for number in numbers:
            del addresses[number]
            self._changes += 1
        return bool(numbers)

    def _forget_group(self, broker_name: str) -> None:
        del self._groups[broker_name]
        self._topics.remove_broker(broker_name)
        for cluster, names in list(self._clusters.items()):
            names.discard(broker_name)
            if not names:
                del self._clusters[cluster]

    def _shown_group(self, queues: QueueData, relabel: bool) -> BrokerData:
        """A broker group as shown in a route: without a master, the lowest slave may be shown as a read-only master."""
        group = self._groups[queues.broker_name]
        addresses = group.broker_addrs
        if not relabel or not group.enable_acting_master or MASTER_ID in addresses or queues.perm & PERM_WRITE:
            return group
        lowest = min(addresses)
        shown = {MASTER_ID: addresses[lowest]} | {key: addresses[key] for key in addresses if key != lowest}
        return BrokerData(group.cluster, group.broker_name, shown, True, group.zone_name)


def _speaks_for_group(header: RegisterBrokerHeader, group: BrokerData) -> bool:
    """Whether this broker registers the topics of its group: the master does, or else the lowest id.

    Brokers older than 5 do not send `enableActingMaster` at all; their slaves never do.
    """
    if header.broker_id == MASTER_ID:
        return True
    return header.enable_acting_master is not None and header.broker_id == min(group.broker_addrs)


def _queue_data(broker_name: str, config: TopicConfig, read_only: bool) -> QueueData:
    perm = config.perm & ~PERM_WRITE if read_only else config.perm
    return QueueData(broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)


def _min_id_change(
    group: BrokerData, *, offline_address: str | None = None, ha_address: str | None = None
) -> MinBrokerIdChange:
    addresses = group.broker_addrs
    lowest = min(addresses)
    header = NotifyMinBrokerIdChangeHeader(lowest, group.broker_name, addresses[lowest], offline_address, ha_address)
    # After a loss all remaining brokers are notified. A new broker is not notified of itself, unless it is alone.
    everyone = offline_address is not None or len(addresses) == 1
    notified = [address for number, address in addresses.items() if everyone or number != lowest]
    return MinBrokerIdChange(header, notified)
