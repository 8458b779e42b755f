"""The metrics page of a broker that works: Apache's names and labels, the numbers, and the dashboard drawn from it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.metrics_traffic import SETTINGS, scrape_until, traffic
from tests.support.patience import PATIENCE_S
from tests.support.scraping import Scraped, fetch, scrape

from rocketline import ConsumeFrom, Message, Producer, PullConsumer
from rocketline.admin import Admin
from rocketline.testing import LocalCluster

ROOT = Path(__file__).parents[2]
APACHE = ROOT / "tests" / "golden" / "metrics" / "apache-5.4.0.txt"
DASHBOARD = ROOT / "docs" / "grafana" / "rocketline.json"
ABSENT = {"rocketmq_pop_buffer_scan_time_consume_milliseconds"}
"""There is no buffer that would be scanned."""


def is_all_there(page: dict[str, Scraped]) -> bool:
    names = (line.split()[0] for line in APACHE.read_text().splitlines())
    return all(name in page or name in ABSENT for name in names)


@pytest.fixture
async def page() -> Any:
    async with LocalCluster(config=SETTINGS) as cluster, traffic(cluster.namesrv):
        yield await scrape_until(cluster.brokers[0].metrics_address, is_all_there)


async def test_names_types_and_labels_are_those_of_apache(page: dict[str, Scraped]) -> None:
    missing = []
    for line in APACHE.read_text().splitlines():
        name, kind, labels = line.split()
        if name in ABSENT:
            continue
        family = page[name]
        assert family.kind == kind, name
        missing += [
            (sample.name, label)
            for sample in family.samples
            for label in labels.split(",")
            if label not in sample.labels
        ]
    assert missing == []


async def test_numbers_are_what_was_sent_and_consumed(page: dict[str, Scraped]) -> None:
    def value(name: str, **labels: str) -> float:
        return page[name].value(**labels)

    messages_in = {
        (sample.labels["topic"], sample.labels["message_type"]): sample.value
        for sample in page["rocketmq_messages_in_total"].samples
    }
    assert messages_in["orders", "normal"] == 5
    assert messages_in["orders", "fifo"] == 1
    assert messages_in["orders", "delay"] == 1
    assert messages_in["rmq_sys_wheel_timer", "delay"] == 2
    assert messages_in["RMQ_SYS_TRANS_HALF_TOPIC", "transaction"] == 3
    sizes = {"topic": "orders", "message_type": "fifo", "le": "4096.0"}
    assert [
        sample.value
        for sample in page["rocketmq_message_size"].samples
        if sample.name.endswith("_bucket") and {**sizes, "le": sample.labels.get("le")}.items() <= sample.labels.items()
    ] == [0, 1, 1, 1, 1, 1, 1]
    assert value("rocketmq_messages_out_total", topic="orders", consumer_group="billing") >= 7
    assert value("rocketmq_send_to_dlq_messages_total", topic="orders", consumer_group="billing") == 1
    assert value("rocketmq_commit_messages_total", topic="paid") == 1
    assert value("rocketmq_rollback_messages_total", topic="paid") == 1
    assert value("rocketmq_half_messages", topic="paid") == 1
    assert value("rocketmq_timing_messages", topic="later") == 1
    assert value("rocketmq_timer_message_snapshot", timer_bound_s="14400") == 1
    assert value("rocketmq_timer_dequeue_total", topic="later") == 1
    assert value("rocketmq_consumer_connections", consumer_group="popper", consume_mode="pop") == 1
    assert value("rocketmq_pop_revive_retry_messages_total", consumer_group="popper", topic="orders") >= 1
    assert value("rocketmq_storage_message_reserve_time_milliseconds") >= 0
    assert value("rocketline_storage_writable") == 1
    sent = {"request_code": "send_message_v2", "response_code": "success", "result": "success"}
    counts = [
        sample.value
        for sample in page["rocketmq_rpc_latency_milliseconds"].samples
        if sample.name.endswith("_count") and sent.items() <= sample.labels.items()
    ]
    assert sum(counts) == 5 + 1 + 1 + 2 + 3


async def test_the_parser_of_prometheus_takes_the_page() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
    async with LocalCluster(config=SETTINGS) as cluster, traffic(cluster.namesrv):
        address = cluster.brokers[0].metrics_address
        plain = await fetch(address)
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert len(list(parser.text_string_to_metric_families(plain.text))) > 40
        modern = await fetch(address, accept="application/openmetrics-text;version=1.0.0")
        assert modern.headers["content-type"].startswith("application/openmetrics-text")
        names = {family.name for family in openmetrics.text_string_to_metric_families(modern.text)}
        assert {"rocketmq_messages_in", "rocketmq_rpc_latency_milliseconds"} <= names


async def test_what_is_deleted_has_no_series() -> None:
    async with LocalCluster(config=SETTINGS) as cluster, traffic(cluster.namesrv):
        address = cluster.brokers[0].metrics_address
        await scrape_until(address, is_all_there)
        async with Admin(cluster.namesrv) as admin:
            (broker,) = await admin.brokers()
            await broker.delete_topic("paid")
            await broker.delete_group("popper", with_offsets=True)
        page = await scrape(address)
        for name, family in page.items():
            assert "paid" not in family.label_values("topic"), name
            if name != "rocketmq_consumer_connections":  # its member is still there
                assert "popper" not in family.label_values("consumer_group"), name
        assert "orders" in page["rocketmq_messages_in_total"].label_values("topic")


SWITCHES = {
    "enableStatsMetrics": "rocketmq_broker_permission",
    "enableConnectionMetrics": "rocketmq_producer_connections",
    "enableRemotingMetrics": "rocketmq_rpc_latency_milliseconds",
    "enableRequestMetrics": "rocketmq_messages_in_total",
    "enableLagAndDlqMetrics": "rocketline_lag_left_out",
    "enableTransactionMetrics": "rocketmq_half_messages",
    "enableMessageStoreMetrics": "rocketmq_storage_size_bytes",
    "enablePopMetrics": "rocketmq_pop_offset_buffer_size",
}
"""Each with something that it switches off."""


@pytest.mark.parametrize("only", SWITCHES)
async def test_only_what_is_switched_on_is_measured(only: str) -> None:
    settings = {**SETTINGS, **{switch: switch == only for switch in SWITCHES}}
    async with LocalCluster(config=settings) as cluster, traffic(cluster.namesrv):
        page = await scrape_until(cluster.brokers[0].metrics_address, lambda page: SWITCHES[only] in page)
    assert SWITCHES.values() & page.keys() == {SWITCHES[only]}


async def test_topics_over_the_limit_are_added_up() -> None:
    settings = {**SETTINGS, "metricsOtelCardinalityLimit": 3}
    async with LocalCluster(config=settings) as cluster, Producer(cluster.namesrv, group="shop") as producer:
        for number in range(6):
            await producer.send(Message(f"topic-{number}", b"x"))
        family = (await scrape(cluster.brokers[0].metrics_address))["rocketmq_messages_in_total"]
        assert family.label_values("topic") == {"topic-0", "topic-1", "topic-2", "__other__"}
        assert family.value(topic="__other__") == 3


async def test_lag_of_groups_that_read_hold_and_are_away() -> None:
    async with LocalCluster(config=SETTINGS) as cluster, Producer(cluster.namesrv, group="shop") as producer:
        address, billing = cluster.brokers[0].metrics_address, {"consumer_group": "billing", "topic": "orders"}
        await producer.send(Message("orders", b"the first"), queue=lambda queues, message: queues[0])
        async with PullConsumer(cluster.namesrv, group="billing", from_where=ConsumeFrom.FIRST) as consumer:
            await consumer.subscribe("orders")
            async with asyncio.timeout(PATIENCE_S):
                while not await consumer.poll(timeout=1.0):
                    pass
            await consumer.commit()
            for _ in range(3):
                await producer.send(Message("orders", b"more"), queue=lambda queues, message: queues[0])
            held = await scrape_until(
                address,
                lambda page: page["rocketmq_consumer_inflight_messages"].value(**billing) == 3,
            )
            assert held["rocketmq_consumer_lag_messages"].value(**billing) == 3
            assert held["rocketmq_consumer_ready_messages"].value(**billing) == 0
        for _ in range(2):
            await producer.send(Message("orders", b"unread"), queue=lambda queues, message: queues[0])
        away = await scrape(address)
        assert "rocketmq_consumer_connections" not in away, "nobody is connected any more"
        assert away["rocketmq_consumer_lag_messages"].value(**billing) >= 2
        assert away["rocketmq_consumer_lag_latency_milliseconds"].value(**billing) >= 0
        assert away["rocketmq_consumer_ready_messages"].value(**billing) == 2


# The dashboard


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    inside = [panel for row in board["panels"] for panel in row.get("panels", ())]
    return [panel for panel in (*board["panels"], *inside) if "targets" in panel]


FUNCTIONS = {
    "sum", "max", "min", "avg", "count", "rate", "increase", "histogram_quantile", "topk", "by", "clamp_min", "on",
    "group_left", "time", "label_values",
}  # fmt: skip


def selectors(query: str) -> list[tuple[str, set[str]]]:
    """(metric, labels it is matched by) of everything a query reads."""
    found = []
    for name, matchers in re.findall(r"\b([a-z_:][a-zA-Z0-9_:]*)\b(?:\{([^}]*)\})?(?!\s*\()", _without_lists(query)):
        if name not in FUNCTIONS:
            found.append((name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))))
    return found


def _without_lists(query: str) -> str:
    """Without the lists of labels, strings and ranges, in which there are words that are no metrics."""
    query = re.sub(r"\b(?:by|on|group_left|without)\s*\([^)]*\)", "", query)
    return re.sub(r"\[[^\]]*\]", "", re.sub(r'"[^"]*"', '""', query))


def grouped_by(query: str) -> set[str]:
    lists = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query)
    return {label.strip() for labels in lists for label in labels.split(",") if label.strip()}


def test_a_query_is_taken_apart() -> None:
    query = 'sum by (topic, le) (rate(m_bucket{cluster=~"$cluster",le!="x"}[5m])) / on(node_id) clamp_min(n_total, 1)'
    assert selectors(query) == [("m_bucket", {"cluster", "le"}), ("n_total", set())]
    assert grouped_by(query) == {"topic", "le", "node_id"}


async def test_every_panel_of_the_dashboard_shows_something_that_exists(page: dict[str, Scraped]) -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    labels: dict[str, set[str]] = {}
    for family in page.values():
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    shown = panels(board)
    assert len(shown) > 20
    for panel in shown:
        for target in panel["targets"]:
            read = selectors(target["expr"])
            assert read, panel["title"]
            for name, matched in read:
                assert name in labels, (panel["title"], name)
                assert matched <= labels[name], (panel["title"], name)
            known = set.intersection(*(labels[name] for name, _ in read))
            assert grouped_by(target["expr"]) <= known, panel["title"]
            assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= grouped_by(target["expr"])


def test_variables_of_the_dashboard_are_labels_it_uses() -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    names = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", json.dumps([panel["targets"] for panel in panels(board)])))
    assert used - {"__rate_interval", "__range"} <= names
    identifiers = [panel["id"] for panel in board["panels"]]
    assert len(identifiers) == len(set(identifiers))
