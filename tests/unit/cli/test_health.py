"""The health check of a container: plain pages, pages by TLS, a server that is unwell, and none at all."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import pytest
from tests.support.tls import CA_FILE, TLS_DATA

from rocketline.cli.servers.health import health
from rocketline.metrics.page import MetricsPage


class PageCertificate:
    def __init__(self, *, asks_for_one: bool = False) -> None:
        self._asks_for_one = asks_for_one

    def for_page(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS_DATA / "server.pem", TLS_DATA / "server.key")
        if self._asks_for_one:
            context.load_verify_locations(CA_FILE)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


async def asked(problem: Callable[[], str], tls: PageCertificate | None) -> tuple[bool, str]:
    async def scrape(openmetrics: bool) -> bytes:
        return b""

    page = MetricsPage("127.0.0.1", 0, scrape, problem, tls)
    await page.start()
    try:
        return await asyncio.to_thread(health, int(page.address.rpartition(":")[2]))
    finally:
        await page.close()


@pytest.mark.parametrize("tls", [None, PageCertificate()], ids=["plain", "tls"])
async def test_it_is_what_the_server_says(tls: PageCertificate | None) -> None:
    assert await asked(str, tls) == (True, "ok")
    assert await asked(lambda: "the disk is full", tls) == (False, "the disk is full")


async def test_a_page_that_wants_a_certificate_gives_no_answer() -> None:
    well, text = await asked(str, PageCertificate(asks_for_one=True))
    assert not well
    assert "it may want a certificate of its reader" in text


async def test_nobody_is_there() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    well, text = await asyncio.to_thread(health, port)
    assert (well, text.partition(":")[0]) == (False, "nobody listens at 127.0.0.1")


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert await asked(str, None) == (True, "ok")
