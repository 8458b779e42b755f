"""The topics of a broker: names, numbers of queues, permissions; stored in config/topics.json.

A topic is created by an operator, from the template topic TBW102 when the first message arrives, or because a consumer
group needs its retry or dead-letter topic. Every change gets a new data version and is announced to the name servers. An
operator's is saved before it is in force; what is created automatically is saved soon (`async_table.py`), and after a
crash topics are found again by their queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from rocketline.async_table import AsyncTable, Edit, OffLoop, Saving
from rocketline.broker.config import TopicConfigDefaults
from rocketline.broker.tables.json_table import JsonTable
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
"""The topic of pop mode's check points; the name of the cluster follows."""
LIGHT_PREFIX = "%LMQ%"
"""Queues of such topics list records of other topics; they are in no table."""
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
        file: JsonTable[TopicConfigSerializeWrapper],
        system: Iterable[TopicConfig],
        clock: Clock,
        *,
        auto_create: bool = True,
        writable: bool = True,
        off_loop: OffLoop | None = None,
    ) -> None:
        self._file = file
        self._content = AsyncTable(file, TopicConfigSerializeWrapper(), self._use, off_loop)
        self._clock = clock
        self._auto_create = auto_create
        self.writable = writable
        self._system = {topic.topic_name: topic for topic in system}
        # A record of a client in the revive log could block a revive queue for any time.
        self._not_sendable = NOT_SENDABLE | {name for name in self._system if name.startswith(REVIVE_PREFIX)}
        self.table: dict[str, TopicConfig] = {}
        self.version = DataVersion(timestamp=clock.now_ms())
        self._listeners: list[Callable[[list[TopicConfig]], None]] = []

    def load(self) -> None:
        """Read topics.json; system topics are there whatever it says."""
        saved = self._file.load()
        table = {} if saved is None else dict(saved.topic_config_table)
        for name, topic in self._system.items():
            if name not in table or name == DEFAULT_TOPIC:
                table[name] = topic
        if not self._auto_create:
            table.pop(DEFAULT_TOPIC, None)
        is_saved = saved is not None and saved.topic_config_table == table
        version = self.version if saved is None else saved.data_version
        self._content.begin(
            TopicConfigSerializeWrapper(data_version=version, topic_config_table=table), is_saved=is_saved
        )

    def _use(self, content: TopicConfigSerializeWrapper) -> None:
        self.table, self.version = content.topic_config_table, content.data_version

    def save_again(self) -> None:
        """Try once more to save what the disk refused."""
        self._content.save_again()

    def save_rest(self) -> None:
        """Blocks until everything is saved: for a stop."""
        self._content.save_rest()

    def snapshot(self) -> TopicConfigSerializeWrapper:
        return TopicConfigSerializeWrapper(data_version=self.version, topic_config_table=dict(self.table))

    def get(self, name: str) -> TopicConfig | None:
        return self.table.get(name)

    @property
    def system_names(self) -> list[str]:
        """The topics every broker has; there may be more whose names are reserved."""
        return sorted(self._system)

    def subscribe(self, listener: Callable[[list[TopicConfig]], None]) -> None:
        """Tell a listener of topics that are created or changed, once that is in force."""
        self._listeners.append(listener)

    def set_writable(self, writable: bool) -> None:
        """Whether the broker takes messages, from now on."""
        self.writable = writable

    def set_auto_create(self, defaults: TopicConfigDefaults) -> None:
        """Whether a first message creates its topic, from now on: the template has the right to be inherited, or not."""
        wanted = self._auto_create = defaults.auto_create
        template = self.table.get(DEFAULT_TOPIC)
        if template is None:
            if wanted:
                self.put([_topic(DEFAULT_TOPIC, defaults.queue_count, READ | WRITE | INHERIT)])
        elif bool(template.perm & INHERIT) != wanted:
            perm = template.perm | INHERIT if wanted else template.perm & ~INHERIT
            self.put([_topic(DEFAULT_TOPIC, template.write_queue_nums, perm)])

    def is_system(self, name: str) -> bool:
        return name in self._system or name.startswith("rmq_sys_")

    def creates(self, name: str, template: str) -> bool:
        """Whether a message for this topic would create it from its template."""
        if name in self.table or is_derived(name) or name in self._not_sendable:
            return False
        found = self.table.get(template)
        return self.writable and found is not None and bool(found.perm & INHERIT) and topic_problem(name) is None

    def for_send(self, name: str, template: str, queue_count: int, unit_mode: bool = False) -> TopicConfig:
        """The topic that a message may be stored under, created from its template when it is new."""
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
        """Create or change topics at once; they are saved soon."""
        self._content.change(self._with(topics))
        self._tell(topics)

    def configure(self, topics: list[TopicConfig]) -> Saving:
        """Create or change topics by an operator's order: saved first, then in force and announced."""
        return self._content.change_saved(self._with(topics), lambda: self._tell(topics))

    def _tell(self, topics: list[TopicConfig]) -> None:
        for listener in self._listeners:
            listener(topics)

    def announce_all(self) -> None:
        """Announce every topic to the name servers again."""
        self.put(list(self.table.values()))

    def remove(self, name: str, then: Callable[[], None] | None = None) -> Saving:
        """Delete a topic; `then` deletes what belongs to it, before a message can create it again."""
        if name in self.table:
            without = self._edit(lambda table: {other: topic for other, topic in table.items() if other != name})
            return self._content.change_saved(without, then)
        if then is not None:
            then()
        return None

    def adopt(self, queue_counts: Mapping[str, int]) -> None:
        """Create topics that have queues but are not known: a crash came after their first message, before the save.

        They get at least the template's number of queues, so that every queue a producer may know exists again.
        """
        template = self.table.get(DEFAULT_TOPIC)
        usual, perm = (template.write_queue_nums, template.perm & ~INHERIT) if template else (1, READ | WRITE)
        found = [
            _topic(name, min(count, MAX_QUEUE_COUNT) if is_derived(name) else max(count, usual), perm)
            for name, count in self.unknown(queue_counts).items()
        ]
        if found:
            names = ", ".join(topic.topic_name for topic in found)
            log.warning("topics found by their queues, a crash came before they were saved: %s", names)
            self.put(found)

    def unknown(self, queue_counts: Mapping[str, int]) -> dict[str, int]:
        """Those of topics with queues that are not in the table, though they could be."""
        return {
            name: count
            for name, count in queue_counts.items()
            if not (name in self.table or self.is_system(name) or name.startswith(LIGHT_PREFIX) or topic_problem(name))
        }

    def follow(self, master: TopicConfigSerializeWrapper) -> None:
        """Have the topics of a master, under their version; system topics of this broker stay."""
        if master.data_version == self.version:
            return
        table = {**self._system, **master.topic_config_table}
        if not self._auto_create:
            table.pop(DEFAULT_TOPIC, None)
        followed = TopicConfigSerializeWrapper(data_version=master.data_version, topic_config_table=table)
        self._content.change(lambda _: followed)

    def _with(self, topics: list[TopicConfig]) -> Edit[TopicConfigSerializeWrapper]:
        added = {topic.topic_name: topic for topic in topics}
        return self._edit(lambda table: table | added)

    def _edit(
        self, change: Callable[[dict[str, TopicConfig]], dict[str, TopicConfig]]
    ) -> Edit[TopicConfigSerializeWrapper]:
        """Every change is a new version."""
        return lambda former: TopicConfigSerializeWrapper(
            data_version=former.data_version.advanced(self._clock.now_ms()),
            topic_config_table=change(former.topic_config_table),
        )

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
