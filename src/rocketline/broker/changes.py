"""Settings that an operator changes while the broker runs (25); changes are saved for the next start.

A change comes over the network, so only what is listed here can be changed: switches, intervals and limits within bounds,
never an address, a path, a command, or anything about accounts and TLS. A change is applied as a whole or not at all, after
it is on disk.

The file holds, for each key, the new value and the one it replaced. At the next start the new value counts as long as the
configured value is the same: whoever changes the configured value later wants that one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec import field

from rocketline.async_table import AsyncTable, OffLoop, Saving
from rocketline.broker.config import BrokerConfig
from rocketline.broker.replication.config import BrokerRole
from rocketline.broker.tables.json_table import JsonTable
from rocketline.clock import Clock
from rocketline.errors import ConfigError
from rocketline.protocol.bodies import Body, DataVersion
from rocketline.protocol.numbers import read_number
from rocketline.settings import parse_properties, values_of, with_values

log = logging.getLogger(__name__)

MAX_CHANGE_BYTES = 64 * 1024


class Bounds(NamedTuple):
    lowest: int
    highest: int


SWITCHES = frozenset(
    {
        "allowRecallWhenBrokerNotWriteable",
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "cleanFileForciblyEnable",
        "enablePropertyFilter",
        "filterSupportRetry",
        "longPollingEnable",
        "notifyConsumerIdsChangedEnable",
        "recallMessageEnable",
        "rejectTransactionMessage",
        "slaveReadEnable",
        "storeReplyMessageEnable",
        "timerStopDequeue",
        "timerStopEnqueue",
        "traceOn",
        "useServerSideResetOffset",
    }
)
NUMBERS = {
    "brokerPermission": Bounds(0, 6),
    "deleteFileBatchMax": Bounds(1, 1000),
    "diskMaxUsedSpaceRatio": Bounds(10, 95),
    "diskSpaceCleanForciblyRatio": Bounds(10, 95),
    "diskSpaceWarningLevelRatio": Bounds(10, 98),
    "fileReservedTime": Bounds(1, 24 * 366),
    "flushConsumerOffsetInterval": Bounds(100, 600_000),
    "flushDelayOffsetInterval": Bounds(100, 600_000),
    "shortPollingTimeMills": Bounds(10, 60_000),
    "transactionCheckInterval": Bounds(100, 3_600_000),
    "transactionCheckMax": Bounds(1, 1000),
    "transactionTimeOut": Bounds(100, 86_400_000),
}
TEXTS = frozenset({"deleteWhen"})
"""Checked by the settings themselves: a list of hours."""

ROLE = frozenset({"brokerRole", "brokerId"})
"""Kept when an operator changes the master of a group with fixed roles. No request for settings changes them."""

CHANGEABLE = SWITCHES | NUMBERS.keys() | TEXTS


class Change(Body):
    value: str
    instead: str
    """The configured value when the change was made."""


class SavedChanges(Body):
    """config/rocketline.settings.json."""

    data_version: DataVersion = field(default_factory=DataVersion)
    changes: dict[str, Change] = field(default_factory=dict)


def checked(text: str) -> dict[str, str]:
    """The values in a properties text; ConfigError names the first key that must not be changed, or not to that value."""
    values = parse_properties(text)
    if not values:
        raise ConfigError("nothing to change: lines of key=value are expected")
    for key, value in values.items():
        if key not in CHANGEABLE:
            allowed = ", ".join(sorted(CHANGEABLE))
            raise ConfigError(f"{key[:80]!r} cannot be changed while the broker runs; these can: {allowed}")
        bounds = NUMBERS.get(key)
        if bounds is not None and not _is_within(value, bounds):
            raise ConfigError(f"{key}={value[:80]!r}: a number from {bounds.lowest} to {bounds.highest} is expected")
    return values


def _is_within(value: str, bounds: Bounds) -> bool:
    return read_number(value, bounds.lowest, bounds.highest) is not None


class ChangingConfig:
    """The settings a broker runs with, and how they may change."""

    def __init__(
        self,
        file: JsonTable[SavedChanges],
        configured: BrokerConfig,
        clock: Clock,
        off_loop: OffLoop | None = None,
        on_change: Callable[[frozenset[str]], None] = lambda keys: None,
    ) -> None:
        """`on_change` is told which keys have new values, after `current` has them."""
        self._file = file
        self._content = AsyncTable(file, SavedChanges(), self._use, off_loop)
        self._is_changing = False
        """Settings are checked together: no other change may come between check and use."""
        self._configured = values_of(configured)
        self._clock = clock
        self._saved = SavedChanges()
        self.current = configured
        self._on_change = on_change

    @property
    def configured_role(self) -> BrokerRole:
        """Without what operators changed since."""
        return BrokerRole(self._configured["brokerRole"])

    @property
    def version(self) -> DataVersion:
        return self._saved.data_version

    def load(self) -> None:
        """Apply the changes of former runs that still count."""
        saved = self._file.load() or SavedChanges()
        kept = {key: change for key, change in saved.changes.items() if self._counts(key, change)}
        if any(key in saved.changes and key not in kept for key in ROLE):  # half a role is none
            kept = {key: change for key, change in kept.items() if key not in ROLE}
        self._content.begin(SavedChanges(saved.data_version, kept), is_saved=True)
        self.current = with_values(self.current, {key: change.value for key, change in kept.items()}, "saved change")

    def _counts(self, key: str, change: Change) -> bool:
        configured = self._configured.get(key)
        if key not in CHANGEABLE | ROLE or change.instead != configured:
            log.warning(
                "%s=%s, set by an operator, is dropped: it is configured as %s now", key, change.value, configured
            )
            return False
        try:
            if key not in ROLE:
                checked(f"{key}={change.value}")
        except ConfigError as error:
            log.warning("a saved change is dropped: %s", error)
            return False
        log.warning("%s=%s, set by an operator instead of %s, counts", key, change.value, configured)
        return True

    def _use(self, content: SavedChanges) -> None:
        self._saved = content

    def change(self, text: str, who: str) -> Saving:
        """Apply an operator's change; on a ConfigError or StoreError nothing is changed."""
        return self._change(checked(text), who)

    def keep_role(self, role: str, broker_id: int, who: str) -> Saving:
        """Start with this role the next time too."""
        return self._change({"brokerRole": role, "brokerId": str(broker_id)}, who)

    def _change(self, values: dict[str, str], who: str) -> Saving:
        if self._is_changing:
            raise ConfigError("another change is being saved; try again")
        new = with_values(self.current, values)
        before, after = values_of(self.current), values_of(new)
        changed = {key: after[key] for key in values if before[key] != after[key]}
        if not changed:
            return None
        saving = self._content.change_saved(
            partial(self._with, changed), partial(self._apply, new, changed, before, who)
        )
        if saving is not None:
            self._is_changing = True
            saving.add_done_callback(self._changed)
        return saving

    def _apply(self, new: BrokerConfig, changed: dict[str, str], before: dict[str, str], who: str) -> None:
        self.current = new
        for key in sorted(changed):
            log.warning("%s changes %s from %s to %s", who, key, before[key], changed[key])
        self._on_change(frozenset(changed))

    def _changed(self, _: object) -> None:
        self._is_changing = False

    def _with(self, values: dict[str, str], former: SavedChanges) -> SavedChanges:
        changes = dict(former.changes)
        for key, value in values.items():
            configured = self._configured[key]
            if value == configured:
                changes.pop(key, None)
            else:
                changes[key] = Change(value, configured)
        return SavedChanges(former.data_version.advanced(self._clock.now_ms()), changes)
