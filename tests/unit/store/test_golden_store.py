"""Folders written by Apache's broker, opened by ours (tests/golden/store/README.md says how they were captured)."""

from __future__ import annotations

import hashlib
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rocketline.protocol.records import decode_message, decode_record, log_entry
from rocketline.store.config import StoreConfig
from rocketline.store.message_store import MessageStore, ReadStatus, RecoveryReport

from .samples import HOST, message, read_all

GOLDEN = Path(__file__).parents[2] / "golden" / "store"
CONFIG = StoreConfig(
    log_segment_bytes=1 << 20, queue_segment_bytes=6000, index_slots=500, index_entries=2000, max_message_bytes=131072
)


class Golden:
    """An unpacked archive: its data folder and its manifest."""

    def __init__(self, name: str, folder: Path) -> None:
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        self.root = folder / name / "store"
        self.manifest: dict[str, Any] = json.loads((folder / name / "manifest.json").read_text("utf-8"))
        self.recovered: dict[str, Any] = json.loads((GOLDEN / "recovered.json").read_text("utf-8"))[name]

    def open(self) -> tuple[MessageStore, RecoveryReport]:
        store = MessageStore(self.root, CONFIG, HOST)
        return store, store.open()

    def files(self, part: str) -> dict[str, bytes]:
        folder = self.root / part
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
        }


@pytest.fixture
def clean(tmp_path: Path) -> Golden:
    return Golden("clean", tmp_path)


@pytest.fixture
def killed(tmp_path: Path) -> Golden:
    return Golden("killed", tmp_path)


@pytest.fixture
def features(tmp_path: Path) -> Golden:
    return Golden("features", tmp_path)


def offsets(store: MessageStore) -> dict[str, dict[str, list[int]]]:
    return {
        topic: {
            str(queue_id): [store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)]
            for queue_id in store.queue_ids(topic)
        }
        for topic in store.topics()
    }


def check_messages(store: MessageStore, golden: Golden) -> None:
    for sent in golden.manifest["messages"]:
        result = store.read(sent["topic"], sent["queueId"], sent["queueOffset"], 1)
        assert result.status is ReadStatus.FOUND
        view = decode_message(result.chunks[0], 0, result.total_bytes)
        assert (view.topic, view.queue_offset, view.offset_id) == (
            sent["topic"],
            sent["queueOffset"],
            sent["offsetMsgId"],
        )
        assert view.flag == sent["flag"]
        assert sent["properties"].items() <= view.properties.items()
        if "body" in sent:
            assert view.body.hex() == sent["body"]
        else:
            assert hashlib.sha256(view.body).hexdigest() == sent["bodySha256"]
        found = store.query(sent["topic"], sent["msgId"], 64, index_type="U").records
        assert [decode_record(record, 0, len(record)).log_offset for record in found] == [view.log_offset]


def test_a_clean_stop_is_taken_up_where_it_ended(clean: Golden) -> None:
    store, report = clean.open()
    assert not report.after_crash
    assert report.records_scanned == 0
    assert str(store.log_next_offset) == clean.recovered["commitLogMaxOffset"]
    assert offsets(store) == clean.recovered["offsets_min_max"]
    assert len(clean.manifest["messages"]) == 1974
    check_messages(store, clean)
    store.close()


def test_a_killed_broker_loses_no_acknowledged_message(killed: Golden) -> None:
    store, report = killed.open()
    assert report.after_crash
    assert str(store.log_next_offset) == killed.recovered["commitLogMaxOffset"]
    assert offsets(store) == killed.recovered["offsets_min_max"]
    assert len(killed.manifest["messages"]) == 1503
    check_messages(store, killed)
    store.close()
    assert not (killed.root / "abort").exists()


def test_every_record_of_a_store_with_all_features_is_readable(features: Golden) -> None:
    store, report = features.open()
    assert not report.after_crash
    checked = 0
    for topic in store.topics():
        for queue_id in store.queue_ids(topic):
            for queue_offset, record in enumerate(read_all(store, topic, queue_id)):
                decoded = decode_record(record, 0, len(record), check_crc=True)
                assert (decoded.topic, decoded.queue_id, decoded.queue_offset) == (topic, queue_id, queue_offset)
                checked += 1
    assert checked > 60
    store.close()


def test_filters_work_on_queues_with_extended_units(features: Golden) -> None:
    store, _ = features.open()
    tagged = [log_entry(decode_record(raw, 0, len(raw))) for raw in read_all(store, "F_sql", 0)]
    assert tagged
    codes = {entry.tags_code for entry in tagged}
    result = store.read("F_sql", 0, 0, 32, codes.__contains__)
    assert result.message_count == len(tagged)
    assert store.read("F_sql", 0, 0, 32, lambda code: code not in codes).status is ReadStatus.NO_MATCHED_MESSAGE
    store.close()


def test_rebuilt_queues_and_index_equal_apaches_byte_for_byte(clean: Golden) -> None:
    queues, index = clean.files("consumequeue"), clean.files("index")
    for path in [*(clean.root / "consumequeue").rglob("*"), *(clean.root / "index").rglob("*")]:
        if path.is_file():
            path.unlink()
    store, report = clean.open()
    assert report.records_scanned == 1974
    store.close()
    assert clean.files("consumequeue") == queues
    assert list(clean.files("index").values()) == list(index.values()), "names differ: they are the time of making"


def test_the_checkpoint_is_apaches(clean: Golden) -> None:
    before = (clean.root / "checkpoint").read_bytes()
    store, _ = clean.open()
    store.close()
    after = (clean.root / "checkpoint").read_bytes()
    assert len(after) == len(before)
    log_ms, queues_ms, index_ms = struct.unpack_from(">qqq", before)
    # Apache names the last index entry that was flushed, we the last message that was indexed: here the same one.
    assert struct.unpack_from(">qq", after) == (log_ms, queues_ms)
    assert struct.unpack_from(">q", after, 16)[0] >= index_ms
    assert after[24:] == before[24:]


def test_apaches_store_can_be_written_on(clean: Golden) -> None:
    store, _ = clean.open()
    end = store.log_next_offset
    big = [store.append(message(bytes(100_000), "S_Gamma", 0)) for _ in range(25)]
    assert (big[0].log_offset, big[0].queue_offset) == (end, 492)
    store.dispatch()
    store.close()
    again, report = clean.open()
    assert report.records_scanned == 0
    assert again.max_offset("S_Gamma", 0) == 492 + 25
    check_messages(again, clean)
    again.close()
