"""Series of the front: their names, and that each call counts once however many pages there are."""

from __future__ import annotations

from collections import Counter

from tests.support.grpc_wire import GrpcWire
from tests.support.scraping import scrape
from tests.unit.proxy.conftest import create_topics
from tests.unit.proxy.test_front_calls import message, publish, receive, send

from rocketline.proxy.config import ProxyConfig
from rocketline.proxy.server import Proxy
from rocketline.settings import load
from rocketline.testing import LocalCluster

NAMES = {
    "rocketmq_proxy_up", "rocketline_grpc_calls_total", "rocketline_grpc_connections", "rocketline_grpc_streams",
    "rocketline_grpc_clients", "rocketline_grpc_held_messages", "rocketline_grpc_transactions",
}  # fmt: skip
PAGE = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}


async def _series(*addresses: str) -> Counter[str]:
    """The values of the front's series, added up over pages and labels."""
    found: Counter[str] = Counter()
    for address in addresses:
        for name, family in (await scrape(address)).items():
            if name.startswith(("rocketmq_proxy_", "rocketline_grpc_")):
                found.update({name: sum(sample.value for sample in family.samples)})
    return found


async def test_a_call_counts_once_on_the_pages_of_several_brokers() -> None:
    with LocalCluster(brokers=2, grpc=True, config=PAGE) as cluster:
        create_topics(cluster)
        async with GrpcWire(cluster.grpc_address) as wire:
            await publish(wire, "TTRANSACTION")
            await send(wire, message("TTRANSACTION", kind="TRANSACTION"))
            await send(wire, message("TNORMAL"), message("TNORMAL"))  # one for each broker
            await receive(wire, "TNORMAL", "counted", auto_renew=True)
            found = await _series(*(broker.metrics_address for broker in cluster.brokers))
            assert found == {
                "rocketmq_proxy_up": 1, "rocketline_grpc_calls_total": 3, "rocketline_grpc_connections": 1,
                "rocketline_grpc_streams": 1, "rocketline_grpc_clients": 1, "rocketline_grpc_held_messages": 1,
                "rocketline_grpc_transactions": 1,
            }  # fmt: skip
            cluster.restart_broker("broker-a")
            found = await _series(*(broker.metrics_address for broker in cluster.brokers))
            assert (found["rocketmq_proxy_up"], found["rocketline_grpc_calls_total"]) == (1, 3)
            cluster.stop_broker("broker-a")
            assert (await _series(cluster.brokers[0].metrics_address))["rocketmq_proxy_up"] == 1


async def test_a_proxy_has_the_same_series() -> None:
    with LocalCluster() as cluster:
        values = {"namesrvAddr": cluster.namesrv, "grpcServerPort": "0", **PAGE}
        async with Proxy(load(ProxyConfig, values)[0]) as proxy, GrpcWire(proxy.address) as wire:
            await send(wire, message("nowhere"))
            found = await _series(proxy.metrics_address)
    assert set(found) == NAMES
    assert found["rocketline_grpc_calls_total"] == 1
