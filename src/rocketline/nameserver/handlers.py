"""The request handlers of a name server, one method per request code.

Every request is answered at once, from tables in memory. Clients ask for routes all the time: the JSON of a topic's route is
cached until any route may have changed. Codes and remarks are RocketMQ's.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable

from rocketline.clock import Clock
from rocketline.errors import ConfigError, RequestRejected
from rocketline.nameserver.config import NameServerConfig, with_changes
from rocketline.nameserver.kv_config import ORDER_TOPIC_CONFIG, KvConfig
from rocketline.nameserver.routes import RouteTable
from rocketline.nameserver.topic_queues import UNIT, UNIT_SUB
from rocketline.protocol.bodies import (
    MASTER_ID,
    Body,
    BrokerMemberGroupAnswer,
    DataVersion,
    KVTable,
    TopicRouteData,
    decode_body,
    decode_registration,
    encode_body,
    encode_route,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    AddWritePermResponseHeader,
    BrokerHeartbeatHeader,
    DeleteKvConfigHeader,
    DeleteTopicInNameServerHeader,
    GetBrokerMemberGroupHeader,
    GetKvConfigHeader,
    GetKvConfigResponseHeader,
    GetKvListHeader,
    GetRouteHeader,
    GetTopicsByClusterHeader,
    PutKvConfigHeader,
    QueryDataVersionHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerHeader,
    RegisterTopicHeader,
    UnregisterBrokerHeader,
    WipeWritePermResponseHeader,
    WritePermOfBrokerHeader,
)
from rocketline.settings import as_properties
from rocketline.transport import Channel, Router
from rocketline.transport.client import split_address

log = logging.getLogger(__name__)

FIRST_STANDARD_JSON_VERSION = 401
"""Clients from 4.9.4 on read standard JSON; older ones expect fastjson's integer keys without quotes."""

NO_ROUTE = (
    "No topic route info in name server for the topic: {}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

_ZLIB_START = b"\x78"


class Handlers:
    """Handlers of all requests, on one set of tables."""

    def __init__(self, config: NameServerConfig, routes: RouteTable, kv_config: KvConfig, clock: Clock) -> None:
        self.config = config
        self._routes = routes
        self._kv_config = kv_config
        self._clock = clock
        self._started = clock.monotonic()
        self._encoded: dict[tuple[str, bool], bytes] = {}
        self._encoded_generation = 0
        self.trusts: Callable[[Channel], bool] = lambda channel: True
        """Whether somebody may remove brokers that others registered."""

    def router(self) -> Router:
        return Router(
            {
                RequestCode.PUT_KV_CONFIG: self.put_kv_config,
                RequestCode.GET_KV_CONFIG: self.get_kv_config,
                RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
                RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_list,
                RequestCode.REGISTER_BROKER: self.register_broker,
                RequestCode.UNREGISTER_BROKER: self.unregister_broker,
                RequestCode.QUERY_DATA_VERSION: self.query_data_version,
                RequestCode.BROKER_HEARTBEAT: self.broker_heartbeat,
                RequestCode.GET_BROKER_MEMBER_GROUP: self.get_broker_member_group,
                RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
                RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
                RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
                RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
                RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
                RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_of_cluster,
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
                RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_sub_topics,
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_sub_ununit_topics,
                RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
                RequestCode.GET_NAMESRV_CONFIG: self.get_config,
            }
        )

    def get_route(self, channel: Channel, request: Command) -> Command:
        header = GetRouteHeader.decode(request)
        if self.config.need_wait_for_service and not self._waited_long_enough():
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "name server not ready")
        standard = request.version >= FIRST_STANDARD_JSON_VERSION or bool(header.accept_standard_json_only)
        if header.zone_name and (header.zone_mode or "").lower() == "true":
            body = encode_route(_in_zone(self._route_of(header.topic), header.zone_name), standard)
        else:
            body = self._encoded_route(header.topic, standard)
        return request.reply(ResponseCode.SUCCESS, body=body)

    def _waited_long_enough(self) -> bool:
        return self._clock.monotonic() - self._started >= self.config.wait_seconds_for_service

    def _route_of(self, topic: str) -> TopicRouteData:
        route = self._routes.route_of(topic)
        if route is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format(topic))
        if self.config.order_message_enable:
            route.order_topic_conf = self._kv_config.get(ORDER_TOPIC_CONFIG, topic)
        return route

    def _encoded_route(self, topic: str, standard: bool) -> bytes:
        if self._encoded_generation != self._routes.generation:
            self._encoded.clear()
            self._encoded_generation = self._routes.generation
        body = self._encoded.get((topic, standard))
        if body is None:
            # Only existing topics are cached: for others `_route_of` raises.
            body = self._encoded[topic, standard] = encode_route(self._route_of(topic), standard)
        return body

    def register_broker(self, channel: Channel, request: Command) -> Command:
        header = RegisterBrokerHeader.decode(request)
        if header.body_crc32 and header.body_crc32 != zlib.crc32(request.body) & 0x7FFFFFFF:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        _check_identity(header)
        # Brokers of 5.x with compressedRegister compress the body without setting the header field.
        compressed = header.compressed or request.body.startswith(_ZLIB_START)
        body = decode_registration(request.body, compressed, request.version)
        answer = self._routes.register(header, body, channel)
        if self._routes.channel_closed not in channel.on_close:
            channel.on_close.append(self._routes.channel_closed)
        order_topics = self._kv_config.namespace(ORDER_TOPIC_CONFIG)
        if order_topics is None or not self.config.return_order_topic_config_to_broker:
            return request.reply(ResponseCode.SUCCESS, answer.encode())
        return request.reply(ResponseCode.SUCCESS, answer.encode(), encode_body(KVTable(order_topics)))

    def unregister_broker(self, channel: Channel, request: Command) -> Command:
        header = UnregisterBrokerHeader.decode(request)
        registrar = self._routes.registrar(header.cluster_name, header.broker_addr)
        if isinstance(registrar, Channel) and registrar.remote_ip != channel.remote_ip and not self.trusts(channel):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"broker {header.broker_addr} was registered from {registrar.remote_ip}, so it is not removed from "
                f"{channel.remote_ip}: this server asks for no accounts, and rocketline.adminFrom does not name it",
            )
        self._routes.unregister(header.cluster_name, header.broker_addr, header.broker_name)
        return request.reply(ResponseCode.SUCCESS)

    def query_data_version(self, channel: Channel, request: Command) -> Command:
        header = QueryDataVersionHeader.decode(request)
        version = decode_body(DataVersion, request.body)
        known = self._routes.data_version(header.cluster_name, header.broker_addr)
        self._routes.touch(header.cluster_name, header.broker_addr)
        answer = QueryDataVersionResponseHeader(changed=known != version)
        return request.reply(ResponseCode.SUCCESS, answer.encode(), encode_body(known) if known else b"")

    def broker_heartbeat(self, channel: Channel, request: Command) -> Command:
        header = BrokerHeartbeatHeader.decode(request)
        self._routes.touch(header.cluster_name, header.broker_addr)
        return request.reply(ResponseCode.SUCCESS)

    def get_broker_member_group(self, channel: Channel, request: Command) -> Command:
        header = GetBrokerMemberGroupHeader.decode(request)
        group = self._routes.member_group(header.cluster_name, header.broker_name)
        return _with_body(request, BrokerMemberGroupAnswer(group))

    def get_cluster_info(self, channel: Channel, request: Command) -> Command:
        return _with_body(request, self._routes.cluster_info())

    def register_topic(self, channel: Channel, request: Command) -> Command:
        header = RegisterTopicHeader.decode(request)
        route = decode_body(TopicRouteData, request.body)
        if not self._routes.register_topic(header.topic, route.queue_datas):
            log.warning(
                "topic %s not registered by %s: no queues, or of an unknown broker", header.topic, channel.remote
            )
        return request.reply(ResponseCode.SUCCESS)

    def delete_topic(self, channel: Channel, request: Command) -> Command:
        header = DeleteTopicInNameServerHeader.decode(request)
        self._routes.delete_topic(header.topic, header.cluster_name)
        log.info("topic %s deleted by %s", header.topic, channel.remote)
        return request.reply(ResponseCode.SUCCESS)

    def wipe_write_perm(self, channel: Channel, request: Command) -> Command:
        count = self._routes.wipe_write_perm(WritePermOfBrokerHeader.decode(request).broker_name)
        return request.reply(ResponseCode.SUCCESS, WipeWritePermResponseHeader(count).encode())

    def add_write_perm(self, channel: Channel, request: Command) -> Command:
        count = self._routes.add_write_perm(WritePermOfBrokerHeader.decode(request).broker_name)
        return request.reply(ResponseCode.SUCCESS, AddWritePermResponseHeader(count).encode())

    def get_all_topics(self, channel: Channel, request: Command) -> Command:
        _check_enabled(self.config.enable_all_topic_list)
        return _with_body(request, self._routes.all_topics())

    def get_topics_of_cluster(self, channel: Channel, request: Command) -> Command:
        _check_enabled(self.config.enable_topic_list)
        return _with_body(request, self._routes.topics_of_cluster(GetTopicsByClusterHeader.decode(request).cluster))

    def get_system_topics(self, channel: Channel, request: Command) -> Command:
        return _with_body(request, self._routes.system_topics())

    def get_unit_topics(self, channel: Channel, request: Command) -> Command:
        _check_enabled(self.config.enable_topic_list)
        return _with_body(request, self._routes.topics_with_flags(UNIT))

    def get_unit_sub_topics(self, channel: Channel, request: Command) -> Command:
        _check_enabled(self.config.enable_topic_list)
        return _with_body(request, self._routes.topics_with_flags(UNIT_SUB))

    def get_unit_sub_ununit_topics(self, channel: Channel, request: Command) -> Command:
        _check_enabled(self.config.enable_topic_list)
        return _with_body(request, self._routes.topics_with_flags(UNIT_SUB, forbidden=UNIT))

    def put_kv_config(self, channel: Channel, request: Command) -> Command:
        header = PutKvConfigHeader.decode(request)
        self._kv_config.put(header.namespace, header.key, header.value)
        self._encoded.clear()
        return request.reply(ResponseCode.SUCCESS)

    def get_kv_config(self, channel: Channel, request: Command) -> Command:
        header = GetKvConfigHeader.decode(request)
        value = self._kv_config.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            raise RequestRejected(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.reply(ResponseCode.SUCCESS, GetKvConfigResponseHeader(value).encode())

    def delete_kv_config(self, channel: Channel, request: Command) -> Command:
        header = DeleteKvConfigHeader.decode(request)
        self._kv_config.delete(header.namespace, header.key)
        self._encoded.clear()
        return request.reply(ResponseCode.SUCCESS)

    def get_kv_list(self, channel: Channel, request: Command) -> Command:
        namespace = GetKvListHeader.decode(request).namespace
        table = self._kv_config.namespace(namespace)
        if table is None:
            raise RequestRejected(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return _with_body(request, KVTable(table))

    def update_config(self, channel: Channel, request: Command) -> Command:
        try:
            config = with_changes(self.config, request.body.decode())
        except (ConfigError, UnicodeDecodeError) as error:
            raise RequestRejected(ResponseCode.NO_PERMISSION, str(error)) from error
        log.info("settings changed by %s: %s", channel.remote, config)
        self.config = self._routes.config = config
        self._encoded.clear()
        return request.reply(ResponseCode.SUCCESS)

    def get_config(self, channel: Channel, request: Command) -> Command:
        return request.reply(ResponseCode.SUCCESS, body=as_properties(self.config).encode())


def _with_body(request: Command, body: Body) -> Command:
    return request.reply(ResponseCode.SUCCESS, body=encode_body(body))


def _check_enabled(enabled: bool) -> None:
    if not enabled:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, "disable")


def _check_identity(header: RegisterBrokerHeader) -> None:
    """Refuse names and addresses that cannot be used: clients get them as they are."""
    for name, value in (("brokerName", header.broker_name), ("clusterName", header.cluster_name)):
        if not value:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"register broker failed: {name} is empty")
    try:
        split_address(header.broker_addr)
    except ValueError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"register broker failed: brokerAddr {error}") from error


def _in_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """The route with the brokers of one zone only, and those of any zone that lost their master, so that clients can
    read."""
    groups = [
        group
        for group in route.broker_datas
        if MASTER_ID not in group.broker_addrs or (group.zone_name or "").lower() == zone.lower()
    ]
    names = {group.broker_name for group in groups}
    addresses = {address for group in groups for address in group.broker_addrs.values()}
    route.filter_server_table = {key: item for key, item in route.filter_server_table.items() if key in addresses}
    route.broker_datas = groups
    route.queue_datas = [queues for queues in route.queue_datas if queues.broker_name in names]
    return route
