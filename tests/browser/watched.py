"""Pages that notice what a person would not: errors in the console, breaches of the policy, requests to other hosts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Route
from tests.support.console import ConsoleProcess
from tests.support.patience import PATIENCE_MS

from .history import History

LOOPBACK = ("127.0.0.1", "localhost", "::1")
AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
SIZE = {"width": 1280, "height": 720}


@dataclass
class Served:
    """A console, the cluster it shows, and who is logged in there."""

    console: ConsoleProcess
    namesrv: str
    history: History
    data: Path | None = None
    """The folder of the cluster's stores, and that of the runs of pipelines."""
    runs: Path | None = None
    access: dict[str, Any] = field(default_factory=dict)
    """What a client of the cluster needs: account and TLS."""
    state: Any = None
    """Cookies of a session, for new contexts."""

    def at(self, path: str = "/") -> str:
        """The address of a page of the cluster."""
        return f"{self.console.url}/c/default{path}"


@dataclass
class Watch:
    """What went wrong on the pages of a context."""

    problems: list[str] = field(default_factory=list)
    allowed: set[int] = field(default_factory=set)
    """Answers that a test provokes: the browser's console tells of them as errors."""
    is_server_killed: bool = False
    """The test kills it: the browser tells of the connections that it lost or did not get, at any later moment."""

    def attach(self, page: Page) -> None:
        page.on("console", self._told)
        page.on("pageerror", lambda error: self.problems.append(f"error on the page: {error}"))

    def _told(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning") or (self.is_server_killed and "net::ERR_" in message.text):
            return
        status = re.search(r"status of (\d+)", message.text)
        if status is None or int(status[1]) not in self.allowed:
            self.problems.append(f"{message.type} in the console: {message.text}")

    async def only_loopback(self, route: Route) -> None:
        if urlsplit(route.request.url).hostname in (*LOOPBACK, None):
            await route.continue_()
        else:
            self.problems.append(f"request to another host: {route.request.url}")
            await route.abort()


@asynccontextmanager
async def watched_context(browser: Browser, **options: Any) -> AsyncIterator[tuple[BrowserContext, Watch]]:
    """A fresh context; fails when anything was noticed."""
    watch = Watch()
    defaults = {"locale": "en-US", "timezone_id": "Asia/Shanghai", "viewport": SIZE}
    context = await browser.new_context(**(defaults | options))
    context.set_default_timeout(PATIENCE_MS)
    context.on("page", watch.attach)
    await context.route("**/*", watch.only_loopback)
    try:
        yield context, watch
    finally:
        await context.close()
    assert not watch.problems, "\n".join(watch.problems)


async def logged_in(served: Served, browser: Browser) -> Any:
    """Cookies of a session: the one-time link is used by whoever comes first."""
    if served.state is None:
        async with watched_context(browser) as (context, _):
            page = await context.new_page()
            await page.goto(served.console.link)
            await page.wait_for_url(re.compile(r"/c/"))
            served.state = await context.storage_state()
    return served.state


async def axe_findings(page: Page, rules: list[str] = AXE_RULES) -> list[str]:
    """What axe-core finds wrong with a page."""
    await page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found = await page.evaluate("rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", rules)
    return [
        f"{item['id']}: {item['help']}: {node['html'][:200]}" for item in found["violations"] for node in item["nodes"]
    ]


async def keep(page: Page, served: Served, folder: Path) -> None:
    """Screenshot, HTML and the server's log, for whoever looks into a failure."""
    folder.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=folder / "page.png", full_page=True)
    (folder / "page.html").write_text(await page.content(), "utf-8")
    (folder / "console.log").write_text(served.console.log, "utf-8")
