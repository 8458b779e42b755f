"""Small stores and messages for the store's tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from rocketline.clock import ManualClock
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import BatchItem, decode_record
from rocketline.store.config import FlushConfig, FlushDiskType, ReadConfig, StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.message_store import MessageStore, StoreEvents, StoreMessage
from rocketline.testing.disks import MemoryDisk

HOST = encode_host("127.0.0.1", 10911)
BORN = encode_host("127.0.0.1", 5555)
BORN_V6 = encode_host("::1", 5555)
ROOT = Path("/data")

# Flushes happen only when a test asks for them.
NEVER = FlushConfig(log_interval_ms=10**9, queue_interval_ms=10**9)


def tiny(**changes: object) -> StoreConfig:
    """Files so small that everything rolls: 4 KiB of log, 10 units, 50 index slots."""
    settings: dict[str, object] = {
        "log_segment_bytes": 4096,
        "queue_segment_bytes": 200,
        "index_slots": 50,
        "index_entries": 20,
        "max_message_bytes": 2048,
        "flush": NEVER,
    }
    return StoreConfig(**{**settings, **changes})  # type: ignore[arg-type]


def sync_flush(**changes: object) -> StoreConfig:
    return tiny(flush=FlushConfig(FlushDiskType.SYNC_FLUSH, log_interval_ms=10**9, queue_interval_ms=10**9), **changes)


def disk_reads(**changes: object) -> StoreConfig:
    """Nothing counts as in memory."""
    return tiny(reads=ReadConfig(memory_ratio=0), **changes)


def message(body: bytes = b"hello", topic: str = "orders", queue_id: int = 0, **properties: str) -> StoreMessage:
    return StoreMessage(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=properties,
        properties_raw=encode_properties(properties).encode(),
        flag=0,
        sys_flag=0,
        born_ms=1_600_000_000_000,
        born_host=BORN,
    )


def item(body: bytes, **properties: str) -> BatchItem:
    return BatchItem(0, body, encode_properties(properties).encode())


def new_store(
    disk: Disk | None = None, config: StoreConfig | None = None, clock: ManualClock | None = None, root: Path = ROOT
) -> MessageStore:
    return MessageStore(root, config or tiny(), HOST, disk=disk or MemoryDisk(), clock=clock or ManualClock())


def opened(
    disk: Disk | None = None,
    config: StoreConfig | None = None,
    clock: ManualClock | None = None,
    root: Path = ROOT,
    events: StoreEvents | None = None,
) -> MessageStore:
    store = new_store(disk, config, clock, root)
    store.open(events or StoreEvents())
    return store


def read_all(store: MessageStore, topic: str = "orders", queue_id: int = 0, max_messages: int = 32) -> list[bytes]:
    """Every record of a queue, in order, each as its own bytes."""
    records: list[bytes] = []
    offset = store.min_offset(topic, queue_id)
    while (result := store.read(topic, queue_id, offset, max_messages)).message_count:
        records += split(result.chunks)
        assert result.message_count == result.next_queue_offset - offset
        offset = result.next_queue_offset
    assert offset == store.max_offset(topic, queue_id)
    return records


def split(chunks: list[memoryview]) -> list[bytes]:
    records = []
    for chunk in chunks:
        while chunk:
            size = int.from_bytes(chunk[:4], "big")
            records.append(bytes(chunk[:size]))
            chunk = chunk[size:]
    return records


def each(count: int, make: Callable[[int], StoreMessage]) -> list[StoreMessage]:
    return [make(number) for number in range(count)]


def filled(store: MessageStore, count: int, body_bytes: int = 300, first: int = 0) -> MessageStore:
    """The store with `count` more messages, whose bodies are their numbers."""
    for number in range(first, first + count):
        store.append(message(number.to_bytes(2, "big") * (body_bytes // 2), KEYS=f"key-number-{number}", TAGS="red"))
    store.dispatch()
    return store


def bodies(store: MessageStore) -> list[int]:
    """The numbers in the bodies of all messages of the queue."""
    found = [decode_record(record, 0, len(record), check_crc=True) for record in read_all(store)]
    assert [record.queue_offset for record in found] == list(range(len(found)))
    return [int.from_bytes(record.body[:2], "big") for record in found]


def keys_found(store: MessageStore, count: int) -> list[int]:
    return [number for number in range(count) if len(store.query("orders", f"key-number-{number}", 10).records) == 1]


def write(disk: MemoryDisk, path: Path, at: int, data: bytes) -> None:
    raw = bytearray(disk.read(path) or b"")
    raw[at : at + len(data)] = data
    disk.write_atomic(path, bytes(raw))


def killed(disk: MemoryDisk, store: MessageStore) -> MemoryDisk:
    """kill -9: what was written is in the page cache, nothing was tidied up."""
    for path in list(disk._files):
        disk.sync(path)
    after = disk.crash()
    store.close()
    return after


def locked_bytes() -> int:
    """How much memory this process has locked in RAM."""
    found = re.search(r"VmLck:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024
