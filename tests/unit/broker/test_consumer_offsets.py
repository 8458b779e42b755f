"""Offsets of groups: stored as given, capped by the log, saved when they changed, in a file Apache's broker reads."""

from __future__ import annotations

import errno
import json
import logging
from pathlib import Path

import pytest
from tests.golden.wire import load as golden

from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.json_table import JsonTable
from rocketline.clock import ManualClock
from rocketline.errors import StoreError
from rocketline.protocol.bodies import ConsumerOffsetTable
from rocketline.testing.disks import FaultyDisk, MemoryDisk

FILE = Path("/config/consumerOffset.json")


@pytest.fixture
def disk() -> FaultyDisk:
    memory = MemoryDisk()
    memory.make_folder(FILE.parent)
    return FaultyDisk(memory)


def start(disk: FaultyDisk) -> ConsumerOffsets:
    offsets = ConsumerOffsets(JsonTable(disk, FILE, ConsumerOffsetTable), ManualClock())
    offsets.load()
    return offsets


def save(offsets: ConsumerOffsets) -> None:
    data = offsets.take_changes()
    assert data is not None
    offsets.write(data)


def test_a_group_starts_without_offset(disk: FaultyDisk) -> None:
    offsets = start(disk)
    assert offsets.get("readers", "orders", 0) is None
    assert offsets.items() == []


def test_offsets_are_kept_by_group_topic_and_queue(disk: FaultyDisk) -> None:
    offsets = start(disk)
    offsets.commit("c", "readers", "orders", 0, 5)
    offsets.commit("c", "readers", "orders", 1, 6)
    offsets.commit("c", "others", "orders", 0, 7)
    assert offsets.get("readers", "orders", 0) == 5
    assert offsets.get("readers", "orders", 1) == 6
    assert offsets.get("others", "orders", 0) == 7
    assert offsets.get("readers", "bills", 0) is None
    assert sorted(offsets.items()) == [("orders@others", 0, 7), ("orders@readers", 0, 5), ("orders@readers", 1, 6)]


def test_backwards_is_accepted_and_told(disk: FaultyDisk, caplog: pytest.LogCaptureFixture) -> None:
    offsets = start(disk)
    offsets.commit("10.0.0.1:99", "readers", "orders", 0, 50)
    with caplog.at_level(logging.WARNING):
        offsets.commit("10.0.0.1:99", "readers", "orders", 0, 20)
    assert offsets.get("readers", "orders", 0) == 20
    assert "10.0.0.1:99 moves orders@readers queue 0 back from 50 to 20" in caplog.text


def test_an_offset_past_the_log_is_capped(disk: FaultyDisk) -> None:
    offsets = start(disk)
    offsets.commit("c", "readers", "orders", 0, 50)
    offsets.commit("c", "readers", "orders", 1, 10)
    save(offsets)
    offsets.cap("orders@readers", 0, 30)
    offsets.cap("orders@readers", 1, 30)
    offsets.cap("bills@readers", 0, 30)
    assert sorted(offsets.items()) == [("orders@readers", 0, 30), ("orders@readers", 1, 10)]
    save(offsets)
    assert start(disk).get("readers", "orders", 0) == 30


def test_a_deleted_topic_is_forgotten_and_no_other(disk: FaultyDisk) -> None:
    offsets = start(disk)
    for topic in ("orders", "orders2", "%RETRY%orders"):
        offsets.commit("c", "readers", topic, 0, 1)
    save(offsets)
    offsets.forget_topic("orders")
    assert {key for key, _, _ in offsets.items()} == {"orders2@readers", "%RETRY%orders@readers"}
    save(offsets)
    assert start(disk).get("readers", "orders", 0) is None


def test_only_changes_are_saved(disk: FaultyDisk) -> None:
    offsets = start(disk)
    assert offsets.take_changes() is None
    offsets.commit("c", "readers", "orders", 0, 5)
    save(offsets)
    assert offsets.take_changes() is None
    offsets.cap("orders@readers", 0, 100)
    offsets.forget_topic("bills")
    assert offsets.take_changes() is None
    offsets.commit("c", "readers", "orders", 0, 5)
    assert offsets.take_changes() is not None


def test_offsets_survive_a_restart(disk: FaultyDisk) -> None:
    offsets = start(disk)
    offsets.commit("c", "readers", "orders", 3, (1 << 62) + 1)
    save(offsets)
    assert start(disk).items() == [("orders@readers", 3, (1 << 62) + 1)]


def test_what_could_not_be_saved_is_saved_next_time(disk: FaultyDisk) -> None:
    offsets = start(disk)
    offsets.commit("c", "readers", "orders", 0, 5)
    disk.fail("write", errno.ENOSPC)
    data = offsets.take_changes()
    assert data is not None
    with pytest.raises(StoreError, match="No space left"):
        offsets.write(data)
    save(offsets)
    assert start(disk).get("readers", "orders", 0) == 5


def test_a_commit_while_the_file_is_written_is_not_lost(disk: FaultyDisk) -> None:
    offsets = start(disk)
    offsets.commit("c", "readers", "orders", 0, 5)
    data = offsets.take_changes()
    assert data is not None
    offsets.commit("c", "readers", "orders", 0, 6)
    offsets.write(data)
    assert start(disk).get("readers", "orders", 0) == 5
    save(offsets)
    assert start(disk).get("readers", "orders", 0) == 6


def test_the_file_has_the_members_apache_reads(disk: FaultyDisk) -> None:
    offsets = start(disk)
    offsets.commit("c", "readers", "orders", 0, 5)
    offsets.commit("c", "readers", "orders", 10, 6)
    save(offsets)
    content = json.loads(disk.read(FILE) or b"")
    assert content["offsetTable"] == {"orders@readers": {"0": 5, "10": 6}}
    assert content["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": ManualClock().now_ms()}
    save_again = offsets.take_changes()
    assert save_again is None


def test_an_apache_file_is_read(disk: FaultyDisk) -> None:
    disk.write_atomic(FILE, golden.config("consumerOffset.json"))
    offsets = start(disk)
    items = offsets.items()
    assert items
    assert all("@" in key and queue_id >= 0 and offset >= 0 for key, queue_id, offset in items)
    key, queue_id, offset = items[0]
    topic, _, group = key.partition("@")
    assert offsets.get(group, topic, queue_id) == offset


def test_when_neither_file_nor_backup_can_be_read_the_start_is_refused(disk: FaultyDisk) -> None:
    disk.write_atomic(FILE, b"{broken")
    with pytest.raises(StoreError, match=r"consumerOffset\.json"):
        start(disk)
