"""Cases 19 to 21: groups with and without members, resets, dead letters; on our cluster and on Apache's."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Locator, Page
from tests.support.history_parts import (
    QUICK,
    consume,
    delete_topic,
    eventually,
    listed,
    make_dead_letters,
    make_topic,
    send_all,
)

from rocketline.admin import Admin
from rocketline.admin.search import newest
from rocketline.client import ClientOptions, ConsumeFrom, Producer, PushConsumer
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.bodies import SubscriptionGroupConfig

from .acting import DONE, FAILED, changed, column, main_text, reload_until, row, submit
from .conftest import OpenPage
from .watched import Served

pytestmark = pytest.mark.asyncio(loop_scope="package")


@asynccontextmanager
async def online(namesrv: str, group: str, topic: str, name: str) -> AsyncIterator[list[bytes]]:
    """A member of a group; the bodies that it has read."""
    read: list[bytes] = []

    async def handle(message: MessageView) -> None:
        read.append(message.body)

    options = ClientOptions(timing=QUICK, instance_name=name)
    async with PushConsumer(namesrv, group=group, from_where=ConsumeFrom.FIRST, options=options) as consumer:
        consumer.subscribe(topic, "*", handle)
        await consumer.start()
        yield read


async def test_a_group_online_and_offline(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "watched", 2)
        queues = 3 * len(await admin.brokers())  # two of the topic, one for retries
        await _send_to_each(admin, "watched")
        async with open_page(either, None) as (page, _):
            async with online(either.namesrv, "watchers", "watched", "the-watcher") as read:
                sent = 2 * len(await admin.brokers())
                await eventually(_length(read), lambda count: count == sent)
                await page.goto(either.at("/groups/watchers?tab=members"))
                member = row(page, "the-watcher")
                held = await reload_until(page, lambda: _last(member), lambda text: text == str(queues))
                assert held == str(queues)
                assert "PYTHON\tV5_4_0" in await member.inner_text()
                await page.locator("main tbody a").first.click()
                await page.locator("h2", has_text="Queues").wait_for()
                assert await page.locator("main table.rows").nth(1).locator("tbody tr").count() == queues
                await page.goto(either.at("/groups/watchers"))
                await reload_until(page, page.locator("[data-cell=lag]").inner_text, lambda lag: lag == "0")
                await eventually(_samples(page, either, "watchers"), lambda lags: lags[-1:] == [0])
            await send_all(either.namesrv, (Message("watched", b"%d" % number) for number in range(5)))
            await listed(admin, "watched", sent + 5)
            members = page.locator("[data-cell=members]")
            assert await reload_until(page, members.inner_text, lambda text: not text.isdecimal()) == "no members"
            assert await reload_until(page, page.locator("[data-cell=lag]").inner_text, lambda lag: lag == "5") == "5"
            assert "-1" not in await main_text(page)
            await _lag_in_chart(page, either, "watchers", 5)


async def _last(place: Locator) -> str:
    return await place.locator("td").last.inner_text() if await place.count() else ""


def _length(items: list[bytes]) -> Callable[[], Awaitable[int]]:
    async def length() -> int:
        return len(items)

    return length


async def _send_to_each(admin: Admin, topic: str) -> None:
    """A message to each queue, so that the group has an offset for each."""
    async with Producer(admin.namesrv, group="watched_shop", options=ClientOptions(timing=QUICK)) as producer:
        for _, queue in await admin.queues_of(topic):
            await producer.send(Message(topic, b"first"), queue=queue)


def _samples(page: Page, served: Served, group: str) -> Callable[[], Awaitable[list[float]]]:
    name = f"lag.{group}"

    async def values() -> list[float]:
        answer = await page.context.request.get(f"{served.console.url}/api/v1/c/default/series?names={name}")
        return [value for value in (await answer.json())["values"][name] if value is not None]

    return values


async def _lag_in_chart(page: Page, served: Served, group: str, lag: int) -> None:
    """The samples rise to the lag, and the chart and its table show that."""
    await eventually(_samples(page, served, group), lambda lags: lags[-1:] == [lag])
    await page.reload()
    await page.locator(".chart svg path").first.wait_for(state="attached")
    await page.locator(".chart-table summary").click()
    assert str(lag) in await page.locator(".chart-table tbody tr td:nth-child(2)").all_inner_texts()
    times = await page.locator(".chart > svg > text", has_text=":").all_text_contents()
    assert times
    assert all(re.fullmatch(r"\d\d:\d\d(:\d[05])?", time) for time in times), times
    await page.locator(".chart").focus()
    await page.keyboard.press("Home")
    assert "Lag 0" in str(await page.locator(".chart").get_attribute("aria-label"))
    await page.keyboard.press("End")
    assert f"Lag {lag}" in str(await page.locator(".chart").get_attribute("aria-label"))


async def test_a_group_is_made_changed_and_deleted(open_page: OpenPage, either: Served) -> None:
    async with open_page(either, "/groups/new") as (page, watch):
        watch.allowed |= {404, 422}
        await page.fill("[name=name]", "a name")
        await submit(page)
        assert "may only contain" in await page.locator("#problem-name").inner_text()
        await page.fill("[name=name]", "made_group")
        await page.fill("[name=retries]", "3")
        await submit(page)
        await changed(page)
        await page.goto(either.at("/groups/made_group/edit"))
        await page.fill("[name=retries]", "5")
        await page.select_option("[name=enabled]", "false")
        await submit(page, "form.form button")
        assert await page.locator(".preview tbody tr").count() >= 2
        await submit(page, ".preview button.primary")
        await changed(page)
        async with Admin(either.namesrv) as admin:
            for broker in await admin.brokers():
                config = await broker.group("made_group")
                assert (config.retry_max_times, config.consume_enable) == (5, False)
        await page.goto(either.at("/groups?q=made_group"))
        assert "disabled" in await row(page, "made_group").inner_text()
        await page.goto(either.at("/groups/made_group/delete"))
        await page.fill("[name=confirm]", "made_group")
        await submit(page, "button.danger")
        await changed(page)
        await page.goto(either.at("/groups?q=made_group"))
        assert await page.locator("main tbody tr").count() == 0
        answer = await page.goto(either.at("/groups/made_group"))
        assert answer is not None
        assert answer.status == 404


async def test_settings_on_which_brokers_do_not_agree(open_page: OpenPage, ours: Served) -> None:
    async with Admin(ours.namesrv) as admin, open_page(ours, None) as (page, _):
        one, other = await admin.brokers()
        for broker in (one, other):
            await broker.put_group(SubscriptionGroupConfig("disputed"))
        await page.goto(ours.at("/groups/disputed?tab=settings"))
        assert f"The same on all brokers: {one.name}, {other.name}" in await main_text(page)
        assert await page.locator("main thead th").count() == 2
        await other.put_group(SubscriptionGroupConfig("disputed", retry_max_times=3))
        await page.reload()
        assert "do not agree" in await page.locator(".note.warn").inner_text()
        assert (await row(page, "retryMaxTimes").locator("td").all_inner_texts())[1:] == ["16", "3"]


async def test_a_reset_does_what_its_preview_says(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "page_reset", 2)
        broker = (await admin.brokers())[0].name
        place = MessageQueue("page_reset", broker, 1)
        async with Producer(either.namesrv, group="resetter", options=ClientOptions(timing=QUICK)) as producer:
            for number in range(10):
                await producer.send(Message("page_reset", b"%d" % number), queue=place)
        await consume(either.namesrv, "page_resetting", "page_reset", 10)
    async with open_page(either, None) as (page, _):
        # Ahead: nothing is left to skip.
        await _preview(page, either, "to=end", (0, 0))
        # Ten minutes back: all of them again.
        await _preview(page, either, "to=time&time=-10m", (10, 0))
        # One queue, to an offset in it.
        await _preview(page, either, f"to=offset&broker={broker}&queue=1&offset=6", (4, 0))
        rows = page.locator(".preview tbody tr")
        assert await rows.count() == 1
        assert (await rows.locator("td").all_inner_texts())[4:] == ["10", "6", "4", "0"]
        await page.fill("[name=confirm]", "page_resetting")
        await submit(page, "button.danger")
        await changed(page)
        assert "10 → 6" in await main_text(page)
        await page.goto(either.at("/groups/page_resetting"))
        assert await page.locator("[data-cell=lag]").first.inner_text() == "4"
        # To the end while it is offline: those four are skipped; and back again.
        await _preview(page, either, "to=end", (0, 4))
        assert "No member is online" in await main_text(page)
        await _preview(page, either, f"to=offset&broker={broker}&queue=1&offset=7", (0, 1))
        await page.fill("[name=confirm]", "page_resetting")
        await submit(page, "button.danger")
        await changed(page)
    async with online(either.namesrv, "page_resetting", "page_reset", "reads-again") as read:
        await eventually(_length(read), lambda count: count >= 3)
        async with open_page(either, "/groups/page_resetting") as (page, _):
            await reload_until(page, page.locator("[data-cell=lag]").first.inner_text, lambda lag: lag == "0")
    assert sorted(read) == [b"7", b"8", b"9"]  # exactly those


async def _preview(page: Page, served: Served, query: str, expected: tuple[int, int]) -> None:
    """(how many come again, how many are skipped)"""
    await page.goto(served.at(f"/groups/page_resetting/reset?topic=page_reset&{query}"))
    summary = page.locator("[data-repeats]")

    async def shown() -> tuple[int, int]:
        return (
            int(await summary.get_attribute("data-repeats") or -1),
            int(await summary.get_attribute("data-skips") or -1),
        )

    # The consumer's last commit may be on its way.
    assert await reload_until(page, shown, lambda found: found == expected) == expected


async def test_dead_letters_have_an_outcome_each(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        for topic in ("page_kept", "page_gone"):
            await make_topic(admin, topic, 1)
        kept = [Message("page_kept", b"=%d+1" % n, tag="t", keys=["k"], properties={"region": "eu"}) for n in range(3)]
        await send_all(either.namesrv, kept)
        await send_all(either.namesrv, [Message("page_gone", b"gone")])
        await make_dead_letters(admin, "page_fails", "page_kept", 3)
        await make_dead_letters(admin, "page_fails", "page_gone", 1)
        await listed(admin, "%DLQ%page_fails", 4)
        await delete_topic(admin, "page_gone")
        async with open_page(either, "/") as (page, _):
            link = page.locator("a[href$='/dead-letters/page_fails']")
            await reload_until(page, link.count, lambda count: count == 1)
            await link.click()
            await page.wait_for_url("**/dead-letters/page_fails")
            assert await page.locator("main tbody tr").count() == 4
            chosen = [row(page, "gone"), row(page, "=0+1"), row(page, "=1+1")]
            for letter in chosen:
                await letter.locator("[name=ids]").check()
            await submit(page)
            assert await page.locator(FAILED).count() == 1
            assert await page.locator(DONE).count() == 0
            assert await page.locator("tbody .state.ok").count() == 2
            assert "page_gone" in await page.locator("tbody tr").filter(has=page.locator(".state.bad")).inner_text()
            await listed(admin, "page_kept", 5)
            copies = [
                item for item in (await newest(admin, "page_kept")).messages if "DLQ_COPIED_FROM" in item.properties
            ]
            assert sorted(item.body for item in copies) == [b"=0+1", b"=1+1"]
            for item in copies:
                assert (item.tag, list(item.keys), item.properties["region"]) == ("t", ["k"], "eu")
            exported = await page.context.request.get(either.at("/dead-letters/page_fails/export?form=csv"))
            lines = (await exported.text()).splitlines()
            assert len(lines) == 5
            assert not [line for line in lines if ",=" in line or '"=' in line]
            assert sum(",'=" in line for line in lines) == 3


async def test_nothing_selected_sends_nothing(open_page: OpenPage, ours: Served) -> None:
    async with open_page(ours, "/dead-letters/failing") as (page, watch):
        watch.allowed.add(422)
        before = await column(page, 3)
        await submit(page)
        assert "Select at least one" in await main_text(page)
        assert await column(page, 3) == before
        await page.locator("[data-all]").check()
        assert await page.locator("[name=ids]:checked").count() == len(before)


async def test_a_message_is_handed_to_a_member(open_page: OpenPage, either: Served) -> None:
    async with Admin(either.namesrv) as admin:
        await make_topic(admin, "handed", 1)
        (sent,) = await send_all(either.namesrv, [Message("handed", b"once more")])
        await listed(admin, "handed", 1)
    async with online(either.namesrv, "takers", "handed", "the-taker") as read:
        await eventually(_length(read), lambda count: count == 1)
        async with open_page(either, f"/messages/{sent.message_id}/hand-over?topic=handed") as (page, _):
            await reload_until(page, row(page, "the-taker").count, lambda count: count == 1)
            async with page.expect_navigation():
                await row(page, "the-taker").locator("button").click()
            await changed(page)
            assert "CR_SUCCESS" in await main_text(page)
        assert read == [b"once more", b"once more"]
