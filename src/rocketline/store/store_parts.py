"""The parts of one message store, as opening, recovery, background threads and retention take them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocketline.clock import Clock
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.queue.dispatcher import Dispatcher
from rocketline.store.queue.tags_codes import TagsCodes
from rocketline.store.reading.damage import Damage


@dataclass(frozen=True)
class StoreParts:
    """Where a store lies, how it is configured, and what it consists of."""

    root: Path
    disk: Disk
    config: StoreConfig
    """As the store was opened; retention settings may change later, see `Retention.config`."""
    clock: Clock
    log: CommitLog
    queues: ConsumeQueues
    index: KeyIndex | None
    codes: TagsCodes
    dispatcher: Dispatcher
    damage: Damage
