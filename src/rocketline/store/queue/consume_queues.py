"""All consume queues of a store: found at start, made with the first message, given up with their topic.

They share a bound on how many files are mapped at once, and the list of those that have something to flush.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from rocketline.errors import StoreError, WrongFiles
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.files.segment import MapPool
from rocketline.store.files.segmented_file import SegmentedFile
from rocketline.store.log.append_result import is_storable_topic
from rocketline.store.queue.consume_queue import ConsumeQueue
from rocketline.store.queue.ext_queue import ExtQueue, ExtQueues

log = logging.getLogger(__name__)

MAX_QUEUE_ID = 0x7FFFFFFF


class ConsumeQueues:
    """All consume queues of a store, by topic and queue id."""

    def __init__(self, disk: Disk, folder: Path, config: StoreConfig) -> None:
        self.by_key: dict[tuple[str, int], ConsumeQueue] = {}
        self.dirty: deque[ConsumeQueue] = deque()
        """Queues with units that are not on disk yet; the flusher takes them out."""
        self._disk = disk
        self._folder = folder
        self._segment_bytes = config.queue_segment_bytes
        self._pool = MapPool(config.open_queue_files)
        self._ext = ExtQueues(disk, folder.with_name("consumequeue_ext"), config.ext, self._pool)

    def load(self, after_crash: bool, can_rebuild: bool = False) -> frozenset[tuple[str, int]]:
        """Take up the queues that are there, without finding their ends yet.

        Returns those with files of a wrong size, which are left where they are; unless they can be built anew, a StoreError.
        """
        broken: set[tuple[str, int]] = set()
        for topic in self._disk.list(self._folder):
            if not topic.is_folder or not is_storable_topic(topic.name):
                continue
            for queue in self._disk.list(self._folder / topic.name):
                if queue.is_folder and _is_queue_name(queue.name):
                    try:
                        found = self._new(
                            topic.name, int(queue.name), self._ext.find(topic.name, int(queue.name), after_crash)
                        )
                        found.file.load(after_crash)
                    except WrongFiles as error:
                        if not can_rebuild:
                            raise
                        log.warning("%s", error)
                        broken.add((topic.name, int(queue.name)))
                        continue
                    self.by_key[topic.name, int(queue.name)] = found
        return frozenset(broken)

    def _new(self, topic: str, queue_id: int, ext: ExtQueue | None) -> ConsumeQueue:
        folder = self._folder / topic / str(queue_id)
        return ConsumeQueue(SegmentedFile(self._disk, folder, self._segment_bytes, pool=self._pool), self.dirty, ext)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.by_key.values())

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self.by_key.get((topic, queue_id))

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made when it does not exist yet."""
        queue = self.by_key.get((topic, queue_id))
        if queue is None:
            if not is_storable_topic(topic) or queue_id < 0:
                raise StoreError(f"no consume queue can be made for topic {topic[:300]!r}, queue {queue_id}")
            topic = sys.intern(topic)  # one string for all queues of a topic
            ext = self._ext.make(topic, queue_id)
            queue = self.by_key[topic, queue_id] = self._new(topic, queue_id, ext)
        return queue

    def topics(self) -> set[str]:
        return {topic for topic, _ in self.by_key}

    def take_topic(self, topic: str) -> tuple[list[int], list[Path]]:
        """Take the queues of a topic out: nobody finds them any more, and somebody has to remove their folders.

        Returns the ids of the queues, and those folders; not all of them need exist.
        """
        ids = [queue_id for name, queue_id in self.by_key if name == topic]
        for queue_id in ids:
            queue = self.by_key.pop((topic, queue_id))
            queue.max_offset = 0
            queue.file.abandon()
            if queue.ext is not None:
                queue.ext.file.abandon()
        # Units without what they point to cost a look at the record each; the other way round it would be taken for new.
        return ids, [self._ext.folder_of(topic), self._folder / topic] if is_storable_topic(topic) else []

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete the files of one queue, also when they could not be taken up."""
        queue = self.by_key.pop((topic, queue_id), None)
        if queue is not None:
            queue.max_offset = 0
            queue.file.destroy()
            if queue.ext is not None:
                queue.ext.file.destroy()
        if is_storable_topic(topic):
            self._disk.remove_tree(self._folder / topic / str(queue_id))
            self._ext.delete_queue(topic, queue_id)

    def close(self) -> None:
        for queue in self:
            queue.unmap()
        self.by_key.clear()


def _is_queue_name(name: str) -> bool:
    """A number as a queue's folder has it: leading zeros, or more than fits into a record, are somebody else's."""
    return (
        name.isascii() and name.isdigit() and len(name) <= 10 and str(int(name)) == name and int(name) <= MAX_QUEUE_ID
    )
