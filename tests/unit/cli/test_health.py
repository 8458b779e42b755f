"""The health check of a container: plain pages, pages by TLS, a server that is unwell, and none at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support.tls import CA_FILE, TLS_DATA

from rocketline.cli.servers.health import health
from rocketline.metrics.page import MetricsPage
from rocketline.transport.accepting import page_front
from rocketline.transport.server_config import TlsConfig, TlsMode
from rocketline.transport.server_tls import ServerTls


def certificate(mode: TlsMode, client_auth: str = "none") -> ServerTls:
    files = {"cert_path": str(TLS_DATA / "server.pem"), "key_path": str(TLS_DATA / "server.key")}
    return ServerTls(TlsConfig(trust_path=str(CA_FILE), need_client_auth=client_auth, **files), mode)


async def asked(problem: Callable[[], str], tls: ServerTls | None) -> tuple[bool, str]:
    async def scrape(openmetrics: bool) -> bytes:
        return b""

    page = MetricsPage("127.0.0.1", 0, scrape, problem, page_front(tls))
    await page.start()
    try:
        return await asyncio.to_thread(health, int(page.address.rpartition(":")[2]))
    finally:
        await page.close()


@pytest.mark.parametrize("mode", [None, TlsMode.ENFORCING, TlsMode.PERMISSIVE])
async def test_it_is_what_the_server_says(mode: TlsMode | None) -> None:
    tls = None if mode is None else certificate(mode)
    assert await asked(str, tls) == (True, "ok")
    assert await asked(lambda: "the disk is full", tls) == (False, "the disk is full")


async def test_a_page_that_wants_a_certificate_gives_no_answer() -> None:
    well, text = await asked(str, certificate(TlsMode.ENFORCING, "require"))
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
