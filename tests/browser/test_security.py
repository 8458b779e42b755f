"""Cases 2, 3, 26, 27, 28: who is let in, and what for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import APIRequestContext, Browser, Page
from tests.support.console import ConsoleProcess, add_user, refused
from tests.support.tls import tls_front

from rocketline.console.users import UsersFile

from .conftest import OpenPage
from .history import ORDERS
from .watched import Served, Watch, watched_context

pytestmark = pytest.mark.asyncio(loop_scope="package")

ROLES = ("viewer", "reader", "operator", "admin")
PASSWORD = "a password for tests"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("users") / "users.json"
    for role in ROLES:
        add_user(file, role, role, PASSWORD)
    add_user(file, "disabled", "operator", PASSWORD)
    UsersFile(file).disable_user("disabled", True)
    return file


@pytest.fixture(scope="module")
def guarded(ours: Served, users: Path) -> Iterator[ConsoleProcess]:
    """A console with a user of each role."""
    with ConsoleProcess(ours.namesrv, "--users", str(users)) as console:
        yield console


@asynccontextmanager
async def entered(browser: Browser, console: ConsoleProcess, name: str) -> AsyncIterator[tuple[Page, Watch]]:
    """A page of somebody who has logged in."""
    async with watched_context(browser) as (context, watch):
        page = await context.new_page()
        await page.goto(console.url)
        await page.fill("[name=name]", name)
        await page.fill("[name=password]", PASSWORD)
        await page.click("button.primary")
        await page.wait_for_url(re.compile("/c/"))
        yield page, watch


async def status(page: Page, path: str) -> int:
    answer = await page.goto(path)
    assert answer is not None
    return answer.status


async def test_the_link_works_once_and_is_the_only_way_in(browser: Browser, ours: Served) -> None:
    with ConsoleProcess(ours.namesrv) as console:
        async with watched_context(browser) as (context, watch):
            watch.allowed |= {401, 403}
            page = await context.new_page()
            await page.goto(f"{console.url}/c/default/topics")
            await page.wait_for_url("**/login**")
            assert "printed where the console was started" in await page.inner_text("main")
            assert (await context.request.get(f"{console.url}/api/v1/c/default/topics")).status == 401
        async with watched_context(browser) as (context, _):
            page = await context.new_page()
            await page.goto(console.link)
            await page.wait_for_url("**/c/default/")
            assert "token" not in page.url
            (cookie,) = [item for item in await context.cookies() if "session" in item["name"] or item["httpOnly"]]
            assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
        async with watched_context(browser) as (context, watch):
            watch.allowed.add(403)
            page = await context.new_page()
            assert await status(page, console.link) == 403
            assert "used already" in await page.inner_text("main")
        token = console.link.partition("token=")[2]
    assert token not in console.log


async def test_it_does_not_listen_to_others_without_users(ours: Served) -> None:
    code, text = refused(ours.namesrv, "--host", "0.0.0.0")
    assert code == 2
    assert "rocketline console users add" in text


async def test_each_role_sees_and_may_do_its_part(browser: Browser, guarded: ConsoleProcess) -> None:
    base = f"{guarded.url}/c/default"
    pages = {
        f"{base}/topics": "viewer",
        f"{base}/topics/{ORDERS}/messages": "reader",
        f"{base}/topics/{ORDERS}/send": "operator",
        f"{base}/topics/{ORDERS}/delete": "admin",
    }
    for name in ROLES:
        async with entered(browser, guarded, name) as (page, watch):
            watch.allowed.add(403)
            for path, needed in pages.items():
                allowed = ROLES.index(name) >= ROLES.index(needed)
                assert await status(page, path) == (200 if allowed else 403), (name, path)
                if not allowed:
                    assert needed in (await page.inner_text("main")).lower(), (name, path)
            await page.goto(f"{base}/topics")
            creates = await page.locator("a[href$='/topics/new']").count()
            assert bool(creates) == (ROLES.index(name) >= ROLES.index("operator"))


async def test_changes_need_the_token_of_a_page_of_ours(browser: Browser, guarded: ConsoleProcess) -> None:
    url = f"{guarded.url}/api/v1/c/default/topics"
    data = {"name": "made_by_a_stranger", "queues": 1}
    async with entered(browser, guarded, "admin") as (page, watch):
        watch.allowed |= {403, 404}
        token = await page.locator("meta[name=csrf]").get_attribute("content")
        request: APIRequestContext = page.context.request
        assert (await request.post(url, data=data)).status == 403
        assert (await request.post(url, data=data, headers={"X-CSRF-Token": "guessed"})).status == 403
        foreign = {"X-CSRF-Token": token or "", "Sec-Fetch-Site": "cross-site"}
        assert (await request.post(url, data=data, headers=foreign)).status == 403
        assert (await request.get(f"{guarded.url}/c/default/topics/made_by_a_stranger")).status == 404
        evil = {"Host": "evil.example"}
        assert (await request.get(f"{guarded.url}/c/default/topics", headers=evil)).status in (400, 403, 421)


async def test_reading_only_means_no_forms_and_no_changes(browser: Browser, ours: Served, users: Path) -> None:
    with ConsoleProcess(ours.namesrv, "--users", str(users), "--read-only") as console:
        async with entered(browser, console, "admin") as (page, watch):
            watch.allowed |= {403, 404, 405}
            await page.goto(f"{console.url}/c/default/topics")
            assert await page.locator("a[href$='/topics/new']").count() == 0
            token = await page.locator("meta[name=csrf]").get_attribute("content")
            headers = {"X-CSRF-Token": token or ""}
            url = f"{console.url}/api/v1/c/default/topics"
            made = await page.context.request.post(url, data={"name": "x", "queues": 1}, headers=headers)
            assert made.status == 405


async def test_guessing_is_slowed_down_and_tells_nothing(browser: Browser, guarded: ConsoleProcess) -> None:
    # Of a disabled account also the right password is wrong.
    said: dict[str, list[str]] = {"operator": [], "nobody": [], "disabled": []}
    async with watched_context(browser) as (context, watch):
        watch.allowed |= {403, 429}
        page = await context.new_page()
        for name, texts in said.items():
            for _ in range(6):
                await page.goto(f"{guarded.url}/login")
                await page.fill("[name=name]", name)
                await page.fill("[name=password]", PASSWORD if name == "disabled" else "wrong")
                async with page.expect_navigation():
                    await page.click("button.primary")
                texts.append(re.sub(r"\d+", "N", await page.inner_text("[role=alert]")))
    assert said["operator"] == said["nobody"] == said["disabled"]
    assert "wrong" in said["operator"][0]
    assert "Too many" in said["operator"][-1]


async def test_a_cluster_without_access_control_says_so(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, None) as (page, _):
        for path in ("/access", "/access/users/new", "/access/rules/new"):
            await page.goto(either.at(path))
            text = await page.inner_text("main")
            assert "Access control is off." in text
            assert "rocketline up --secure" in text
            assert await page.locator("main form.form").count() == 0


async def test_a_stolen_cookie_is_worth_nothing_after_logout(browser: Browser, guarded: ConsoleProcess) -> None:
    async with entered(browser, guarded, "reader") as (page, watch):
        watch.allowed.add(401)
        stolen = await page.context.cookies()
        await page.locator("form[action$='/logout'] button").click()
        await page.wait_for_url("**/login**")
        await page.context.add_cookies(stolen)
        await page.goto(f"{guarded.url}/c/default/")
        assert "/login" in page.url


async def test_behind_a_proxy_with_tls_under_a_path(browser: Browser, ours: Served, users: Path) -> None:
    flags = ("--users", str(users), "--behind-proxy", "--root-path", "/mq")
    with ConsoleProcess(ours.namesrv, *flags) as console:
        async with (
            tls_front(f"127.0.0.1:{console.port}") as front,
            watched_context(browser, ignore_https_errors=True) as (context, _),
        ):
            page = await context.new_page()
            await page.goto(f"https://{front}/mq/")
            await page.fill("[name=name]", "admin")
            await page.fill("[name=password]", PASSWORD)
            await page.click("button.primary")
            await page.wait_for_url("**/mq/c/default/")
            cookies = [item for item in await context.cookies() if item["httpOnly"]]
            assert all(item["secure"] for item in cookies)
            assert len(cookies) == 1
            await page.locator(".side a", has_text="Topics").click()
            await page.wait_for_url("**/mq/c/default/topics")
            await page.goto(f"https://{front}/mq/c/default/topics/{ORDERS}/live")
            await page.locator("[data-live-state]", has_text="following").wait_for()


async def test_every_answer_has_the_headers_and_no_secret(browser: Browser, guarded: ConsoleProcess) -> None:
    async with entered(browser, guarded, "admin") as (page, _):
        answer = await page.goto(f"{guarded.url}/c/default/brokers/broker-a?tab=settings")
        assert answer is not None
        headers = answer.headers
        policy = headers["content-security-policy"]
        for part in (
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ):
            assert part in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert PASSWORD not in await page.content()
    assert PASSWORD not in guarded.log
