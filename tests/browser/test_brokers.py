"""Cases 4, 24 and 25: brokers that stop, settings, the right to write, what the doctor finds."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from tests.support.console import ConsoleProcess
from tests.support.history_parts import QUICK, make_topic

from rocketline.admin import Admin
from rocketline.cli.servers.child import ChildCluster, cli_command, cli_environment
from rocketline.client import ClientOptions, PushConsumer
from rocketline.message import MessageView
from rocketline.store.files.disk import DiskUsage
from rocketline.testing import LocalCluster

from .acting import changed, column, main_text, reload_until, row, submit
from .conftest import OpenPage
from .watched import Served

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_a_broker_that_stops_is_named_and_comes_back_by_itself(
    open_page: OpenPage, ours: Served, tmp_path: Path
) -> None:
    with ChildCluster() as cluster, ConsoleProcess(cluster.namesrv) as console:
        served = Served(console, cluster.namesrv, ours.history)
        async with open_page(served, "/") as (page, _):
            with second_broker(cluster.namesrv, tmp_path) as address:
                await reload_until(page, row(page, "broker-b").count, lambda count: count > 0)
                state = page.locator("[data-cell='state.broker-b.0']")
                assert await state.inner_text() == "answers"
                assert await page.locator(".partial").count() == 0
                brokers = page.locator("[data-cell=brokers]")
                assert await brokers.inner_text() == "2 / 2"
            # Nobody loads the page again.
            await page.locator("[data-cell='state.broker-b.0'].bad", has_text="does not answer").wait_for()
            await page.locator("[data-cell=partial]", has_text="not complete: broker-b").wait_for()
            assert await brokers.inner_text() == "1 / 2"
            assert address in await row(page, "broker-b").first.inner_text()
            with second_broker(cluster.namesrv, tmp_path, int(address.rpartition(":")[2])):
                await page.locator("[data-cell='state.broker-b.0'].ok", has_text="answers").wait_for()
                await page.locator("[data-cell=partial]:empty").wait_for(state="attached")
                await page.locator("[data-cell=brokers]", has_text="2 / 2").wait_for()
        async with open_page(served, "/doctor") as (page, _):
            finding = row(page, address)
            await reload_until(page, finding.count, lambda count: count == 1)
            text = await finding.inner_text()
            assert "cannot be used from here" in text
            assert "set brokerIP1 to an address that clients can reach" in text
        async with open_page(served, "/brokers") as (page, _):
            note = page.locator(".partial li").filter(has_text=address)
            await reload_until(page, note.count, lambda count: count == 1)


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


async def test_only_safe_settings_are_offered(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, "/brokers/broker-a/settings?name=fileReservedTime") as (page, watch):
        watch.allowed |= {403, 404, 422}
        before = await page.locator("[name=value]").input_value()
        await page.fill("[name=value]", "49")
        await submit(page)
        await changed(page)
        assert f"fileReservedTime: {before} → 49" in await main_text(page)
        async with Admin(either.namesrv) as admin:
            broker = next(broker for broker in await admin.brokers() if broker.name == "broker-a")
            assert (await broker.config())["fileReservedTime"] == "49"  # in force
        await page.goto(either.at("/brokers/broker-a?tab=settings&q=fileReserved"))
        assert "49" in await row(page, "fileReservedTime").first.inner_text()
        await page.goto(either.at("/audit"))
        line = await row(page, "change setting").first.inner_text()
        assert "broker-a" in line
        assert "→ 49" in line
        await page.goto(either.at("/brokers/broker-a?tab=settings&q=storePath"))
        assert await page.locator("main tbody tr").count() > 0
        assert await page.locator("main tbody a").count() == 0
        token = await page.locator("meta[name=csrf]").get_attribute("content")
        refused = await page.context.request.post(
            f"{either.console.url}/api/v1/c/default/brokers/broker-a/settings",
            data=json.dumps({"name": "storePathRootDir", "value": "/tmp/x"}),
            headers={"X-CSRF-Token": token or "", "Content-Type": "application/json"},
        )
        assert refused.status == 422
        await page.goto(either.at("/brokers/broker-a/settings?name=fileReservedTime"))
        await page.fill("[name=value]", before)
        await submit(page)
        await changed(page)


async def test_writing_to_a_broker_is_stopped_and_allowed(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin, open_page(either, None) as (page, _):
        for label, perm in (("Clients may not write", 4), ("Clients may write", 6)):
            await page.goto(either.at("/brokers/broker-a/writing"))
            assert await page.locator("button.danger").is_disabled()
            await page.fill("[name=confirm]", "broker-a")
            await submit(page, "button.danger")
            await changed(page)
            admin.forget()
            route = await admin.route("orders")
            assert [queue.perm for queue in route.queue_datas if queue.broker_name == "broker-a"] == [perm]
            await page.goto(either.at("/brokers/broker-a"))
            await page.locator(f"main .state:text-is('{label}')").wait_for()


async def test_what_a_broker_says_of_itself(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, "/brokers/broker-a") as (page, _):
        values = "[data-part] table.rows"
        assert "bootTimestamp" in await column(page, 1, values)
        for number in ("in", "out", "stored", "disk", "end"):
            await page.locator(f"[data-cell={number}]", has_text=re.compile(r"^\d")).wait_for()
        await page.locator(".chart svg path").first.wait_for(state="attached")
        await page.goto(either.at("/brokers/broker-a?q=boot"))
        assert await column(page, 1, values) == ["bootTimestamp"]
        await page.goto(either.at(f"/brokers/{either.history.timer_broker}?tab=timers"))
        waiting = dict(zip(await column(page, 1), await column(page, 2)))
        assert int(waiting["paid"]) >= 1
        assert "Delivered up to" in await main_text(page)
        await page.goto(either.at("/brokers/broker-a?tab=replication"))
        assert await page.locator("main .empty").inner_text() == "No replica is connected."


async def test_a_disk_that_is_full_is_on_the_page(
    open_page: OpenPage, ours: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalCluster() as cluster:
        (broker,) = cluster.brokers
        monkeypatch.setattr(broker.parts.store, "disk_usage", lambda: DiskUsage(1000, 90))
        with ConsoleProcess(cluster.namesrv) as console:
            async with open_page(Served(console, cluster.namesrv, ours.history), "/brokers") as (page, _):
                line = row(page, "broker-a").first
                assert "91 %" in await line.inner_text()
                assert await line.locator("svg.meter.bad").count() == 1
                await page.goto(f"{console.url}/c/default/doctor")
                finding = row(page, "the disk is 91% full")
                await reload_until(page, finding.count, lambda count: count == 1)
                assert "make room, or lower fileReservedTime" in await finding.inner_text()  # the advice


async def test_the_doctor_finds_what_was_planted(open_page: OpenPage, ours: Served) -> None:
    async def handle(message: MessageView) -> None:
        pass

    async with Admin(ours.namesrv) as admin, AsyncExitStack() as stack:
        await make_topic(admin, "torn", 1)
        for name, tags in (("one", "a"), ("other", "b")):
            options = ClientOptions(timing=QUICK, instance_name=name)
            consumer = await stack.enter_async_context(PushConsumer(ours.namesrv, group="torn_group", options=options))
            consumer.subscribe("torn", tags, handle)
            await consumer.start()
        async with open_page(ours, "/doctor", locale="zh-CN") as (page, _):
            finding = row(page, "torn_group")
            await reload_until(page, finding.count, lambda count: count == 1)
            text = await finding.inner_text()
            assert "消费者组 torn_group" in text
            assert "组内成员订阅不一致" in text
            assert "让订阅不同的消费者使用不同的消费者组" in text  # the advice
