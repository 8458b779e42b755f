"""The handlers of a broker, each given the parts it uses. They remember nothing of their own: a change of settings makes
them anew."""

from __future__ import annotations

from collections.abc import Iterator

from rocketline.broker.handlers.admin.files import FileHandlers
from rocketline.broker.handlers.admin.groups import GroupHandlers
from rocketline.broker.handlers.admin.topics import TopicHandlers
from rocketline.broker.handlers.clients import ClientHandlers
from rocketline.broker.handlers.locks import LockHandlers
from rocketline.broker.handlers.offsets import OffsetHandlers
from rocketline.broker.handlers.pop import PopHandlers, PopParts
from rocketline.broker.handlers.pop_acks import PopAckHandlers
from rocketline.broker.handlers.pop_assignments import AssignmentHandlers
from rocketline.broker.handlers.pull import PullHandlers, PullParts
from rocketline.broker.handlers.queries import QueryHandlers
from rocketline.broker.handlers.replies import ReplyHandlers
from rocketline.broker.handlers.send import SendHandlers, SendParts
from rocketline.broker.handlers.send_back import SendBackHandlers
from rocketline.broker.handlers.timers import TimerHandlers
from rocketline.broker.handlers.transactions import TransactionHandlers
from rocketline.broker.parts import BrokerParts
from rocketline.broker.pop.routes import TopicQueues
from rocketline.broker.router import OperatorParts, broker_router, operator_router, pop_router
from rocketline.broker.selection import Selections
from rocketline.broker.topics import READ, WRITE
from rocketline.protocol.message_ids import UniqueIds
from rocketline.transport import Router


def routers(parts: BrokerParts) -> Iterator[Router]:
    """All of them, for the requests they answer."""
    yield _main_router(parts)
    yield _pop_router(parts)
    yield operator_router(_operator_parts(parts))


def _main_router(parts: BrokerParts) -> Router:
    config, around, store = parts.config, parts.around, parts.store
    writable = bool(config.permission & WRITE)
    durability = parts.durability if config.store.flush.is_sync else None
    filters = config.filters
    selections = Selections(parts.filters, sql_enabled=filters.sql_enabled, filters_retries=filters.filters_retries)
    sends = send_handlers(parts)
    return broker_router(
        sends,
        pull_handlers(parts, selections),
        SendBackHandlers(
            store,
            parts.topics,
            parts.groups,
            parts.delays,
            around.stored,
            durability,
            writable=writable,
            random=around.random,
            statistics=parts.statistics,
            on_failure=around.on_failure,
        ),
        OffsetHandlers(store, parts.topics, parts.groups, parts.offsets),
        QueryHandlers(store),
        ClientHandlers(parts.topics, parts.groups, parts.consumers, parts.producers, parts.clock, selections),
        TopicHandlers(parts.topics, parts.offsets, store, parts.topic_gone, parts.mark_store),
        GroupHandlers(parts.groups, parts.offsets),
        FileHandlers(parts.topics, parts.offsets, store, parts.topic_gone, parts.mark_store),
        LockHandlers(parts.locks, parts.topics, parts.groups),
        TimerHandlers(
            store=store,
            topics=parts.topics,
            timers=parts.timers,
            clock=parts.clock,
            stored=around.stored,
            durability=durability,
            broker_name=config.name,
            region=config.region,
            max_delay_s=config.store.timers.max_delay_s,
            recall_enabled=config.recall_enabled,
            writable=writable or config.recall_when_read_only,
        ),
        TransactionHandlers(
            parts.half_messages,
            durability,
            parts.clock.now_ms,
            config.transactions.timeout_ms,
            is_slave=config.broker_id != 0,
        ),
        ReplyHandlers(sends, parts.producers, parts.clock, config.stores_replies),
        around.queue_time,
        around.limits,
    )


def send_handlers(parts: BrokerParts) -> SendHandlers:
    config, around = parts.config, parts.around
    return SendHandlers(
        SendParts(
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            delays=parts.delays,
            timers=parts.timers,
            durability=parts.durability,
            unique_ids=UniqueIds(around.ip, parts.clock),
            stored=around.stored,
            holds_locks=parts.locks.are_held,
            store_host=around.store_host,
            broker_name=config.name,
            cluster=config.cluster,
            region=config.region,
            trace_on=config.trace_on,
            sync_flush=config.store.flush.is_sync,
            random=around.random,
            statistics=parts.statistics,
            half_messages=None if config.transactions.refused else parts.half_messages,
        )
    )


def pull_handlers(parts: BrokerParts, selections: Selections) -> PullHandlers:
    config = parts.config
    return PullHandlers(
        PullParts(
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            offsets=parts.offsets,
            consumers=parts.consumers,
            waiters=parts.waiters,
            selections=selections,
            readable=bool(config.permission & READ),
            suspend_s=parts.suspend_s,
            statistics=parts.statistics,
            clock=parts.clock,
            slave_read=config.slave_read,
        )
    )


def _pop_router(parts: BrokerParts) -> Router:
    config, around, pops = parts.config, parts.around, parts.pops
    timers = config.store.timers
    return pop_router(
        PopHandlers(
            PopParts(
                popping=pops.popping,
                store=parts.store,
                topics=parts.topics,
                groups=parts.groups,
                selections=Selections(parts.filters, sql_enabled=config.filters.sql_enabled),
                statistics=parts.statistics,
                clock=parts.clock,
                waiters=pops.waiters,
                notifications=pops.notifications,
                readable=bool(config.permission & READ),
                has_timers=timers.enabled,
                max_invisible_ms=timers.max_delay_s * 1000,
                revive_queue_count=config.pop.revive_queue_count,
            )
        ),
        PopAckHandlers(
            store=parts.store,
            topics=parts.topics,
            offsets=parts.offsets,
            checkpoints=pops.checkpoints,
            ordered=pops.ordered,
            statistics=parts.statistics,
            clock=parts.clock,
            durability=parts.durability if config.store.flush.is_sync else None,
            queue_free=pops.queue_free,
            broker_name=config.name,
            revive_queue_count=config.pop.revive_queue_count,
            max_invisible_ms=timers.max_delay_s * 1000,
        ),
        AssignmentHandlers(
            parts.topics,
            parts.groups,
            parts.consumers,
            pops.modes,
            TopicQueues(parts.name_servers(), around.client, parts.topics, parts.clock, config.name),
            config.pop.shares_queues,
        ),
    )


def _operator_parts(parts: BrokerParts) -> OperatorParts:
    around = parts.around
    return OperatorParts(
        store=parts.store,
        topics=parts.topics,
        groups=parts.groups,
        offsets=parts.offsets,
        delays=parts.delays,
        consumers=parts.consumers,
        producers=parts.producers,
        waiters=parts.waiters,
        statistics=parts.statistics,
        clock=parts.clock,
        broker_name=parts.config.name,
        address=around.address,
        server_side_reset=parts.config.server_side_reset,
        timers=parts.timers,
        aside=parts.aside,
        config=around.changing,
        stored=around.stored,
        started_ms=around.started_ms,
    )
