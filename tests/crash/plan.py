"""What a broker's process is told at its start: settings, and the trouble it is to have. Travels as JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec

# Files so small that a second of load rolls them, saves so frequent that a kill meets one.
SETTINGS = {
    "listenPort": "0",
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "8000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "4000",
    "defaultTopicQueueNums": "4",
    "flushConsumerOffsetInterval": "40",
    "flushDelayOffsetInterval": "60",
    "flushIntervalConsumeQueue": "30",
    "flushConsumeQueueThoroughInterval": "90",
    "maxTransferCountOnMessageInMemory": "512",
    "maxTransferBytesOnMessageInMemory": str(2 << 20),
}
SYNC = {"flushDiskType": "SYNC_FLUSH"}
ASYNC = {"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "25", "flushCommitLogLeastPages": "1"}


class Troubles(msgspec.Struct, frozen=True):
    """What goes wrong in the broker's process; nothing by default."""

    sync_error_at: int = 0
    """The nth flush of a log file fails with EIO."""
    sync_delay_ms: tuple[int, int] = (0, 0)
    """Every flush takes this much longer, drawn anew each time."""
    slow_part: str = ""
    """Only flushes of paths with this in them take longer."""
    no_space_at: int = 0
    """From the nth reservation on there is no space, until told to heal."""
    die_in: str = ""
    """Name of a metadata file inside whose replacement the process kills itself ..."""
    die_before: str = ""
    """... just before this step."""
    die_at: int = 1
    """... of the nth replacement."""
    delays_seed: int = 0
    from_start: bool = True
    """Otherwise flushes are slow only after the broker was told to be."""


class Plan(msgspec.Struct, frozen=True):
    """One run of a broker."""

    store: str
    settings: dict[str, str]
    shadow: str = ""
    """Folder that keeps what a power cut would leave; empty: flushes go to the real disk."""
    faults: tuple[str, ...] = ()
    """Planted faults, by name."""
    troubles: Troubles = Troubles()

    @property
    def root(self) -> Path:
        return Path(self.store)

    @property
    def is_sync(self) -> bool:
        return self.settings.get("flushDiskType") == "SYNC_FLUSH"


def plan_for(
    store: Path,
    *layers: dict[str, str],
    shadow: str = "",
    faults: tuple[str, ...] = (),
    troubles: Troubles | None = None,
) -> Plan:
    """A plan on top of the small files; later layers of settings win."""
    settings = dict(SETTINGS)
    for layer in layers:
        settings.update(layer)
    return Plan(str(store), settings, shadow, faults, troubles or Troubles())
