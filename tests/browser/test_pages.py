"""Cases 4 to 14 and 19 to 24: what operators do, on our cluster and on Apache's, with the same outcome."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page
from tests.support.console import ConsoleProcess
from tests.support.history_parts import consume, delete_topic, listed, make_dead_letters, make_topic, send_all

from rocketline.admin import Admin
from rocketline.admin.delayed import timer_messages
from rocketline.admin.search import newest
from rocketline.cli.servers.child import ChildCluster, cli_command, cli_environment
from rocketline.message import Message

from .conftest import OpenPage
from .history import BILLING, HOSTILE, ORDERS, PAID
from .watched import Served

pytestmark = pytest.mark.asyncio(loop_scope="package")

RESULT = "[data-result=ok]"


async def submit(page: Page, button: str = "main button.primary") -> None:
    async with page.expect_navigation():
        await page.click(button)


async def main_text(page: Page) -> str:
    return await page.locator("main").inner_text()


async def test_a_topic_is_created_changed_and_deleted(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, "/topics/new") as (page, watch):
        watch.allowed |= {409, 422}
        await page.fill("[name=name]", "made_here")
        await page.fill("[name=queues]", "8")
        await submit(page)
        await page.goto(either.at("/topics?q=made_here"))
        await page.locator("table.rows tbody tr").wait_for()
        for name in ("made_here", HOSTILE):  # there already; no name of a topic
            await page.goto(either.at("/topics/new"))
            await page.fill("[name=name]", name)
            await submit(page)
            assert await page.locator("[role=alert]").count() >= 1
            assert await page.title() != "owned"
        async with Admin(either.namesrv) as admin:
            await listed(admin, "made_here", 0)
            await send_all(either.namesrv, (Message("made_here", b"x") for _ in range(64)))
            await listed(admin, "made_here", 64)
        await page.goto(either.at("/topics/made_here/edit"))
        await page.fill("[name=readQueues]", "4")
        await page.fill("[name=writeQueues]", "4")
        await submit(page, "form.form button")
        assert await page.locator(".preview .note.warn li").count() >= 4  # messages in the queues that close
        await submit(page, ".preview button.primary")
        await page.goto(either.at("/topics/made_here/delete"))
        await page.fill("[name=confirm]", "made_here")
        await submit(page, "button.danger")
        await page.goto(either.at("/topics?q=made_here"))
        assert await page.locator("table.rows tbody tr").count() == 0
        await page.goto(either.at("/audit"))
        assert "made_here" in await main_text(page)


async def test_a_message_is_sent_waits_and_is_recalled(open_page: OpenPage, either: Served) -> None:
    body = '{"订单": "一百"}'
    async with open_page(either, f"/topics/{PAID}/send") as (page, _):
        await page.fill("[name=body]", body)
        await page.fill("[name=tag]", "新")
        await page.fill("[name=keys]", "key-1")
        await page.fill("[name=properties]", "amount=7\nregion=eu")
        await page.fill("[name=delayS]", "3600")
        await submit(page)
        assert await page.locator(RESULT).count() == 1
        async with Admin(either.namesrv) as admin:
            waiting = {item.message.body.decode() for item in (await timer_messages(admin)).value}
        assert body in waiting
        await page.goto(either.at("/delayed"))
        row = page.locator("tbody tr").filter(has_text="订单")
        assert await row.count() == 1
        async with page.expect_navigation():
            await row.locator("button").click()
        await page.goto(either.at("/delayed"))
        assert await page.locator("tbody tr").filter(has_text="订单").count() == 0


async def test_messages_by_time_key_id_and_offset(open_page: OpenPage, either: Served) -> None:
    history = either.history
    async with open_page(either, f"/topics/{ORDERS}/messages?begin=-1d") as (page, watch):
        watch.allowed |= {404, 422}
        assert await page.locator("tbody tr").count() == 50
        shown = await page.locator("tbody tr td:nth-child(1)").all_inner_texts()
        async with Admin(either.namesrv) as admin:
            expected = (await newest(admin, ORDERS)).messages
        links = await page.locator("tbody tr td:nth-child(2) a").evaluate_all("items => items.map(item => item.href)")
        assert [link.partition("/messages/")[2].partition("?")[0] for link in links] == [m.message_id for m in expected]
        assert len(shown) == 50
        await page.goto(either.at(f"/topics/{ORDERS}/messages?key=order7"))
        assert await page.locator("tbody tr").count() == 1
        for message_id in (history.untraced_id, expected[0].offset_id):
            await page.goto(either.at(f"/messages/{message_id}?topic={ORDERS}"))
            assert message_id in await main_text(page)
        answer = await page.goto(either.at(f"/messages/7F000001{'0' * 24}?topic={ORDERS}"))
        assert answer is not None
        assert answer.status in (404, 502)
        await page.goto(either.at(f"/topics/{ORDERS}/messages?broker=broker-a&queue=2&offset=0"))
        assert await page.locator("tbody tr").count() >= 1
        await page.goto(either.at(f"/topics/{ORDERS}/messages?broker=broker-a&queue=2&offset=99999"))
        assert await page.locator(".note.warn a").count() == 1


async def test_conditions_find_the_right_rows_and_mark_a_mistake(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, f"/topics/{ORDERS}/messages") as (page, watch):
        watch.allowed.add(422)
        await page.fill("[name=where]", "amount > 1150 AND body.region = 'eu'")
        await submit(page, ".search button.primary")
        await page.wait_for_function("document.querySelectorAll('tbody tr').length === 2")
        assert "where=" in page.url
        await page.fill("[name=where]", "amount > AND 1")
        await submit(page, ".search button.primary")
        assert await page.locator("#problem-where mark").inner_text() == "A"


async def test_a_reset_does_what_its_preview_says(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "page_reset", 2)
        await send_all(either.namesrv, (Message("page_reset", b"%d" % number) for number in range(10)))
        await consume(either.namesrv, "page_resetting", "page_reset", 10)
    async with open_page(either, None) as (page, _):
        await page.goto(either.at("/groups/page_resetting/reset?topic=page_reset&to=oldest"))
        summary = page.locator("[data-repeats]")
        while await summary.get_attribute("data-repeats") != "10":  # the consumer's last commit is on its way
            await page.reload()
        assert await summary.get_attribute("data-skips") == "0"
        await page.fill("[name=confirm]", "page_resetting")
        await submit(page, "button.danger")
        assert await page.locator(RESULT).count() == 1
        await page.goto(either.at("/groups/page_resetting"))
        assert "-1" not in await main_text(page)
        assert "10" in await page.locator("[data-cell=lag]").first.inner_text()
    await consume(either.namesrv, "page_resetting", "page_reset", 10)  # exactly those


async def test_dead_letters_have_an_outcome_each(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        for topic in ("page_kept", "page_gone"):
            await make_topic(admin, topic, 1)
        await send_all(either.namesrv, [Message("page_kept", b"%d" % n, tag="t", keys=["k"]) for n in range(2)])
        await send_all(either.namesrv, [Message("page_gone", b"gone")])
        await make_dead_letters(admin, "page_fails", "page_kept", 2)
        await make_dead_letters(admin, "page_fails", "page_gone", 1)
        await listed(admin, "%DLQ%page_fails", 3)
        await delete_topic(admin, "page_gone")
    async with open_page(either, "/dead-letters/page_fails") as (page, _):
        assert await page.locator("tbody tr").count() == 3
        for box in await page.locator("[name=ids]").all():
            await box.check()
        await submit(page, "main button.primary")
        assert await page.locator("[data-result=failed]").count() == 1
        assert await page.locator("tbody .state.ok").count() == 2
        assert await page.locator("tbody .state.bad").count() == 1
    async with Admin(either.namesrv) as admin:
        await listed(admin, "page_kept", 4)


async def test_a_trace_is_a_picture_with_the_same_table(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, f"/traces/{either.history.traced_id}") as (page, watch):
        watch.allowed.add(404)
        await page.locator("main svg").first.wait_for()
        text = await main_text(page)
        assert BILLING in text
        assert await page.locator("tbody tr").count() >= 2
        await page.goto(either.at(f"/traces/{either.history.untraced_id}"))
        assert re.search("producer", await main_text(page), re.IGNORECASE)


async def test_open_transactions_are_shown(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, "/transactions") as (page, _):
        row = page.locator("tbody tr").filter(has_text="banks")
        assert await row.count() == 1


async def test_only_safe_settings_are_offered(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, "/brokers/broker-a/settings?name=fileReservedTime") as (page, watch):
        watch.allowed |= {403, 404, 422}
        before = await page.locator("[name=value]").input_value()
        await page.fill("[name=value]", "49")
        await submit(page)
        await page.goto(either.at("/brokers/broker-a?tab=settings"))
        assert "49" in await page.locator("tr").filter(has_text="fileReservedTime").first.inner_text()
        assert await page.locator("a[href*='settings?'][href*='storePathRootDir']").count() == 0
        token = await page.locator("meta[name=csrf]").get_attribute("content")
        refused = await page.context.request.post(
            f"{either.console.url}/api/v1/c/default/brokers/broker-a/settings",
            data=json.dumps({"name": "storePathRootDir", "value": "/tmp/x"}),
            headers={"X-CSRF-Token": token or "", "Content-Type": "application/json"},
        )
        assert 400 <= refused.status < 500
        await page.goto(either.at("/brokers/broker-a/settings?name=fileReservedTime"))
        await page.fill("[name=value]", before)
        await submit(page)


async def test_a_broker_that_stops_is_named_and_comes_back(open_page: OpenPage, ours: Served, tmp_path: Path) -> None:
    with ChildCluster() as cluster, ConsoleProcess(cluster.namesrv) as console:
        served = Served(console, cluster.namesrv, ours.history)
        with second_broker(cluster.namesrv, tmp_path) as address:
            async with open_page(served, "/brokers") as (page, _):
                while await page.locator("tr").filter(has_text="broker-b").count() == 0:  # it registers a moment later
                    await page.reload()
                assert await page.locator(".partial").count() == 0
        async with open_page(served, "/brokers") as (page, _):
            row = page.locator(".partial li").filter(has_text=address)
            while await row.count() == 0:
                await page.reload()
            assert await page.locator("tr").filter(has_text="broker-a").count() >= 1
            with second_broker(cluster.namesrv, tmp_path, int(address.rpartition(":")[2])):
                while await page.locator(".partial").count():
                    await page.reload()


@contextmanager
def second_broker(namesrv: str, folder: Path, port: int = 0) -> Iterator[str]:
    """A broker beside that of a cluster, which is killed at the end; its address."""
    flags = ("--namesrv", namesrv, "--data", str(folder), "--name", "broker-b", "--port", str(port))
    with subprocess.Popen(
        cli_command("broker", *flags), stdout=subprocess.PIPE, text=True, env=cli_environment()
    ) as process:
        assert process.stdout is not None
        ready = re.fullmatch(r"ready brokers=broker-b@(\S+)\n", process.stdout.readline())
        assert ready is not None
        try:
            yield ready[1]
        finally:
            process.kill()
