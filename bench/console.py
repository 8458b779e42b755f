"""The console on a large cluster, as its users have it: console, broker and load are processes of their own.

    python bench/console.py                      1,000 topics, 2,300 groups
    python bench/console.py --topics 50 --groups 100 --rounds 2 --seconds 2
    python bench/console.py --json bench/results/console/NAME.json

Measured: start and idle memory of the console; time and processor time per page, over HTTP; the cost of a live tail; what an
open overview costs the broker. How many requests each page sends to the broker is counted by a console in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import logging
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from tests.support.asgi import AsgiClient
from tests.support.console import ConsoleProcess

from rocketline.admin import Admin
from rocketline.admin.progress import reset
from rocketline.cli.servers.child import ChildCluster
from rocketline.client import Producer, blocking
from rocketline.client.middleware import Proceed
from rocketline.console.access import Person, Role
from rocketline.console.app import make_app
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.desk import Desk
from rocketline.message import Message
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.command import Command

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "/", "/topics", "/topics?q=7", "/groups", "/groups?q=7", "/topics/t-0", "/groups/g-0", "/topics/t-0/messages",
    "/brokers", "/brokers/broker-a", "/producers", "/delayed",
)  # fmt: skip
KEPT_S = 1.6
"""Longer than answers are used again, so that every round asks the broker."""
BODY = b'{"n": 1}' * 12


@dataclass(frozen=True)
class PageTimes:
    path: str
    median_ms: float
    worst_ms: float
    cpu_ms: float
    """Of the console's process, for one page."""
    requests: float
    """To the broker, for one page."""
    sent_kib: float


@dataclass
class Results:
    topics: int
    groups: int
    rounds: int
    start_s: list[float] = field(default_factory=list)
    """From the start of the process to the line that says it is ready."""
    idle_mib: float = 0.0
    pages: list[PageTimes] = field(default_factory=list)
    tail: dict[str, float] = field(default_factory=dict)
    overview: dict[str, float] = field(default_factory=dict)
    others_busy: float = 0.0
    """Cores used by everything else before the first measurement: a busy machine makes these figures worthless."""


class Browser:
    """One connection to a console, kept open, let in by the link."""

    def __init__(self, console: ConsoleProcess) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
        status, headers, _ = self._ask(console.link.removeprefix(console.url), {})
        assert status == 303, status
        self._cookie = {"cookie": headers["set-cookie"].partition(";")[0]}

    def get(self, path: str) -> bytes:
        status, _, body = self._ask(f"/c/default{path}", {**self._cookie, "accept-encoding": "gzip"})
        assert status == 200, f"{path}: {status}"
        return body

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of a stream, as they come."""
        self._connection.request("GET", f"/c/default{path}", headers=self._cookie)
        answer = self._connection.getresponse()
        assert answer.status == 200, f"{path}: {answer.status}"
        while line := answer.readline():
            yield line

    def close(self) -> None:
        self._connection.close()

    def _ask(self, path: str, headers: dict[str, str]) -> tuple[int, http.client.HTTPMessage, bytes]:
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        return answer.status, answer.headers, answer.read()


async def fill(namesrv: str, topics: int, groups: int) -> None:
    async with Admin(namesrv, timeout=60) as admin:
        for broker in await admin.brokers():
            await broker.put_topics([TopicConfig(f"t-{number}", 4, 4) for number in range(topics)])
            await broker.put_groups([SubscriptionGroupConfig(f"g-{number}") for number in range(groups)])
        async with Producer(namesrv, group="bench") as producer:
            await producer.send(Message("t-0", b"x"))
        await admin.gather(reset(admin, f"g-{number}", "t-0", 0) for number in range(groups))


async def requests_of_pages(namesrv: str, rounds: int) -> dict[str, float]:
    """How many requests each page sends to the broker."""
    asked: Counter[int] = Counter()

    async def count(address: str, request: Command, proceed: Proceed) -> Command | None:
        asked[request.code] += 1
        return await proceed(request)

    found = {}
    place = ClusterPlace("default", namesrv, {"middleware": count})
    async with Desk(ConsoleConfig((place,))) as desk:
        for sampler in desk.samplers.values():
            await sampler.__aexit__()  # its requests are not those of pages
        client = AsgiClient(make_app(desk))
        client.cookies[desk.config.cookie] = desk.sessions.begin(Person("bench", Role.ADMIN))
        for path in PAGES:
            asked.clear()
            for _ in range(rounds):
                await asyncio.sleep(KEPT_S)
                assert (await client.get(f"/c/default{path}")).status == 200, path
            found[path] = asked.total() / rounds
    return found


def measure_pages(console: ConsoleProcess, requests: dict[str, float], rounds: int) -> list[PageTimes]:
    browser, rows = Browser(console), []
    for path in PAGES:
        browser.get(path)  # templates are compiled at first use
        times, size, cpu_s = [], 0, 0.0
        for _ in range(rounds):
            time.sleep(KEPT_S)
            before_s, began = machine.cpu_seconds([console.pid]), time.perf_counter()
            size = len(browser.get(path))
            times.append((time.perf_counter() - began) * 1000)
            cpu_s += machine.cpu_seconds([console.pid]) - before_s
        median = statistics.median(times)
        rows.append(PageTimes(path, median, max(times), cpu_s * 1000 / rounds, requests[path], size / 1024))
    browser.close()
    return rows


@contextmanager
def load(namesrv: str, rate: int) -> Iterator[None]:
    """Messages sent from a thread of this process."""
    goes_on = True

    def send() -> None:
        with blocking.Producer(namesrv, group="bench") as producer:
            while goes_on:
                began = time.monotonic()
                producer.send_batch([Message("t-0", BODY) for _ in range(rate // 10)])
                time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))

    thread = Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        goes_on = False
        thread.join()


def measure_tail(console: ConsoleProcess, broker_pid: int, namesrv: str, seconds: float, rate: int) -> dict[str, float]:
    browser, shown = Browser(console), 0
    with load(namesrv, rate):
        began, console_s, broker_s = time.monotonic(), _cpu_s(console.pid), _cpu_s(broker_pid)
        for line in browser.lines("/topics/t-0/tail"):
            if line.startswith(b"data: "):
                shown += len(json.loads(line[6:]).get("items", ()))
            if time.monotonic() - began > seconds:
                break
        passed = time.monotonic() - began
        console_s, broker_s = _cpu_s(console.pid) - console_s, _cpu_s(broker_pid) - broker_s
    browser.close()
    return {"shown_per_s": shown / passed, "console_share": console_s / passed, "broker_share": broker_s / passed}


def measure_overview(console: ConsoleProcess, broker_pid: int, seconds: float) -> dict[str, float]:
    """What the broker and the console spend while one overview is open, and while none is."""

    def spend() -> tuple[float, float]:
        before = _cpu_s(broker_pid), _cpu_s(console.pid)
        time.sleep(seconds)
        return (_cpu_s(broker_pid) - before[0]) / seconds, (_cpu_s(console.pid) - before[1]) / seconds

    idle = spend()
    browser = Browser(console)
    reading = Thread(target=lambda: [None for _ in browser.lines("/cells")], daemon=True)
    reading.start()
    time.sleep(2)
    shown = spend()
    return {
        "broker_idle": idle[0], "broker_open": shown[0], "console_idle": idle[1], "console_open": shown[1],
    }  # fmt: skip


def _cpu_s(pid: int) -> float:
    return machine.cpu_seconds([pid])


def show(results: Results) -> None:
    print(f"start {statistics.median(results.start_s):.2f} s, idle {results.idle_mib:.0f} MiB")
    print(f"{'page':<22} {'median ms':>10} {'worst ms':>10} {'cpu ms':>8} {'requests':>9} {'KiB':>6}")
    for row in results.pages:
        print(
            f"{row.path:<22} {row.median_ms:10.1f} {row.worst_ms:10.1f} {row.cpu_ms:8.1f} {row.requests:9.1f} "
            f"{row.sent_kib:6.1f}"
        )
    tail = results.tail
    print(
        f"tail: {tail['shown_per_s']:.0f} messages a second shown, {tail['console_share']:.1%} of a core in the console, "
        f"{tail['broker_share']:.1%} in the broker"
    )
    overview = results.overview
    print(
        f"open overview: broker {overview['broker_open']:.1%} of a core, {overview['broker_idle']:.1%} without it; "
        f"console {overview['console_open']:.1%} and {overview['console_idle']:.1%}"
    )
    print(f"others used {results.others_busy:.2f} cores before the first measurement")


def measured(options: argparse.Namespace) -> Results:
    results = Results(options.topics, options.groups, options.rounds, others_busy=machine.busy_cores(2.0))
    with ChildCluster() as cluster:
        asyncio.run(fill(cluster.namesrv, options.topics, options.groups))
        requests = asyncio.run(requests_of_pages(cluster.namesrv, 2))
        for _ in range(options.starts):
            began = time.monotonic()
            with ConsoleProcess(cluster.namesrv):
                results.start_s.append(time.monotonic() - began)
        with ConsoleProcess(cluster.namesrv) as console:
            time.sleep(options.seconds)
            results.idle_mib = machine.memory([console.pid]).rss / (1 << 20)
            results.pages = measure_pages(console, requests, options.rounds)
        # The link of a console works once, so each measurement has a console of its own.
        with ConsoleProcess(cluster.namesrv) as console:
            results.tail = measure_tail(console, cluster.pid, cluster.namesrv, options.seconds, options.rate)
        with ConsoleProcess(cluster.namesrv) as console:
            results.overview = measure_overview(console, cluster.pid, options.seconds)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=2300)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    logging.getLogger("rocketline").setLevel(logging.ERROR)
    results = measured(options)
    show(results)
    if options.json is not None:
        about: dict[str, Any] = {**machine.describe(ROOT), "when": time.strftime("%Y-%m-%d %H:%M")}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"about": about, **asdict(results)}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
