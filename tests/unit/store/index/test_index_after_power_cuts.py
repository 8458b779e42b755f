"""After a power cut the key index lists only records that are on disk, and all records it counts."""

from __future__ import annotations

from tests.unit.store.samples import message, opened, tiny

from rocketline.store.message_store import MessageStore
from rocketline.testing.disks import FaultyDisk, MemoryDisk

ONE_FILE = tiny(index_entries=100)
TWO_FILES = tiny(index_entries=15)


def filled(store: MessageStore, first: int, end: int, key: str = "old") -> MessageStore:
    for number in range(first, end):
        store.append(message(b"body", KEYS=f"{key}-{number}"))
    store.dispatch()
    return store


def found(store: MessageStore, key: str = "old") -> list[int]:
    return [number for number in range(30) if len(store.query("orders", f"{key}-{number}", 10).records) == 1]


def test_entries_of_messages_the_log_lost_keep_no_new_ones_out() -> None:
    disk = MemoryDisk()
    faulty = FaultyDisk(disk)
    store = filled(opened(faulty, ONE_FILE), 0, 5)
    store.flush_now()
    filled(store, 5, 20)
    faulty.fail("sync", part="commitlog")
    assert store._threads is not None
    flusher = store._threads.queue_flusher
    flusher.run_round(everything=True)
    again = opened(disk.crash(), ONE_FILE)
    assert again.max_offset("orders", 0) == 5
    filled(again, 5, 12, "new")
    assert found(again) == list(range(5))
    assert found(again, "new") == list(range(5, 12))
    again.close()


def test_what_only_the_page_cache_had_is_on_disk_after_a_restart() -> None:
    disk = MemoryDisk()
    faulty = FaultyDisk(disk)
    store = filled(opened(faulty, TWO_FILES), 0, 5)
    store.flush_now()
    filled(store, 5, 20)
    faulty.fail("sync", part="index", nth=2)
    store.close()
    opened(disk, TWO_FILES)
    again = opened(disk.crash(), TWO_FILES)
    assert found(again) == list(range(20))
    again.close()
