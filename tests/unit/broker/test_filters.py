"""Filters of groups: registered, replaced, dead, dropped, saved as Apache saves them, and the bits they set."""

from __future__ import annotations

import errno
import json
import logging
from pathlib import Path

import pytest

from rocketline.broker.tables.filters import ConsumerFilters
from rocketline.broker.tables.json_table import JsonTable
from rocketline.clock import ManualClock
from rocketline.errors import StoreError
from rocketline.message import LogOffset, QueueOffset
from rocketline.protocol.bloom import BloomFilter, has_bits
from rocketline.protocol.bodies import SubscriptionData
from rocketline.protocol.bodies.filters import ConsumerFilterTable
from rocketline.protocol.records import LogEntry
from rocketline.testing.disks import FaultyDisk, MemoryDisk

GOLDEN = Path(__file__).parents[2] / "golden" / "filters" / "consumerFilter.json"
PATH = Path("/data/config/consumerFilter.json")
BLOOM = BloomFilter.for_error_rate(20, 32)
DAY_MS = 86_400_000
DAY_S = 86_400


class Table:
    """Filters on a disk in memory, and a clock."""

    def __init__(self, disk: FaultyDisk | None = None, bloom: BloomFilter = BLOOM) -> None:
        self.disk = disk or FaultyDisk(MemoryDisk())
        self.disk.make_folder(PATH.parent)
        self.clock = ManualClock()
        self.filters = ConsumerFilters(JsonTable(self.disk, PATH, ConsumerFilterTable), self.clock, bloom, DAY_MS)
        self.filters.load()

    def register(self, expression: str = "a > 1", version: int = 1, group: str = "g", topic: str = "T") -> None:
        self.filters.register(group, [sql(expression, version, topic)])

    def save(self) -> dict[str, object]:
        data = self.filters.take_changes()
        assert data is not None
        self.filters.write(data)
        found: dict[str, object] = json.loads(data)
        return found

    def text(self, group: str = "g", topic: str = "T") -> str | None:
        known = self.filters.get(group, topic)
        return None if known is None else known.compiled.text

    def is_dead(self, group: str = "g", topic: str = "T") -> bool:
        known = self.filters.get(group, topic)
        assert known is not None
        return known.dead_ms > 0


def sql(expression: str, version: int = 1, topic: str = "T") -> SubscriptionData:
    return SubscriptionData(topic, expression, expression_type="SQL92", sub_version=version)


def entry(properties: dict[str, str], topic: str = "T") -> LogEntry:
    return LogEntry(LogOffset(0), 100, topic, 0, QueueOffset(0), 0, 0, 0, properties)


def test_only_sql_is_registered() -> None:
    table = Table()
    table.filters.register(
        "g", [SubscriptionData("T", "a || b"), SubscriptionData("U", "x", expression_type="nonsense")]
    )
    table.filters.register("h", [sql("")])
    assert (table.text(), table.text("g", "U"), table.text("h")) == (None, None, None)
    assert table.filters.take_changes() is None


def test_a_newer_expression_replaces_and_an_older_one_does_not() -> None:
    table = Table()
    table.register("a > 5", version=5)
    table.register("a > 4", version=4)
    assert table.text() == "a > 5"
    table.register("a > 6", version=6)
    assert table.text() == "a > 6"


def test_two_expressions_of_one_version_are_named(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    table.register("a > 5", version=5)
    with caplog.at_level(logging.WARNING):
        table.register("b > 5", version=5)
    assert table.text() == "a > 5"
    assert "'a > 5' stays, 'b > 5' is ignored" in caplog.text


def test_the_same_expression_keeps_its_time_and_takes_the_version() -> None:
    table = Table()
    table.register(version=1)
    first = table.filters.get("g", "T")
    table.clock.advance(10)
    table.register(version=2)
    assert table.filters.get("g", "T") is first
    assert first is not None
    assert first.version == 2


def test_a_newer_expression_that_does_not_compile_removes_the_old_one(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    table.register("a > 5", version=5)
    assert "a > 5" in repr(table.save())
    with caplog.at_level(logging.WARNING):
        table.register("a > 'x'", version=6)
    assert table.text() is None
    assert "a > 5" not in repr(table.save()), "nor does it come back with a restart"
    assert "group g cannot filter topic T: SQL92 expression, character 3" in caplog.text


def test_a_group_that_goes_away_is_dead_until_it_returns_and_dropped_after_a_day() -> None:
    table = Table()
    table.register()
    table.register(group="other")
    table.filters.unregister("g")
    assert (table.is_dead(), table.is_dead("other")) == (True, False)
    table.register()
    assert not table.is_dead()
    table.filters.unregister("g")
    table.clock.advance(DAY_S - 1)
    table.filters.take_changes()
    assert table.text() == "a > 1"
    table.clock.advance(1)
    saved = table.save()
    assert (table.text(), table.text("g", "T"), table.text("other")) == (None, None, "a > 1")
    assert "'g'" not in repr(saved)


def test_a_topic_that_is_no_longer_subscribed_is_dead() -> None:
    table = Table()
    table.filters.register("g", [sql("a > 1", topic="T"), sql("a > 1", topic="U")])
    table.filters.register("g", [sql("a > 1", topic="U")])
    assert (table.is_dead(topic="T"), table.is_dead(topic="U")) == (True, False)


def test_bits_are_set_for_the_filters_that_match_also_for_dead_ones() -> None:
    table = Table()
    table.register("a > 1", group="g")
    table.register("a > 5", group="h")
    table.filters.unregister("g")
    bitmap = table.filters.bitmap_for(entry({"a": "3"}))
    assert bitmap is not None
    assert len(bitmap) == 14
    assert has_bits(bitmap, BLOOM.positions("g#T"))
    assert not has_bits(bitmap, BLOOM.positions("h#T"))
    assert table.filters.bitmap_for(entry({"a": "x"})) == bytes(14)
    assert table.filters.bitmap_for(entry({"a": "3"}, topic="U")) is None


def test_bits_count_only_for_messages_stored_after_the_filter() -> None:
    table = Table()
    table.register()
    known = table.filters.get("g", "T")
    assert known is not None
    now, hit = table.clock.now_ms(), table.filters.bitmap_for(entry({"a": "3"}))
    assert hit is not None
    assert known.accept_ext(0, now + 1, hit)
    assert not known.accept_ext(0, now + 1, bytes(14))
    for store_ms, bitmap in ((now, bytes(14)), (now - 5, bytes(14)), (now + 1, b""), (now + 1, bytes(8))):
        assert known.accept_ext(0, store_ms, bitmap)


def test_after_a_restart_older_bits_are_not_trusted() -> None:
    """What was in use when they were set may not have been saved."""
    before = Table()
    before.register()
    before.save()
    after = Table(before.disk)
    after.register(version=2)
    known = after.filters.get("g", "T")
    assert known is not None
    assert known.born_ms <= after.clock.now_ms()
    assert known.accept_ext(0, after.clock.now_ms(), bytes(14))
    assert not known.accept_ext(0, after.clock.now_ms() + 1, bytes(14))


def test_apaches_file_is_read_and_written_back_as_it_was() -> None:
    table = Table()
    table.disk.write_atomic(PATH, GOLDEN.read_bytes(), keep_backup=False)
    table = Table(table.disk)
    assert table.text("CG_sql", "F_sql") == "a BETWEEN 2 AND 6 AND s = 'even'"
    assert table.is_dead("CG_sql", "F_sql")
    table.clock.jump_wall((1794733963142 + DAY_MS - 1 - table.clock.now_ms()) / 1000)
    table.register(topic="T")
    table.filters.unregister("g")
    written = table.save()["filterDataByTopic"]
    assert isinstance(written, dict)
    assert {"F_sql": written["F_sql"]} == json.loads(GOLDEN.read_bytes())["filterDataByTopic"]
    assert written["T"]["groupFilterData"]["g"]["dead"] is True
    assert written["T"]["groupFilterData"]["g"]["bloomFilterData"] == {"bitNum": 112, "bitPos": [90, 68, 28]}


def test_filters_that_were_alive_are_dead_after_a_restart() -> None:
    before = Table()
    before.register()
    before.save()
    after = Table(before.disk)
    assert after.is_dead()
    after.register()
    assert not after.is_dead()


def test_other_bitmaps_make_saved_filters_useless() -> None:
    before = Table()
    before.register()
    before.save()
    assert Table(before.disk, BloomFilter.for_error_rate(10, 128)).text() is None


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b'{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"topic":"T"}}}}}',
        b'{"filterDataByTopic":[]}',
    ],
)
def test_a_file_that_cannot_be_read_is_left_aside(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    table.disk.write_atomic(PATH, content, keep_backup=False)
    with caplog.at_level(logging.WARNING):
        table = Table(table.disk)
    assert "heartbeats bring them back" in caplog.text
    table.register()
    assert table.text() == "a > 1"


@pytest.mark.parametrize(("member", "value"), [("expression", "a >"), ("expressionType", "GROOVY")])
def test_a_saved_filter_that_cannot_be_used_is_passed_over(
    member: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = Table()
    before.register()
    before.register(group="other")
    saved = before.save()
    saved["filterDataByTopic"]["T"]["groupFilterData"]["g"][member] = value  # type: ignore[index]
    before.disk.write_atomic(PATH, json.dumps(saved).encode(), keep_backup=False)
    with caplog.at_level(logging.WARNING):
        after = Table(before.disk)
    assert (after.text(), after.text("other")) == (None, "a > 1")
    assert "of g for T" in caplog.text


def test_a_save_that_failed_is_tried_again() -> None:
    table = Table()
    table.register()
    data = table.filters.take_changes()
    assert data is not None
    table.disk.fail("write", errno.EIO, part="consumerFilter")
    with pytest.raises(StoreError):
        table.filters.write(data)
    assert table.filters.take_changes() == data
