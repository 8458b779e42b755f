"""Headers of tools that manage topics and subscription groups on a broker, or ask about them."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.headers.base import Header, Int32


class CreateTopicHeader(Header):
    """17: create or change; `attributes` is `+name=value,-name`."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class DeleteTopicHeader(Header):
    """215."""

    topic: str


class GetTopicConfigHeader(Header):
    """351; `logical` asks for the static mapping as well."""

    topic: str
    logical: bool | None = field(default=None, name="lo")


class GetAllTopicConfigHeader(Header):
    """21, page by page from `topic_seq`, or all at once when it is absent."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigResponseHeader(Header):
    total_topic_num: Int32 | None = None


class GetAllGroupConfigHeader(Header):
    """201, page by page from `group_seq`, or all at once when it is absent."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllGroupConfigResponseHeader(Header):
    total_group_num: Int32 | None = None


class GetGroupConfigHeader(Header):
    """352."""

    group: str


class DeleteGroupHeader(Header):
    """207; tools of 4.9 send `removeOffset`, those of 5.x `cleanOffset`."""

    group_name: str
    clean_offset: bool = False
    remove_offset: bool | None = None


class GroupForbiddenHeader(Header):
    """353; without `readable` nothing is changed."""

    group: str
    topic: str
    readable: bool | None = None


class GetTopicStatsHeader(Header):
    """202."""

    topic: str
    others: str | None = field(default=None, name="rocketlineTopics")
    """Ours: more topics, with commas between, whose queues are in the answer too. Apache's broker ignores it."""


class GetConsumerConnectionsHeader(Header):
    """203."""

    consumer_group: str


class GetProducerConnectionsHeader(Header):
    """204."""

    producer_group: str


class GetConsumeStatsHeader(Header):
    """208; `topic_list` is separated by `;` and skips the subscription check."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
