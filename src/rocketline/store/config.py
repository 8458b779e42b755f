"""The store's settings: RocketMQ's keys, defaults and units."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rocketline.errors import ConfigError
from rocketline.settings import section, setting

UNIT_BYTES = 20
"""Size of one entry of a consume queue."""

MIN_LOG_SEGMENT_BYTES = 512


class FlushDiskType(Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True)
class FlushConfig:
    """When data goes from the page cache to the disk."""

    disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH,
        "flushDiskType",
        "SYNC_FLUSH answers a send when the disk has it; ASYNC_FLUSH when the page cache has it.",
    )
    log_interval_ms: int = setting(500, "flushIntervalCommitLog", "Pause between two flushes of the commit log.")
    log_least_pages: int = setting(4, "flushCommitLogLeastPages", "Fewer dirty 4 KiB pages than this wait longer.")
    log_thorough_ms: int = setting(10_000, "flushCommitLogThoroughInterval", "Flush whatever is dirty after this long.")
    log_timed: bool = setting(
        True, "flushCommitLogTimed", "Flush by the clock only; false: each append wakes the flusher as well."
    )
    queue_interval_ms: int = setting(1_000, "flushIntervalConsumeQueue", "Pause between two flushes of consume queues.")
    queue_least_pages: int = setting(2, "flushConsumeQueueLeastPages", "Fewer dirty 4 KiB pages than this wait longer.")
    queue_thorough_ms: int = setting(
        60_000,
        "flushConsumeQueueThoroughInterval",
        "Flush all consume queues, the key index and the checkpoint after this long.",
    )
    sync_timeout_ms: int = setting(5_000, "syncFlushTimeout", "How long a send waits for the disk under SYNC_FLUSH.")

    def __post_init__(self) -> None:
        for name in ("log_interval_ms", "log_thorough_ms", "queue_interval_ms", "queue_thorough_ms", "sync_timeout_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"flush setting {name}={getattr(self, name)} must be above zero")

    @property
    def is_sync(self) -> bool:
        return self.disk_type is FlushDiskType.SYNC_FLUSH


@dataclass(frozen=True)
class ReadConfig:
    """How much one read may return, for messages likely in memory and for those likely on disk."""

    memory_messages: int = setting(32, "maxTransferCountOnMessageInMemory", "Messages of one read from memory.")
    memory_bytes: int = setting(262_144, "maxTransferBytesOnMessageInMemory", "Bytes of one read from memory.")
    disk_messages: int = setting(8, "maxTransferCountOnMessageInDisk", "Messages of one read from disk.")
    disk_bytes: int = setting(65_536, "maxTransferBytesOnMessageInDisk", "Bytes of one read from disk.")
    memory_ratio: int = setting(
        40,
        "accessMessageInMemoryMaxRatio",
        "Per cent of RAM behind the log end within which messages count as in memory.",
    )


@dataclass(frozen=True)
class StoreConfig:
    """Files, limits, reads and flushes of a message store."""

    log_segment_bytes: int = setting(1 << 30, "mappedFileSizeCommitLog", "Size of one commit-log file.")
    queue_segment_bytes: int = setting(
        6_000_000, "mappedFileSizeConsumeQueue", "Size of one consume-queue file; rounded up to a multiple of 20."
    )
    index_enabled: bool = setting(True, "messageIndexEnable", "Keep the index that finds messages by key.")
    index_slots: int = setting(5_000_000, "maxHashSlotNum", "Hash slots of one index file.")
    index_entries: int = setting(20_000_000, "maxIndexNum", "Entries of one index file.")
    max_message_bytes: int = setting(4_194_304, "maxMessageSize", "Largest body, and largest batch, that is stored.")
    check_crc: bool = setting(True, "checkCRCOnRecover", "Check body checksums of the records read at start.")
    warm: bool = setting(True, "warmMapedFileEnable", "Fault log pages in shortly before they are written.")
    open_queue_files: int = setting(
        0, None, "Consume-queue files kept mapped at once; 0: a quarter of the process's file descriptors."
    )
    flush: FlushConfig = section(FlushConfig)
    reads: ReadConfig = section(ReadConfig)

    def __post_init__(self) -> None:
        rounded = -(-self.queue_segment_bytes // UNIT_BYTES) * UNIT_BYTES
        object.__setattr__(self, "queue_segment_bytes", rounded)
        if self.log_segment_bytes < MIN_LOG_SEGMENT_BYTES:
            raise ConfigError(f"mappedFileSizeCommitLog={self.log_segment_bytes} is below {MIN_LOG_SEGMENT_BYTES}")
        for name, key in (
            ("queue_segment_bytes", "mappedFileSizeConsumeQueue"),
            ("index_slots", "maxHashSlotNum"),
            ("max_message_bytes", "maxMessageSize"),
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{key}={getattr(self, name)} must be above zero")
        if self.index_entries < 2:
            raise ConfigError(f"maxIndexNum={self.index_entries} leaves no room: entry 0 is never used")
