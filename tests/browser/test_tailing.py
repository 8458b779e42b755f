"""Cases 16, 17, 18: messages as they arrive."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from playwright.async_api import Page
from tests.support.apache import ApacheCluster
from tests.support.console import ConsoleProcess
from tests.support.history_parts import make_topic
from tests.support.patience import PATIENCE_S

from rocketline.admin import Admin
from rocketline.cli.servers.child import ChildCluster
from rocketline.client import Producer
from rocketline.errors import RocketlineError
from rocketline.message import Message, MessageQueue

from .conftest import OpenPage
from .watched import Served

pytestmark = pytest.mark.asyncio(loop_scope="package")

ROWS = "count => document.querySelectorAll('table[data-live] tbody tr').length >= count"


async def follow(page: Page) -> None:
    """Until the stream is open."""
    await page.wait_for_function(
        "() => document.querySelector('[data-live-state]').textContent.startsWith("
        "document.querySelector('[data-live-state]').dataset.following.split('%1')[0])"
    )


async def bodies(page: Page) -> list[str]:
    return await page.locator("table[data-live] tbody tr td.body").all_inner_texts()


async def test_rows_come_are_held_and_shown(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin, Producer(either.namesrv, group="tail_shop") as producer:
        await make_topic(admin, "tailed", 2)
        async with open_page(either, "/topics/tailed/live") as (page, _):
            await follow(page)
            await producer.send(Message("tailed", b"first"))
            await page.wait_for_function(ROWS, arg=1)
            await page.keyboard.press("p")
            await asyncio.gather(*(producer.send(Message("tailed", b"%d" % number)) for number in range(600)))
            await page.wait_for_function(
                "() => document.querySelector('[data-live-state]').textContent.includes('600')"
            )
            assert await bodies(page) == ["first"]
            await page.keyboard.press("p")
            await page.wait_for_function(ROWS, arg=500)
            shown = await bodies(page)
            assert len(shown) == len(set(shown)) == 500  # the last of them; older rows are gone


async def test_what_comes_too_fast_is_counted_and_rows_stay_few(open_page: OpenPage, either: Served) -> None:
    count, one = 9000, MessageQueue("flooded", "broker-a", 0)
    async with Admin(either.namesrv) as admin, Producer(either.namesrv, group="tail_shop") as producer:
        await make_topic(admin, "flooded", 1)
        async with open_page(either, "/topics/flooded/live") as (page, _):
            await follow(page)
            await page.keyboard.press("p")
            for begin in range(0, count, 1000):
                batch = [Message("flooded", b"%d" % number) for number in range(begin, begin + 1000)]
                await producer.send_batch(batch, queue=one)  # of two queues nobody knows which is read first
            # Held and not shown together are all: nothing is lost in silence.
            await page.wait_for_function(
                """count => (document.querySelector('[data-live-state]').textContent.match(/[0-9][0-9,]*/g) ?? [])
                    .reduce((sum, text) => sum + Number(text.replaceAll(',', '')), 0) === count""",
                arg=count,
            )
            await page.keyboard.press("p")
            await page.wait_for_function(ROWS, arg=500)
            assert len(await bodies(page)) == 500
            assert await bodies(page) == [str(number) for number in range(count - 1, count - 501, -1)]


async def test_a_tail_goes_on_after_a_restart_with_none_twice_and_none_missing(
    open_page: OpenPage, ours: Served, tmp_path: Path
) -> None:
    arguments = ["--flush", "sync", "--data", str(tmp_path)]
    with ChildCluster(arguments) as cluster, ConsoleProcess(cluster.namesrv) as console:
        ports = (_port(cluster.namesrv), _port(cluster.brokers["broker-a"]))
        served = Served(console, cluster.namesrv, ours.history)
        async with Admin(cluster.namesrv) as admin:
            await make_topic(admin, "restarted", 2)
        async with open_page(served, "/topics/restarted/live") as (page, _):
            await follow(page)
            await _send(cluster.namesrv, range(10))
            await page.wait_for_function(ROWS, arg=10)
            cluster.stop()
            await page.wait_for_function(
                "() => document.querySelector('[data-live-state]').textContent.includes('broker-a')"
            )
            with ChildCluster(arguments, ports=ports) as again:
                await _send(again.namesrv, range(10, 20))
                await page.wait_for_function(ROWS, arg=20)
                assert sorted(map(int, await bodies(page))) == list(range(20))


@pytest.mark.interop
async def test_a_restart_of_apaches_broker_is_shown_and_survived(
    open_page: OpenPage, spare: tuple[ApacheCluster, Served]
) -> None:
    broker, served = spare
    async with Admin(broker.namesrv) as admin:
        await make_topic(admin, "restarted", 2)
    async with (
        open_page(served, "/topics/restarted/live") as (page, _),
        open_page(served, "/") as (overview, _),
    ):
        await follow(page)
        await _send(broker.namesrv, range(10))
        await page.wait_for_function(ROWS, arg=10)
        state = overview.locator("[data-cell='state.broker-a.0']")
        assert await state.inner_text() == "answers"
        await asyncio.to_thread(broker.stop)
        await overview.locator("[data-cell='state.broker-a.0'].bad", has_text="does not answer").wait_for()
        await overview.locator("[data-cell=partial]", has_text="not complete: broker-a").wait_for()
        await page.locator("[data-live-state]", has_text="broker-a").wait_for()
        await asyncio.to_thread(broker.start)
        await overview.locator("[data-cell='state.broker-a.0'].ok", has_text="answers").wait_for()
        await _send(broker.namesrv, range(10, 20))
        await page.wait_for_function(ROWS, arg=20)
        assert sorted(map(int, await bodies(page))) == list(range(20))


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def _send(namesrv: str, numbers: range) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                async with Producer(namesrv, group="tail_shop") as producer:
                    for number in numbers:
                        await producer.send(Message("restarted", b"%d" % number))
                    return
            except RocketlineError:  # it registers a moment later
                assert numbers.start
                await asyncio.sleep(0.1)


HIDING = """() => {
    let hidden = false;
    Object.defineProperty(Document.prototype, "hidden", { get: () => hidden });
    window.hide = (now) => { hidden = now; document.dispatchEvent(new Event("visibilitychange")); };
}"""
"""A browser without a screen hides no tab."""


LISTENING = """() => {
    window.said = [];
    const listen = () => said.push(document.querySelector("[data-live-state]")?.textContent ?? "");
    new MutationObserver(listen).observe(document, { subtree: true, childList: true, characterData: true });
}"""
"""What the page has said of the tail."""


async def test_many_tabs_with_tails_do_not_block_a_page(open_page: OpenPage, ours: Served) -> None:
    async with open_page(ours, None) as (page, _), Producer(ours.namesrv, group="tail_shop") as producer:
        await page.context.add_init_script(f"({HIDING})()")
        tabs = [page, *[await page.context.new_page() for _ in range(7)]]
        for number, tab in enumerate(tabs):
            await tab.goto(ours.at("/topics/orders/live"))
            await follow(tab)
            await producer.send(Message("orders", b"tab %d" % number))
            await tab.wait_for_function(ROWS, arg=1)
            await tab.evaluate("hide(true)")
        await page.goto(ours.at("/topics"))
        await page.locator("table.rows tbody tr").first.wait_for()
        # Shown again, a tab has what came while it was hidden, and the second but last tab nothing twice.
        await tabs[5].evaluate("hide(false)")
        await tabs[5].wait_for_function(ROWS, arg=3)
        assert sorted(await bodies(tabs[5])) == ["tab 5", "tab 6", "tab 7"]


async def test_a_tail_that_is_not_given_says_why_and_goes_on_without_a_gap(open_page: OpenPage, ours: Served) -> None:
    async with open_page(ours, None) as (page, watch), Producer(ours.namesrv, group="tail_shop") as producer:
        watch.allowed.add(429)
        tabs = [page, *[await page.context.new_page() for _ in range(4)]]
        for tab in tabs:
            await tab.goto(ours.at("/topics/orders/live"))
        last = tabs[-1].locator("[data-live-state]", has_text="Too much at once")
        await last.wait_for()
        await tabs[0].close()
        await last.locator("button").click()
        await follow(tabs[-1])
        await producer.send(Message("orders", b"after the wait"))
        await tabs[-1].wait_for_function(ROWS, arg=1)


async def test_it_does_not_claim_to_follow_before_it_does(open_page: OpenPage, ours: Served) -> None:
    async with open_page(ours, None) as (page, _):
        # A stream that begins, and breaks before it has said from where it follows.
        await page.route(
            "**/tail?*", lambda route: route.fulfill(content_type="text/event-stream", body="retry: 2000\n\n")
        )
        await page.add_init_script(f"({LISTENING})()")
        await page.goto(ours.at("/topics/orders/live"))
        await page.locator("[data-live-state]", has_text="trying again").wait_for()
        assert not [text for text in await page.evaluate("said") if "following" in text]


async def test_a_killed_console_is_noticed_by_nobody_else(ours: Served, open_page: OpenPage) -> None:
    with ConsoleProcess(ours.namesrv) as console:
        served = Served(console, ours.namesrv, ours.history)
        async with open_page(served, "/topics/orders/live") as (page, watch):
            await follow(page)
            async with Producer(ours.namesrv, group="unharmed") as producer:
                await producer.send(Message("paid", b"before"))
                watch.is_server_killed = True
                os.kill(console.pid, signal.SIGKILL)
                for _ in range(20):
                    await producer.send(Message("paid", b"after"))
            await page.locator("[data-live-state]", has_text="rying").wait_for()
