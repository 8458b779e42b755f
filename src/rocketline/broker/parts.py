"""Builds the parts of a broker: which parts there are, and what each is given to work with.

Nothing runs here by itself. The owner, a `Broker` or a test, opens the store, builds the rest on it, installs the handlers
(`handler_wiring.py`) and takes care of time: it dispatches when something was appended, saves tables, and closes what was
opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from rocketline.async_table import OffLoop, Saving
from rocketline.auth.accounts import Accounts
from rocketline.auth.guard import AccessGuard, Require, require_nothing
from rocketline.auth.refusal_log import RefusalLog
from rocketline.broker.address import BrokerAddress
from rocketline.broker.changes import ChangingConfig, SavedChanges
from rocketline.broker.config import BrokerConfig, parse_delay_levels
from rocketline.broker.delays.delay_levels import DelayLevels, deliver_time_codes
from rocketline.broker.delays.postponed import postpone
from rocketline.broker.durability import Durability
from rocketline.broker.handlers.for_master import ForMaster
from rocketline.broker.handlers.send_back import FailureHook
from rocketline.broker.loop_delay import LoopDelay
from rocketline.broker.pop.ordered import OrderInfoTable
from rocketline.broker.pop.pops import PopNeeds, Pops
from rocketline.broker.queue_locks import QueueLocks
from rocketline.broker.registration import Identity, Registration
from rocketline.broker.registries import ConsumerRegistry, ProducerRegistry
from rocketline.broker.replication.epochs import Epochs
from rocketline.broker.replication.finding import MasterFinder
from rocketline.broker.replication.member import GroupMember
from rocketline.broker.replication.role_work import NO_WORK, RoleWork
from rocketline.broker.replication.roles import RoleParts, Roles
from rocketline.broker.replication.table_changes import TableChanges
from rocketline.broker.replication.tables import TableCopier
from rocketline.broker.set_aside import SetAside
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.consumer_offsets import SEPARATOR, ConsumerOffsets
from rocketline.broker.tables.filters import ConsumerFilters
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.json_table import JsonTable
from rocketline.broker.tables.topics import WRITE, Topics, system_topics
from rocketline.broker.timer.timers import Timers
from rocketline.broker.transactions.checker import CheckerParts, TransactionChecker
from rocketline.broker.transactions.half_messages import HalfMessages
from rocketline.broker.transactions.ops import OpWriter
from rocketline.broker.waiters import PullWaiters
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.protocol.bodies import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    MessageRequestModeTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rocketline.protocol.bodies.filters import ConsumerFilterTable
from rocketline.protocol.command import Command
from rocketline.store.files.disk import Disk
from rocketline.store.flush.flusher import ThreadWorker, WorkerFactory
from rocketline.store.message_store import MessageStore, StoreEvents
from rocketline.store.queue.dispatcher import Arrivals
from rocketline.store.timer.wheel import SLOT_COUNT
from rocketline.transport import DEFAULT_LIMITS, Channel, Limits, RemotingClient
from rocketline.transport.access import Access

log = logging.getLogger(__name__)

T = TypeVar("T")


@wired
class OwnerCallbacks:
    """What the owner of the parts does for them."""

    stored: Callable[[], None]
    """Called when something was appended: dispatch soon."""
    dispatch: Callable[[], None]
    """Called when a flush or a commit is done: dispatch now."""
    settings_changed: Callable[[frozenset[str]], None] = lambda keys: None
    """Called with the keys of settings that an operator changed."""
    on_failure: FailureHook | None = None
    role_work: RoleWork = NO_WORK


@wired
class Environment:
    """The process that a broker runs in."""

    root: Path
    """Folder of the store and the tables."""
    disk: Disk
    clock: Clock
    random: Random
    address: BrokerAddress
    client: RemotingClient
    owner: OwnerCallbacks
    off_loop: OffLoop | None = None
    """Saves tables in threads; None: each change is saved on the spot."""
    workers: WorkerFactory = ThreadWorker
    """Makes what flushes the store."""
    timer_slots: int = SLOT_COUNT
    limits: Limits = DEFAULT_LIMITS
    """What one connection may cost."""
    access: Access = Access()
    """How this broker connects to others."""
    ha_address: str = ""
    """Where replicas connect; empty: they cannot."""
    ha_tls: bool = False


class BrokerParts:
    """Every part of one broker."""

    def __init__(self, configured: BrokerConfig, environment: Environment) -> None:
        self.environment = environment
        self.clock = environment.clock
        self.disk = environment.disk
        self.started_ms = self.clock.now_ms()
        self.changing = ChangingConfig(
            self.json_table("rocketline.settings.json", SavedChanges),
            configured,
            self.clock,
            environment.off_loop,
            environment.owner.settings_changed,
        )
        self.accounts: Accounts | None = None
        self.access: AccessGuard | None = None
        """Both None: no accounts are asked for."""
        self.refusals: RefusalLog | None = None
        """None: no request is refused for who sends it."""
        self.member: GroupMember | None = None
        """None: this broker takes no part in elections."""
        sync_timeout_s = configured.store.flush.sync_timeout_ms / 1000
        self.durability = Durability(
            sync_timeout_s,
            environment.owner.dispatch,
            waits_for_disk=configured.store.flush.is_sync,
            replicas_timeout_s=configured.replication.slave_timeout_ms / 1000,
            flushed_now=lambda: self.store.flushed_offset,
        )
        self.loop_delay = LoopDelay(configured.send_wait_ms, self.clock) if configured.fails_fast else None

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self.changing.current

    @property
    def require(self) -> Require:
        """What handlers call for a right that only they know of."""
        return require_nothing if self.access is None else self.access.require

    def account_of(self, channel: Channel, request: Command) -> str:
        """The name of the account that sent a request; "" where no accounts are asked for."""
        return "" if self.access is None else self.access.caller_name(channel, request)

    def open_store(self) -> None:
        """Load changes of settings, lock the folder and recover the log; whoever calls this closes the store."""
        self.changing.load()
        config, environment, durability = self.config, self.environment, self.durability
        filters = config.filters
        file = self.json_table("consumerFilter.json", ConsumerFilterTable)
        self.filters = ConsumerFilters(file, self.clock, filters.bloom, filters.keep_dead_ms)
        # Before the store: messages it dispatches again need their bitmaps too.
        self.filters.load()
        self.store = MessageStore(
            environment.root,
            config.store,
            environment.address.store_host,
            disk=self.disk,
            clock=self.clock,
            tags_code_for=deliver_time_codes(parse_delay_levels(config.delay_levels)),
            bitmap_for=self.filters.bitmap_for if filters.bitmaps and config.store.ext.enabled else None,
            workers=environment.workers,
        )
        report = self.store.open(
            StoreEvents(
                arrived=self._arrived,
                left_out=self._left_out,
                flushed=durability.flushed_from_thread,
                committed=durability.committed_from_thread,
                flush_failed=durability.failed_from_thread,
            )
        )
        self.after_crash = report.after_crash
        log.info("%s", report)
        self._build_roles()

    def _build_roles(self) -> None:
        config, environment = self.config, self.environment
        epochs = Epochs(self.disk, environment.root)
        if config.is_coordinated:
            epochs.load()
        self.finder = MasterFinder(
            self.store,
            environment.client,
            environment.access,
            config.broker_id,
            environment.address.text,
            self.clock.monotonic,
        )
        self.roles = Roles(
            RoleParts(
                store=self.store,
                config=config.replication,
                broker_id=config.broker_id,
                is_coordinated=config.is_coordinated,
                durability=self.durability,
                epochs=epochs,
                clock=self.clock,
                off_loop=environment.off_loop,
                access=environment.access,
                work=environment.owner.role_work,
                find_master=lambda: self.finder.find(self.registration.register_all),
                compare=self.finder.compare,
            )
        )

    @property
    def master_address(self) -> str:
        """Where the master of this replica serves clients; empty: nobody knows, or this is the master."""
        if self.roles.is_master:
            return ""
        return self.roles.master_address if self.roles.is_coordinated else self.finder.address

    @property
    def follows_accounts(self) -> bool:
        """Whether a replica copies accounts: not if their files belong to somebody else, and not of Apache's master."""
        return not self.config.auth.is_follower and self.follows_ours

    @property
    def follows_ours(self) -> bool:
        """As replica: whether the master is a broker of rocketline."""
        return self.roles.is_coordinated or self.finder.is_ours

    def forget_deleted(self, log_offset: int) -> None:
        """Remove the queues of topics that the master's table does not have, as far as their messages were below this log
        offset when it was copied: they were deleted, and would come back with this broker as master."""
        topics = [name for name in self.topics.unknown(self.store.queue_counts()) if self._ends_below(name, log_offset)]
        for name in topics:
            log.info("the master has deleted topic %s", name)
            self.offsets.forget_topic(name)
            self.store.delete_topic(name)
        if topics:
            self.topic_gone()

    def _ends_below(self, topic: str, log_offset: int) -> bool:
        """Whether all messages of a topic are below a log offset."""
        store = self.store
        last = [store.unit_at(topic, each, store.max_offset(topic, each) - 1) for each in store.queue_ids(topic)]
        return all(unit is None or unit.log_offset < log_offset for unit in last)

    async def run_off_loop(self, work: Callable[[], None]) -> None:
        if self.environment.off_loop is None:
            work()
        else:
            await self.environment.off_loop(work)

    def build_for_master(self) -> None:
        """Build anew what only a master does, from the log and the tables that this broker copied."""
        self.forget_deleted(self.copier.known_end)
        self.topics.adopt(self.store.queue_counts())
        self.cap_offsets()
        self.timers.close()
        delivered = self.delays.snapshot()
        self._build_delays()
        self.delays.follow(delivered)
        self.timers.forget_entries()
        self.timers.load()
        self._build_transactions()
        self._build_pops(after_crash=True)

    def build(self) -> None:
        """Build everything on top of the open store, with its tables loaded."""
        self.disk.make_folder(self.environment.root / "config")
        self._build_tables()
        self._build_delays()
        for table in (self.topics, self.groups, self.offsets, self.delays, self.timers):
            table.load()
        if self.after_crash:
            self.topics.adopt(self.store.queue_counts())
        self.cap_offsets()
        self._build_registries()
        self._build_registration()
        self._build_transactions()
        self._build_pops(after_crash=self.after_crash)
        self.copier = TableCopier(self, lambda: self.master_address)
        self.for_master = ForMaster(self.roles, lambda: self.master_address, self.environment.client, self.offsets)
        self.table_changes = TableChanges(self)

    def json_table(self, name: str, kind: type[T]) -> JsonTable[T]:
        return JsonTable(self.disk, self.environment.root / "config" / name, kind)

    def _build_tables(self) -> None:
        config, clock, store, off_loop = self.config, self.clock, self.store, self.environment.off_loop
        self.topics = Topics(
            self.json_table("topics.json", TopicConfigSerializeWrapper),
            system_topics(config.cluster, config.name, config.topics, config.pop.revive_queue_count),
            clock,
            auto_create=config.topics.auto_create,
            writable=bool(config.permission & WRITE),
            off_loop=off_loop,
        )
        self.aside = SetAside(store, self.topics, self.environment.owner.stored)
        self.groups = Groups(
            self.json_table("subscriptionGroup.json", SubscriptionGroupWrapper),
            clock,
            auto_create=config.groups.auto_create,
            off_loop=off_loop,
        )
        file = self.json_table("consumerOffset.json", ConsumerOffsetTable)
        self.offsets = ConsumerOffsets(file, clock, lambda: store.flushed_offset)
        self.statistics = BrokerStatistics(config.cluster, clock, self.topics.is_system)

    def _build_delays(self) -> None:
        config, environment = self.config, self.environment
        self.delays = DelayLevels(
            parse_delay_levels(config.delay_levels),
            self.store,
            self.json_table("delayOffset.json", DelayOffsetTable),
            self.clock,
            environment.owner.stored,
            self.aside,
            self.statistics.delivered,
        )
        self.timers = Timers(
            config.store.timers,
            self.store,
            self.disk,
            environment.root,
            self.clock,
            stored=environment.owner.stored,
            random=environment.random,
            aside=self.aside,
            slot_count=environment.timer_slots,
        )

    def cap_offsets(self) -> None:
        """What the log lost in a crash no group may have consumed."""
        for key, queue_id, _ in self.offsets.items():
            topic = key.partition(SEPARATOR)[0]
            self.offsets.cap(key, queue_id, self.store.max_offset(topic, queue_id))

    def _build_registries(self) -> None:
        """Who is connected, who holds locks, who waits."""
        config, clock = self.config, self.clock
        expiry_s = config.client_expiry_ms / 1000
        self.consumers = ConsumerRegistry(clock, expiry_s, self._may_notify, self.filters)
        self.producers = ProducerRegistry(clock, expiry_s)
        self.locks = QueueLocks(clock, config.queue_lock_ms / 1000)
        self.waiters = PullWaiters(config.max_held_pulls)

    def _build_registration(self) -> None:
        config, address = self.config, self.environment.address
        self.registration = Registration(
            Identity(
                config.name,
                config.cluster,
                self.roles.registered_id,
                address.text,
                self.environment.ha_address,
                acts_as_master=config.replication.acts_as_master,
                is_silent=config.is_coordinated,
            ),
            config.registration,
            self.topics,
            self.environment.client,
            self.clock,
            config.permission,
            self.finder.told,
        )
        self.topics.subscribe(self.registration.topics_changed)

    def _build_transactions(self) -> None:
        config, clock, store, owner = self.config, self.clock, self.store, self.environment.owner
        store_host = self.environment.address.store_host
        ops = OpWriter(store, clock, store_host, owner.stored, config.transactions.op_bytes)
        self.half_messages = HalfMessages(
            store, ops, owner.stored, partial(postpone, timers=self.timers, delays=self.delays)
        )
        self.checker = TransactionChecker(
            config.transactions,
            CheckerParts(
                store=store,
                topics=self.topics,
                offsets=self.offsets,
                producers=self.producers,
                half_messages=self.half_messages,
                aside=self.aside,
                clock=clock,
                stored=owner.stored,
                store_host=store_host,
                broker_name=config.name,
                guard=self.access,
            ),
        )

    def _build_pops(self, *, after_crash: bool) -> None:
        config, environment = self.config, self.environment
        self.pops = Pops(
            config.pop,
            PopNeeds(
                store=self.store,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                timers=self.timers,
                statistics=self.statistics,
                aside=self.aside,
                clock=self.clock,
                random=environment.random,
                stored=environment.owner.stored,
                order_file=self.json_table("consumerOrderInfo.json", OrderInfoTable),
                mode_file=self.json_table("messageRequestMode.json", MessageRequestModeTable),
                store_host=environment.address.store_host,
                broker_name=config.name,
                cluster=config.cluster,
                off_loop=environment.off_loop,
            ),
        )
        self.pops.load(after_crash=after_crash)

    def use_settings(self, keys: frozenset[str]) -> None:
        """Have the parts work by the settings in force; `keys` were changed."""
        config = self.config
        self.groups.set_auto_create(config.groups.auto_create)
        if "autoCreateTopicEnable" in keys:
            self.topics.set_auto_create(config.topics)
        if "longPollingEnable" in keys:
            # Nothing wakes them any more, or they are held for less than they asked for: they ask anew.
            self.waiters.answer_all()
        self.store.set_retention(config.store.retention)
        self.checker.use(config.transactions)
        self.timers.use(config.store.timers)
        if "brokerPermission" in keys:
            self.topics.set_writable(bool(config.permission & WRITE))
            self.registration.set_permission(config.permission)
            # Under a new version, or the name servers would take it for what they know.
            self.topics.announce_all()

    def _may_notify(self, group: str) -> bool:
        """Whether the members of a group are told when one comes or goes."""
        if not self.config.groups.tells_members:
            return False
        config = self.groups.table.get(group)
        return config is None or config.notify_consumer_ids_changed_enable

    def mark_store(self) -> Saving:
        """Write down, off the loop, how far everything is on disk."""
        if self.environment.off_loop is not None:
            return self.environment.off_loop(self.store.mark_now)
        self.store.mark_now()
        return None

    def suspend_s(self, asked_ms: int) -> float:
        """How long to hold a pull that asks to be held for so many milliseconds."""
        return max(0, asked_ms if self.config.long_polling else self.config.short_polling_ms) / 1000

    def _arrived(self, entries: Arrivals) -> None:
        if self.config.long_polling:
            self.waiters.on_arrivals(entries)
            self.pops.wake_waiters(entries)
        self.delays.on_arrivals(entries)
        self.timers.on_arrivals()
        self.pops.reviver.on_arrivals(entries)

    def _left_out(self, log_offset: int, error: Exception) -> None:
        self.aside.item("dispatch", f"all of the record at {log_offset}", error)

    def topic_gone(self) -> None:
        """A topic was deleted: answer whoever may wait for it."""
        self.waiters.answer_all()
        self.pops.topic_gone()
