"""Runs the configured exporter: a page for Prometheus, reports to a collector, or lines of a log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from rocketline.errors import RocketlineError
from rocketline.metrics.config import LOOPBACK, ExporterType, MetricsConfig
from rocketline.metrics.exposition import exposed_name, exposition
from rocketline.metrics.families import Family, Labels
from rocketline.metrics.page import MetricsPage, PageFront

log = logging.getLogger(__name__)
lines = logging.getLogger("rocketline.metrics.report")

Source = tuple[str, Callable[[], AsyncIterator[Family] | Iterable[Family]]]
"""What some families are about, and what makes them."""


class MetricsExporter:
    """Exports the families of all sources between `start` and `close`; does nothing when metrics are off."""

    def __init__(
        self,
        config: MetricsConfig,
        sources: Callable[[], Iterable[Source]],
        constant: Labels,
        problem: Callable[[], str],
        front: PageFront | None = None,
        instance: str = "",
    ) -> None:
        """`constant` are labels of every series; `problem` returns the server's problem for /health, or an empty text;
        `front` says which connections to the page are plain and which TLS; without it all are plain. `instance` tells
        collectors this server from others of its name, as the address of the page tells Prometheus."""
        self._instance = instance
        self._config = config
        self._sources = sources
        self._failing: set[str] = set()
        self._constant = (*config.own_labels, *constant)
        self._page = MetricsPage(config.host or LOOPBACK, config.port, self._scrape, problem, front)
        self._reports: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """`host:port` of the page; "" when there is none."""
        return self._page.address if self._config.exporter is ExporterType.PROM else ""

    async def start(self) -> None:
        """Start to export; ConfigError when the port is taken or a package is missing."""
        config = self._config
        if config.exporter is ExporterType.PROM:
            await self._page.start()
        elif config.exporter is ExporterType.LOG:
            lines.setLevel(logging.INFO)  # always shown, whatever the level of other loggers
            self._reports = asyncio.create_task(self._report(config.log_interval_ms / 1000, self._log_all))
        elif config.exporter is ExporterType.OTLP_GRPC:
            from rocketline.metrics.otlp import OtlpSender

            sender = OtlpSender(config, self._constant, self._instance)
            self._reports = asyncio.create_task(
                self._report(config.otlp_interval_ms / 1000, lambda: sender.send(self._collect()), sender.close)
            )

    async def close(self) -> None:
        await self._page.close()
        if self._reports is not None:
            self._reports.cancel()
            await asyncio.gather(self._reports, return_exceptions=True)
            self._reports = None

    async def _collect(self) -> AsyncIterator[Family]:
        """Everything; a source that fails costs its own families, and is reported once."""
        for name, source in self._sources():
            try:
                families = source()
                if isinstance(families, AsyncIterator):
                    async for family in families:
                        yield family
                else:
                    for family in families:
                        yield family
                self._failing.discard(name)
            except Exception:
                if name not in self._failing:
                    self._failing.add(name)
                    log.exception("metrics of %s are left out as long as this goes on", name)

    async def _scrape(self, openmetrics: bool) -> bytes:
        return await exposition(self._collect(), self._constant, openmetrics=openmetrics)

    async def _report(
        self, every_s: float, work: Callable[[], Awaitable[None]], end: Callable[[], None] = lambda: None
    ) -> None:
        try:
            while True:
                await asyncio.sleep(every_s)
                try:
                    await work()
                except RocketlineError as error:
                    log.warning("metrics were not reported: %s", error)
                except Exception:
                    log.exception("metrics were not reported, trying again in %g s", every_s)
        finally:
            end()

    async def _log_all(self) -> None:
        async for family in self._collect():
            for labels, value in family.samples.items():
                self._log(family, labels, value)
            for labels, distribution in family.distributions.items():
                self._log(family, labels, {"counts": distribution.counts, "sum": distribution.total})

    def _log(self, family: Family, labels: Labels, value: object) -> None:
        line = {"name": exposed_name(family), "value": value, **dict(self._constant), **dict(labels)}
        lines.info("%s", json.dumps(line, ensure_ascii=False))
