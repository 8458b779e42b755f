"""Cases 22 and 23: traces, timers, transactions; and the pages of stores and jobs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from playwright.async_api import Page
from tests.spark.clusters import quick
from tests.spark.conftest import require_spark
from tests.support.console import ConsoleProcess
from tests.support.history_parts import QUICK, consume, eventually, listed, make_topic, send_all

from rocketline.admin import Admin
from rocketline.admin.transactions import given_up
from rocketline.cli.servers.child import ChildCluster, cli_command, cli_environment
from rocketline.client import ClientOptions, TransactionalProducer
from rocketline.message import Message
from rocketline.protocol.transactions import Transaction

from .acting import changed, column, main_text, reload_until, row
from .conftest import OpenPage
from .history import ORDERS
from .watched import Served

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_the_trace_of_a_message_that_two_groups_retried(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "retried", 1)
        (sent,) = await send_all(either.namesrv, [Message("retried", b"difficult")], trace=True)
        await listed(admin, "retried", 1)
    groups = ("retry_one", "retry_two")
    await asyncio.gather(*(consume(either.namesrv, group, "retried", 1, failures=2, trace=True) for group in groups))
    async with open_page(either, f"/traces/{sent.message_id}") as (page, _):
        # A trace is sent a moment after what it tells.
        await reload_until(page, page.locator("main tbody tr").count, lambda count: count == 7)
        what = list(zip(await column(page, 3), await column(page, 2)))
        for group in groups:
            assert [step for name, step in what if name == group] == ["attempt 1", "attempt 2", "attempt 3"]
        assert ("history_shop", "sent") in what
        took = await column(page, 5)
        assert all(text.endswith((" ms", " s")) for text in took)
        outcomes = await column(page, 6)
        assert sum("success" in text for text in outcomes) == 2
        assert sum("later" in text or "exception" in text for text in outcomes) == 4
        # The picture tells the same.
        titles = await page.locator("svg.timeline rect.bar title").evaluate_all(
            "items => items.map(i => i.textContent)"
        )
        assert sorted(titles) == sorted(f"{step} · {time}" for (_, step), time in zip(what, took))
        assert await page.locator("svg.timeline rect.bar.failed").count() == 4
        await _inside(page)


async def _inside(page: Page) -> None:
    """Nothing of the picture is cut off, and no bar is on a label of a pause."""
    places = await page.evaluate("""() => {
        const svg = document.querySelector("svg.timeline"), card = svg.parentElement.getBoundingClientRect();
        const bottom = Math.max(...[...svg.querySelectorAll("text.tick")].map(text => text.getBoundingClientRect().bottom));
        return [...svg.querySelectorAll("rect.bar")].map(bar => bar.getBoundingClientRect())
            .map(bar => bar.left >= card.left && bar.right <= card.right && bar.top >= bottom);
    }""")
    assert all(places)


async def test_a_message_that_nobody_traced(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, f"/traces/{either.history.untraced_id}") as (page, _):
        assert "producer" in (await main_text(page)).lower()
        await page.goto(either.at(f"/traces/{'AB' * 16}"))
        assert "No trace of this message" in await main_text(page)


async def test_an_open_transaction_is_shown_until_it_is_committed(open_page: OpenPage, either: Served) -> None:
    decide = asyncio.Event()

    async def undecided(message: object) -> Transaction:
        return Transaction.UNKNOWN

    async def place(message: Message) -> Transaction:
        await decide.wait()
        return Transaction.COMMIT

    options = ClientOptions(timing=QUICK)
    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "decided", 1)
        async with (
            TransactionalProducer(either.namesrv, group="deciders", check=undecided, options=options) as producer,
            open_page(either, "/transactions") as (page, _),
        ):
            sending = asyncio.create_task(producer.send_in_transaction(Message("decided", b"half"), place))
            half = row(page, "deciders")
            await reload_until(page, half.count, lambda count: count == 1)
            text = await half.inner_text()
            assert "decided" in text
            assert text.split("\t")[3].isdecimal()  # checks so far
            decide.set()
            await sending
            await reload_until(page, half.count, lambda count: count == 0)
            await listed(admin, "decided", 1)
            assert await row(page, "banks").count() == 1  # the other one is still open


async def test_a_transaction_that_was_given_up_is_checked_again(
    open_page: OpenPage, ours: Served, tmp_path: Path
) -> None:
    settings = {"transactionCheckMax": "1", "transactionCheckInterval": "200", "transactionTimeOut": "200"}
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    answers = [Transaction.UNKNOWN]

    async def check(message: object) -> Transaction:
        return answers[-1]

    async def place(message: Message) -> Transaction:
        return Transaction.UNKNOWN

    with ChildCluster(["--data", str(tmp_path), *flags]) as cluster, ConsoleProcess(cluster.namesrv) as console:
        served = Served(console, cluster.namesrv, ours.history)
        options = ClientOptions(timing=QUICK)
        async with (
            Admin(cluster.namesrv) as admin,
            TransactionalProducer(cluster.namesrv, group="forgetful", check=check, options=options) as producer,
        ):
            await make_topic(admin, "given", 1)
            await producer.send_in_transaction(Message("given", b"forgotten"), place)
            await eventually(lambda: given_up(admin), lambda page: len(page.messages) == 1)
            answers.append(Transaction.COMMIT)
            async with open_page(served, "/transactions") as (page, _):
                async with page.expect_navigation():
                    await row(page, "forgotten").locator("button").click()
                await changed(page)
            await listed(admin, "given", 1)  # this time its producer knew


async def test_the_store_of_this_machine(open_page: OpenPage, ours: Served) -> None:
    async with open_page(ours, "/store") as (page, _):
        safe = page.locator("main section.card").first
        assert "Flushed (log)" in await safe.inner_text()
        assert await safe.locator("tbody tr").count() == 2
        for line in await safe.locator("tbody tr").all():
            assert await line.locator("time, .unknown").count() == 3  # a young store has no checkpoint yet
            assert int((await line.locator("td").last.inner_text()).replace(",", "")) > 0
        assert await row(page, "broker-a/checkpoint").count() == 1
        await page.get_by_role("link", name="Verify").click()
        await page.locator("section h2", has_text="broker-b").wait_for()
        assert await page.locator("h2 .state").count() == 2
        assert "in use by a broker" in await main_text(page)
        await page.fill("[name=offset]", "0")
        await page.click("main form button")
        await page.wait_for_url("**offset=0*")
        assert await page.locator("main tbody[data-messages] tr").count() == 1


async def test_more_files_than_are_shown_are_counted(open_page: OpenPage, ours: Served) -> None:
    folder = ours.data
    assert folder is not None
    extra = folder / "broker-a" / "config"
    for number in range(210):
        (extra / f"zz-{number}.txt").touch()
    try:
        async with open_page(ours, "/store") as (page, _):
            assert "The first 200 of" in await page.locator(".count").inner_text()
    finally:
        for number in range(210):
            (extra / f"zz-{number}.txt").unlink()


async def test_jobs_run_end_and_get_lost(open_page: OpenPage, ours: Served) -> None:
    assert ours.runs is not None
    now_ms = int(time.time() * 1000)
    records = {
        f"{now_ms}-archive-0000000a": (
            {"at": now_ms, "kind": "start", "job": "archive", "command": "pipeline archive /data"},
            {"at": now_ms, "kind": "progress", "text": "batch 0", "rows": 1200, "behind": 7},
        ),
        f"{now_ms - 1}-audit-0000000b": (
            {"at": now_ms - 900, "kind": "start", "job": "audit", "command": "pipeline audit"},
            {
                "at": now_ms,
                "kind": "end",
                "state": "done",
                "text": "<b>audited</b>",
                "columns": ["topic"],
                "table": [["orders"]],
            },
        ),
        f"{now_ms - 600_000}-rebuild-0000000c": (
            {"at": now_ms - 600_000, "kind": "start", "job": "rebuild", "command": "pipeline rebuild"},
        ),
    }
    for name, lines in records.items():
        (ours.runs / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    os.utime(next(ours.runs.glob("*rebuild*")), (time.time() - 500, time.time() - 500))
    async with open_page(ours, "/jobs") as (page, _):
        for job, state in (("archive", "running"), ("audit", "done"), ("rebuild", "lost")):
            line = page.locator("main > table.rows > tbody > tr").filter(has_text=job).first
            assert state in await line.inner_text()
        assert "1,200" in await row(page, "archive").first.inner_text()
        assert "<b>audited</b>" in await main_text(page)
        assert await page.locator("main table.rows table.rows td").inner_text() == "orders"


@pytest.mark.spark
async def test_a_spark_job_runs_and_is_killed(open_page: OpenPage, ours: Served, tmp_path: Path) -> None:
    require_spark()
    runs = tmp_path / "runs"
    flags = ("--topic", ORDERS, "--follow", "--namesrv", ours.namesrv, "--master", "local[1]")
    settings = {**quick(), "spark.driver.memory": "512m", "spark.rocketline.password": "hunter2"}
    confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = cli_command("pipeline", "--runs", str(runs), "archive", str(tmp_path / "archive"), *flags, *confs)
    runs.mkdir()
    with (
        ConsoleProcess(ours.namesrv, "--runs", str(runs)) as console,
        subprocess.Popen(command, env=cli_environment(), stdout=subprocess.DEVNULL) as job,
    ):
        try:
            async with open_page(Served(console, ours.namesrv, ours.history), "/jobs") as (page, _):
                line = page.locator("main > table.rows > tbody > tr")
                await reload_until(page, line.all_inner_texts, lambda texts: any("running\t" in text for text in texts))
                # Every order, once.
                await reload_until(page, line.all_inner_texts, lambda texts: any("\t121\t" in text for text in texts))
                assert "spark.rocketline.password=***" in await page.content()
                assert "hunter2" not in await page.content()
                job.kill()
                job.wait()
                (record,) = runs.iterdir()
                os.utime(record, (time.time() - 500, time.time() - 500))  # nothing came for so long
                await reload_until(page, line.all_inner_texts, lambda texts: any("lost\t" in text for text in texts))
                assert "hunter2" not in record.read_text()
        finally:
            job.kill()
