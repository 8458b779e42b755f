"""Consumer groups as configured on a broker, kept in config/subscriptionGroup.json."""

from __future__ import annotations

import logging

from rocketline.broker.saved import SavedTable
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
        self._auto_create = auto_create
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
        group = self.table.get(name)
        if group is not None:
            return group
        if group_problem(name, MAX_OLD_GROUP_CHARS) or not (self._auto_create or name.startswith(SYSTEM_PREFIX)):
            return None
        group = SubscriptionGroupConfig(group_name=name)
        log.info("consumer group %s created on first use", name)
        self.put(group)
        return group

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

    def put(self, group: SubscriptionGroupConfig) -> None:
        self.table[group.group_name] = group
        self.version = self.version.advanced(self._clock.now_ms())
        self.save()

    def may_read(self, group: str, topic: str) -> bool:
        """Whether an administrator has not barred this group from this topic."""
        return not self._forbidden.get(group, {}).get(topic, 0) & 1
