"""What a page says when numbers are old, an answer takes long, the console is gone, or a list has changed."""

from __future__ import annotations

import os
import signal

import pytest
from playwright.async_api import Page
from tests.support.console import ConsoleProcess
from tests.support.history_parts import delete_topic, make_topic
from tests.support.slow_proxy import SlowProxy

from rocketline.admin import Admin

from .conftest import OpenPage
from .history import ORDERS
from .watched import Served

pytestmark = pytest.mark.asyncio(loop_scope="package")

LONG_MS = 20_000
"""So old are numbers never that come as usual."""


async def first_numbers(page: Page, url: str) -> None:
    """Load a page with numbers that change; return when they come."""
    async with page.expect_response("**/cells*"):
        await page.goto(url)


async def test_numbers_that_do_not_come_any_more_look_old(open_page: OpenPage, ours: Served) -> None:
    with ConsoleProcess(ours.namesrv) as console:
        served = Served(console, ours.namesrv, ours.history)
        async with open_page(served, None) as (page, _):
            await page.clock.install()
            await first_numbers(page, served.at("/brokers"))
            assert await page.locator("#age").is_hidden()
            os.kill(console.pid, signal.SIGSTOP)
            try:
                await page.clock.fast_forward(LONG_MS)
                await page.locator("#age:visible", has_text="s old").wait_for()
                assert "old" in (await page.locator("main").get_attribute("class") or "")
            finally:
                os.kill(console.pid, signal.SIGCONT)
            await page.locator("#age").wait_for(state="hidden")
            assert "old" not in (await page.locator("main").get_attribute("class") or "")


SAYS = """() => {
    const box = document.querySelector("#loading");
    new MutationObserver(() => console.log(`loading: ${box.hidden ? "" : box.innerText}`)).observe(box, {attributes: true});
}"""
"""Tells of what a page says while it waits for another one; then it cannot be asked."""


async def test_what_takes_long_is_named(open_page: OpenPage, ours: Served) -> None:
    with ConsoleProcess(ours.namesrv) as console:
        served = Served(console, ours.namesrv, ours.history)
        async with open_page(served, "/topics") as (page, _):
            await page.evaluate(SAYS)
            os.kill(console.pid, signal.SIGSTOP)
            try:
                async with page.expect_console_message(lambda message: f"brokers: {ORDERS}" in message.text):
                    await page.locator(f"main a[href$='/topics/{ORDERS}']").evaluate("link => link.click()")
            finally:
                os.kill(console.pid, signal.SIGCONT)
            await page.wait_for_url(f"**/topics/{ORDERS}")
            assert await page.locator("#loading").is_hidden()


async def test_a_lost_connection_is_told_until_it_is_back(open_page: OpenPage, ours: Served) -> None:
    notice = "#notice:visible"
    async with SlowProxy(f"127.0.0.1:{ours.console.port}") as proxy, open_page(ours, None) as (page, watch):
        watch.is_server_killed = True
        await first_numbers(page, f"http://{proxy.address}/c/default/brokers")
        await proxy.die()
        await page.locator(notice, has_text="Connection to the console lost").wait_for()
        await proxy.revive()
        await page.locator(notice, has_text="connected again").wait_for()


async def test_who_is_logged_out_is_told(open_page: OpenPage, ours: Served) -> None:
    with ConsoleProcess(ours.namesrv) as console:
        served = Served(console, ours.namesrv, ours.history)
        async with open_page(served, None) as (page, watch):
            watch.allowed.add(401)
            watch.is_server_killed = True
            await first_numbers(page, served.at("/brokers"))
            console.kill()
            with ConsoleProcess(ours.namesrv, "--port", str(console.port)):
                told = page.locator("#notice:visible", has_text="no longer logged in")
                await told.wait_for()
                await told.locator("button").click()
                await page.wait_for_url("**/login**")


async def test_a_list_that_changed_is_loaded_when_somebody_wants_it(open_page: OpenPage, ours: Served) -> None:
    async with Admin(ours.namesrv) as admin, open_page(ours, None) as (page, _):
        await first_numbers(page, ours.at("/topics"))
        row = page.locator("main tbody tr", has_text="a_young_topic")
        assert await row.count() == 0
        await make_topic(admin, "a_young_topic", 1)
        told = page.locator("#notice:visible", has_text="The list has changed")
        await told.wait_for()
        assert await row.count() == 0  # nothing moves under the pointer
        await told.locator("button").click()
        await row.wait_for()
        await page.locator("#notice").wait_for(state="hidden")
        await delete_topic(admin, "a_young_topic")


async def test_rows_are_as_high_as_was_chosen(open_page: OpenPage, ours: Served) -> None:
    heights = {}
    async with open_page(ours, None) as (page, _):
        for density in ("comfortable", "compact"):
            await page.goto(ours.console.url + "/settings")
            await page.select_option("[name=density]", density)
            async with page.expect_navigation():
                await page.click("main button.primary")
            assert page.url.endswith("/settings")
            await page.goto(ours.at("/topics"))
            box = await page.locator("main tbody tr").first.bounding_box()
            assert box is not None
            heights[density] = box["height"]
    assert heights["comfortable"] > heights["compact"]


async def test_a_choice_keeps_what_was_filtered(open_page: OpenPage, ours: Served) -> None:
    async with open_page(ours, "/topics?sort=-lag") as (page, _):
        await page.keyboard.press("/")
        await page.keyboard.type("ord")
        await page.wait_for_url("**q=ord*")
        async with page.expect_navigation():
            await page.click("button[name=language]")
        assert page.url.endswith("/topics?sort=-lag&q=ord")
        assert await page.locator("html").get_attribute("lang") == "zh-CN"
