"""Faults to plant into a store or broker, so that the harness shows that it can find them. Never used outside tests.

Each is a mistake somebody could make, done by replacing one function. `plant` leaves it in place, for a process that will be
killed anyway; `planted` takes it out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketline import files
from rocketline.async_table import OffLoop
from rocketline.broker.durability import Durability, Durable, Settle
from rocketline.broker.handlers import send
from rocketline.broker.parts import BrokerParts
from rocketline.broker.tables.topics import Topics
from rocketline.errors import StoreError
from rocketline.store.config import StoreConfig
from rocketline.store.files import disk, mapped_file
from rocketline.store.files.segmented_file import SegmentedFile
from rocketline.store.flush.checkpoint import Checkpoint
from rocketline.store.message_store import MessageStore
from rocketline.store.queue.dispatcher import Dispatcher
from rocketline.store.recovery import recovery
from rocketline.store.recovery.report import RecoveryInput
from rocketline.store.store_parts import StoreParts


class Patches:
    """Replaced attributes, and what they were."""

    def __init__(self) -> None:
        self._former: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> Any:
        """Replace an attribute that must exist; returns the former one."""
        former = getattr(owner, name)
        self._former.append((owner, name, former))
        setattr(owner, name, value)
        return former

    def undo(self) -> None:
        for owner, name, former in reversed(self._former):
            setattr(owner, name, former)


def log_never_flushed(patches: Patches) -> None:
    """The log's flush is skipped and counted as done."""

    def flush_nothing(self: SegmentedFile, end: int) -> None:
        self.flushed = max(self.flushed, end)

    _for_the_log(patches, "flush", flush_nothing)


def acknowledged_before_flush(patches: Patches) -> None:
    """A send under SYNC_FLUSH is answered without waiting for the disk."""

    def tell_at_once(self: Durability, next_log_offset: int, settle: Settle) -> None:
        settle(Durable.YES)

    patches.set(Durability, "tell", tell_at_once)


def checksum_forgotten(patches: Patches) -> None:
    """Recovery takes records without looking at their bodies."""
    really_init = MessageStore.__init__

    def init_unchecked(self: MessageStore, root: Path, config: StoreConfig, *rest: Any, **options: Any) -> None:
        really_init(self, root, replace(config, check_crc=False), *rest, **options)

    patches.set(MessageStore, "__init__", init_unchecked)


def readable_before_flush(patches: Patches) -> None:
    """Messages are dispatched as they are appended, whatever the flush mode."""
    dispatch = Dispatcher.dispatch

    def dispatch_at_once(self: Dispatcher) -> int:
        self._waits_for_flush = False
        return dispatch(self)

    patches.set(Dispatcher, "dispatch", dispatch_at_once)


def failed_flush_counted(patches: Patches) -> None:
    """A failed flush moves the flushed position all the same."""
    real_flush = SegmentedFile.flush

    def flush_anyway(self: SegmentedFile, end: int) -> None:
        with suppress(StoreError):
            real_flush(self, end)
        self.flushed = max(self.flushed, end)

    _for_the_log(patches, "flush", flush_anyway)


def failed_flush_tried_again(patches: Patches) -> None:
    """A failed flush is tried again, which succeeds although the data is gone."""
    real_sync = SegmentedFile._sync

    def sync_again(self: SegmentedFile, segment: Any) -> None:
        try:
            real_sync(self, segment)
        except StoreError:
            real_sync(self, segment)

    patches.set(SegmentedFile, "_sync", sync_again)


def torn_end_kept(patches: Patches) -> None:
    """Recovery finds the end of the log, and leaves what lies behind it in the file."""
    real_truncate = SegmentedFile.truncate

    def truncate_not(self: SegmentedFile, offset: int, erase: bool = True, keep_first: bool = False) -> int:
        return real_truncate(self, offset, erase=False, keep_first=keep_first)

    _for_the_log(patches, "truncate", truncate_not)


def metadata_written_in_place(patches: Patches) -> None:
    """Tables are written over their former content."""

    def write_over(path: Path, data: bytes, *, keep_backup: bool = False, mode: int = 0) -> None:
        with files.__dict__.get("open", open)(path, "wb") as file:
            file.write(data)

    patches.set(files, "replace_file", write_over)
    patches.set(disk, "replace_file", write_over)


def durable_end_overstated(patches: Patches) -> None:
    """Recovery believes that the whole log was flushed, so that a torn record passes for one that rotted."""
    really_init = recovery.Recovery.__init__

    def init_believing(
        self: recovery.Recovery, parts: StoreParts, checkpoint: Checkpoint, known: RecoveryInput
    ) -> None:
        last = parts.log.file.last
        really_init(self, parts, checkpoint, replace(known, flushed=last.next_base if last is not None else 0))

    patches.set(recovery.Recovery, "__init__", init_believing)


def queue_numbers_forgotten(patches: Patches) -> None:
    """After a start the first message of each queue is number 0 again."""
    settle = recovery.Recovery._settle_queues

    def settle_and_forget(self: recovery.Recovery) -> None:
        settle(self)
        self._log.queue_offsets.clear()

    patches.set(recovery.Recovery, "_settle_queues", settle_and_forget)


def wrong_place_told(patches: Patches) -> None:
    """The answer to a send names the queue offset after the message's."""
    real_answer = send.SendHandlers._answer

    def answer(self: send.SendHandlers, request: Any, queue_id: int, message: Any, result: Any, code: int) -> Any:
        return real_answer(
            self, request, queue_id, message, result._replace(queue_offset=result.queue_offset + 1), code
        )

    patches.set(send.SendHandlers, "_answer", answer)


def group_offsets_uncapped(patches: Patches) -> None:
    """Groups keep offsets of messages that a power cut took."""
    patches.set(BrokerParts, "_cap_offsets", lambda self: None)


def new_file_unnamed(patches: Patches) -> None:
    """The folder of a new log file is not flushed, so that its name may be lost."""
    for module in (disk, mapped_file):
        patches.set(module, "sync_folder", lambda folder: None)


def tables_saved_on_the_loop(patches: Patches) -> None:
    """Whoever changes a table waits for the disk, and everybody with him."""

    def run_here(self: OffLoop, work: Callable[[], None]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            work()
        except StoreError as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    patches.set(OffLoop, "__call__", run_here)


def unsaved_topics_forgotten(patches: Patches) -> None:
    """A topic that was not saved before a crash stays away, and its messages with it."""
    patches.set(Topics, "adopt", lambda self, queue_counts: None)


FAULTS: dict[str, Callable[[Patches], None]] = {
    fault.__name__: fault
    for fault in (
        log_never_flushed,
        acknowledged_before_flush,
        checksum_forgotten,
        readable_before_flush,
        failed_flush_counted,
        failed_flush_tried_again,
        torn_end_kept,
        metadata_written_in_place,
        durable_end_overstated,
        queue_numbers_forgotten,
        wrong_place_told,
        group_offsets_uncapped,
        new_file_unnamed,
        tables_saved_on_the_loop,
        unsaved_topics_forgotten,
    )
}


def plant(name: str, known: Mapping[str, Callable[[Patches], None]] = FAULTS) -> None:
    """Put a fault into this process for good."""
    known[name](Patches())


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Put a fault into this process for a while."""
    patches = Patches()
    try:
        FAULTS[name](patches)
        yield
    finally:
        patches.undo()


def _for_the_log(patches: Patches, name: str, faulty: Callable[..., Any]) -> None:
    """Replace a method of the commit log's chain of files and leave those of the queues alone."""
    real = getattr(SegmentedFile, name)

    def chosen(self: SegmentedFile, *arguments: Any, **options: Any) -> Any:
        return (faulty if self.folder.name == "commitlog" else real)(self, *arguments, **options)

    patches.set(SegmentedFile, name, chosen)
