"""Bodies of a name server's answers: routes and other tables."""

from __future__ import annotations

import msgspec
from msgspec import field

from rocketline.protocol.bodies.json_body import Body, Int32, encode_body, without_nulls
from rocketline.protocol.bodies.topics import TopicQueueMappingInfo

PERM_READ = 4
PERM_WRITE = 2

MASTER_ID = 0


class BrokerData(Body):
    """One broker group: its addresses by broker id, 0 being the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None


class QueueData(Body):
    """How many queues of a topic a broker has, and what may be done with them."""

    broker_name: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_sys_flag: Int32 = 0


class TopicRouteData(Body):
    """Everything a client needs to send to a topic or to read it."""

    broker_datas: list[BrokerData] = field(default_factory=list)
    queue_datas: list[QueueData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body):
    """All brokers, and which cluster has which."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class BrokerMemberGroup(Body):
    """The live members of one broker group."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)


class BrokerMemberGroupAnswer(Body):
    broker_member_group: BrokerMemberGroup | None = None


class TopicList(Body):
    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


class GroupList(Body):
    group_list: list[str] = field(default_factory=list)


class KVTable(Body):
    table: dict[str, str] = field(default_factory=dict)


class KVConfigFile(Body):
    """kvConfig.json of a name server: namespace, key, value."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


def encode_route(route: TopicRouteData, standard: bool) -> bytes:
    """A route for the requester: standard JSON in plain ASCII, or fastjson's bare integer keys for clients before 4.9.4."""
    if standard:
        return _ascii(encode_body(route))
    plain = without_nulls(msgspec.to_builtins(route))
    for broker, data in zip(route.broker_datas, plain["brokerDatas"]):
        data["brokerAddrs"] = _bare_keys(broker.broker_addrs)
    return msgspec.json.encode(plain)


def _ascii(data: bytes) -> bytes:
    if data.isascii():
        return data
    # Outside ASCII only string contents can occur, so escaping them one by one keeps the text valid JSON.
    return b"".join(_escape(char) for char in data.decode())


def _escape(char: str) -> bytes:
    if char < "\x80":
        return char.encode()
    units = char.encode("utf-16-be")
    return b"".join(b"\\u%02X%02X" % (units[at], units[at + 1]) for at in range(0, len(units), 2))


def _bare_keys(table: dict[int, str]) -> msgspec.Raw:
    items = [b"%d:%s" % (key, msgspec.json.encode(value)) for key, value in table.items()]
    return msgspec.Raw(b"{" + b",".join(items) + b"}")
