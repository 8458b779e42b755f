"""Deletion of files: expired log files (329), queue files of deleted log files (306), queues of unknown topics (316)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketline.async_table import Saving, when_saved
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler, Reply

log = logging.getLogger(__name__)


@wired
class FileHandlers:
    topics: Topics
    offsets: ConsumerOffsets
    store: MessageStore
    topic_gone: Callable[[], None]
    """Called after a deletion, so that held pulls of the topic are answered."""
    mark_store: Callable[[], Saving]
    """Writes down which queues there are, so that no recovery finds messages of deleted ones again."""

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.trim_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.delete_unused_topics,
        }

    def delete_expired(self, channel: Channel, request: Command) -> Reply:
        """Whatever the hour: some files now, the rest in the passes that follow."""
        self.store.delete_expired()
        self.store.clean_up()
        return request.reply(ResponseCode.SUCCESS)

    def trim_queues(self, channel: Channel, request: Command) -> Reply:
        # Apache also drops a queue whose messages are all gone, and numbers its next message 0 again: consumers that
        # remember a higher offset would pass over what comes then. Here the last file, and so the number, stays.
        self.store.trim_queues()
        return request.reply(ResponseCode.SUCCESS)

    def delete_unused_topics(self, channel: Channel, request: Command) -> Reply:
        unused = [name for name in self.store.topics() if not (self.topics.get(name) or self.topics.is_system(name))]
        for name in unused:
            log.warning("topic %s is unknown here: its queues are deleted, as an operator asked", name)
            self.offsets.forget_topic(name)
            self.store.delete_topic(name)
        saving: Saving = None
        if unused:
            self.topic_gone()
            saving = self.mark_store()
        return when_saved([saving], lambda: request.reply(ResponseCode.SUCCESS))
