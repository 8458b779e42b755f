"""The topics of a broker: what exists, how many queues, who may read and write; kept in config/topics.json.

A topic comes into being by an administrator, by auto-creation from the template topic TBW102 when the first message
arrives, or because a consumer group needs its retry or dead-letter topic. Every change gets a new data version, is
saved before it is told to anyone, and is announced to the name servers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from rocketline.broker.config import TopicConfigDefaults
from rocketline.broker.saved import SavedTable
from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.message import RETRY_PREFIX
from rocketline.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.names import DEFAULT_TOPIC, NOT_SENDABLE, is_derived, topic_problem

log = logging.getLogger(__name__)

READ = 4
WRITE = 2
INHERIT = 1
UNIT = 1
UNIT_SUB = 2
"""Flags of a topic that clients in unit mode write, or consume."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
"""The topic of pop mode's check points is called after the cluster."""
MAX_QUEUE_COUNT = 65536


def system_topics(
    cluster: str, broker_name: str, defaults: TopicConfigDefaults, revive_queues: int = 8
) -> list[TopicConfig]:
    """Topics every broker has from the start, with Apache's queue counts and permissions."""
    topics = [
        _topic("SELF_TEST_TOPIC", 1),
        _topic("BenchmarkTest", 1024),
        _topic(cluster, 16, READ | WRITE | INHERIT),
        _topic(broker_name, 1, READ | WRITE | INHERIT),
        _topic("OFFSET_MOVED_EVENT", 1),
        _topic(SCHEDULE_TOPIC, 18),
        _topic(f"{cluster}_REPLY_TOPIC", 1),
        _topic(REVIVE_PREFIX + cluster, revive_queues),
        _topic(f"rmq_sys_SYNC_BROKER_MEMBER_{broker_name}", 1, INHERIT),
        _topic("RMQ_SYS_TRANS_HALF_TOPIC", 1),
        _topic("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1),
        _topic("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", 1),
        _topic("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", 1),
        _topic("rmq_sys_wheel_timer", 1),
    ]
    if defaults.has_trace_topic:
        topics.append(_topic(defaults.trace_topic, 1))
    if defaults.auto_create:
        topics.append(_topic(DEFAULT_TOPIC, defaults.queue_count, READ | WRITE | INHERIT))
    return topics


def _topic(name: str, queue_count: int, perm: int = READ | WRITE, sys_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queue_count,
        write_queue_nums=queue_count,
        perm=perm,
        topic_sys_flag=sys_flag,
    )


class Topics:
    """All topics by name."""

    def __init__(
        self,
        file: SavedTable[TopicConfigSerializeWrapper],
        system: Iterable[TopicConfig],
        clock: Clock,
        *,
        auto_create: bool = True,
        writable: bool = True,
    ) -> None:
        self._file = file
        self._clock = clock
        self._auto_create = auto_create
        self.writable = writable
        self._system = {topic.topic_name: topic for topic in system}
        # A record of somebody else in the revive log could hold up a revive queue for as long as it likes.
        self._not_sendable = NOT_SENDABLE | {name for name in self._system if name.startswith(REVIVE_PREFIX)}
        self.table: dict[str, TopicConfig] = {}
        self.version = DataVersion(timestamp=clock.now_ms())
        self.on_change: Callable[[list[TopicConfig]], None] | None = None

    def load(self) -> None:
        """Read topics.json; system topics are there whatever it says."""
        saved = self._file.load()
        if saved is not None:
            self.table = dict(saved.topic_config_table)
            self.version = saved.data_version
        for name, topic in self._system.items():
            if name not in self.table or name == DEFAULT_TOPIC:
                self.table[name] = topic
        if not self._auto_create:
            self.table.pop(DEFAULT_TOPIC, None)
        if saved is None or saved.topic_config_table != self.table:
            self.save()

    def save(self) -> None:
        self._file.save(self.snapshot())

    def snapshot(self) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper(data_version=self.version, topic_config_table=dict(self.table))

    def get(self, name: str) -> TopicConfig | None:
        return self.table.get(name)

    @property
    def system_names(self) -> list[str]:
        """The topics every broker has; there may be more whose names are reserved."""
        return sorted(self._system)

    def create_by_itself(self, wanted: bool) -> None:
        """Whether a first message makes its topic, from now on: the template has the right to be inherited, or not."""
        self._auto_create = wanted
        template = self.table.get(DEFAULT_TOPIC)
        if template is None:
            if wanted:
                self.put([_topic(DEFAULT_TOPIC, TopicConfigDefaults().queue_count, READ | WRITE | INHERIT)])
        elif bool(template.perm & INHERIT) != wanted:
            perm = template.perm | INHERIT if wanted else template.perm & ~INHERIT
            self.put([_topic(DEFAULT_TOPIC, template.write_queue_nums, perm)])

    def is_system(self, name: str) -> bool:
        return name in self._system or name.startswith("rmq_sys_")

    def for_send(self, name: str, template: str, queue_count: int, unit_mode: bool = False) -> TopicConfig:
        """The topic a message may be stored under, made from its template when it is new."""
        if not self.writable:
            raise RequestRejected(ResponseCode.NO_PERMISSION, "the broker sending message is forbidden")
        topic = self.table.get(name)
        if topic is None or name in self._not_sendable:
            topic = self._for_first_send(name, template, queue_count, unit_mode)
        if not topic.perm & WRITE:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        return topic

    def require(self, name: str) -> TopicConfig:
        topic = self.table.get(name)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def require_derived(self, name: str, queue_count: int, unit_mode: bool = False) -> TopicConfig:
        """A group's retry or dead-letter topic, created on demand; marked when its consumer is in unit mode."""
        self.require_all_derived({name: queue_count}, {name} if unit_mode else ())
        return self.table[name]

    def require_all_derived(self, queue_counts: dict[str, int], unit_subs: Collection[str] = ()) -> None:
        """Several such topics; those that are new are saved and announced together, marked when in `unit_subs`."""
        new = [
            _topic(name, max(1, count), sys_flag=UNIT_SUB if name in unit_subs else 0)
            for name, count in queue_counts.items()
            if name not in self.table
        ]
        if new:
            self.put(new)

    def put(self, topics: list[TopicConfig]) -> None:
        """Create or change topics: saved first, then announced."""
        self._replace(self.table | {topic.topic_name: topic for topic in topics})
        if self.on_change is not None:
            self.on_change(topics)

    def announce_all(self) -> None:
        """Tell the name servers of every topic anew."""
        self.put(list(self.table.values()))

    def delete(self, name: str) -> bool:
        if name not in self.table:
            return False
        self._replace({other: topic for other, topic in self.table.items() if other != name})
        return True

    def _replace(self, table: dict[str, TopicConfig]) -> None:
        """Saved before it counts: a change that the disk refuses has not happened."""
        version = self.version.advanced(self._clock.now_ms())
        self._file.save(TopicConfigSerializeWrapper(data_version=version, topic_config_table=table))
        self.table, self.version = table, version

    def _for_first_send(self, name: str, template_name: str, queue_count: int, unit_mode: bool) -> TopicConfig:
        if problem := topic_problem(name):
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, problem)
        if name in self._not_sendable:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"sending to the system topic {name} is forbidden")
        if name.startswith(RETRY_PREFIX):
            self.require_all_derived({name: 1}, {name} if unit_mode else ())
            return self.table[name]
        template = self.table.get(template_name)
        if template is None or not template.perm & INHERIT or is_derived(name):
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! (no auto-creation from template {template_name!r})",
            )
        count = max(1, min(queue_count, template.write_queue_nums))
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=template.perm & ~INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=template.topic_sys_flag | (UNIT if unit_mode else 0),
        )
        log.info("topic %s created with %d queues from %s", name, count, template_name)
        self.put([topic])
        return topic
