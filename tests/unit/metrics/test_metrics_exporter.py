"""The settings of metrics, and the exporters other than the page: a log, a collector."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.broker.config import BrokerConfig
from rocketline.errors import ConfigError
from rocketline.metrics.config import ExporterType, MetricsConfig
from rocketline.metrics.exporter import MetricsExporter, Source
from rocketline.metrics.families import Distribution, Family, counter, gauge, histogram
from rocketline.settings import as_properties, load, parse_properties

CONSTANT = (("node_id", "broker-a"),)
SECRET = "Bearer-do-not-tell"


async def families() -> AsyncIterator[Family]:
    messages = counter("messages_in_total", "Messages.")
    messages.add(3, topic="orders")
    yield messages
    age = gauge("age", "An age.", "milliseconds")
    age.add(7)
    yield age
    took = histogram("took", "Times.", bounds=(1, 10))
    took.add_distribution(Distribution((2, 0, 1), 25), code="x")
    yield took


def sources() -> list[Source]:
    return [("a test", families)]


@pytest.fixture
def quiet_reports() -> Iterator[None]:
    logger = logging.getLogger("rocketline.metrics.report")
    level = logger.level
    yield
    logger.setLevel(level)


async def test_reports_go_to_a_log(caplog: pytest.LogCaptureFixture, quiet_reports: None) -> None:
    config = MetricsConfig(exporter=ExporterType.LOG, log_interval_ms=1, labels="zone:a")
    exporter = MetricsExporter(config, sources, CONSTANT, lambda: "")
    assert exporter.address == ""
    await exporter.start()
    async with asyncio.timeout(PATIENCE_S):
        while len(caplog.records) < 3:
            await asyncio.sleep(0.001)
    await exporter.close()
    lines = [json.loads(record.getMessage()) for record in caplog.records[:3]]
    assert lines == [
        {"name": "messages_in_total", "value": 3, "zone": "a", "node_id": "broker-a", "topic": "orders"},
        {"name": "age_milliseconds", "value": 7, "zone": "a", "node_id": "broker-a"},
        {"name": "took", "value": {"counts": [2, 0, 1], "sum": 25}, "zone": "a", "node_id": "broker-a", "code": "x"},
    ]


async def test_nothing_runs_when_metrics_are_off() -> None:
    exporter = MetricsExporter(MetricsConfig(), sources, CONSTANT, lambda: "")
    await exporter.start()
    assert exporter.address == ""
    await exporter.close()


async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    config = MetricsConfig(exporter=ExporterType.OTLP_GRPC, otlp_target="127.0.0.1:4317")
    with pytest.raises(ConfigError, match=r"rocketline\[otlp\]"):
        await MetricsExporter(config, sources, CONSTANT, lambda: "").start()


async def test_a_collector_is_told_everything() -> None:
    grpc = pytest.importorskip("grpc")
    service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
    from concurrent.futures import ThreadPoolExecutor

    loop, told = asyncio.get_running_loop(), asyncio.Queue[tuple[object, dict[str, str]]]()

    def export(request: object, context: object) -> object:
        metadata = {item.key: item.value for item in context.invocation_metadata()}  # type: ignore[attr-defined]
        loop.call_soon_threadsafe(told.put_nowait, (request, metadata))
        return service.ExportMetricsServiceResponse()

    handler = grpc.unary_unary_rpc_method_handler(
        export,
        request_deserializer=service.ExportMetricsServiceRequest.FromString,
        response_serializer=service.ExportMetricsServiceResponse.SerializeToString,
    )
    name = "opentelemetry.proto.collector.metrics.v1.MetricsService"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, {"Export": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    config = MetricsConfig(
        exporter=ExporterType.OTLP_GRPC,
        otlp_target=f"http://127.0.0.1:{port}",
        otlp_header=f"Authorization:{SECRET}",
        otlp_interval_ms=1,
    )
    exporter = MetricsExporter(config, sources, CONSTANT, lambda: "", instance="10.9.8.7:10911")
    await exporter.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            request, metadata = await told.get()
    finally:
        await exporter.close()
        server.stop(None)
    assert metadata["authorization"] == SECRET
    [attribute] = request.resource_metrics[0].resource.attributes  # type: ignore[attr-defined]
    assert (attribute.key, attribute.value.string_value) == ("service.instance.id", "10.9.8.7:10911")
    metrics = {item.name: item for item in request.resource_metrics[0].scope_metrics[0].metrics}  # type: ignore[attr-defined]
    (point,) = metrics["messages_in_total"].sum.data_points
    assert metrics["messages_in_total"].sum.is_monotonic
    assert (point.as_int, {item.key: item.value.string_value for item in point.attributes}) == (
        3,
        {"node_id": "broker-a", "topic": "orders"},
    )
    assert metrics["age"].unit == "milliseconds"
    (point,) = metrics["took"].histogram.data_points
    assert (list(point.bucket_counts), list(point.explicit_bounds), point.count, point.sum) == (
        [2, 0, 1],
        [1, 10],
        3,
        25,
    )


# Settings


def test_apaches_keys_load() -> None:
    text = """
        metricsExporterType=PROM
        metricsPromExporterPort=5558
        metricsPromExporterHost=127.0.0.2
        metricsLabel=instance_id:rmq-1,uid:7
        metricsOtelCardinalityLimit=100
        enablePopMetrics=false
    """
    config, unknown = load(BrokerConfig, parse_properties(text))
    assert unknown == []
    assert (config.metrics.port, config.metrics.host, config.metrics.series_limit) == (5558, "127.0.0.2", 100)
    assert config.metrics.own_labels == (("instance_id", "rmq-1"), ("uid", "7"))
    assert not config.metrics.pop
    assert config.metrics.times_requests


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("metricsExporterType", "PROMETHEUS"),
        ("metricsPromExporterPort", "70000"),
        ("metricsLabel", "zone"),
        ("metricsLabel", "le:1"),
        ("metricsLabel", "a-b:1"),
        ("metricsOtelCardinalityLimit", "0"),
        ("metricGrpcExporterIntervalInMills", "0"),
        ("rocketline.slowRequestMs", "-1"),
    ],
)
def test_a_wrong_setting_is_named(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load(MetricsConfig, {key: value})


def test_a_collector_needs_an_address() -> None:
    with pytest.raises(ConfigError, match="metricsGrpcExporterTarget"):
        MetricsConfig(exporter=ExporterType.OTLP_GRPC)


def test_a_secret_is_neither_shown_nor_printed() -> None:
    config = load(BrokerConfig, {"metricsGrpcExporterHeader": f"authorization:{SECRET}"})[0]
    assert config.metrics.otlp_headers == (("authorization", SECRET),)
    assert SECRET not in repr(config)
    assert SECRET not in as_properties(config)
    assert "metricsGrpcExporterHeader=******\n" in as_properties(config)
    assert "metricsGrpcExporterHeader=\n" in as_properties(BrokerConfig())
    with pytest.raises(ConfigError) as caught:
        load(BrokerConfig, {"metricsGrpcExporterHeader": SECRET})
    assert SECRET not in str(caught.value)
