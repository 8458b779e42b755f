"""Consumer groups as configured on a broker, stored in config/subscriptionGroup.json.

A group is created by its first member and saved soon; what an operator orders is saved before it is in force
(`async_table.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from rocketline.async_table import AsyncTable, OffLoop, Saving
from rocketline.broker.tables.json_table import JsonTable
from rocketline.broker.tables.topics import READ
from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.protocol.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.names import MAX_OLD_GROUP_CHARS, group_problem

log = logging.getLogger(__name__)

BUILT_IN = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
SYSTEM_PREFIX = "CID_RMQ_SYS_"


class Groups:
    """All consumer groups by name."""

    def __init__(
        self,
        file: JsonTable[SubscriptionGroupWrapper],
        clock: Clock,
        *,
        auto_create: bool = True,
        off_loop: OffLoop | None = None,
    ) -> None:
        self._file = file
        self._content = AsyncTable(file, SubscriptionGroupWrapper(), self._use, off_loop)
        self._clock = clock
        self._auto_create = auto_create
        self._forbidden: dict[str, dict[str, int]] = {}
        self.table: dict[str, SubscriptionGroupConfig] = {}
        self.version = DataVersion(timestamp=clock.now_ms())

    def load(self) -> None:
        saved = self._file.load()
        table = {} if saved is None else dict(saved.subscription_group_table)
        for name in BUILT_IN:
            table.setdefault(name, SubscriptionGroupConfig(group_name=name))
        is_saved = saved is not None and saved.subscription_group_table == table
        version, forbidden = (self.version, {}) if saved is None else (saved.data_version, saved.forbidden_table)
        self._content.begin(SubscriptionGroupWrapper(version, forbidden, table), is_saved=is_saved)

    def _use(self, content: SubscriptionGroupWrapper) -> None:
        self.table, self._forbidden = content.subscription_group_table, content.forbidden_table
        self.version = content.data_version

    def set_auto_create(self, wanted: bool) -> None:
        """Whether unknown groups are created when they first appear, from now on."""
        self._auto_create = wanted

    def save_again(self) -> None:
        """Try once more to save what the disk refused."""
        self._content.save_again()

    def save_rest(self) -> None:
        """Blocks until everything is saved: for a stop."""
        self._content.save_rest()

    def snapshot(self) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(
            data_version=self.version, forbidden_table=self._forbidden, subscription_group_table=dict(self.table)
        )

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, created when it is new and that is allowed; None when not."""
        return self.table.get(name) or self.get_all([name]).get(name)

    def get_all(self, names: list[str]) -> dict[str, SubscriptionGroupConfig]:
        """Those groups that exist or may be created; new ones are saved together."""
        new = [name for name in names if name not in self.table and self._may_create(name)]
        if new:
            log.info("consumer groups created on first use: %s", ", ".join(new))
            self.put(*[SubscriptionGroupConfig(group_name=name) for name in new])
        return {name: self.table[name] for name in names if name in self.table}

    def _may_create(self, name: str) -> bool:
        return not group_problem(name, MAX_OLD_GROUP_CHARS) and (self._auto_create or name.startswith(SYSTEM_PREFIX))

    def require(self, name: str) -> SubscriptionGroupConfig:
        group = self.get(name)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist, and is not created automatically on this broker",
            )
        return group

    def require_readable(self, name: str) -> SubscriptionGroupConfig:
        group = self.require(name)
        if not group.consume_enable:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
        return group

    def put(self, *groups: SubscriptionGroupConfig) -> None:
        """Create or change groups at once; they are saved soon."""
        self._content.change(partial(self._with, groups))

    def configure(self, *groups: SubscriptionGroupConfig) -> Saving:
        """Create or change groups by an operator's order: saved before they are in force."""
        return self._content.change_saved(partial(self._with, groups))

    def remove(self, name: str) -> Saving:
        """Delete a group and what it must not read; a built-in group comes back at the next start."""
        if name in self.table or name in self._forbidden:
            return self._content.change_saved(partial(self._without, name))
        return None

    def follow(self, master: SubscriptionGroupWrapper) -> None:
        """Have the groups of a master, under their version."""
        if master.data_version != self.version:
            self._content.change(lambda _: master)

    def _with(
        self, groups: Iterable[SubscriptionGroupConfig], former: SubscriptionGroupWrapper
    ) -> SubscriptionGroupWrapper:
        table = former.subscription_group_table | {group.group_name: group for group in groups}
        return SubscriptionGroupWrapper(self._next_version(former), former.forbidden_table, table)

    def _without(self, name: str, former: SubscriptionGroupWrapper) -> SubscriptionGroupWrapper:
        table = {other: group for other, group in former.subscription_group_table.items() if other != name}
        forbidden = {other: bits for other, bits in former.forbidden_table.items() if other != name}
        return SubscriptionGroupWrapper(self._next_version(former), forbidden, table)

    def _next_version(self, former: SubscriptionGroupWrapper) -> DataVersion:
        return former.data_version.advanced(self._clock.now_ms())

    def may_read(self, group: str, topic: str) -> bool:
        """Whether no operator has forbidden this group to read this topic."""
        bits = self._forbidden.get(group, {}).get(topic, 0)
        return bits < 0 or not bits & READ  # a negative number forbids nothing, as in Java

    def allow(self, group: str, topic: str, *, readable: bool) -> Saving:
        """Forbid a group to read a topic, or allow it again; Java's broker then allows all its topics."""
        if self.may_read(group, topic) == readable:
            return None
        return self._content.change_saved(partial(self._allowing, group, topic, readable))

    def _allowing(
        self, group: str, topic: str, readable: bool, former: SubscriptionGroupWrapper
    ) -> SubscriptionGroupWrapper:
        topics = dict(former.forbidden_table.get(group, {}))
        bits = max(topics.pop(topic, 0), 0)
        bits = bits & ~READ if readable else bits | READ
        if bits:
            topics[topic] = bits
        others = {name: barred for name, barred in former.forbidden_table.items() if name != group}
        forbidden = others | ({group: topics} if topics else {})
        return SubscriptionGroupWrapper(self._next_version(former), forbidden, former.subscription_group_table)
