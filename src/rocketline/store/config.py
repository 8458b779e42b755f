"""The store's settings: RocketMQ's keys, defaults and units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rocketline.errors import ConfigError
from rocketline.settings import section, setting

UNIT_BYTES = 20
"""Size of one entry of a consume queue."""

MIN_LOG_SEGMENT_BYTES = 512
MIN_EXT_SEGMENT_BYTES = 24
"""One extended unit without a bitmap, and the end mark."""
MIN_TIMER_SEGMENT_BYTES = 68
"""One entry of the timer log, and the end mark."""
TIMER_PRECISIONS_MS = (100, 200, 500, 1000)
TIMER_MAX_WINDOW_SLOTS = 7 * 24 * 3600 - 60


def _require_positive(values: Mapping[str, int]) -> None:
    for key, value in values.items():
        if value <= 0:
            raise ConfigError(f"{key}={value} must be above zero")


class FlushDiskType(Enum):
    """When a send is answered: before or after its flush."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(frozen=True)
class FlushConfig:
    """When data is written from the page cache to the disk."""

    disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH,
        "flushDiskType",
        "SYNC_FLUSH answers a send when the disk has it; ASYNC_FLUSH when the page cache has it.",
    )
    log_interval_ms: int = setting(500, "flushIntervalCommitLog", "Pause between two flushes of the commit log.")
    log_least_pages: int = setting(
        4, "flushCommitLogLeastPages", "With fewer dirty 4 KiB pages than this, the flush waits longer."
    )
    log_thorough_ms: int = setting(10_000, "flushCommitLogThoroughInterval", "Flush whatever is dirty after this long.")
    log_timed: bool = setting(
        True, "flushCommitLogTimed", "Flush at intervals only; false: each append wakes the flusher as well."
    )
    queue_interval_ms: int = setting(1_000, "flushIntervalConsumeQueue", "Pause between two flushes of consume queues.")
    queue_least_pages: int = setting(
        2, "flushConsumeQueueLeastPages", "With fewer dirty 4 KiB pages than this, the flush waits longer."
    )
    queue_thorough_ms: int = setting(
        60_000,
        "flushConsumeQueueThoroughInterval",
        "Flush all consume queues, the key index and the checkpoint after this long.",
    )
    sync_timeout_ms: int = setting(5_000, "syncFlushTimeout", "How long a send waits for the disk under SYNC_FLUSH.")
    commit_interval_ms: int = setting(
        200, "commitIntervalCommitLog", "Pause between two commits from transient buffers to the log file."
    )
    commit_least_pages: int = setting(
        4, "commitCommitLogLeastPages", "With fewer uncommitted 4 KiB pages than this, the commit waits longer."
    )
    commit_thorough_ms: int = setting(
        200, "commitCommitLogThoroughInterval", "Commit whatever is there after this long."
    )
    checkpoint_log_bytes: int = setting(
        64 << 20,
        "rocketline.checkpointLogBytes",
        "Flush queues, index and checkpoint after this much log too, which bounds what a start after a crash must read.",
    )

    def __post_init__(self) -> None:
        _require_positive(
            {
                "flushIntervalCommitLog": self.log_interval_ms,
                "flushCommitLogThoroughInterval": self.log_thorough_ms,
                "flushIntervalConsumeQueue": self.queue_interval_ms,
                "flushConsumeQueueThoroughInterval": self.queue_thorough_ms,
                "syncFlushTimeout": self.sync_timeout_ms,
                "commitIntervalCommitLog": self.commit_interval_ms,
                "commitCommitLogThoroughInterval": self.commit_thorough_ms,
                "rocketline.checkpointLogBytes": self.checkpoint_log_bytes,
            }
        )

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
    bulk_messages: int = setting(
        4096,
        "rocketline.bulkReadMessages",
        "Messages of one bulk read; with a value not above the usual limit there are no bulk reads.",
    )
    bulk_bytes: int = setting(
        4 << 20, "rocketline.bulkReadBytes", "Bytes of one bulk read from memory; from disk a quarter of it."
    )

    def __post_init__(self) -> None:
        # A frame that clients accept has 16 MiB, and one read keeps the event loop busy.
        for key, value, most in (
            ("rocketline.bulkReadMessages", self.bulk_messages, 65_536),
            ("rocketline.bulkReadBytes", self.bulk_bytes, 15 << 20),
        ):
            if not 0 <= value <= most:
                raise ConfigError(f"{key}={value}: 0 to {most} expected")


@dataclass(frozen=True)
class RetentionConfig:
    """When old files are removed."""

    reserved_hours: int = setting(72, "fileReservedTime", "Hours a log file is kept after its last change.")
    delete_when: str = setting("04", "deleteWhen", "Local hours, separated by `;`, at which expired files are deleted.")
    expire_ratio: int = setting(
        75, "diskMaxUsedSpaceRatio", "Per cent of the disk used above which expired files are deleted at any hour."
    )
    force_ratio: int = setting(
        85,
        "diskSpaceCleanForciblyRatio",
        "Per cent of the disk used above which the oldest files are deleted, expired or not.",
    )
    full_ratio: int = setting(
        90, "diskSpaceWarningLevelRatio", "Per cent of the disk used above which messages are refused."
    )
    force_enabled: bool = setting(
        True, "cleanFileForciblyEnable", "Whether files that are not expired may be deleted when the disk fills up."
    )
    interval_ms: int = setting(10_000, "cleanResourceInterval", "Pause between two checks for files to delete.")
    files_per_pass: int = setting(10, "deleteFileBatchMax", "Log files deleted in one pass at most.")
    file_pause_ms: int = setting(100, "deleteCommitLogFilesInterval", "Pause between the deletions of two log files.")

    def __post_init__(self) -> None:
        self._check_ratios()
        for key, value, least in (
            ("fileReservedTime", self.reserved_hours, 0),
            ("cleanResourceInterval", self.interval_ms, 1),
            ("deleteFileBatchMax", self.files_per_pass, 1),
            ("deleteCommitLogFilesInterval", self.file_pause_ms, 0),
        ):
            if value < least:
                raise ConfigError(f"{key}={value} must be at least {least}")
        if not self.delete_hours <= set(range(24)):
            raise ConfigError(f"deleteWhen={self.delete_when!r} has an hour that is not between 0 and 23")

    def _check_ratios(self) -> None:
        ratios = {
            "diskMaxUsedSpaceRatio": self.expire_ratio,
            "diskSpaceCleanForciblyRatio": self.force_ratio,
            "diskSpaceWarningLevelRatio": self.full_ratio,
        }
        for key, ratio in ratios.items():
            if not 0 <= ratio <= 100:
                raise ConfigError(f"{key}={ratio} is not a per cent value between 0 and 100")

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of `delete_when`."""
        try:
            return frozenset(int(hour) for hour in self.delete_when.rstrip(";").split(";"))
        except ValueError:
            raise ConfigError(
                f"deleteWhen={self.delete_when!r} is not a list of hours such as '04' or '03;15'"
            ) from None


@dataclass(frozen=True)
class ExtQueueConfig:
    """Extended consume queues: they hold more than the eight bytes of a tags code for each message."""

    enabled: bool = setting(False, "enableConsumeQueueExt", "Keep extended consume queues.")
    segment_bytes: int = setting(48 << 20, "mappedFileSizeConsumeQueueExt", "Size of one extended consume-queue file.")

    def __post_init__(self) -> None:
        if self.segment_bytes < MIN_EXT_SEGMENT_BYTES:
            raise ConfigError(f"mappedFileSizeConsumeQueueExt={self.segment_bytes} is below {MIN_EXT_SEGMENT_BYTES}")


@dataclass(frozen=True)
class TimerConfig:
    """Messages that are delivered at a given time."""

    enabled: bool = setting(True, "timerWheelEnable", "Accept messages with a delivery time.")
    precision_ms: int = setting(
        1000,
        "timerPrecisionMs",
        "Step of delivery times; 100, 200, 500 or 1000, others are rounded down to one of these.",
    )
    max_delay_s: int = setting(259_200, "timerMaxDelaySec", "Longest delay that is accepted.")
    roll_window_slots: int = setting(
        172_800, "timerRollWindowSlot", "Steps of precision after which a message that waits longer is stored again."
    )
    flush_interval_ms: int = setting(1_000, "timerFlushIntervalMs", "Pause between two flushes of the timer files.")
    log_segment_bytes: int = setting(100 << 20, "mappedFileSizeTimerLog", "Size of one timer-log file.")
    congested_count: int = setting(
        (1 << 31) - 1,
        "timerCongestNumEachSlot",
        "Messages waiting for one step above which some more are refused; from twice as many on, all are refused.",
    )
    stop_taking: bool = setting(False, "timerStopEnqueue", "Leave messages in the timer queue, for maintenance.")
    stop_delivering: bool = setting(False, "timerStopDequeue", "Deliver no timer messages, for maintenance.")

    def __post_init__(self) -> None:
        steps = [step for step in TIMER_PRECISIONS_MS if step <= self.precision_ms]
        object.__setattr__(self, "precision_ms", max(steps, default=TIMER_PRECISIONS_MS[0]))
        if not 2 <= self.roll_window_slots <= TIMER_MAX_WINDOW_SLOTS:
            object.__setattr__(self, "roll_window_slots", TIMER_MAX_WINDOW_SLOTS)
        if self.log_segment_bytes < MIN_TIMER_SEGMENT_BYTES:
            raise ConfigError(f"mappedFileSizeTimerLog={self.log_segment_bytes} is below {MIN_TIMER_SEGMENT_BYTES}")
        _require_positive(
            {
                "timerMaxDelaySec": self.max_delay_s,
                "timerFlushIntervalMs": self.flush_interval_ms,
                "timerCongestNumEachSlot": self.congested_count,
            }
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
    check_crc_on_read: bool = setting(
        True, "rocketline.checkCRCOnRead", "Check the body of every message that is read, and leave damaged ones out."
    )
    verify_on_start: bool = setting(
        False,
        "rocketline.verifyOnStart",
        "Compare every consume queue with the whole log at start, and rebuild those that differ.",
    )
    lock_memory: bool = setting(
        False,
        "rocketline.lockMemory",
        "Lock the pages of the log that are being written, so that they are never swapped out.",
    )
    transient_pool: bool = setting(
        False,
        "transientStorePoolEnable",
        "Write messages to buffers outside the files; a commit copies them to the file, and only then can they be read.",
    )
    transient_pool_size: int = setting(5, "transientStorePoolSize", "Buffers in the pool, each of a log file's size.")
    fail_without_buffer: bool = setting(
        False,
        "fastFailIfNoBufferInStorePool",
        "Refuse messages when the pool is empty at a new log file; false: write that file without a buffer.",
    )
    warm: bool = setting(True, "warmMapedFileEnable", "Fault in log pages shortly before they are written.")
    open_queue_files: int = setting(
        0,
        "rocketline.openQueueFiles",
        "Consume-queue files kept mapped at once; 0: half of what the kernel allows a process.",
    )
    flush: FlushConfig = section(FlushConfig)
    reads: ReadConfig = section(ReadConfig)
    retention: RetentionConfig = section(RetentionConfig)
    ext: ExtQueueConfig = section(ExtQueueConfig)
    timers: TimerConfig = section(TimerConfig)

    def __post_init__(self) -> None:
        rounded = -(-self.queue_segment_bytes // UNIT_BYTES) * UNIT_BYTES
        object.__setattr__(self, "queue_segment_bytes", rounded)
        if self.log_segment_bytes < MIN_LOG_SEGMENT_BYTES:
            raise ConfigError(f"mappedFileSizeCommitLog={self.log_segment_bytes} is below {MIN_LOG_SEGMENT_BYTES}")
        _require_positive(
            {
                "mappedFileSizeConsumeQueue": self.queue_segment_bytes,
                "maxHashSlotNum": self.index_slots,
                "maxMessageSize": self.max_message_bytes,
            }
        )
        if self.transient_pool and self.transient_pool_size < 2:
            raise ConfigError(
                f"transientStorePoolSize={self.transient_pool_size} is below 2: the file being written has one buffer, and "
                "messages are refused while no other is free"
            )
        if self.index_entries < 2:
            raise ConfigError(f"maxIndexNum={self.index_entries} leaves no room: entry 0 is never used")
