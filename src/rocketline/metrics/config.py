"""Settings of metrics: what every server measures, and where it is exported. Keys are Apache's; the default is loopback."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from rocketline.errors import ConfigError
from rocketline.metrics.families import DEFAULT_LIMIT, Labels
from rocketline.settings import setting

LOOPBACK = "127.0.0.1"
RESERVED = frozenset({"cluster", "node_type", "node_id", "le"})
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


class ExporterType(StrEnum):
    """Where metrics are exported to."""

    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    PROM = "PROM"
    LOG = "LOG"


@dataclass(frozen=True)
class MetricsConfig:
    exporter: ExporterType = setting(
        ExporterType.DISABLE, "metricsExporterType", "Where metrics go: DISABLE, PROM, OTLP_GRPC or LOG."
    )
    host: str = setting(
        "", "metricsPromExporterHost", "Address of the page for Prometheus; empty: loopback, unlike Apache's."
    )
    port: int = setting(5557, "metricsPromExporterPort", "Port of that page; 0 means any free one.")
    otlp_target: str = setting(
        "",
        "metricsGrpcExporterTarget",
        "The collector for OTLP_GRPC, `host:port` or a URL; https unless that says http.",
    )
    otlp_header: str = setting(
        "", "metricsGrpcExporterHeader", "Headers for the collector, as `name:value,name:value`.", is_secret=True
    )
    otlp_timeout_ms: int = setting(
        3_000, "metricGrpcExporterTimeOutInMills", "Time limit for an answer of the collector."
    )
    otlp_interval_ms: int = setting(
        60_000, "metricGrpcExporterIntervalInMills", "Pause between two reports to the collector."
    )
    log_interval_ms: int = setting(10_000, "metricLoggingExporterIntervalInMills", "Pause between two reports for LOG.")
    labels: str = setting("", "metricsLabel", "Labels of every series, as `name:value,name:value`.")
    series_limit: int = setting(
        DEFAULT_LIMIT,
        "metricsOtelCardinalityLimit",
        "Most series of one metric; further topics, groups and clusters are added up in one called `__other__`.",
    )
    stats: bool = setting(True, "enableStatsMetrics", "Measure the server itself, and its process.")
    connections: bool = setting(True, "enableConnectionMetrics", "Measure the clients.")
    remoting: bool = setting(True, "enableRemotingMetrics", "Measure how long requests take.")
    slow_request_ms: int = setting(
        0,
        "rocketline.slowRequestMs",
        "Log requests that took at least this long, at most one line per second; 0: none.",
    )

    def __post_init__(self) -> None:
        for key, value in {
            "metricGrpcExporterTimeOutInMills": self.otlp_timeout_ms,
            "metricGrpcExporterIntervalInMills": self.otlp_interval_ms,
            "metricLoggingExporterIntervalInMills": self.log_interval_ms,
            "metricsOtelCardinalityLimit": self.series_limit,
        }.items():
            if value <= 0:
                raise ConfigError(f"{key}={value} must be above zero")
        if self.slow_request_ms < 0:
            raise ConfigError(f"rocketline.slowRequestMs={self.slow_request_ms} must not be negative")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"metricsPromExporterPort={self.port} is not a port")
        if self.exporter is ExporterType.OTLP_GRPC and not self.otlp_target:
            raise ConfigError("metricsExporterType=OTLP_GRPC needs metricsGrpcExporterTarget, the collector's address")
        _ = self.own_labels
        _ = self.otlp_headers

    @property
    def enabled(self) -> bool:
        return self.exporter is not ExporterType.DISABLE

    @property
    def times_requests(self) -> bool:
        """Whether the times of requests are measured."""
        return bool(self.slow_request_ms) or (self.enabled and self.remoting)

    @property
    def own_labels(self) -> Labels:
        """The labels of `metricsLabel`.

        >>> MetricsConfig(labels="zone:a,rack:7").own_labels
        (('zone', 'a'), ('rack', '7'))
        """
        pairs = _pairs("metricsLabel", self.labels, shown=self.labels)
        for name, _ in pairs:
            if not _LABEL_NAME.fullmatch(name) or name in RESERVED:
                raise ConfigError(f"metricsLabel={self.labels!r}: {name!r} cannot be the name of a label")
        return pairs

    @property
    def otlp_headers(self) -> Labels:
        """The headers of `metricsGrpcExporterHeader`, with names in lower case as gRPC requires."""
        pairs = _pairs("metricsGrpcExporterHeader", self.otlp_header, shown="(secret)")
        return tuple((name.lower(), value) for name, value in pairs)


def _pairs(key: str, text: str, shown: str) -> Labels:
    pairs = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, colon, value = item.partition(":")
        if not colon or not name.strip():
            raise ConfigError(f"{key}={shown}: name:value,name:value is expected")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)
