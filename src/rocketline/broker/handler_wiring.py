"""Builds the handlers of a broker from its parts, and has a router serve with them.

Each group of handlers declares its request codes in `routes`. Handlers remember nothing of their own: a change of settings
builds them anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rocketline.auth.wiring import account_routes
from rocketline.broker.durability import Durability
from rocketline.broker.fastpath import fast_path_of
from rocketline.broker.handlers.admin.configuration import ConfigurationHandlers
from rocketline.broker.handlers.admin.connections import ConnectionHandlers
from rocketline.broker.handlers.admin.consuming import ConsumingHandlers
from rocketline.broker.handlers.admin.elections import ElectionHandlers
from rocketline.broker.handlers.admin.files import FileHandlers
from rocketline.broker.handlers.admin.groups import GroupHandlers
from rocketline.broker.handlers.admin.half_messages import HalfMessageHandlers
from rocketline.broker.handlers.admin.relays import RelayHandlers
from rocketline.broker.handlers.admin.replication import ReplicationHandlers
from rocketline.broker.handlers.admin.resets import ResetHandlers
from rocketline.broker.handlers.admin.runtime_info import RuntimeInfoHandlers
from rocketline.broker.handlers.admin.statistics import StatisticsHandlers
from rocketline.broker.handlers.admin.tables import TableHandlers
from rocketline.broker.handlers.admin.topic_removal import TopicRemoval
from rocketline.broker.handlers.admin.topics import TopicHandlers
from rocketline.broker.handlers.busy import with_busy_checks
from rocketline.broker.handlers.by_role import by_role
from rocketline.broker.handlers.clients import ClientHandlers
from rocketline.broker.handlers.locks import LockHandlers
from rocketline.broker.handlers.offsets import OffsetHandlers
from rocketline.broker.handlers.pop import PopHandlers
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
from rocketline.broker.pop.routes import ClusterQueues
from rocketline.broker.replication.roles import Role
from rocketline.broker.selection import Selections
from rocketline.broker.statistics.statistics import FallBehind
from rocketline.broker.tables.topics import READ, WRITE
from rocketline.protocol.message_ids import UniqueIds
from rocketline.transport import Handler, Router
from rocketline.transport.audit import audited


class HandlerGroup(Protocol):
    """Handlers that belong together."""

    def routes(self) -> dict[int, Handler]:
        """The handler of each request code that this group serves."""


def install_handlers(router: Router, parts: BrokerParts) -> None:
    """Have the router serve with new handlers, built by the settings in force."""
    filters = parts.config.filters
    selections = Selections(parts.filters, sql_enabled=filters.sql_enabled, filters_retries=filters.filters_retries)
    sends, pulls = send_handlers(parts), pull_handlers(parts, selections)
    _install_fast_path(router, parts, sends, pulls)
    routes = {**sends.routes(), **pulls.routes()}
    for group in _other_handlers(parts, sends, selections):
        routes.update(group.routes())
    if not parts.config.auth.is_follower:
        routes.update(account_routes(parts.accounts, parts.access, parts.clock))
    if parts.roles.is_coordinated:
        routes = parts.table_changes.wait_in(routes)
    if parts.roles.role is Role.REPLICA:
        routes = parts.for_master.pass_on(routes)
    routes = with_busy_checks(routes, parts.store, parts.loop_delay)
    router.take(audited(Router(by_role(routes, parts.roles, is_readable=parts.config.slave_read))))


def _install_fast_path(router: Router, parts: BrokerParts, sends: SendHandlers, pulls: PullHandlers) -> None:
    """Called before the new handlers are there: what the fast path still holds came before the change."""
    if router.fast_path is not None:
        router.fast_path.settle_all()
    router.fast_path = None
    if parts.config.fast_path and parts.roles.is_master:
        router.fast_path = fast_path_of(sends, pulls, parts.environment.limits, parts.loop_delay, parts.access)


def _other_handlers(parts: BrokerParts, sends: SendHandlers, selections: Selections) -> Iterator[HandlerGroup]:
    yield from _message_handlers(parts)
    yield ReplyHandlers(sends, parts.producers, parts.clock, parts.config.stores_replies)
    yield ClientHandlers(
        parts.topics, parts.groups, parts.consumers, parts.producers, parts.clock, selections, parts.account_of
    )
    yield from _pop_handlers(parts, selections)
    yield from _table_handlers(parts)
    yield from _operator_handlers(parts)


def send_handlers(parts: BrokerParts) -> SendHandlers:
    config, environment = parts.config, parts.environment
    return SendHandlers(
        SendParts(
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            delays=parts.delays,
            timers=parts.timers,
            durability=parts.durability,
            unique_ids=UniqueIds(environment.address.ip, parts.clock),
            stored=environment.owner.stored,
            holds_locks=parts.locks.are_held,
            store_host=environment.address.store_host,
            broker_name=config.name,
            cluster=config.cluster,
            region=config.region,
            trace_on=config.trace_on,
            waits=parts.durability.waits or parts.roles.may_wait,
            random=environment.random,
            statistics=parts.statistics,
            half_messages=None if config.transactions.refused else parts.half_messages,
            require=parts.require,
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
            roles=parts.roles,
            commit=parts.offsets.commit if parts.roles.is_master else parts.for_master.commit,
            corrects=parts.roles.is_master or config.corrects_as_slave,
        )
    )


def _durability(parts: BrokerParts) -> Durability | None:
    """What answers wait for: disk, replicas; None: nothing."""
    return parts.durability if parts.durability.waits or parts.roles.may_wait else None


def _message_handlers(parts: BrokerParts) -> Iterator[HandlerGroup]:
    """Messages that are handed back, recalled, ended or looked up."""
    config, environment, durability = parts.config, parts.environment, _durability(parts)
    writable = bool(config.permission & WRITE)
    yield SendBackHandlers(
        store=parts.store,
        topics=parts.topics,
        groups=parts.groups,
        delays=parts.delays,
        stored=environment.owner.stored,
        durability=durability,
        writable=writable,
        random=environment.random,
        statistics=parts.statistics,
        require=parts.require,
        on_failure=environment.owner.on_failure,
    )
    yield TimerHandlers(
        store=parts.store,
        topics=parts.topics,
        timers=parts.timers,
        clock=parts.clock,
        stored=environment.owner.stored,
        durability=durability,
        broker_name=config.name,
        region=config.region,
        max_delay_s=config.store.timers.max_delay_s,
        recall_enabled=config.recall_enabled,
        writable=writable or config.recall_when_read_only,
    )
    yield TransactionHandlers(
        half_messages=parts.half_messages,
        durability=durability,
        now_ms=parts.clock.now_ms,
        timeout_ms=config.transactions.timeout_ms,
        require=parts.require,
        is_slave=not parts.roles.is_master,
    )
    yield HalfMessageHandlers(parts.store, environment.owner.stored, parts.require)
    yield QueryHandlers(parts.store, parts.require)


def _pop_handlers(parts: BrokerParts, selections: Selections) -> Iterator[HandlerGroup]:
    config, pops, timers = parts.config, parts.pops, parts.config.store.timers
    yield PopHandlers(
        pops=pops,
        store=parts.store,
        topics=parts.topics,
        groups=parts.groups,
        selections=selections,
        statistics=parts.statistics,
        clock=parts.clock,
        readable=bool(config.permission & READ),
        has_timers=timers.enabled,
        max_invisible_ms=timers.max_delay_s * 1000,
        roles=parts.roles,
    )
    yield PopAckHandlers(
        pops=pops,
        store=parts.store,
        topics=parts.topics,
        offsets=parts.offsets,
        statistics=parts.statistics,
        clock=parts.clock,
        durability=_durability(parts),
        broker_name=config.name,
        max_invisible_ms=timers.max_delay_s * 1000,
    )
    queues = ClusterQueues(
        config.registration.name_servers, parts.environment.client, parts.topics, parts.clock, config.name
    )
    yield AssignmentHandlers(parts.topics, parts.groups, parts.consumers, pops.modes, queues, config.pop.shares_queues)


def _table_handlers(parts: BrokerParts) -> Iterator[HandlerGroup]:
    """Topics, groups, offsets and locks: asked for and changed."""
    store, topics, groups, offsets = parts.store, parts.topics, parts.groups, parts.offsets
    yield OffsetHandlers(store, topics, groups, offsets)
    yield LockHandlers(parts.locks, topics, groups)
    removal = TopicRemoval(offsets, store, parts.topic_gone, parts.mark_store)
    yield TopicHandlers(topics, offsets, removal)
    yield GroupHandlers(groups, offsets)
    yield FileHandlers(topics, store, removal)
    yield TableHandlers(store, offsets, parts.delays, parts.consumers)
    yield ResetHandlers(
        store=store,
        topics=topics,
        groups=groups,
        offsets=offsets,
        consumers=parts.consumers,
        waiters=parts.waiters,
        broker_name=parts.config.name,
        server_side=parts.config.server_side_reset,
    )


def _operator_handlers(parts: BrokerParts) -> Iterator[HandlerGroup]:
    """What operators ask about the broker, its clients and their progress."""
    store, topics, consumers, name = parts.store, parts.topics, parts.consumers, parts.config.name
    behind = FallBehind(store, parts.offsets, parts.clock)
    yield ConfigurationHandlers(parts.changing)
    yield ReplicationHandlers(
        store=store,
        roles=parts.roles,
        finder=parts.finder,
        accounts=parts.accounts,
        guard=parts.access,
        address=parts.environment.address.text,
        ha_address=lambda: parts.environment.ha_address,
        ha_tls=parts.environment.ha_tls,
        copier=parts.copier,
        changing=parts.changing,
        max_gap_bytes=parts.config.replication.max_gap_bytes,
        broker_name=name,
        cluster=parts.config.cluster,
    )
    if parts.member is not None:
        yield ElectionHandlers(parts.member, parts.config.cluster, name, parts.environment.address.text)
    yield ConnectionHandlers(consumers, parts.producers, parts.clock)
    yield StatisticsHandlers(store, topics, parts.statistics, behind, name, parts.require)
    yield RelayHandlers(store, topics, parts.groups, consumers, name, parts.require)
    yield RuntimeInfoHandlers(
        store, parts.delays, parts.timers, parts.statistics, parts.aside, parts.clock, parts.started_ms
    )
    yield ConsumingHandlers(
        store=store,
        topics=topics,
        groups=parts.groups,
        offsets=parts.offsets,
        consumers=consumers,
        statistics=parts.statistics,
        clock=parts.clock,
        broker_name=name,
        address=parts.environment.address.text,
    )
