"""`rocketline bench` on a cluster: what it counts is true, and it ends."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from rocketline.cli.access import cluster_access
from rocketline.cli.bench.commands import _measure
from rocketline.cli.bench.work import Target
from rocketline.cli.tables import Output
from rocketline.testing import LocalCluster

Called = Callable[..., Any]


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with LocalCluster() as cluster:
        yield cluster.namesrv


def rows(result: Any) -> list[dict[str, Any]]:
    assert result.returncode == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_what_was_sent_is_consumed(called: Called, namesrv: str) -> None:
    (sent,) = rows(called("bench", "send", "--count", 50, "--size", 100, "-n", namesrv, "-o", "json"))
    assert (sent["messages"], sent["failed"], sent["bytes"], sent["mean_size"]) == (50, 0, 5000, 100)
    assert 0 < sent["p50_ms"] <= sent["p99_ms"] <= sent["p99_9_ms"] <= sent["max_ms"]
    assert sent["messages_per_s"] > 0
    (read,) = rows(called("bench", "consume", "--namesrv", namesrv, "-o", "json"))
    assert (read["messages"], read["bytes"]) == (51, 5100), "with the one that was sent first, to find the way"


def test_every_message_arrives_and_is_timed(called: Called, namesrv: str) -> None:
    sent, received = rows(called("bench", "latency", "--count", 5, "--rate", 1000, "-n", namesrv, "-o", "json"))
    assert (sent["messages"], received["messages"], received["failed"]) == (5, 5, 0)
    assert received["max_ms"] > 0


def test_time_ends_it_too_and_loopback_needs_no_cluster(called: Called) -> None:
    (sent,) = rows(called("bench", "send", "--loopback", "--time", "100ms", "-o", "json"))
    assert (sent["messages"] > 0, sent["seconds"] >= 0.1) == (True, True)


def test_one_that_is_stopped_shows_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    async def stopped(target: Target) -> None:
        target.measure("send").messages = 3
        signal.raise_signal(signal.SIGINT)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(typer.Exit) as ended:
        _measure(cluster_access("127.0.0.1:9876"), "T", Output.json, stopped)
    assert ended.value.exit_code == 130
    (row,) = json.loads(capsys.readouterr().out)
    assert row["messages"] == 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["send", "--time", "soon"], "is not a duration"),
        (["send", "--time", "0s"], "more than nothing"),
        (["send", "--loopback", "-n", "a:1"], "leave one out"),
        (["latency", "--size", "3"], "--size"),
    ],
)
def test_mistakes_are_exit_code_2(called: Called, arguments: list[str], named: str) -> None:
    result = called("bench", *arguments)
    assert (result.returncode, named in result.stderr) == (2, True), result.stderr
