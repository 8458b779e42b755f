"""Consumer groups as configured on a broker, kept in config/subscriptionGroup.json."""

from __future__ import annotations

import logging

from rocketline.broker.saved import SavedTable
from rocketline.broker.topics import READ
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

    def __init__(self, file: SavedTable[SubscriptionGroupWrapper], clock: Clock, *, auto_create: bool = True) -> None:
        self._file = file
        self._clock = clock
        self.auto_create = auto_create
        self._forbidden: dict[str, dict[str, int]] = {}
        self.table: dict[str, SubscriptionGroupConfig] = {}
        self.version = DataVersion(timestamp=clock.now_ms())

    def load(self) -> None:
        saved = self._file.load()
        if saved is not None:
            self.table = dict(saved.subscription_group_table)
            self._forbidden = saved.forbidden_table
            self.version = saved.data_version
        for name in BUILT_IN:
            self.table.setdefault(name, SubscriptionGroupConfig(group_name=name))
        if saved is None or saved.subscription_group_table != self.table:
            self.save()

    def save(self) -> None:
        self._file.save(self.snapshot())

    def snapshot(self) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(
            data_version=self.version, forbidden_table=self._forbidden, subscription_group_table=dict(self.table)
        )

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, created when it is new and that is allowed; None when not."""
        return self.table.get(name) or self.get_all([name]).get(name)

    def get_all(self, names: list[str]) -> dict[str, SubscriptionGroupConfig]:
        """Those of the groups that are there or may be created; new ones are saved together."""
        new = [name for name in names if name not in self.table and self._may_create(name)]
        if new:
            log.info("consumer groups created on first use: %s", ", ".join(new))
            self._add({name: SubscriptionGroupConfig(group_name=name) for name in new})
        return {name: self.table[name] for name in names if name in self.table}

    def _may_create(self, name: str) -> bool:
        return not group_problem(name, MAX_OLD_GROUP_CHARS) and (self.auto_create or name.startswith(SYSTEM_PREFIX))

    def require(self, name: str) -> SubscriptionGroupConfig:
        group = self.get(name)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] does not exist, and is not created by itself on this broker",
            )
        return group

    def require_readable(self, name: str) -> SubscriptionGroupConfig:
        group = self.require(name)
        if not group.consume_enable:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")
        return group

    def put(self, *groups: SubscriptionGroupConfig) -> None:
        self._add({group.group_name: group for group in groups})

    def delete(self, name: str) -> None:
        """Forget a group and what it may not read; one of the broker's own comes back at the next start."""
        if name in self.table or name in self._forbidden:
            table = {other: group for other, group in self.table.items() if other != name}
            self._replace(table, {group: bits for group, bits in self._forbidden.items() if group != name})

    def _add(self, groups: dict[str, SubscriptionGroupConfig]) -> None:
        self._replace(self.table | groups, self._forbidden)

    def _replace(self, table: dict[str, SubscriptionGroupConfig], forbidden: dict[str, dict[str, int]]) -> None:
        """Saved before it counts: a change that the disk refuses has not happened."""
        version = self.version.advanced(self._clock.now_ms())
        self._file.save(SubscriptionGroupWrapper(version, forbidden, table))
        self.table, self._forbidden, self.version = table, forbidden, version

    def may_read(self, group: str, topic: str) -> bool:
        """Whether an administrator has not barred this group from this topic."""
        bits = self._forbidden.get(group, {}).get(topic, 0)
        return bits < 0 or not bits & READ  # a negative number bars nothing, as in Java

    def allow(self, group: str, topic: str, *, readable: bool) -> None:
        """Bar a group from a topic, or let it read again. Java's broker lifts all bars of a group with one of them,
        and forgets to save that."""
        if self.may_read(group, topic) == readable:
            return
        topics = dict(self._forbidden.get(group, {}))
        bits = max(topics.pop(topic, 0), 0)
        bits = bits & ~READ if readable else bits | READ
        if bits:
            topics[topic] = bits
        others = {name: barred for name, barred in self._forbidden.items() if name != group}
        self._replace(self.table, others | ({group: topics} if topics else {}))
