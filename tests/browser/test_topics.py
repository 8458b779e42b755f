"""Cases 5 to 8: topics are made, found among many, changed and deleted; on our cluster and on Apache's."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Page
from tests.support.history_parts import QUICK, eventually, listed, make_topic, send_all

from rocketline.admin import Admin
from rocketline.client import ClientOptions, Producer, PushConsumer
from rocketline.errors import RouteNotFound
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.bodies import TopicConfig

from .acting import changed, column, main_text, reload_until, row, submit
from .conftest import OpenPage
from .history import HOSTILE
from .watched import Served

pytestmark = pytest.mark.asyncio(loop_scope="package")

MANY = 1000


async def test_a_topic_is_made_once_and_only_with_a_name_that_is_one(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, "/topics/new") as (page, watch):
        watch.allowed |= {409, 422}
        await page.fill("[name=name]", "made_here")
        await page.fill("[name=queues]", "4")
        await submit(page)
        await changed(page)
        await page.goto(either.at("/topics?q=made_here"))
        assert await column(page, 1) == ["made_here"]
        for name, reason in (("made_here", "already"), (HOSTILE, "may only contain letters")):
            await page.goto(either.at("/topics/new"))
            await page.fill("[name=name]", name)
            await submit(page)
            assert reason in await page.locator("#problem-name").inner_text()
            assert await page.locator("[name=name]").get_attribute("aria-invalid") == "true"
            assert await page.locator("[name=name]").input_value() == name[:127]
            assert await page.title() != "owned"
        await page.goto(either.at("/topics?q=img"))
        assert await page.locator("main img").count() == 0


async def test_one_of_a_thousand_topics_is_found_by_typing(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        brokers = await admin.brokers()
        names = [f"many_{number:04}" for number in range(MANY)]
        for begin in range(0, MANY, 100):
            await admin.gather(
                broker.put_topic(TopicConfig(name, 1, 1)) for name in names[begin : begin + 100] for broker in brokers
            )
        async with open_page(either, "/topics") as (page, _):
            assert await page.locator("main tbody tr").count() == 50
            assert int((await page.locator(".count").inner_text()).split()[0].replace(",", "")) >= MANY
            await page.keyboard.press("/")
            await page.keyboard.type("ny_0777")
            await page.wait_for_url("**q=ny_0777*")
            await row(page, "many_0777").wait_for()
            assert await column(page, 1) == ["many_0777"]
            await page.reload()
            assert await column(page, 1) == ["many_0777"]
            assert await page.locator("[name=q]").input_value() == "ny_0777"
        # Other tests look at all topics; doctors and overviews need not know so many.
        for begin in range(0, MANY, 100):
            await admin.gather(broker.delete_topic(name) for name in names[begin : begin + 100] for broker in brokers)


async def test_more_queues_then_fewer_with_messages_left_in_them(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "resized", 4)
        async with open_page(either, "/topics/resized/edit") as (page, _):
            await _resize(page, 8)
            assert await page.locator(".preview .note.warn").count() == 0
            assert await page.locator(".preview td:nth-child(3)").first.inner_text() == "8"
            await submit(page, ".preview button.primary")
            await changed(page)
            brokers = await admin.brokers_of("resized")
            admin.forget_route("resized")
            for broker in brokers:
                await eventually(lambda it=broker: it.topic("resized"), lambda config: config.write_queue_nums == 8)  # type: ignore[misc]
            await _send_to_each(either.namesrv, [broker.name for broker in brokers])
            await listed(admin, "resized", 8 * len(brokers))
            await page.goto(either.at("/topics/resized/edit"))
            await _resize(page, 4)
            left = await page.locator(".preview .note.warn li").all_inner_texts()
            assert len(left) == 4 * len(brokers)
            assert all(f"queue {number}: messages left: 1" in "\n".join(left) for number in range(4, 8))
            await submit(page, ".preview button.primary")
            await changed(page)
            await page.goto(either.at("/topics/resized?tab=settings"))
            assert set(await column(page, 2)) == set(await column(page, 3)) == {"4"}


async def _resize(page: Page, queues: int) -> None:
    await page.fill("[name=readQueues]", str(queues))
    await page.fill("[name=writeQueues]", str(queues))
    await submit(page, "form.form button")


async def _send_to_each(namesrv: str, brokers: list[str]) -> None:
    async with Producer(namesrv, group="resizer", options=ClientOptions(timing=QUICK)) as producer:
        for name in brokers:
            for number in range(8):
                await producer.send(Message("resized", b"x"), queue=MessageQueue("resized", name, number))


async def test_a_topic_that_is_being_read_is_deleted_knowingly(open_page: OpenPage, either: Served) -> None:
    read = asyncio.Event()

    async def handle(message: MessageView) -> None:
        read.set()

    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "doomed_topic", 2)
        options = ClientOptions(timing=QUICK, instance_name="reader-of-doomed")
        async with PushConsumer(either.namesrv, group="doomed_readers", options=options) as consumer:
            consumer.subscribe("doomed_topic", "*", handle)
            await consumer.start()
            await send_all(either.namesrv, [Message("doomed_topic", b"x") for _ in range(4)])
            await read.wait()
            async with open_page(either, "/topics/doomed_topic/delete") as (page, _):
                reader = page.locator(".note.warn li", has_text="reader-of-doomed")
                await reload_until(page, reader.count, lambda count: count == 1)
                assert "doomed_readers" in await page.locator(".note.warn").inner_text()
                button = page.locator("button.danger")
                assert await button.is_disabled()
                await page.fill("[name=confirm]", "doomed")
                assert await button.is_disabled()
                await page.fill("[name=confirm]", "doomed_topic")
                await submit(page, "button.danger")
                await changed(page)
                await page.goto(either.at("/topics?q=doomed_topic"))
                assert await page.locator("main tbody tr").count() == 0
                with pytest.raises(RouteNotFound):
                    admin.forget_route("doomed_topic")
                    await admin.route("doomed_topic")
                await page.goto(either.at("/audit?q=doomed_topic"))
                assert "delete topic" in await main_text(page)
