"""What goes with a topic: progress in it, its queues, and the pulls that wait for its messages."""

from __future__ import annotations

from collections.abc import Callable

from rocketline.async_table import Saving
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.wiring import wired
from rocketline.store.message_store import MessageStore


@wired
class TopicRemoval:
    offsets: ConsumerOffsets
    store: MessageStore
    topic_gone: Callable[[], None]
    """Called after a deletion, so that held pulls of the topic are answered."""
    mark_store: Callable[[], Saving]
    """Writes down which queues there are, so that no recovery finds messages of deleted ones again."""

    def forget(self, name: str) -> None:
        """For each topic that is removed; `finish` follows the last one."""
        self.offsets.forget_topic(name)
        self.store.delete_topic(name)

    def finish(self) -> Saving:
        self.topic_gone()
        return self.mark_store()
