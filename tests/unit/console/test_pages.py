"""Pages: complete, escaped, in both languages; changes with a preview first and an outcome for each part after."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
from tests.support.asgi import AsgiClient
from tests.unit.console.conftest import HOSTILE, Console, Prepared, start

from rocketline.admin.tail import Tail
from rocketline.client import Producer
from rocketline.console.access import Person, Role
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.message import Message
from rocketline.testing import LocalCluster

PAGES = [
    "/", "/brokers", "/brokers/broker-a", "/brokers/broker-a?tab=settings", "/brokers/broker-a?tab=replication",
    "/brokers/broker-a/writing", "/brokers/broker-a/settings?name=fileReservedTime", "/topics",
    "/topics?all=true&sort=-lag",
    "/topics?q=nothing", "/topics/orders", "/topics/orders?tab=groups", "/topics/orders?tab=settings", "/topics/new",
    "/topics/orders/edit", "/topics/orders/edit?readQueues=1&writeQueues=1&perm=6", "/topics/orders/delete",
    "/topics/orders/messages", "/topics/orders/messages?lines=true", "/topics/orders/messages?key=k-3",
    "/topics/orders/send",
    "/topics/orders/messages?broker=broker-a&queue=0&offset=0", "/topics/orders/live", "/messages", "/messages?id=nothing",
    "/groups", "/groups?all=true", "/groups/billing", "/groups/billing?tab=members", "/groups/billing?tab=settings",
    "/groups/new", "/groups/billing/edit?retries=3&enabled=false", "/groups/billing/delete", "/groups/billing/reset",
    "/groups/billing/reset?topic=orders&to=end", "/dead-letters", "/dead-letters/mailer", "/dead-letters/none", "/traces",
    "/traces/NOTHING", "/delayed", "/transactions", "/producers", "/charts", "/charts?span=day", "/access",
    "/access/users/new", "/access/rules/new", "/audit",
]  # fmt: skip
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE)


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_every_page_is_drawn(admin_client: AsgiClient, prepared: Prepared, language: str) -> None:
    admin_client.cookies |= {"rl_language": language, "rl_theme": "dark", "rl_zone": "Asia/Shanghai"}
    ids = [f"/messages/{prepared.hostile_id}?topic=orders&view={view}" for view in ("", "text", "hex")]
    for path in [*PAGES, *ids, f"/messages/{prepared.message_id}?topic=orders"]:
        answer = await admin_client.get(f"/c/default{path}")
        assert answer.status == 200, (path, answer.shown)
        assert 'class="problem"' not in answer.text, path
        assert f'lang="{"zh-CN" if language == "zh" else "en"}" data-theme="dark"' in answer.text
        _check_harmless(answer.text, path)
    for path in ("/settings", "/api/docs"):
        assert (await admin_client.get(path)).status == 200


def _check_harmless(html: str, path: str) -> None:
    assert HOSTILE not in html, path
    found = INLINE.search(html)
    assert found is None, (path, html[found.start() - 40 : found.end() + 40] if found else "")


async def test_hostile_parameters_are_text(admin_client: AsgiClient) -> None:
    quoted = "%3Cscript%3Ealert(1)%3C%2Fscript%3E"
    for path in (
        f"/topics?q={quoted}", f"/topics/{quoted}", f"/groups/{quoted}", f"/messages?id={quoted}", f"/traces/{quoted}",
        f"/dead-letters/{quoted}", f"/topics/orders/messages?where={quoted}", f"/topics/orders/messages?key={quoted}",
        f"/topics/orders/messages?begin={quoted}", f"/brokers/{quoted}", f"/audit?q={quoted}", f"/{quoted}",
    ):  # fmt: skip
        answer = await admin_client.get(f"/c/default{path}")
        assert answer.status < 500, path
        _check_harmless(answer.text, path)


async def test_a_topic_lives(admin_client: AsgiClient) -> None:
    created = await admin_client.post("/c/default/topics/new", {"name": "short", "queues": "2"})
    assert 'data-result="ok"' in created.text
    again = await admin_client.post("/c/default/topics/new", {"name": "short", "queues": "2"})
    assert (again.status, "There is a topic short already" in again.shown) == (409, True)
    assert 'value="short"' in again.text
    bad = await admin_client.post("/c/default/topics/new", {"name": HOSTILE, "queues": "2"})
    assert (bad.status, "may only contain" in bad.shown) == (422, True)
    assert HOSTILE not in bad.text
    preview = await admin_client.get("/c/default/topics/short/edit?readQueues=1&writeQueues=1&perm=6")
    assert "Read queues 2 1" in preview.shown
    changed = await admin_client.post(
        "/c/default/topics/short/edit", {"readQueues": "1", "writeQueues": "1", "perm": "6"}
    )
    assert 'data-result="ok"' in changed.text
    wrong = await admin_client.post("/c/default/topics/short/delete", {"confirm": "shirt"})
    assert wrong.status == 422
    assert "short" in (await admin_client.get("/c/default/topics")).shown
    deleted = await admin_client.post("/c/default/topics/short/delete", {"confirm": "short"})
    assert 'data-result="ok"' in deleted.text
    assert "short" not in (await admin_client.get("/c/default/topics")).shown
    audit = (await admin_client.get("/c/default/audit")).shown
    assert all(word in audit for word in ("create topic", "change topic", "delete topic"))


async def test_closing_queues_with_messages_warns(admin_client: AsgiClient) -> None:
    preview = await admin_client.get("/c/default/topics/orders/edit?readQueues=1&writeQueues=1&perm=6")
    assert "Messages in queues that would not be read any more: broker-a, queue 1" in preview.shown


async def test_a_form_sent_twice_acts_once(admin_client: AsgiClient) -> None:
    form = {"body": "once", "idempotencyKey": "abc", "keys": "once"}
    first = await admin_client.post("/c/default/topics/paid/send", form)
    second = await admin_client.post("/c/default/topics/paid/send", form)
    assert first.shown == second.shown
    found = await admin_client.get("/api/v1/c/default/topics/paid/messages?key=once")
    assert len(found.json["items"]) == 1


async def test_a_message_is_sent_and_found(admin_client: AsgiClient) -> None:
    form = {"body": '{"名": "值"}', "tag": "t", "keys": "a b", "properties": "x=1\ny=2"}
    sent = await admin_client.post("/c/default/topics/paid/send", form)
    assert 'data-result="ok"' in sent.text
    (item,) = (await admin_client.get("/api/v1/c/default/topics/paid/messages?key=b")).json["items"]
    assert (item["tag"], item["keys"], item["properties"]["y"]) == ("t", ["a", "b"], "2")
    body = await admin_client.get(f"/c/default/messages/{item['id']}/body?topic=paid")
    assert body.body.decode() == '{"名": "值"}'
    bad = await admin_client.post("/c/default/topics/paid/send", {"body": "x", "properties": "no equals"})
    assert (bad.status, "no name=value" in bad.shown) == (422, True)
    lost = await admin_client.post("/c/default/topics/missing/send", {"body": "x"})
    assert lost.status == 404


async def test_conditions(admin_client: AsgiClient) -> None:
    path = "/api/v1/c/default/topics/orders/messages?where="
    found = (await admin_client.get(path + "amount%20%3E%2015%20AND%20body.region%20%3D%20'eu'")).json
    assert [item["properties"]["amount"] for item in found["items"]] == ["19", "17"]
    assert found["complete"]
    wrong = await admin_client.get("/c/default/topics/orders/messages?where=amount%20%3E%20%3E%203")
    assert wrong.status == 422
    assert "<mark>" in wrong.text
    assert "amount &gt; &gt; 3" in wrong.text


async def test_pages_of_messages_are_newest_first_and_go_on(admin_client: AsgiClient) -> None:
    seen: list[int] = []
    cursor = ""
    while True:
        page = (await admin_client.get(f"/api/v1/c/default/topics/orders/messages?most=8&cursor={cursor}")).json
        seen += [item["storedMs"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert len(seen) == 21
    assert seen == sorted(seen, reverse=True)


async def test_an_offset_before_the_oldest_shows_the_way(admin_client: AsgiClient) -> None:
    answer = await admin_client.get("/c/default/topics/orders/messages?broker=broker-a&queue=0&offset=999999")
    assert "This queue has offsets from 0 to" in answer.shown
    assert "offset=0" in answer.text


async def test_a_group_is_moved_as_previewed(admin_client: AsgiClient) -> None:
    preview = (await admin_client.get("/api/v1/c/default/groups/billing/reset?topic=orders&to=end")).json
    assert preview["skips"] == 21
    refused = await admin_client.post(
        "/c/default/groups/billing/reset", {"topic": "orders", "to": "end", "confirm": "no"}
    )
    assert refused.status == 422
    moved = await admin_client.post(
        "/c/default/groups/billing/reset", {"topic": "orders", "to": "end", "confirm": "billing"}
    )
    assert 'data-result="ok"' in moved.text
    after = (await admin_client.get("/api/v1/c/default/groups/billing")).json
    assert after["lag"] == 0
    back = {"topic": "orders", "to": "oldest", "confirm": "billing"}
    assert (await admin_client.call("POST", "/api/v1/c/default/groups/billing/reset", back)).json["ok"]


async def test_letters_are_sent_again_with_an_outcome_each(admin_client: AsgiClient) -> None:
    letters = (await admin_client.get("/api/v1/c/default/dead-letters/mailer")).json["items"]
    ids = [letters[0]["message"]["offsetId"], "7F00000100002A9F0000000000FFFFFF"]
    result = await admin_client.post("/c/default/dead-letters/mailer", {"ids": ids})
    assert 'data-result="failed"' in result.text
    assert "1 of 2 failed" in result.shown
    none = await admin_client.post("/c/default/dead-letters/mailer", {})
    assert (none.status, "Select at least one" in none.shown) == (422, True)


async def test_a_csv_runs_no_formula(admin_client: AsgiClient) -> None:
    lines = (await admin_client.get("/c/default/dead-letters/mailer/export?form=csv")).text.splitlines()
    assert lines[0].startswith("id,topic,broker")
    assert lines[1].endswith(",'=1+1")


async def test_settings_that_could_harm_are_not_offered(admin_client: AsgiClient) -> None:
    for name in ("storePathRootDir", "rocketmqHome", "filterServerNums"):
        answer = await admin_client.get(f"/c/default/brokers/broker-a/settings?name={name}")
        assert answer.status == 422
        change = {"name": name, "value": "/tmp/x"}
        refused = await admin_client.call("POST", "/api/v1/c/default/brokers/broker-a/settings", change)
        assert refused.status == 422
    changed = await admin_client.post(
        "/c/default/brokers/broker-a/settings", {"name": "fileReservedTime", "value": "71"}
    )
    assert "72 → 71" in changed.shown


async def test_the_tail_shows_what_arrives_and_resumes(console: Console, prepared: Prepared) -> None:
    client = console.as_role(Role.READER)

    async def feed() -> AsyncIterator[None]:
        async with Producer(prepared.namesrv, group="feed") as producer:
            while True:
                await producer.send(Message("paid", HOSTILE.encode(), tag="live"))
                yield

    async def run() -> None:
        async for _ in feed():
            await asyncio.sleep(0.05)

    feeding = asyncio.create_task(run())
    try:
        events = await client.events("/c/default/topics/paid/tail?tag=live", 2)
    finally:
        feeding.cancel()
    assert {name for name, _ in events} == {"batch"}
    assert events[0][1]["items"][0]["preview"] == HOSTILE
    assert not console.desk.limits._running  # the viewer left, and its tail with it


async def test_the_tail_tells_at_once_from_where_it_follows(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    async def arrive(*_: object) -> None:
        raise AssertionError("it waits for a message first")

    monkeypatch.setattr(Tail, "next_batch", arrive)
    client = console.as_role(Role.READER)
    events = await client.events("/c/default/topics/paid/tail", 1, with_quiet=True)
    assert events[0][0] == "quiet"


async def test_cells_are_those_of_the_page(admin_client: AsgiClient) -> None:
    ((name, texts),) = await admin_client.events("/c/default/groups/cells", 1)
    page = await admin_client.get("/c/default/groups")
    assert name == "cells"
    assert texts
    assert {key.removesuffix("@") for key in texts} == set(re.findall(r'data-cell="([^"]+)"', page.text))
    assert texts["partial@"] == "badge"  # how a cell looks changes with its text


async def test_a_silent_broker_is_named() -> None:
    config = {"brokerClusterName": "pair"}
    async with LocalCluster(brokers=2, config=config) as cluster, _on(cluster.namesrv) as console:
        client = console.as_role(Role.VIEWER)
        assert "does not answer" not in (await client.get("/c/default/")).shown
        address = cluster.brokers[1].address
        await cluster.stop_broker("broker-b")
        console.desk.forget_kept("default")
        console.desk.admin_of("default", Person("viewer", Role.VIEWER)).forget()
        shown = (await client.get("/c/default/")).shown
        assert "does not answer" in shown
        assert address in shown


def _on(namesrv: str) -> AbstractAsyncContextManager[Console]:
    return start(ConsoleConfig((ClusterPlace("default", namesrv),)))


async def test_what_cannot_be_recalled_is_not_offered(console: Console, prepared: Prepared) -> None:
    client = console.as_role(Role.ADMIN)
    off = await client.get("/c/default/delayed")
    assert 'name="handle"' not in off.text
    assert "recallMessageEnable" in off.shown
    assert "/brokers/broker-a/settings?name=recallMessageEnable" in off.text
    form = await client.get("/c/default/brokers/broker-a/settings?name=recallMessageEnable")
    assert form.status == 200
    try:
        await client.post("/c/default/brokers/broker-a/settings", {"name": "recallMessageEnable", "value": "true"})
        on = await client.get("/c/default/delayed")
        assert 'name="handle"' in on.text
        assert "recallMessageEnable" not in on.shown
    finally:
        await client.post("/c/default/brokers/broker-a/settings", {"name": "recallMessageEnable", "value": "false"})


async def test_masked_parts_are_seen_by_nobody(prepared: Prepared) -> None:
    config = ConsoleConfig((ClusterPlace("default", prepared.namesrv),), masks=("body.secret", "property:amount"))
    async with start(config) as console:
        client = console.as_role(Role.ADMIN)
        pages = [
            f"/c/default/messages/{prepared.message_id}?topic=orders", "/c/default/topics/orders/messages?key=k-19",
            f"/c/default/messages/{prepared.message_id}/body?topic=orders", "/c/default/topics/orders/export?tag=new",
        ]  # fmt: skip
        for path in pages:
            answer = await client.get(path)
            assert answer.status == 200
            assert "4111-1111-2222" not in answer.text, path
        assert (await client.get("/c/default/topics/orders/messages?text=4111-1111-2222")).status == 422


async def test_two_clusters_have_urls_of_their_own(prepared: Prepared) -> None:
    places = (ClusterPlace("one", prepared.namesrv), ClusterPlace("two", "127.0.0.1:1"))
    async with start(ConsoleConfig(places)) as console:
        client = console.as_role(Role.VIEWER)
        assert (await client.get("/c/one/topics")).status == 200
        broken = await client.get("/c/two/topics")
        assert (broken.status, "127.0.0.1:1" in broken.shown) == (504, True)
        assert (await client.get("/c/three/topics")).status == 404
