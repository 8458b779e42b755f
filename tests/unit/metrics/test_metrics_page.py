"""The HTTP server of the metrics page, also with malicious clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from tests.support.scraping import ask, fetch

from rocketline.errors import ConfigError
from rocketline.metrics import page as module
from rocketline.metrics.page import MetricsPage


class Source:
    def __init__(self) -> None:
        self.problem = ""
        self.running = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def scrape(self, openmetrics: bool) -> bytes:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        return b"# EOF\n" if openmetrics else b"up 1\n"


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def page(source: Source) -> AsyncIterator[MetricsPage]:
    page = MetricsPage("127.0.0.1", 0, source.scrape, lambda: source.problem)
    await page.start()
    yield page
    await page.close()


async def test_a_scrape(page: MetricsPage) -> None:
    answer = await fetch(page.address)
    assert (answer.status, answer.text) == (200, "up 1\n")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["content-length"] == "5"
    assert (await fetch(page.address, "/metrics?name=x")).text == "up 1\n"


async def test_openmetrics_for_who_asks(page: MetricsPage) -> None:
    answer = await fetch(page.address, accept="application/openmetrics-text;version=1.0.0,*/*;q=0.1")
    assert answer.text == "# EOF\n"
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")


async def test_health(page: MetricsPage, source: Source) -> None:
    assert (await fetch(page.address, "/health"))[::2] == (200, "ok\n")
    source.problem = "the disk is full"
    assert (await fetch(page.address, "/health"))[::2] == (503, "the disk is full\n")


async def test_a_head_has_no_body(page: MetricsPage) -> None:
    answer = await fetch(page.address, method="HEAD")
    assert (answer.status, answer.headers["content-length"], answer.text) == (200, "5", "")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"GET /../metrics HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x00\x00\x00\x10\x00\x00\x00\x05hello\r\n\r\n", 400),
        (b"GET /metrics HTTP/9.9\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431),
    ],
)
async def test_what_is_no_request_for_a_page(page: MetricsPage, data: bytes, status: int) -> None:
    assert (await ask(page.address, data)).status == status
    assert (await fetch(page.address)).status == 200, "others do not notice"


async def test_who_says_nothing_is_not_waited_for(page: MetricsPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_TIMEOUT_S", 0.01)
    host, _, port = page.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /met")
    with pytest.raises(ConnectionError):
        if not await reader.read():
            raise ConnectionResetError
    writer.close()


async def test_there_is_one_scrape_at_a_time(page: MetricsPage, source: Source) -> None:
    source.gate.clear()
    asked = [asyncio.create_task(fetch(page.address)) for _ in range(8)]
    while not source.running:
        await asyncio.sleep(0.001)
    assert (await fetch(page.address, "/health")).status == 200
    source.gate.set()
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 8
    assert source.most == 1


async def test_connections_are_few(page: MetricsPage, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 2)
    source.gate.clear()
    asked = [asyncio.create_task(fetch(page.address)) for _ in range(2)]
    while len(page._open) < 2:
        await asyncio.sleep(0.001)
    with pytest.raises((ConnectionError, IndexError)):
        await fetch(page.address)
    source.gate.set()
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200, 200]


async def test_a_scrape_that_fails_is_logged(
    page: MetricsPage, source: Source, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(openmetrics: bool) -> bytes:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(page, "_scrape", fail)
    with caplog.at_level(logging.ERROR):
        assert (await fetch(page.address)).status == 500
    assert "a mistake of ours" in caplog.text


async def test_closing_ends_a_scrape_that_waits(source: Source) -> None:
    page = MetricsPage("127.0.0.1", 0, source.scrape, lambda: "")
    await page.start()
    source.gate.clear()
    asked = asyncio.create_task(fetch(page.address))
    while not source.running:
        await asyncio.sleep(0.001)
    await page.close()
    with pytest.raises((ConnectionError, IndexError)):
        await asked


async def test_a_port_in_use_is_named(page: MetricsPage, source: Source) -> None:
    port = int(page.address.rpartition(":")[2])
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: .*metricsPromExporterPort"):
        await MetricsPage("127.0.0.1", port, source.scrape, lambda: "").start()
