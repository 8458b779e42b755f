"""What a name server shows to Prometheus."""

from __future__ import annotations

import pytest
from tests.support.scraping import Scraped, fetch, scrape
from tests.unit.nameserver.brokers import body, header
from tests.unit.nameserver.conftest import Visitor

from rocketline.broker.config import BrokerConfig
from rocketline.metrics.config import ExporterType, MetricsConfig
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.settings import ignored_keys, load


async def test_brokers_topics_connections_and_requests() -> None:
    metrics = MetricsConfig(exporter=ExporterType.PROM, port=0, labels="zone:a")
    async with NameServer(NameServerConfig(host="127.0.0.1", port=0, metrics=metrics)) as server:
        visitor = Visitor(server)
        await visitor.register(header(), body({"orders": 4, "bills": 8}))
        await visitor.ask(105, {"topic": "nobody-knows"})
        page = await scrape(server.metrics_address)
        assert (await fetch(server.metrics_address, "/health")).text == "ok\n"
        await visitor.leave()
    assert page["rocketline_nameserver_brokers"].value(zone="a", node_type="nameserver") == 1
    assert page["rocketline_nameserver_topics"].value() == 2
    assert page["rocketline_nameserver_connections"].value() == 1
    codes = page["rocketmq_rpc_latency_milliseconds"].label_values("request_code")
    assert codes == {"register_broker", "get_routeinfo_by_topic"}
    assert "topic_not_exist" in page["rocketmq_rpc_latency_milliseconds"].label_values("response_code")


async def families(**settings: str) -> dict[str, Scraped]:
    """The page of a name server with these settings and brokers of three clusters."""
    values = {"listenPort": "0", "metricsExporterType": "PROM", "metricsPromExporterPort": "0", **settings}
    config, unknown = load(NameServerConfig, values)
    assert unknown == []
    async with NameServer(config) as server:
        visitor = Visitor(server)
        for number in range(3):
            await visitor.register(header(f"b{number}", f"10.0.0.{number}:1", cluster=f"c{number}"), body())
        page = await scrape(server.metrics_address)
        await visitor.leave()
    return page


OF_ITS_TABLES = {"rocketline_nameserver_brokers", "rocketline_nameserver_topics"}
REQUESTS = "rocketmq_rpc_latency_milliseconds"


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("enableStatsMetrics", {*OF_ITS_TABLES, "process_cpu_seconds_total"}),
        ("enableConnectionMetrics", {"rocketline_nameserver_connections"}),
        ("enableRemotingMetrics", {REQUESTS}),
    ],
)
async def test_parts_can_be_left_out(switch: str, gone: set[str]) -> None:
    shown = (await families()).keys()
    # That slow requests are logged does not mean that they are shown.
    left = (await families(**{switch: "false", "rocketline.slowRequestMs": "1000"})).keys()
    assert gone <= shown - left
    assert {*OF_ITS_TABLES, "rocketline_nameserver_connections", REQUESTS} - gone <= left


async def test_clusters_beyond_the_limit_are_added_up() -> None:
    page = await families(metricsOtelCardinalityLimit="1")
    assert page["rocketline_nameserver_brokers"].value(cluster="c0") == 1
    assert page["rocketline_nameserver_brokers"].value(cluster="__other__") == 2


@pytest.mark.parametrize(
    "key",
    [
        "enableRequestMetrics", "enableLagAndDlqMetrics", "enableTransactionMetrics", "enableMessageStoreMetrics",
        "enablePopMetrics",
    ],
)  # fmt: skip
def test_what_only_a_broker_measures_changes_nothing_in_a_name_server(key: str) -> None:
    """A file may have it, and its reader is told why it does nothing: it is not misspelt."""
    assert load(NameServerConfig, {key: "false"}) == (NameServerConfig(), [])
    assert ignored_keys(NameServerConfig)[key]
    assert load(BrokerConfig, {key: "false"})[0] != BrokerConfig()


async def test_there_is_no_page_unless_asked_for(server: NameServer) -> None:
    assert server.metrics_address == ""
