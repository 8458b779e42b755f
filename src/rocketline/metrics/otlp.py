"""Reports to an OpenTelemetry collector over gRPC; needs the extra `otlp`.

Only the exporter of OpenTelemetry's SDK is used. Its instruments would count each message a second time; instead, our
counters are turned into its data points for each report.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ConfigError, TransportError
from rocketline.metrics.config import MetricsConfig
from rocketline.metrics.families import Distribution, Family, Labels, MetricKind

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

METER = "broker-meter"
"""The name that Apache's broker uses."""
NS_PER_MS = 1_000_000
MISSING = (
    "metricsExporterType=OTLP_GRPC needs packages that are not installed ({}): pip install 'rocketline[otlp]', or "
    "metricsExporterType=PROM, which needs none"
)


class OtlpSender:
    def __init__(self, config: MetricsConfig, constant: Labels, instance: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """ConfigError when the packages are missing. `instance` tells this server from others of its name."""
        try:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        except ImportError as error:
            raise ConfigError(MISSING.format(error.name or error)) from error
        target = config.otlp_target
        self.target = target if target.startswith("http") else f"https://{target}"
        self._timeout_ms = config.otlp_timeout_ms
        self._constant = constant
        self._instance = instance
        self._clock = clock
        self._started_ns = clock.now_ms() * NS_PER_MS
        self._exporter = OTLPMetricExporter(
            endpoint=self.target,
            insecure=self.target.startswith("http://"),
            headers=config.otlp_headers or None,
            timeout=max(1, config.otlp_timeout_ms // 1000),
        )

    async def send(self, families: AsyncIterator[Family]) -> None:
        """Send a report; TransportError when the collector does not accept it."""
        now_ns = self._clock.now_ms() * NS_PER_MS
        data = await as_metrics_data(families, self._constant, self._started_ns, now_ns, self._instance)
        # In a thread: it blocks, and retries by itself.
        result = await asyncio.to_thread(self._exporter.export, data, self._timeout_ms)
        if result.name != "SUCCESS":
            raise TransportError(f"the collector at {self.target} did not accept a report (metricsGrpcExporterTarget)")

    def close(self) -> None:
        self._exporter.shutdown(timeout_millis=self._timeout_ms)


async def as_metrics_data(
    families: AsyncIterator[Family], constant: Labels, started_ns: int, now_ns: int, instance: str = ""
) -> MetricsData:
    """Families as OpenTelemetry's data; all sums count from the start of the server."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    shared = dict(constant)
    metrics = [_metric(family, shared, started_ns, now_ns) async for family in families]
    scope = ScopeMetrics(InstrumentationScope(METER), metrics, "")
    return MetricsData([ResourceMetrics(Resource({"service.instance.id": instance} if instance else {}), [scope], "")])


def _metric(family: Family, shared: dict[str, str], started_ns: int, now_ns: int) -> Metric:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        Metric,
        NumberDataPoint,
        Sum,
    )

    data: Any
    if family.kind is MetricKind.HISTOGRAM:
        points = [
            _histogram_point(family, shared | dict(labels), found, started_ns, now_ns)
            for labels, found in family.distributions.items()
        ]
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
    else:
        numbers = [
            NumberDataPoint(shared | dict(labels), started_ns, now_ns, value)
            for labels, value in family.samples.items()
        ]
        if family.kind is MetricKind.COUNTER:
            data = Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        else:
            data = Gauge(numbers)
    return Metric(family.name, family.help, family.unit, data)


def _histogram_point(
    family: Family, attributes: dict[str, str], found: Distribution, started_ns: int, now_ns: int
) -> Any:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    return HistogramDataPoint(
        attributes=attributes,
        start_time_unix_nano=started_ns,
        time_unix_nano=now_ns,
        count=sum(found.counts),
        sum=found.total,
        bucket_counts=list(found.counts),
        explicit_bounds=[float(bound) for bound in family.bounds],
        min=float("nan"),
        max=float("nan"),
    )
