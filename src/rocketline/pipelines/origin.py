"""The input of pipelines: topics of a running cluster, or the files of a store.

Both give the same columns. A cluster can be read in batches and as a stream, files only in batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from rocketline.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_ACCESS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Origin:
    """Which messages to read, and where from; either `namesrv` or `path` is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """Instead of `topics`: a regular expression for topics of a cluster."""
    namesrv: str | None = None
    path: str | None = None
    since: str | None = None
    until: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options for the Spark source."""
    access: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options `rocketmq.*` with account and TLS, also for the cluster that is sent to; they contain secrets."""

    def __post_init__(self) -> None:
        if (self.namesrv is None) == (self.path is None):
            raise ConfigError("name either a cluster (--namesrv HOST:PORT) or a store's folder (--path DIR)")
        if self.namesrv is not None and bool(self.topics) == bool(self.pattern):
            raise ConfigError("name topics of the cluster, or give a pattern, not both")

    @property
    def is_live(self) -> bool:
        return self.namesrv is not None

    def batch(self, spark: SparkSession, **more: str) -> DataFrame:
        reader = spark.read.format("rocketmq" if self.is_live else "rocketmq-log").options(**self.options, **more)
        for name, value in (("startingTimestamp", self.since), ("endingTimestamp", self.until)):
            if value is not None:
                reader = reader.option(name, value)
        if self.path is not None:
            if self.topics:
                reader = reader.option("topic", ",".join(self.topics))
            return reader.load(self.path)
        return reader.options(**self._subscription()).load()

    def stream(self, spark: SparkSession, **more: str) -> DataFrame:
        """Messages from the beginning, or from `since` on, as a stream; ConfigError for files."""
        if self.path is not None:
            raise ConfigError(f"{self.path} cannot be followed: files of a store are read in batches")
        if self.until is not None:
            raise ConfigError("a stream has no end: leave out --until")
        reader = spark.readStream.format("rocketmq").options(**self._subscription(), **self.options, **more)
        if self.since is not None:
            return reader.option("startingTimestamp", self.since).load()
        return reader.option("startingOffsets", "earliest").load()

    def _subscription(self) -> dict[str, str]:
        assert self.namesrv is not None
        cluster = {"namesrv": self.namesrv, **self.access}
        if self.pattern:
            return {**cluster, "subscribePattern": self.pattern}
        return {**cluster, "subscribe": ",".join(self.topics)}
