import pytest

from rocketline.errors import ConfigError
from rocketline.settings import describe, load
from rocketline.store.config import FlushConfig, FlushDiskType, StoreConfig


def test_apaches_keys_load() -> None:
    config, unknown = load(
        StoreConfig,
        {
            "mappedFileSizeCommitLog": "1048576",
            "flushDiskType": "SYNC_FLUSH",
            "maxTransferCountOnMessageInMemory": "64",
            "messageIndexEnable": "false",
            "listenPort": "1",
        },
    )
    assert config.log_segment_bytes == 1048576
    assert config.flush.disk_type is FlushDiskType.SYNC_FLUSH
    assert config.flush.is_sync
    assert config.reads.memory_messages == 64
    assert not config.index_enabled
    assert unknown == ["listenPort"]


def test_defaults_are_apaches() -> None:
    defaults = {item.key: item.default for item in describe(StoreConfig) if item.key}
    assert defaults["mappedFileSizeCommitLog"] == 1073741824
    assert defaults["mappedFileSizeConsumeQueue"] == 6000000
    assert (defaults["maxHashSlotNum"], defaults["maxIndexNum"]) == (5000000, 20000000)
    assert defaults["flushCommitLogThoroughInterval"] == 10000
    assert defaults["maxMessageSize"] == 4194304


def test_a_consume_queue_file_holds_whole_units() -> None:
    assert StoreConfig(queue_segment_bytes=50).queue_segment_bytes == 60


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"log_segment_bytes": 100}, "mappedFileSizeCommitLog=100"),
        ({"queue_segment_bytes": 0}, "mappedFileSizeConsumeQueue=0"),
        ({"index_slots": 0}, "maxHashSlotNum=0"),
        ({"index_entries": 1}, "maxIndexNum=1"),
        ({"max_message_bytes": -1}, "maxMessageSize=-1"),
    ],
)
def test_settings_that_cannot_work_are_named(settings: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        StoreConfig(**settings)  # type: ignore[arg-type]


def test_intervals_are_above_zero() -> None:
    with pytest.raises(ConfigError, match="flushIntervalCommitLog=0"):
        FlushConfig(log_interval_ms=0)
