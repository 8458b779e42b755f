"""The live tail in a real browser, for long: how late its rows are, and whether its memory stays flat.

    python bench/console_tail.py --minutes 10                               500 messages a second
    python bench/console_tail.py --minutes 10 --json bench/results/console/tail.json

Browser, console, broker and load are processes of their own. The heap is that of the page after a collection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.console import ROOT, fill
from playwright.sync_api import CDPSession, Page, sync_playwright
from tests.support.console import ConsoleProcess

from rocketline.cli.servers.child import ChildCluster
from rocketline.client import blocking
from rocketline.message import Message

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TURN_S = 0.1
LATE = """() => Date.now() - JSON.parse(document.querySelector("table[data-live] tbody tr td.body").textContent).sent"""
"""Milliseconds since the message of the newest row was sent."""


@dataclass(frozen=True)
class Moment:
    after_s: int
    heap_mib: float
    console_mib: float
    rows: int
    late_ms: float
    said: str


@contextmanager
def load(namesrv: str, rate: int) -> Iterator[None]:
    """Messages that say when they were sent, from a thread of this process."""
    ended = Event()

    def send() -> None:
        with blocking.Producer(namesrv, group="bench") as producer:
            due = time.monotonic()
            while not ended.wait(max(0.0, due - time.monotonic())):
                due += TURN_S
                body = json.dumps({"sent": round(time.time() * 1000)}).encode()
                producer.send_batch([Message("t-0", body) for _ in range(int(rate * TURN_S))])

    thread = Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def moment(page: Page, devtools: CDPSession, console: ConsoleProcess, after_s: int) -> Moment:
    late_ms = page.evaluate(LATE)
    devtools.send("HeapProfiler.collectGarbage")
    heap = devtools.send("Runtime.getHeapUsage")["usedSize"]
    rows = page.locator("table[data-live] tbody tr").count()
    said = page.locator("[data-live-state]").inner_text()
    memory = machine.memory([console.pid]).rss
    return Moment(after_s, heap / (1 << 20), memory / (1 << 20), rows, late_ms, said)


def measured(minutes: float, rate: int, every_s: int) -> list[Moment]:
    path = os.environ.get("ROCKETLINE_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)))
    found: list[Moment] = []
    with ChildCluster() as cluster:
        asyncio.run(fill(cluster.namesrv, 1, 0))  # before there is a browser, which has a loop of its own
        with ConsoleProcess(cluster.namesrv) as console, sync_playwright() as playwright, load(cluster.namesrv, rate):
            browser = playwright.chromium.launch(executable_path=path)
            page = browser.new_page()
            page.goto(console.link)
            page.goto(f"{console.url}/c/default/topics/t-0/live")
            page.locator("table[data-live] tbody tr").nth(499).wait_for()
            devtools = page.context.new_cdp_session(page)
            began = time.monotonic()
            while (passed := time.monotonic() - began) < minutes * 60:
                found.append(moment(page, devtools, console, round(passed)))
                page.wait_for_timeout(every_s * 1000)
            found.append(moment(page, devtools, console, round(passed)))
            browser.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--every", type=int, default=30, help="seconds between two looks")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    moments = measured(options.minutes, options.rate, options.every)
    for item in moments:
        print(
            f"{item.after_s:4d} s: heap {item.heap_mib:.1f} MiB, console {item.console_mib:.0f} MiB, {item.rows} rows, "
            f"{item.late_ms:.0f} ms late; {item.said}"
        )
    if options.json is not None:
        about = {**machine.describe(ROOT), "when": time.strftime("%Y-%m-%d %H:%M"), "rate": options.rate}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"about": about, "moments": list(map(asdict, moments))}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
