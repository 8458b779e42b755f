"""Short functions that make registrations of brokers."""

from __future__ import annotations

from rocketline.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketline.protocol.headers import RegisterBrokerHeader

TWO_TOPICS = {"orders": 4, "payments": 8}


def header(
    name: str = "broker-a",
    address: str = "10.0.0.1:10911",
    broker_id: int = 0,
    *,
    cluster: str = "C",
    ha: str | None = None,
    acting: bool | None = False,
    timeout_ms: int | None = None,
    zone: str | None = None,
) -> RegisterBrokerHeader:
    return RegisterBrokerHeader(
        broker_name=name,
        broker_addr=address,
        cluster_name=cluster,
        broker_id=broker_id,
        ha_server_addr=address.replace("10911", "10912") if ha is None else ha,
        heartbeat_timeout_ms=timeout_ms,
        enable_acting_master=acting,
        zone_name=zone,
    )


def body(
    topics: dict[str, int] | None = None,
    *,
    version: DataVersion | None = None,
    perm: int = 6,
    flag: int = 0,
    filter_servers: list[str] | None = None,
    mappings: dict[str, object] | None = None,
) -> RegisterBrokerBody:
    configs = {
        topic: TopicConfig(topic, count, count, perm, topic_sys_flag=flag)
        for topic, count in (TWO_TOPICS if topics is None else topics).items()
    }
    wrapper = TopicConfigSerializeWrapper(
        version or DataVersion(1, 0, 1000), configs, topic_queue_mapping_info_map=mappings
    )
    return RegisterBrokerBody(wrapper, filter_servers or [])
