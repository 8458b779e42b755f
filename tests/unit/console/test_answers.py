"""Answers say what is known: what is missing is named, what exists is not replaced, a reset is its preview."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator
from html import unescape

import pytest
from tests.support.asgi import AsgiClient
from tests.unit.console.conftest import Console, Prepared, start

from rocketline.admin import Admin
from rocketline.admin.overview import PROXY_GROUP, topic_ends, topic_summaries
from rocketline.admin.progress import reset
from rocketline.broker.handlers.admin.statistics import MAX_OTHERS
from rocketline.client import Producer, PushConsumer
from rocketline.client.middleware import Proceed
from rocketline.console.access import Role
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.sampler import Sampler, totals
from rocketline.console.samples import COARSE_POINTS, FINE_IN_COARSE, FINE_POINTS, MAX_SERIES, Ring, Samples
from rocketline.message import Message, MessageView
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig, queue_key
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.testing import LocalCluster

API = "/api/v1/c/default"


# Charts


async def test_what_pages_read_is_not_in_the_charts(console: Console) -> None:
    client = console.as_role(Role.READER)
    sampler = console.desk.samplers["default"]
    await sampler._sample()
    before = (await sampler._admin.brokers())[0]
    told = int((await before.runtime_info())["msgGetTotalTodayNow"])
    listed = (await client.get("/api/v1/c/default/topics/orders/messages?most=200")).json["items"]
    assert int((await before.runtime_info())["msgGetTotalTodayNow"]) - told == len(listed) > 0
    assert (await sampler._sample())["out"] == 0


def test_totals_are_kept_however_many_groups_there_are() -> None:
    samples = Samples()
    for number in range(FINE_IN_COARSE):
        values = {f"lag.{group}": 1.0 for group in range(MAX_SERIES + 500)}
        samples.add(number, {"in": 1.0, "lag": 2.0, **values})
    for ring in (samples.fine, samples.coarse):
        assert (ring.last("in"), ring.last("lag"), len(ring.names())) == (1.0, 2.0, MAX_SERIES)


def test_a_series_that_begins_takes_the_place_of_a_silent_one() -> None:
    ring = Ring(3)
    ring.add(1, {f"lag.{group}": 1.0 for group in range(MAX_SERIES)})
    ring.add(2, {"in": 1.0, **{f"lag.{group}": 1.0 for group in range(MAX_SERIES - 1)}})
    assert ring.last("in") == 1.0
    assert f"lag.{MAX_SERIES - 1}" not in ring.names()
    assert ring.row("in") == [None, 1.0]


def test_series_of_groups_that_are_gone_are_given_up() -> None:
    samples = Samples()
    samples.add(0, {"in": 1.0, "lag.gone": 1.0})
    for number in range((COARSE_POINTS + 60) * FINE_IN_COARSE):
        samples.add(number, {"in": 1.0})
    assert (samples.fine.names(), samples.coarse.names()) == (["in"], ["in"])


def test_the_newest_value_is_found_around_the_end_of_the_ring() -> None:
    ring = Ring(3)
    for number in range(7):
        ring.add(number, {"a": float(number), **({"b": 9.0} if number == 5 else {})})
    assert (ring.last("a"), ring.last("b"), ring.last("c")) == (6.0, 9.0, None)
    assert FINE_POINTS > 3


def test_a_total_without_the_part_of_a_broker_is_none() -> None:
    values = {"in.a": 1.0, "in.b": 2.0, "out.a": 1.0}
    assert totals(values, ["a", "b"]) == {"in": 3.0}
    assert totals(values, []) == {}


async def test_a_broker_that_begins_has_no_rate_and_totals_wait_for_it(prepared: Prepared) -> None:
    async with Admin(prepared.namesrv) as admin:
        sampler = Sampler(admin)
        assert not {"in", "out"} & (await sampler._sample()).keys()
        assert {"in", "out", "in.broker-a"} <= (await sampler._sample()).keys()


async def test_lags_that_are_looked_at_are_kept(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    import rocketline.console.sampler as module

    async with Admin(prepared.namesrv) as admin:
        for name in ("small", "large"):
            for broker in await admin.brokers():
                await broker.put_group(SubscriptionGroupConfig(f"kept_{name}"))
            await reset(admin, f"kept_{name}", "orders", 0 if name == "large" else -1)
        monkeypatch.setattr(module, "MAX_LAGS", 1)
        sampler = Sampler(admin)
        lags = await sampler._lags()
        assert len(lags) == 2
        assert not math.isnan(lags["lag"])
        sampler._lag_due_s = 0.0
        sampler.watch(["lag.kept_small", "lag.unknown"])
        assert "lag.kept_small" in await sampler._lags()


async def test_names_of_series_are_told_when_asked_for(admin_client: AsgiClient, console: Console) -> None:
    console.desk.samplers["default"].samples.add(1, {"in": 1.0})
    assert (await admin_client.get(f"{API}/series?names=in")).json["names"] == []
    assert "in" in (await admin_client.get(f"{API}/series?allNames=true")).json["names"]


# Not there, or not known


async def test_a_message_on_a_silent_broker_is_not_said_to_be_missing() -> None:
    async with LocalCluster(brokers=2) as cluster:
        async with Admin(cluster.namesrv) as admin:
            for broker in await admin.brokers():
                await broker.put_topic(TopicConfig("both", 1, 1))
        async with start(ConsoleConfig((ClusterPlace("default", cluster.namesrv),))) as console:
            client = console.as_role(Role.READER)
            unknown = "7F00000100002A9F0000000000FFFFFF"
            assert (await client.get(f"{API}/messages/NOTHING?topic=both")).status == 404
            assert (await client.get(f"{API}/messages/{unknown}?topic=both")).status == 404
            await client.get(f"{API}/topics/both/queues")
            await cluster.stop_broker("broker-b")
            for message_id in ("NOTHING", unknown):
                answer = await client.get(f"{API}/messages/{message_id}?topic=both")
                assert answer.status == 504, answer.text
                found = (await client.get(f"{API}/messages?id={message_id}&topic=both")).json
                assert (found["items"], found["complete"], "broker-b" in str(found["partial"])) == ([], False, True)


async def test_the_last_broker_that_leaves_is_shown_as_gone() -> None:
    async with (
        LocalCluster() as cluster,
        start(ConsoleConfig((ClusterPlace("default", cluster.namesrv),))) as console,
    ):
        client = console.as_role(Role.READER)
        assert [row["problem"] for row in (await client.get(f"{API}/overview")).json["brokers"]] == [""]
        await cluster.stop_broker("broker-a")
        console.desk.forget_kept("default")
        for admin, _ in console.desk._admins.values():
            admin.forget()  # as after a few seconds
        answer = await client.get(f"{API}/overview")
        assert answer.status == 200, answer.text
        assert ["no longer registered" in row["problem"] for row in answer.json["brokers"]] == [True]
        assert (answer.json["lag"], answer.json["complete"]) == (None, False)


async def test_a_group_that_exists_is_not_replaced(admin_client: AsgiClient, prepared: Prepared) -> None:
    form = {"name": "fresh", "retries": 3}
    assert (await admin_client.call("POST", f"{API}/groups", form)).json["ok"]
    again = await admin_client.call("POST", f"{API}/groups", {"name": "fresh", "retries": 16})
    assert again.status == 409
    async with Admin(prepared.namesrv) as admin:
        for broker in await admin.brokers():
            assert (await broker.groups())["fresh"].retry_max_times == 3
    await admin_client.get("/c/default/groups/new")
    shown = await admin_client.post("/c/default/groups/new", {"name": "fresh", "retries": 16})
    assert (shown.status, "There is a group fresh already" in shown.shown) == (409, True)


async def test_a_group_is_known_as_soon_as_a_broker_has_it(admin_client: AsgiClient, prepared: Prepared) -> None:
    assert (await admin_client.get(f"{API}/groups/newborn")).status == 404
    async with Admin(prepared.namesrv) as admin:
        for broker in await admin.brokers():
            await broker.put_group(SubscriptionGroupConfig("newborn"))
    assert (await admin_client.get(f"{API}/groups/newborn")).status == 200


async def test_topics_that_the_system_needs_are_not_offered_for_deletion(admin_client: AsgiClient) -> None:
    for name in ("broker-a", "shop", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"):
        page = await admin_client.get(f"/c/default/topics/{name}")
        assert page.status == 200, name
        assert f"/topics/{name}/delete" not in page.text, name
        refused = await admin_client.call("DELETE", f"{API}/topics/{name}", {"confirm": name})
        assert refused.status == 422, name
    assert "/topics/orders/delete" in (await admin_client.get("/c/default/topics/orders")).text


async def test_no_members_is_not_said_where_proxies_are(
    console: Console, admin_client: AsgiClient, prepared: Prepared
) -> None:
    assert (await admin_client.get(f"{API}/groups/mailer/members")).json["problem"] == ""

    async def ignore(message: MessageView) -> None:
        pass

    async with PushConsumer(prepared.namesrv, group=PROXY_GROUP) as proxy:
        proxy.subscribe("paid", "*", ignore)
        await proxy.start()
        console.desk.forget_kept("default")
        view = (await admin_client.get(f"{API}/groups/mailer/members")).json
        assert ("127.0.0.1:" in view["problem"], view["complete"]) == (True, False)


# Resets


@pytest.fixture
async def mover(console: Console, prepared: Prepared) -> AsyncIterator[AsgiClient]:
    async with Admin(prepared.namesrv) as admin:
        for broker in await admin.brokers():
            await broker.put_topic(TopicConfig("moving", 1, 1))
            await broker.put_group(SubscriptionGroupConfig("movers"))
        async with Producer(prepared.namesrv, group="moving") as producer:
            for number in range(10):
                await producer.send(Message("moving", b"%d" % number))
        await reset(admin, "movers", "moving", 0)
    yield console.as_role(Role.OPERATOR)


async def _preview(client: AsgiClient, query: str) -> dict[str, str]:
    page = await client.get(f"/c/default/groups/movers/reset?topic=moving&{query}")
    plan = re.search(r'name="plan" value="([^"]+)"', page.text)
    assert plan is not None
    return {"topic": "moving", "plan": unescape(plan[1]), "confirm": "movers"}


async def _place(client: AsgiClient) -> int:
    (row,) = (await client.get(f"{API}/groups/movers")).json["queues"]
    return int(row["consumed"])


async def test_a_reset_is_its_preview(mover: AsgiClient, prepared: Prepared) -> None:
    end = int((await mover.get(f"{API}/topics/moving/queues")).json["items"][0]["end"])
    form = await _preview(mover, "to=end")
    async with Producer(prepared.namesrv, group="moving") as producer:
        await producer.send(Message("moving", b"later"))
    moved = await mover.post("/c/default/groups/movers/reset", form)
    assert 'data-result="ok"' in moved.text, moved.shown
    assert await _place(mover) == end  # and not behind what came later


async def test_a_reset_of_what_changed_is_refused(mover: AsgiClient, prepared: Prepared) -> None:
    form = await _preview(mover, "to=end")
    async with Admin(prepared.namesrv) as admin:
        await reset(admin, "movers", "moving", -1)
    before = await _place(mover)
    moved = await mover.post("/c/default/groups/movers/reset", form)
    assert (moved.status, "changed meanwhile" in moved.shown) == (409, True)
    assert await _place(mover) == before


@pytest.mark.parametrize("plan", ["x", "eJw=", "eJyrVspQslJKVKoFAA1BAuE="])
async def test_a_plan_that_is_none_is_refused(mover: AsgiClient, plan: str) -> None:
    body = {"topic": "moving", "plan": plan, "confirm": "movers"}
    assert (await mover.call("POST", f"{API}/groups/movers/reset", body)).status == 422


async def test_a_plan_is_for_one_group(mover: AsgiClient) -> None:
    form = await _preview(mover, "to=end")
    body = {"topic": "moving", "plan": form["plan"], "confirm": "billing"}
    assert (await mover.call("POST", f"{API}/groups/billing/reset", body)).status == 422


# Requests to brokers


async def test_what_an_open_page_costs(prepared: Prepared) -> None:
    asked: Counter[int] = Counter()

    async def count(address: str, request: Command, proceed: Proceed) -> Command | None:
        asked[request.code] += 1
        return await proceed(request)

    async def ignore(message: MessageView) -> None:
        pass

    place = ClusterPlace("default", prepared.namesrv, {"middleware": count})
    async with start(ConsoleConfig((place,))) as console:
        for sampler in console.desk.samplers.values():
            await sampler.__aexit__()
        client = console.as_role(Role.READER)
        async with PushConsumer(prepared.namesrv, group="watchers") as consumer:
            consumer.subscribe("orders", "*", ignore)
            await consumer.start()
            page = (await client.get(f"{API}/groups/watchers")).json
            assert page["members"][0]["queues"] is not None
            asked.clear()
            await client.events("/c/default/groups/watchers/cells", 1)
            assert asked[RequestCode.GET_CONSUMER_RUNNING_INFO] == 0
            asked.clear()
            await client.get(f"/c/default/messages/{prepared.message_id}?topic=orders")
            assert asked[RequestCode.QUERY_CONSUMER_OFFSET] == 0
            await client.get("/c/default/topics")
            asked.clear()
            await client.get("/c/default/topics")
            assert asked[RequestCode.GET_TOPIC_STATS_INFO] == 1
            asked.clear()
            await client.get("/c/default/delayed")
            assert asked[RequestCode.GET_TOPIC_STATS_INFO] == 2  # of messages by level and of those by time


async def test_offsets_of_several_topics_come_at_once(prepared: Prepared) -> None:
    async with Admin(prepared.namesrv) as admin:
        (broker,) = await admin.brokers()
        found = await broker.stats_of_topics(["orders", "paid", "unknown", "", "paid"])
        assert {name: len(queues) for name, queues in found.items()} == {"orders": 2, "paid": 2}
        single = await broker.topic_stats("orders")
        assert {queue_key(queue): item for queue, item in found["orders"].items()} == single.offset_table
        summaries = (await topic_summaries(admin)).value
        known = {item.name for item in summaries}
        many = [f"many-{number}" for number in range(MAX_OTHERS + 10)]
        await broker.put_topics([TopicConfig(name, 1, 1) for name in many])
        assert len(await broker.stats_of_topics(many)) == MAX_OTHERS + 1
        admin.forget()
        ends = await topic_ends(admin, (await topic_summaries(admin)).value)
        assert (ends.value.keys(), ends.complete) == (known | set(many), True)  # the others are asked for alone
        await admin.gather(broker.delete_topic(name) for name in many)


async def test_paths_of_the_api(admin_client: AsgiClient) -> None:
    for path in (
        "nameservers", "topics/orders/queues", "topics/orders/groups", "groups/billing/members", "access/users", "findings",
    ):  # fmt: skip
        answer = await admin_client.get(f"{API}/{path}")
        # Without access control there are no accounts.
        assert answer.status == (409 if path == "access/users" else 200), (path, answer.text)
        if answer.status == 200:
            assert isinstance(answer.json["items"], list)
    lost = await admin_client.get(f"{API}/groups/billing/members/nobody")
    assert (lost.status, lost.json["title"]) == (404, "This member does not answer")


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/topics/orders/messages?queue=99", 422, "numbered from 0 to 1"),
        ("/topics/orders/messages?queue=99&offset=0&broker=broker-a", 422, "numbered from 0 to 1"),
        ("/topics/orders/messages?begin=2026-11-18T12:00&end=2026-11-18T11:00", 422, "end is before the beginning"),
        ("/traces/AB?topic=mistyped", 404, "mistyped"),
        ("/access/users", 409, "Access control is off"),
        ("/access/rules", 409, "Access control is off"),
    ],
)
async def test_what_cannot_be_asked_is_named(admin_client: AsgiClient, path: str, status: int, words: str) -> None:
    answer = await admin_client.get(f"/api/v1/c/default{path}")
    assert (answer.status, words in answer.text) == (status, True), answer.text
    if not path.startswith("/access"):
        assert words in (await admin_client.get(f"/c/default{path}")).shown


async def test_what_is_no_id_is_not_looked_up(admin_client: AsgiClient) -> None:
    answer = await admin_client.call("POST", "/api/v1/c/default/transactions/check", {"offsetId": "zz"})
    assert (answer.status, "zz" in answer.json["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("users", {"name": "shop", "password": "x"}),
        ("rules", {"subject": "shop", "resource": "Topic:a", "actions": ["Pub"]}),
    ],
)
async def test_without_access_control_nobody_gets_an_account(
    admin_client: AsgiClient, path: str, change: dict[str, object]
) -> None:
    form = await admin_client.get(f"/c/default/access/{path}/new")
    assert "Access control is off" in form.shown
    assert "<textarea" not in form.text
    assert 'name="subject"' not in form.text
    answer = await admin_client.call("POST", f"/api/v1/c/default/access/{path}", change)
    assert (answer.status, answer.json["title"]) == (409, "Access control is off, so there are no accounts")
    assert answer.json["hint"] == "rocketline up --secure"
