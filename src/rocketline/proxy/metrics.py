"""Metric families of the front: `rocketmq_proxy_up` is RocketMQ's, the others are ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rocketline.metrics.config import MetricsConfig
from rocketline.metrics.exporter import Source
from rocketline.metrics.families import Family, Labels, counter, gauge
from rocketline.metrics.process import process_families
from rocketline.proxy.proto import CODE_NAMES

if TYPE_CHECKING:
    from rocketline.proxy.front import GrpcFront


def labels(cluster: str, name: str) -> Labels:
    """What tells a proxy from others."""
    return ("node_type", "proxy"), ("cluster", cluster), ("node_id", name)


def sources(front: GrpcFront, config: MetricsConfig, access: Source) -> list[Source]:
    """What a front in a process of its own measures, of that what is switched on."""
    tls = front.tls
    found: list[tuple[bool, Source]] = [
        (config.connections, front_source(front)),
        (config.connections and tls is not None, ("TLS", lambda: tls.families() if tls else [])),
        (config.stats, access),
        (config.stats, ("the process", process_families)),
    ]
    return [source for is_wanted, source in found if is_wanted]


def front_source(front: GrpcFront, mode: str = "cluster", is_shown: Callable[[], bool] = lambda: True) -> Source:
    return "the gRPC front", lambda: front_families(front, mode) if is_shown() else ()


def front_families(front: GrpcFront, mode: str) -> Iterator[Family]:
    up = gauge("rocketmq_proxy_up", "Whether this proxy serves.")
    up.add(1, proxy_mode=mode)
    yield up
    calls = counter("rocketline_grpc_calls_total", "Calls that were answered, by method and code.")
    for (method, code), count in front.service.answered.items():
        calls.add(count, method=method, code=CODE_NAMES.get(code, str(code)))
    yield calls
    connections = gauge("rocketline_grpc_connections", "Connections of gRPC clients.")
    connections.add(len(front.server.channels))
    yield connections
    streams = gauge("rocketline_grpc_streams", "Calls and streams that are open.")
    streams.add(sum(channel.stream_count for channel in front.server.channels))
    yield streams
    clients = gauge("rocketline_grpc_clients", "Clients that are known.")
    clients.add(len(front.clients))
    yield clients
    held = gauge("rocketline_grpc_held_messages", "Messages that are kept hidden for push consumers.")
    held.add(len(front.renewals))
    yield held
    open_transactions = gauge("rocketline_grpc_transactions", "Transactions whose half messages are known.")
    open_transactions.add(len(front.transactions))
    yield open_transactions
