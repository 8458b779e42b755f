"""Topics: create or change one (17) or many (18), delete (215), show one (351), all (21) or the broker's own (305).
Static topics (513) are refused."""

from __future__ import annotations

import logging
import re
from functools import partial

from rocketline.async_table import Saving, when_saved
from rocketline.broker.handlers.admin.topic_removal import TopicRemoval
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.topics import MAX_QUEUE_COUNT, Topics
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.protocol.bodies import (
    MULTI_TAG,
    SINGLE_TAG,
    TopicConfig,
    TopicConfigList,
    TopicList,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    CreateTopicHeader,
    DeleteTopicHeader,
    GetAllTopicConfigHeader,
    GetTopicConfigHeader,
)
from rocketline.protocol.names import topic_problem
from rocketline.protocol.pop_info import RETRY_V1, RETRY_V2, pop_retry_topic
from rocketline.transport import Channel, Handler, Reply

log = logging.getLogger(__name__)

MAX_TOPICS = 4096
"""Topics that one request may create."""

ATTRIBUTES = {
    "queue.type": re.compile("SimpleCQ"),
    "cleanup.policy": re.compile("DELETE"),
    "message.type": re.compile("UNSPECIFIED|NORMAL|FIFO|DELAY|TRANSACTION|PRIORITY|MIXED"),
    "reserve.time": re.compile("-1"),
}
"""Attributes a topic may have, and their values."""
ABSENT = {
    "queue.type": "there are no batch consume queues here",
    "cleanup.policy": "there is no compaction here",
    "reserve.time": "there is no tiered storage here, and fileReservedTime counts for all topics",
}
"""Why Apache's other values of them are refused: a topic that promises something else than it does misleads everybody."""


@wired
class TopicHandlers:
    topics: Topics
    offsets: ConsumerOffsets
    removal: TopicRemoval

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.create,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.create_all,
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: self.create_static,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system,
            RequestCode.GET_TOPIC_CONFIG: self.get,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all,
        }

    def create(self, channel: Channel, request: Command) -> Reply:
        header = CreateTopicHeader.decode(request)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag,
            order=header.order,
        )
        self._check(topic)
        topic.attributes = _changed(self._attributes_of(header.topic), header.attributes or "")
        log.info("%s sets topic %s: %s", channel.remote, header.topic, topic)
        return when_saved([self.topics.configure([topic])], lambda: request.reply(ResponseCode.SUCCESS))

    def create_all(self, channel: Channel, request: Command) -> Reply:
        """All of them, or none when one cannot be."""
        topics = decode_body(TopicConfigList, request.body).topic_config_list
        if len(topics) > MAX_TOPICS:
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, f"{len(topics)} topics are more than {MAX_TOPICS}")
        for topic in topics:
            self._check(topic)
            # Tools write the sign of a change into the name; a bare name sets.
            given = (f"{name if name[:1] in '+-' else '+' + name}={value}" for name, value in topic.attributes.items())
            topic.attributes = _changed(self._attributes_of(topic.topic_name), ",".join(given))
        saving: Saving = None
        if topics:
            saving = self.topics.configure(topics)
            log.info("%s sets %d topics: %s", channel.remote, len(topics), ", ".join(t.topic_name for t in topics))
        return when_saved([saving], lambda: request.reply(ResponseCode.SUCCESS))

    def create_static(self, channel: Channel, request: Command) -> Reply:
        topic = CreateTopicHeader.decode(request).topic
        raise RequestRejected(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f"static topics are not supported here: create {topic!r} as an ordinary topic (updateTopic)",
        )

    def _attributes_of(self, name: str) -> dict[str, str]:
        known = self.topics.get(name)
        return known.attributes if known is not None else {}

    def _check(self, topic: TopicConfig) -> None:
        name, counts = topic.topic_name, (topic.read_queue_nums, topic.write_queue_nums)
        problem = self._problem_of(name)
        if problem is None and topic.topic_filter_type not in (SINGLE_TAG, MULTI_TAG):
            problem = f"topic filter type {topic.topic_filter_type!r} is neither {SINGLE_TAG} nor {MULTI_TAG}"
        if problem is None and not all(0 <= count <= MAX_QUEUE_COUNT for count in counts):
            problem = f"queue counts must lie between 0 and {MAX_QUEUE_COUNT}"
        if problem is None and not 0 <= topic.perm <= 7:
            problem = f"permission {topic.perm} is not between 0 and 7"
        if problem is not None:
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, problem)

    def _problem_of(self, name: str) -> str | None:
        """Why a topic of this name cannot be created or deleted; None when it can."""
        is_system = self.topics.is_system(name)
        return topic_problem(name) or (f"the topic[{name}] is conflict with system topic" if is_system else None)

    def delete(self, channel: Channel, request: Command) -> Reply:
        header = DeleteTopicHeader.decode(request)
        if problem := self._problem_of(header.topic):
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, problem)
        log.warning("%s deletes topic %s", channel.remote, header.topic)
        names = (header.topic, *self._redelivery_topics(header.topic))
        saving = [self.topics.remove(name, partial(self.removal.forget, name)) for name in names]
        return when_saved(saving, lambda: self._gone(request))

    def _gone(self, request: Command) -> Reply:
        return when_saved([self.removal.finish()], lambda: request.reply(ResponseCode.SUCCESS))

    def _redelivery_topics(self, topic: str) -> list[str]:
        """Topics with redeliveries for groups that popped this one: a new topic of this name must not begin with them."""
        names = [
            pop_retry_topic(group, topic, flag)
            for group in self.offsets.groups_of(topic)
            for flag in (RETRY_V1, RETRY_V2)
        ]
        return [name for name in names if self.topics.get(name) is not None]

    def get(self, channel: Channel, request: Command) -> Reply:
        header = GetTopicConfigHeader.decode(request)
        topic = self.topics.get(header.topic)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
        return request.reply(ResponseCode.SUCCESS, body=encode_body(topic))

    def system(self, channel: Channel, request: Command) -> Reply:
        return request.reply(ResponseCode.SUCCESS, body=encode_body(TopicList(self.topics.system_names)))

    def get_all(self, channel: Channel, request: Command) -> Reply:
        # A request for one page gets all topics, and their number.
        GetAllTopicConfigHeader.decode(request)
        snapshot = self.topics.snapshot()
        count = str(len(snapshot.topic_config_table))
        return request.reply(ResponseCode.SUCCESS, {"totalTopicNum": count}, encode_body(snapshot))


def _changed(attributes: dict[str, str], text: str) -> dict[str, str]:
    """Attributes after `+name=value,-name`."""
    result = dict(attributes)
    for item in filter(None, text.split(",")):
        sign, name, value = item[0], *item[1:].partition("=")[::2]
        if sign not in "+-" or name not in ATTRIBUTES:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"attribute {item!r}: expected +name=value or -name with one of {', '.join(sorted(ATTRIBUTES))}",
            )
        if sign == "+":
            if not ATTRIBUTES[name].fullmatch(value):
                reason = f"; {ABSENT[name]}" if name in ABSENT else ""
                raise RequestRejected(
                    ResponseCode.SYSTEM_ERROR, f"attribute {item!r}: {ATTRIBUTES[name].pattern} is expected{reason}"
                )
            result[name] = value
        else:
            result.pop(name, None)
    return result
