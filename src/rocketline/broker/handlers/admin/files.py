"""Deletion of files: expired log files (329), queue files of deleted log files (306), queues of unknown topics (316)."""

from __future__ import annotations

import logging

from rocketline.async_table import when_saved
from rocketline.broker.handlers.admin.topic_removal import TopicRemoval
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
    store: MessageStore
    removal: TopicRemoval

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
            self.removal.forget(name)
        saving = self.removal.finish() if unused else None
        return when_saved([saving], lambda: request.reply(ResponseCode.SUCCESS))
