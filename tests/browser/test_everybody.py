"""Cases 1 and 30: every page is complete, for everybody: with a keyboard, in Chinese, in the dark."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio
from playwright.async_api import Page, Request
from tests.support.history_parts import QUICK, delete_topic, eventually, make_topic

from rocketline.admin import Admin
from rocketline.client import ClientOptions, PushConsumer
from rocketline.message import MessageView

from .conftest import OpenPage
from .history import ORDERS, PAID
from .places import OF_CONSOLE, SECURE_PLACES, places, wrong_places
from .watched import Served, axe_findings

pytestmark = pytest.mark.asyncio(loop_scope="package")

TEXTS = """() => {
    const data = "code, pre, kbd, script, style, datalist, select[name=zone], time, [lang=en], noscript";
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode())
        if (!walker.currentNode.parentElement.closest(data)) found.push(walker.currentNode.textContent);
    for (const item of document.querySelectorAll("[title], [placeholder], [aria-label]"))
        if (!item.closest(data)) found.push(item.title ?? "", item.placeholder ?? "", item.ariaLabel ?? "");
    return found.map(text => text.trim()).filter(text => text);
}"""
"""All that is read on a page, without what is data by its element."""

WORDS = """
rocketline Broker NameServer Proxy Tag Key Offset Topic Group Cluster TAG JSON Lines CSV HTTP API TLS ID IP Spark Pop
NORMAL FIFO UTC JavaScript Ctrl English KiB MiB RW PYTHON JAVA B AND SQL Pub Sub Create Update Delete Get List All
POST PUT GET DELETE local default DefaultCluster amount region body size
orders paid doomed billing failing banks created changed bad tab traced true offset a b eu torn shop online admin
"""
KNOWN = frozenset(WORDS.split())
"""What is the same in Chinese: words of RocketMQ, of formats and of keyboards; and names that tests have given."""


def english(text: str) -> list[str]:
    """The English words of a text. What has digits, signs or capitals inside is an identifier."""
    words = [word.strip(".,:;!?()'\"“”·") for word in re.split(r"[\s\u3000-\uffef]+", text)]
    return [word for word in words if re.fullmatch(r"[A-Z]?[a-z]+|[A-Z]+", word) and word not in KNOWN]


WIDE = """() => [document.documentElement, document.querySelector("main")]
    .some(item => item.scrollWidth > item.clientWidth)"""


async def visit(page: Page, url: str) -> None:
    answer = await page.goto(url)
    assert answer is not None
    assert answer.status == 200, url
    assert await page.locator("main .problem").count() == 0, url


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def member_page(ours: Served) -> AsyncIterator[str]:
    """The page of a consumer that is online."""

    async def handle(message: MessageView) -> None:
        pass

    options = ClientOptions(timing=QUICK)
    async with PushConsumer(ours.namesrv, group="online", options=options) as consumer:
        consumer.subscribe(PAID, "*", handle)
        await consumer.start()
        async with Admin(ours.namesrv) as admin:
            await eventually(lambda: admin.brokers_of_group("online"), bool)
        yield f"/groups/online/member?client={quote(consumer.client_id)}"


async def test_every_page_is_there_and_can_be_used_by_everybody(
    open_page: OpenPage, ours: Served, secure: Served, member_page: str
) -> None:
    findings: list[str] = []
    async with open_page(secure, None) as (page, _):
        for path in SECURE_PLACES:
            await visit(page, secure.at(path))
            findings += [f"secure {path}: {finding}" for finding in await _unusable(page)]
    async with open_page(ours, None) as (page, watch):
        for url in (*map(ours.at, (*places(ours), "/jobs", "/store", member_page)), *_of_console(ours)):
            await visit(page, url)
            findings += [f"{url}: {finding}" for finding in await _unusable(page)]
        watch.allowed |= {404, 422}
        for path, status in wrong_places(ours).items():
            answer = await page.goto(ours.at(path))
            assert answer is not None
            assert answer.status == status, path
            assert await page.locator("[role=alert], .problem").count() >= 1, path
            findings += [f"{path}: {finding}" for finding in await axe_findings(page)]
        await _changed_something(page, ours)
        findings += [f"result: {finding}" for finding in await axe_findings(page)]
    async with open_page(ours, None, login=False) as (page, _):
        await page.goto(ours.console.url + "/login")
        findings += [f"login: {finding}" for finding in await axe_findings(page)]
    assert findings == []


def _of_console(served: Served) -> list[str]:
    return [served.console.url + path for path in OF_CONSOLE]


async def look(page: Page, path: str, left: list[str], findings: list[str]) -> None:
    """Note the English that a Chinese page has left, and what is wrong with it."""
    assert await page.locator("html").get_attribute("lang") == "zh-CN", path
    left += [f"{path}: {text}" for text in await page.evaluate(TEXTS) if english(text)]
    findings += [f"{path}: {finding}" for finding in await _unusable(page)]


async def _unusable(page: Page) -> list[str]:
    return [*await axe_findings(page), *(["wider than its window"] if await page.evaluate(WIDE) else [])]


async def test_long_names_and_small_screens(open_page: OpenPage, ours: Served) -> None:
    name = "a_name_of_many_parts_" * 6
    async with Admin(ours.namesrv) as admin:
        await make_topic(admin, name, 1)
        async with open_page(ours, None) as (page, _):
            for width in (1280, 390):
                await page.set_viewport_size({"width": width, "height": 844})
                for path in (
                    "/",
                    "/topics",
                    f"/topics/{name}",
                    f"/topics/{name}/delete",
                    f"/messages/{ours.history.traced_id}?topic={ORDERS}",
                ):
                    await visit(page, ours.at(path))
                    assert not await page.evaluate(WIDE), (width, path)
        await delete_topic(admin, name)


async def _changed_something(page: Page, served: Served) -> None:
    """The page with the outcome of a change."""
    await page.goto(served.at(f"/topics/{PAID}/send"))
    await page.fill("[name=body]", "x")
    async with page.expect_navigation():
        await page.click("main button.primary")
    assert await page.locator("[data-result]").count() == 1


@pytest.mark.interop
async def test_every_page_is_there_on_apaches_cluster(open_page: OpenPage, apache: Served) -> None:
    left: list[str] = []
    findings: list[str] = []
    async with open_page(apache, None, locale="zh-CN", color_scheme="dark") as (page, _):
        for path in places(apache):
            await visit(page, apache.at(path))
            await look(page, path, left, findings)
    assert (sorted(set(left)), findings) == ([], [])


async def test_nothing_is_left_in_english_and_the_dark_can_be_used_too(
    open_page: OpenPage, ours: Served, secure: Served, member_page: str
) -> None:
    left: list[str] = []
    findings: list[str] = []

    async with open_page(secure, None, locale="zh-CN", color_scheme="dark") as (page, _):
        for path in SECURE_PLACES:
            await page.goto(secure.at(path))
            await look(page, path, left, findings)
    async with open_page(ours, None, locale="zh-CN", color_scheme="dark") as (page, watch):
        watch.allowed |= {404, 422}
        paths = (*places(ours), *wrong_places(ours), "/jobs", "/store", member_page)
        for url in (*map(ours.at, paths), *_of_console(ours)):
            await page.goto(url)
            await look(page, url, left, findings)
        await _changed_something(page, ours)
        await look(page, "result", left, findings)
    async with open_page(ours, None, login=False, locale="zh-CN", color_scheme="dark") as (page, _):
        await page.goto(ours.console.url + "/login")
        left += [f"login: {text}" for text in await page.evaluate(TEXTS) if english(text)]
        findings += [f"login: {finding}" for finding in await axe_findings(page)]
    assert sorted(set(left)) == []
    assert findings == []


@pytest.mark.parametrize("text", ["no members", "Live tail", "refused with 16", "它 does not answer", "Lag"])
async def test_english_is_noticed(text: str) -> None:
    assert english(text)


@pytest.mark.parametrize("text", ["orders", "主题 orders 的消息", "broker-a:0@12", "Broker 没有响应", "42 条"])
async def test_data_is_not_taken_for_english(text: str) -> None:
    assert not english(text)


@pytest.mark.parametrize("now", ["light", "dark"])
async def test_the_other_theme_is_one_click_away(open_page: OpenPage, ours: Served, now: str) -> None:
    async with open_page(ours, "/", color_scheme=now) as (page, _):
        for wanted in ("dark", "light") if now == "light" else ("light", "dark"):
            async with page.expect_navigation():
                await page.locator("button[name=theme]:visible").click()
            assert await page.locator("html").get_attribute("data-theme") == wanted


async def test_everything_by_keyboard(open_page: OpenPage, ours: Served) -> None:
    async with open_page(ours, "/") as (page, _):
        await page.keyboard.press("g")
        await page.keyboard.press("t")
        await page.wait_for_url("**/topics")
        await page.keyboard.press("/")
        await page.keyboard.type("ord")
        await page.wait_for_url("**q=ord*")
        await page.locator("table.rows tbody tr").filter(has_text=ORDERS).wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/topics/{ORDERS}")
        await page.keyboard.press("?")
        await page.locator("#help-dialog[open]").wait_for()
        await page.keyboard.press("Escape")
        await page.locator("#help-dialog[open]").wait_for(state="detached")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("other")
        await page.keyboard.press("Escape")
        await page.locator("#find-dialog:not([open])").wait_for(state="attached")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("bill")  # instead of what was typed before
        await page.locator(".found a[href$='/groups/billing']").wait_for()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/groups/billing")


async def test_a_first_visit_is_small(open_page: OpenPage, ours: Served) -> None:
    finished: list[Request] = []
    async with open_page(ours, None) as (page, _):
        page.on("requestfinished", lambda request: finished.append(request))  # the stream of numbers goes on
        await page.goto(ours.at("/"), wait_until="load")
        sizes = [(await request.sizes())["responseBodySize"] for request in list(finished)]
    assert 0 < sum(sizes) < 120 * 1024
