"""A folder of Apache's broker with pending timers, opened and delivered by ours (tests/golden/timer/README.md)."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from random import Random

import pytest

from rocketline.broker.set_aside import SetAside
from rocketline.broker.tables.json_table import JsonTable
from rocketline.broker.tables.topics import Topics
from rocketline.broker.timer.timers import Timers
from rocketline.clock import ManualClock
from rocketline.message import MessageView
from rocketline.protocol.bodies import TopicConfigSerializeWrapper
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.records import decode_messages
from rocketline.store.config import ExtQueueConfig, StoreConfig, TimerConfig
from rocketline.store.files.disk import RealDisk
from rocketline.store.message_store import MessageStore

GOLDEN = Path(__file__).parents[2] / "golden"
HOUR_S = 3600
CONFIG = StoreConfig(
    log_segment_bytes=1 << 20,
    queue_segment_bytes=6000,
    index_slots=500,
    index_entries=2000,
    ext=ExtQueueConfig(enabled=True, segment_bytes=16384),
    timers=TimerConfig(log_segment_bytes=52416),
)


class Opened:
    """The folder as it was left, at the moment its broker had come to."""

    def __init__(self, folder: Path) -> None:
        with tarfile.open(GOLDEN / "store" / "features.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        root = folder / "features" / "store"
        files = json.loads((GOLDEN / "timer" / "features.json").read_text("utf-8"))
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / "timercheck").write_bytes(bytes.fromhex(files["timercheck"]).ljust(4096, b"\0"))
        (root / "config" / "timermetrics").write_text(files["timermetrics"], "utf-8")
        with (root / "timerwheel").open("wb") as wheel:
            wheel.truncate(38_707_200)
            for number, slot in files["timerwheel"].items():
                wheel.seek(int(number) * 32)
                wheel.write(bytes.fromhex(slot))
        self.clock = ManualClock(1_794_733_940_100)
        self.store = MessageStore(root, CONFIG, encode_host("127.0.0.1", 20911), clock=self.clock)
        self.store.open()
        file = JsonTable(RealDisk(), root / "config" / "topics.json", TopicConfigSerializeWrapper)
        self.aside = SetAside(self.store, Topics(file, [], self.clock), lambda: None)
        self.timers = Timers(
            CONFIG.timers, self.store, RealDisk(), root, self.clock, lambda: None, Random(1), self.aside
        )
        self.timers.load()

    def settle(self) -> None:
        while True:
            wait_ms = self.timers.turn()
            if wait_ms != 0 and self.store.dispatch() == 0:
                return

    def messages(self, queue_id: int) -> list[MessageView]:
        found = self.store.read("F_timer", queue_id, 0, 32)
        return [message for chunk in found.chunks for message in decode_messages(chunk)]

    def close(self) -> None:
        self.timers.close()
        self.store.close()


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path)


def test_pending_timers_come_out_in_time_and_once(opened: Opened) -> None:
    try:
        start_ms = 1_794_733_936_000
        assert opened.timers.counts.of("F_timer") == 4
        for hour in range(1, 52):
            opened.settle()
            opened.clock.advance(HOUR_S)
            for queue_id in (0, 1):
                for message in opened.messages(queue_id):
                    assert message.store_ms >= int(message.properties["TIMER_OUT_MS"]) + 1000, hour
        opened.settle()
        bodies = [message.body for message in opened.messages(0)]
        assert bodies == [b"timer 1500", b"timer 3600000", b"timer 86400000", b"timer 180000000"]
        assert [message.body for message in opened.messages(1)] == [b"timer abs"]
        rolled = opened.messages(0)[-1]
        assert rolled.properties["TIMER_ROLL_TIMES"] == "1"
        assert start_ms + 180_000_000 <= rolled.store_ms
        assert opened.timers.counts.of("F_timer") == 0
    finally:
        opened.close()


def test_nothing_is_taken_in_again(opened: Opened) -> None:
    try:
        before = (opened.store.root / "timerlog" / f"{0:020d}").read_bytes()
        opened.settle()
        assert (opened.store.root / "timerlog" / f"{0:020d}").read_bytes() == before
    finally:
        opened.close()
