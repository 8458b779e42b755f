"""Cases 9 to 14: messages are sent, and found by time, key, id, offset and condition; on our cluster and on Apache's."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.async_api import Error, Page, Route
from tests.support.apache import ApacheCluster
from tests.support.console import ConsoleProcess
from tests.support.history_parts import QUICK, eventually, listed, make_topic, send_all

from rocketline.admin import Admin
from rocketline.admin.search import Budget, Wanted, newest
from rocketline.cli.servers.child import ChildCluster, cli_command, cli_environment
from rocketline.client import ClientOptions, Producer
from rocketline.message import Message, MessageQueue
from rocketline.protocol.codes import RequestCode

from .acting import changed, column, main_text, reload_until, row, submit
from .conftest import OpenPage
from .history import ORDERS, PAID
from .watched import Served

pytestmark = pytest.mark.asyncio(loop_scope="package")

BODY = '{"订单": "一百", "list": [1, 2]}'
FIVE_ID = "01" + "A4B1C2D3E4F5" + "0123456789ABCDEF0123"
"""As 5.x clients make them: version 01, and longer than those of older clients."""


async def test_a_message_is_sent_waits_and_is_recalled(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, f"/topics/{PAID}/send") as (page, _):
        await _fill(page, "3600")
        await changed(page)
        assert re.search(r"broker-\w:\d+ @ \d+ · [0-9A-F]{32}", await main_text(page))
        await page.locator("main td a").click()
        await page.wait_for_url("**/delayed")
        waiting = row(page, "订单")
        assert await waiting.count() == 1
        due = await waiting.locator("td").first.inner_text()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", due)
        assert await waiting.locator("td").nth(1).inner_text() in (
            "59 min 59 s",
            "59 min 58 s",
            "1 h 0 min",
            "59 min 57 s",
        )
        async with page.expect_navigation():
            await waiting.locator("button").click()
        await changed(page)
        await page.goto(either.at("/delayed"))
        assert await row(page, "订单").count() == 0


async def test_a_message_with_a_short_delay_arrives_with_the_same_bytes(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "soon", 1)
        async with open_page(either, "/topics/soon/send") as (page, _):
            await _fill(page, "1")
            await changed(page)
            await listed(admin, "soon", 1)
            await page.goto(either.at("/topics/soon/messages"))
            await page.locator("main tbody a").first.click()
            text = await main_text(page)
            for part in ("新", "key-1", "amount", "region", hashlib.sha256(BODY.encode()).hexdigest()):
                assert part in text
            link = await page.locator("a[download]").get_attribute("href")
            answer = await page.context.request.get(either.console.url + str(link))
            assert await answer.body() == BODY.encode()


async def _fill(page: Page, delay_s: str) -> None:
    await page.fill("[name=body]", BODY)
    await page.fill("[name=tag]", "新")
    await page.fill("[name=keys]", "key-1")
    await page.fill("[name=properties]", "amount=7\nregion=eu")
    await page.fill("[name=delayS]", delay_s)
    await submit(page)


async def test_messages_by_time_in_another_zone(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, f"/topics/{ORDERS}/messages?begin=-1d") as (page, _):
        ids, times = await _links(page), await column(page, 1)
        assert len(ids) == 50
        async with Admin(either.namesrv) as admin:
            expected = (await newest(admin, ORDERS)).messages
        assert ids == [message.message_id for message in expected]
        assert times == sorted(times, reverse=True)
        await page.goto(either.console.url + "/settings")
        await page.select_option("[name=zone]", "America/New_York")
        await submit(page)
        await page.goto(either.at(f"/topics/{ORDERS}/messages?begin=-1d"))
        assert await _links(page) == ids
        assert {time[11:13] for time in await column(page, 1)}.isdisjoint({time[11:13] for time in times})
        # As many as the command line finds.
        await page.goto(either.at(f"/topics/{ORDERS}/messages?begin=-1d&most=200"))
        flags = ("--max", "500", "-o", "csv", "-n", either.namesrv)
        command = cli_command("admin", "searchMsg", "-t", ORDERS, *flags)
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, env=cli_environment())
        assert done.returncode == 0, done.stderr
        told = re.findall(r"^[0-9A-F]{32}(?=,)", done.stdout, re.MULTILINE)
        assert sorted(told) == sorted(await _links(page))


async def _links(page: Page) -> list[str]:
    links = await page.locator("main tbody td:nth-child(2) a").evaluate_all("items => items.map(item => item.href)")
    return [link.partition("/messages/")[2].partition("?")[0] for link in links]


async def test_messages_by_key(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "keyed", 2)
        brokers = len(await admin.brokers())
        popular = [Message("keyed", b"%d" % number, keys=["popular"]) for number in range(100 * brokers)]
        await send_all(either.namesrv, popular)
        await send_all(either.namesrv, (Message("keyed", b"rare", keys=["rare"]) for _ in range(3)))
        await listed(admin, "keyed", 100 * brokers + 3)
    async with open_page(either, "/topics/keyed/messages?key=popular") as (page, _):
        many = page.locator("main tbody tr")
        assert await reload_until(page, many.count, lambda count: count >= 64) >= 64  # the index follows the log
        assert "at most 64" in await page.locator(".note.warn").inner_text()
        await page.goto(either.at("/topics/keyed/messages?key=rare"))
        assert await reload_until(page, many.count, lambda count: count == 3) == 3
        assert await page.locator(".note.warn").count() == 0


async def test_messages_by_each_kind_of_id(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        await send_all(either.namesrv, [Message(PAID, b"of a 5.x client", properties={"UNIQ_KEY": FIVE_ID})])
        (one,) = (await newest(admin, PAID, Wanted(text="of a 5.x client"), Budget(1))).messages
    assert one.message_id == FIVE_ID
    async with open_page(either, "/messages") as (page, watch):
        watch.allowed.add(404)
        for message_id in (FIVE_ID, one.offset_id):
            await page.goto(either.at("/messages"))
            await page.fill("main [name=id]", message_id)
            await page.fill("main [name=topic]", PAID)
            await submit(page)
            await reload_until(page, page.locator("main tbody tr").count, lambda count: count == 1)
            await page.locator("main tbody a").click()
            await page.locator("dl.facts").first.wait_for()
            assert one.offset_id in await main_text(page)
        await page.goto(either.at(f"/messages?id={'AB' * 16}&topic={PAID}"))
        text = await main_text(page)
        assert "There is no message" in text
        assert f"key index of topic {PAID} on all its brokers" in text
        answer = await page.goto(either.at(f"/messages/{'AB' * 16}?topic={PAID}"))
        assert answer is not None
        assert answer.status == 404
        assert "Looked in topic" in await main_text(page)


async def test_topics_are_proposed_while_one_is_typed(open_page: OpenPage, ours: Served) -> None:
    async with open_page(ours, "/messages") as (page, _):
        await page.locator("main [name=topic]").press_sequentially("pai")
        await page.locator(f"#topics-known option[value={PAID}]").wait_for(state="attached")


async def test_an_offset_that_is_gone_leads_to_the_oldest(open_page: OpenPage, ours: Served, tmp_path: Path) -> None:
    # Small log files, of which the old ones are deleted as soon as somebody asks for it.
    settings = {"mappedFileSizeCommitLog": str(1 << 20), "deleteCommitLogFilesInterval": "0"}
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    with ChildCluster(["--data", str(tmp_path), *flags]) as cluster, ConsoleProcess(cluster.namesrv) as console:
        await _expire(open_page, Served(console, cluster.namesrv, ours.history), tmp_path)


@pytest.mark.interop
async def test_an_offset_that_is_gone_from_apaches_broker_too(
    open_page: OpenPage, spare: tuple[ApacheCluster, Served]
) -> None:
    broker, served = spare
    await _expire(open_page, served, broker.store)


async def _expire(open_page: OpenPage, served: Served, store: Path) -> None:
    async with Admin(served.namesrv) as admin:
        await make_topic(admin, "expiring", 1)
        await send_all(served.namesrv, (Message("expiring", os.urandom(200_000)) for _ in range(20)))
        for file in store.rglob("commitlog/*"):
            os.utime(file, (0, 0))
        oldest = await _deleted(admin)
    async with open_page(served, "/topics/expiring/messages?broker=broker-a&queue=0&offset=0") as (page, _):
        assert f"from {oldest} to 20" in await page.locator(".note.warn").inner_text()
        await page.locator(".note.warn a").click()
        await page.wait_for_url(f"**offset={oldest}*")
        places = await column(page, 3)
        assert places[0] == f"broker-a:0@{oldest}"
        async with open_page(served, None) as (other, _):  # a colleague gets the same view
            await other.goto(page.url)
            assert await column(other, 3) == places


async def _deleted(admin: Admin) -> int:
    """Have old files deleted; the oldest offset then."""
    (broker,) = await admin.brokers()

    async def oldest() -> int:
        for code in (RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE):
            await broker.clean_up(code)
        return await broker.min_offset(MessageQueue("expiring", "broker-a", 0))

    return await eventually(oldest, lambda offset: offset > 0)


async def test_conditions_find_the_right_rows_and_mark_a_mistake(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, f"/topics/{ORDERS}/messages") as (page, watch):
        watch.allowed.add(422)
        await page.fill("[name=where]", "amount > 1150 AND body.region = 'eu'")
        await submit(page, ".search button.primary")
        await page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 2")
        assert "where=" in page.url
        bodies = await page.locator("main tbody td.body").all_inner_texts()
        assert sorted(re.findall(r'"order": (\d+)', "".join(bodies))) == ["117", "119"]
        await page.fill("[name=where]", "amount > AND 1")
        await submit(page, ".search button.primary")
        assert await page.locator("#problem-where mark").inner_text() == "A"


async def test_a_long_search_stops_and_goes_on_where_it_was(open_page: OpenPage, either: Served) -> None:
    total = 30_000
    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "searched", 1)
        async with Producer(either.namesrv, group="searched_shop", options=ClientOptions(timing=QUICK)) as producer:
            for begin in range(0, total, 1000):
                await producer.send_batch(
                    [Message("searched", b"%d" % number) for number in range(begin, begin + 1000)]
                )
        await listed(admin, "searched", total)
    held, release = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        """The second question is not answered before the search was stopped."""
        held.set()
        await release.wait()
        with suppress(Error):  # nobody waits for it any more
            await route.continue_()

    async with open_page(either, None) as (page, _):
        await page.route("**/messages?*cursor=*", hold)
        await page.goto(either.at("/topics/searched/messages?text=not-there"), wait_until="commit")
        await held.wait()
        assert "10,000 looked at" in await page.locator("[data-found]").inner_text()
        await page.locator("[data-stop]").click()
        await page.locator("[data-progress]", has_text="stopped").wait_for()  # though the question is still open
        release.set()
        await page.unroute("**/messages?*cursor=*")
        await page.locator("[data-search] a").click()
        await page.locator("[data-found]", has_text="nothing older is left").wait_for()
        assert "0 found, 30,000 looked at" in await page.locator("[data-found]").inner_text()
