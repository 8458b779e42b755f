"""One browser, a cluster of ours and one of Apache's, each with a history and a console, for all tests of this folder.

They are started when a test first asks for them, run in processes of their own, and end with the folder. A test gets a fresh
browser context. It fails when the page logged an error, broke its policy or asked another host for something. What a failed
test saw is kept under build/browser.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, free_port, server_coordinates
from tests.support.console import ConsoleProcess
from tests.support.java import require_java

from rocketline import CredentialsFile, Tls
from rocketline.admin import Admin
from rocketline.admin.accounts import account_servers, one_entry
from rocketline.cli.servers.child import ChildCluster
from rocketline.protocol.bodies import UserInfo

from .history import ORDERS, history
from .places import SHOP
from .watched import Served, Watch, keep, logged_in, watched_context

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KEPT = Path(__file__).parents[2] / "build" / "browser"
SHOP_SECRET = "a secret of the shop"
PACKAGE = {"scope": "package", "loop_scope": "package"}

OpenPage = Callable[..., AbstractAsyncContextManager[tuple[Page, Watch]]]


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))
            item.add_marker(pytest.mark.browser)


@pytest_asyncio.fixture(**PACKAGE)
async def browser() -> AsyncIterator[Browser]:
    path = os.environ.get("ROCKETLINE_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no Chromium: run tools/ensure-browser")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path)
        yield browser
        await browser.close()


@asynccontextmanager
async def _served(namesrv: str, *flags: str) -> AsyncIterator[Served]:
    async with history(namesrv) as made:
        with ConsoleProcess(namesrv, *flags) as console:
            yield Served(console, namesrv, made)


@pytest_asyncio.fixture(**PACKAGE)
async def ours(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Our cluster of two brokers."""
    folder = tmp_path_factory.mktemp("console")
    (folder / "runs").mkdir()
    flags = ("--runs", str(folder / "runs"), "--store", str(folder / "data"))
    with ChildCluster(["--brokers", "2", "--data", str(folder / "data")]) as cluster:
        async with _served(cluster.namesrv, *flags) as served:
            served.data, served.runs = folder / "data", folder / "runs"
            yield served


@pytest_asyncio.fixture(**PACKAGE)
async def secure(tmp_path_factory: pytest.TempPathFactory, ours: Served) -> AsyncIterator[Served]:
    """A cluster with TLS, accounts and rights; its console signs as the administrator."""
    folder = tmp_path_factory.mktemp("secure")
    ca_file, account = folder / "certs" / "ca.pem", folder / "admin.json"
    with ChildCluster(["--secure", "--data", str(folder)]) as cluster:
        access = {"credentials": CredentialsFile(str(account)), "tls": Tls(ca_file=str(ca_file))}
        async with Admin(cluster.namesrv, **access) as admin:
            for server in await account_servers(admin, await admin.brokers()):
                await server.put_user(UserInfo(username=SHOP, password=SHOP_SECRET))
                await server.put_acl(one_entry(f"User:{SHOP}", [f"Topic:{ORDERS}"], ["Pub", "Sub"], "Allow"))
        environment = {"ROCKETLINE_CREDENTIALS_FILE": str(account)}
        with ConsoleProcess(cluster.namesrv, "--ca-file", str(ca_file), environment=environment) as console:
            yield Served(console, cluster.namesrv, ours.history, folder, access=access)


@pytest_asyncio.fixture(**PACKAGE)
async def apache(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Apache's cluster of one broker."""
    require_java(*server_coordinates(SERVER_VERSION))
    conf = {"traceTopicEnable": "true"}
    cluster = ApacheCluster(tmp_path_factory.mktemp("apache"), jvm_options=QUICK_START, broker_conf=conf).start()
    try:
        async with _served(cluster.namesrv) as served:
            yield served
    finally:
        cluster.kill()


@pytest_asyncio.fixture(**PACKAGE)
async def spare(tmp_path_factory: pytest.TempPathFactory, ours: Served) -> AsyncIterator[tuple[ApacheCluster, Served]]:
    """A broker of Apache's that tests may stop and start again; its log files are small."""
    require_java(*server_coordinates(SERVER_VERSION))
    name_server = ApacheCluster(tmp_path_factory.mktemp("names"), jvm_options=QUICK_START, broker=False).start()
    port = free_port(-2, 0, 1)
    conf = {"listenPort": str(port), "mappedFileSizeCommitLog": str(1 << 20), "cleanResourceInterval": "200"}
    conf |= {"deleteCommitLogFilesInterval": "0"}
    broker = ApacheCluster(
        tmp_path_factory.mktemp("spare"), broker_conf=conf, jvm_options=QUICK_START, namesrv=False,
        namesrv_addr=name_server.namesrv,
    )  # fmt: skip
    try:
        with ConsoleProcess(broker.start().namesrv) as console:
            yield broker, Served(console, broker.namesrv, ours.history)
    finally:
        broker.kill()
        name_server.kill()


@pytest.fixture(params=["ours", pytest.param("apache", marks=pytest.mark.interop)])
def either(request: pytest.FixtureRequest) -> Served:
    """First our cluster, then Apache's: the outcome is the same."""
    return request.getfixturevalue(request.param)


@pytest_asyncio.fixture(loop_scope="package")
async def open_page(browser: Browser, request: pytest.FixtureRequest) -> AsyncIterator[OpenPage]:
    """`async with open_page(served, path) as (page, watch)`: a page in a context of its own, logged in by default."""

    @asynccontextmanager
    async def opened(
        served: Served, path: str | None = "/", *, login: bool = True, **options: Any
    ) -> AsyncIterator[tuple[Page, Watch]]:
        if login:
            options["storage_state"] = await logged_in(served, browser)
        async with AsyncExitStack() as stack:
            context, watch = await stack.enter_async_context(watched_context(browser, **options))
            page = await context.new_page()
            try:
                if path is not None:
                    await page.goto(served.at(path))
                yield page, watch
            except BaseException:
                await keep(page, served, KEPT / re.sub(r"[^\w.-]", "_", request.node.name))
                raise

    yield opened
