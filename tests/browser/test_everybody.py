"""Cases 1 and 30: every page is complete, for everybody: with a keyboard, in Chinese, in the dark."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from playwright.async_api import Page, Request

from .conftest import OpenPage
from .history import ORDERS
from .places import places
from .watched import Served, axe_findings

pytestmark = pytest.mark.asyncio(loop_scope="package")

TEXT_NODES = """() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) found.push(walker.currentNode.textContent.trim());
    for (const item of document.querySelectorAll("[title], [placeholder], [aria-label]"))
        found.push(item.title, item.placeholder ?? "", item.ariaLabel ?? "");
    return found.filter(text => text);
}"""


def catalogue(language: str) -> dict[str, str]:
    text = (files("rocketline.console") / "texts" / f"{language}.toml").read_text("utf-8")

    def walk(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
        for key, value in node.items():
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", value

    return dict(walk(tomllib.loads(text), ""))


async def visit(page: Page, url: str) -> None:
    answer = await page.goto(url)
    assert answer is not None
    assert answer.status == 200, url
    assert await page.locator("main .problem").count() == 0, url


async def test_every_page_is_there_and_can_be_used_by_everybody(open_page: OpenPage, ours: Served) -> None:
    findings: list[str] = []
    async with open_page(ours, None) as (page, _):
        for path in (*places(ours), "/jobs"):
            await visit(page, ours.at(path))
            findings += [f"{path}: {finding}" for finding in await axe_findings(page)]
        for path in ("/settings", "/api/docs"):
            await visit(page, ours.console.url + path)
            findings += [f"{path}: {finding}" for finding in await axe_findings(page)]
    assert findings == []


@pytest.mark.interop
async def test_every_page_is_there_on_apaches_cluster(open_page: OpenPage, apache: Served) -> None:
    async with open_page(apache, None) as (page, _):
        for path in places(apache):
            await visit(page, apache.at(path))


async def test_nothing_is_left_in_english_and_the_dark_has_contrast(open_page: OpenPage, ours: Served) -> None:
    english, chinese = catalogue("en"), catalogue("zh")
    # Words in small letters may be data: a tag `changed`, a setting `none`.
    only_english = {text for text in english.values() if text[:1].isupper()} - set(chinese.values())
    left: list[str] = []
    findings: list[str] = []
    async with open_page(ours, None, locale="zh-CN", color_scheme="dark") as (page, _):
        for path in places(ours):
            await visit(page, ours.at(path))
            assert await page.locator("html").get_attribute("lang") == "zh-CN", path
            left += [f"{path}: {text}" for text in await page.evaluate(TEXT_NODES) if text in only_english]
            findings += [f"{path}: {finding}" for finding in await axe_findings(page, ["color-contrast"])]
    assert left == []
    assert findings == []


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
        await page.keyboard.type("bill")
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
