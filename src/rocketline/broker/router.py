"""Which handler answers which request code of a broker."""

from __future__ import annotations

from collections.abc import Callable

from rocketline.broker.changes import ChangingConfig
from rocketline.broker.consumer_offsets import ConsumerOffsets
from rocketline.broker.delays import DelayLevels
from rocketline.broker.groups import Groups
from rocketline.broker.handlers.admin.configuration import ConfigurationHandlers
from rocketline.broker.handlers.admin.connections import ConnectionHandlers
from rocketline.broker.handlers.admin.consuming import ConsumingHandlers
from rocketline.broker.handlers.admin.files import FileHandlers
from rocketline.broker.handlers.admin.groups import GroupHandlers
from rocketline.broker.handlers.admin.half_messages import HalfMessageHandlers
from rocketline.broker.handlers.admin.relays import RelayHandlers
from rocketline.broker.handlers.admin.resets import ResetHandlers
from rocketline.broker.handlers.admin.runtime_info import RuntimeInfoHandlers
from rocketline.broker.handlers.admin.statistics import StatisticsHandlers
from rocketline.broker.handlers.admin.tables import TableHandlers
from rocketline.broker.handlers.admin.topics import TopicHandlers
from rocketline.broker.handlers.busy import unless_busy
from rocketline.broker.handlers.clients import ClientHandlers
from rocketline.broker.handlers.locks import LockHandlers
from rocketline.broker.handlers.offsets import OffsetHandlers
from rocketline.broker.handlers.pop import PopHandlers
from rocketline.broker.handlers.pop_acks import PopAckHandlers
from rocketline.broker.handlers.pop_assignments import AssignmentHandlers
from rocketline.broker.handlers.pull import PullHandlers
from rocketline.broker.handlers.queries import QueryHandlers
from rocketline.broker.handlers.replies import ReplyHandlers
from rocketline.broker.handlers.send import SendHandlers
from rocketline.broker.handlers.send_back import SendBackHandlers
from rocketline.broker.handlers.timers import TimerHandlers
from rocketline.broker.handlers.transactions import TransactionHandlers
from rocketline.broker.queue_time import QueueTime
from rocketline.broker.registries import ConsumerRegistry, ProducerRegistry
from rocketline.broker.set_aside import SetAside
from rocketline.broker.statistics import BrokerStatistics, FallBehind
from rocketline.broker.timer.timers import Timers
from rocketline.broker.topics import Topics
from rocketline.broker.waiters import PullWaiters
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.protocol.codes import RequestCode
from rocketline.store.message_store import MessageStore
from rocketline.transport import DEFAULT_LIMITS, Limits, Router


def broker_router(
    sends: SendHandlers,
    pulls: PullHandlers,
    send_backs: SendBackHandlers,
    offsets: OffsetHandlers,
    queries: QueryHandlers,
    clients: ClientHandlers,
    topics: TopicHandlers,
    groups: GroupHandlers,
    files: FileHandlers,
    locks: LockHandlers,
    timers: TimerHandlers,
    transactions: TransactionHandlers,
    replies: ReplyHandlers,
    queue_time: QueueTime | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Router:
    store = send_backs.store
    send = unless_busy(store, sends.send, queue_time)
    router = Router(
        {
            RequestCode.SEND_MESSAGE: send,
            RequestCode.SEND_MESSAGE_V2: send,
            RequestCode.SEND_BATCH_MESSAGE: unless_busy(store, sends.send_batch, queue_time),
            RequestCode.CONSUMER_SEND_MSG_BACK: unless_busy(store, send_backs.send_back),
            RequestCode.RECALL_MESSAGE: timers.recall,
            RequestCode.GET_TIMER_CHECK_POINT: timers.checkpoint,
            RequestCode.GET_TIMER_METRICS: timers.counts,
            RequestCode.END_TRANSACTION: transactions.end,
            RequestCode.SEND_REPLY_MESSAGE: replies.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply,
            RequestCode.PULL_MESSAGE: pulls.pull,
            RequestCode.LITE_PULL_MESSAGE: pulls.pull,
            RequestCode.QUERY_MESSAGE: queries.query,
            RequestCode.VIEW_MESSAGE_BY_ID: queries.view,
            RequestCode.QUERY_CONSUMER_OFFSET: offsets.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search,
            RequestCode.GET_MAX_OFFSET: offsets.max_offset,
            RequestCode.GET_MIN_OFFSET: offsets.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.earliest_time,
            RequestCode.HEART_BEAT: clients.heartbeat,
            RequestCode.UNREGISTER_CLIENT: clients.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: clients.check,
            RequestCode.LOCK_BATCH_MQ: locks.lock,
            RequestCode.UNLOCK_BATCH_MQ: locks.unlock,
            RequestCode.UPDATE_AND_CREATE_TOPIC: topics.create,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: topics.create_all,
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: topics.create_static,
            RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.system,
            RequestCode.GET_TOPIC_CONFIG: topics.get,
            RequestCode.GET_ALL_TOPIC_CONFIG: topics.get_all,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups.create_all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: groups.forbid,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.get,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.get_all,
            RequestCode.DELETE_EXPIRED_COMMITLOG: files.delete_expired,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: files.trim_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: files.delete_unused_topics,
        }
    )
    router.lane = sends.lane(limits, queue_time)
    router.quick_reads = pulls.lane(limits)
    return router


def pop_router(pops: PopHandlers, acks: PopAckHandlers, assignments: AssignmentHandlers) -> Router:
    """Pop mode."""
    return Router(
        {
            RequestCode.POP_MESSAGE: pops.pop,
            RequestCode.PEEK_MESSAGE: pops.peek,
            RequestCode.NOTIFICATION: pops.notification,
            RequestCode.POLLING_INFO: pops.polling_info,
            RequestCode.ACK_MESSAGE: acks.ack,
            RequestCode.BATCH_ACK_MESSAGE: acks.ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: acks.change,
            RequestCode.QUERY_ASSIGNMENT: assignments.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: assignments.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: assignments.all_modes,
        }
    )


@wired
class OperatorParts:
    """What questions about consumption need of a broker."""

    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    delays: DelayLevels
    consumers: ConsumerRegistry
    producers: ProducerRegistry
    waiters: PullWaiters
    statistics: BrokerStatistics
    clock: Clock
    broker_name: str
    address: str
    server_side_reset: bool
    timers: Timers
    aside: SetAside
    config: ChangingConfig
    stored: Callable[[], None]
    started_ms: int


def operator_router(parts: OperatorParts) -> Router:
    """What operators, and other brokers, ask about consumption."""
    store, topics, groups, offsets, consumers = (
        parts.store, parts.topics, parts.groups, parts.offsets, parts.consumers,
    )  # fmt: skip
    name, address, clock, counted = parts.broker_name, parts.address, parts.clock, parts.statistics
    consuming = ConsumingHandlers(store, topics, groups, offsets, consumers, counted, clock, name, address)
    connections = ConnectionHandlers(consumers, parts.producers, clock)
    tables = TableHandlers(store, offsets, parts.delays, consumers)
    statistics = StatisticsHandlers(store, topics, counted, FallBehind(store, offsets, clock), name)
    resets = ResetHandlers(store, topics, groups, offsets, consumers, parts.waiters, name, parts.server_side_reset)
    relays = RelayHandlers(store, topics, groups, consumers, name)
    runtime = RuntimeInfoHandlers(store, parts.delays, parts.timers, counted, parts.aside, clock, parts.started_ms)
    configuration = ConfigurationHandlers(parts.config)
    return Router(
        {
            RequestCode.GET_BROKER_RUNTIME_INFO: runtime.show,
            RequestCode.GET_BROKER_CONFIG: configuration.get,
            RequestCode.UPDATE_BROKER_CONFIG: configuration.update,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: HalfMessageHandlers(store, parts.stored).resume,
            RequestCode.GET_ALL_CONSUMER_OFFSET: tables.consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: tables.delay_offsets,
            RequestCode.QUERY_CONSUME_QUEUE: tables.queue,
            RequestCode.GET_TOPIC_STATS_INFO: statistics.topic,
            RequestCode.VIEW_BROKER_STATS_DATA: statistics.view,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: connections.of_consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: connections.of_producers,
            RequestCode.GET_ALL_PRODUCER_INFO: connections.all_producers,
            RequestCode.GET_CONSUME_STATS: consuming.stats,
            RequestCode.GET_BROKER_CONSUME_STATS: consuming.all_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: consuming.time_span,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: consuming.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: consuming.topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: consuming.subscription,
            RequestCode.CLONE_GROUP_OFFSET: consuming.clone,
            RequestCode.QUERY_CORRECTION_OFFSET: consuming.correction,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: resets.reset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: relays.positions,
            RequestCode.GET_CONSUMER_RUNNING_INFO: relays.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: relays.consume_directly,
        }
    )
