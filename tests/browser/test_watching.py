"""The pages of these tests do notice what they are said to notice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.async_api import Browser

from .watched import axe_findings, watched_context

pytestmark = pytest.mark.asyncio(loop_scope="package")

POLICY = "default-src 'none'; script-src 'self'; img-src * data:"
PAGES = {
    "/sound": "<p>fine</p>",
    "/error": "<script src='/throws'></script>",
    "/policy": "<p onclick='x()'>text</p><script>document.title = 'inline'</script>",
    "/foreign": "<img alt='' src='http://192.0.2.1/x.png'>",
    "/absent": "<img alt='' src='/nothing.png'>",
    "/unlabelled": "<input>",
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = PAGES.get(self.path)
        script = self.path == "/throws"
        page = f"<!doctype html><html lang=en><title>t</title><link rel=icon href='data:,'><main><h1>t</h1>{content}</main>"
        body = (b"null.x" if script else page.encode()) if content or script else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/javascript" if script else "text/html")
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "noticed"),
    [
        ("/error", "error on the page"),
        ("/policy", "Content Security Policy"),
        ("/foreign", "request to another host"),
        ("/absent", "status of 404"),
    ],
)
async def test_a_bad_page_is_noticed(browser: Browser, url: str, path: str, noticed: str) -> None:
    with pytest.raises(AssertionError, match=noticed):
        async with watched_context(browser) as (context, _):
            page = await context.new_page()
            await page.goto(url + path)


async def test_a_sound_page_passes(browser: Browser, url: str) -> None:
    async with watched_context(browser) as (context, _):
        page = await context.new_page()
        await page.goto(url + "/sound")
        assert await axe_findings(page) == []


async def test_a_provoked_answer_is_no_problem(browser: Browser, url: str) -> None:
    async with watched_context(browser) as (context, watch):
        watch.allowed.add(404)
        await (await context.new_page()).goto(url + "/absent")


async def test_what_cannot_be_used_by_all_is_found(browser: Browser, url: str) -> None:
    async with watched_context(browser) as (context, _):
        page = await context.new_page()
        await page.goto(url + "/unlabelled")
        assert any("label" in finding for finding in await axe_findings(page))
