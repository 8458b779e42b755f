"""What a name server shows to Prometheus."""

from __future__ import annotations

from tests.support.scraping import fetch, scrape
from tests.unit.nameserver.brokers import body, header
from tests.unit.nameserver.conftest import Visitor

from rocketline.metrics.config import ExporterType, MetricsConfig
from rocketline.nameserver import NameServer, NameServerConfig


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


async def test_there_is_no_page_unless_asked_for(server: NameServer) -> None:
    assert server.metrics_address == ""
