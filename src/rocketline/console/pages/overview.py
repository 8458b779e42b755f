"""The overview: health in one line, brokers, rates, the groups that lag most, dead letters, changes."""

from __future__ import annotations

import asyncio
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from rocketline.admin.dead_letters import DeadLetterCount, count_dead_letters
from rocketline.admin.overview import is_system_group
from rocketline.admin.partial import Partial, merged
from rocketline.admin.progress import GroupProgress, all_progress
from rocketline.console.access import Role
from rocketline.console.audit import AuditLine
from rocketline.console.endpoints import ENDPOINTS, Input, PartialView, View, reads
from rocketline.console.pages.brokers import BrokerRow, broker_rows
from rocketline.console.pages.dead_letters import LetterCount, letter_counts
from rocketline.console.views import silent

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

WORST = 10
LAST_CHANGES = 8
NEWEST_LETTERS = 8


class LagRow(View, kw_only=True):
    group: str
    topics: list[str]
    lag: int
    rate: float


class Overview(PartialView, kw_only=True):
    brokers: list[BrokerRow]
    in_rate: float | None
    out_rate: float | None
    lag: int | None
    groups: int
    worst: list[LagRow]
    letters: list[LetterCount]
    """Groups with dead letters; that of the newest letter first."""
    errors: int | None
    """Findings of the doctor; None: it has not looked yet."""
    warnings: int | None
    examined_ms: int | None
    changes: list[AuditLine]


@reads("/", Role.VIEWER, "overview.html", live=True)
async def overview(visit: Visit, wanted: Input) -> Overview:
    """What an operator looks at first."""
    rows, missing = await broker_rows(visit)
    groups: Partial[list[GroupProgress]] = Partial([], limited=True)
    letters: Partial[list[DeadLetterCount]] = Partial([], limited=True)
    if any(row.is_registered for row in rows):  # else nobody can be asked, and the page shows who left
        # All groups are in the answer, also those that have not read anything.
        groups, letters = await asyncio.gather(visit.kept(all_progress), visit.kept(count_dead_letters))
    users = [item for item in groups.value if not is_system_group(item.group)]
    lags = [(item.lag, item) for item in users if item.queues]
    sampler = visit.desk.samplers.get(visit.cluster)
    findings = None
    if sampler is not None:
        sampler.look()
        findings = sampler.findings
    known = {item.broker: item for item in [*silent(merged(groups, letters)), *missing]}
    return Overview(
        brokers=rows,
        in_rate=_total([row.in_rate for row in rows if row.id == 0]),
        out_rate=_total([row.out_rate for row in rows if row.id == 0]),
        lag=sum(lag for lag, _ in lags) if lags or groups.complete else None,
        groups=len(users),
        worst=[_lag_row(item, lag) for lag, item in nlargest(WORST, lags, key=itemgetter(0)) if lag],
        letters=letter_counts(letters.value)[:NEWEST_LETTERS],
        errors=None if findings is None else sum(item.level == "error" for item in findings),
        warnings=None if findings is None else sum(item.level == "warning" for item in findings),
        examined_ms=sampler.examined_ms if sampler is not None and sampler.examined_ms else None,
        changes=_last_changes(visit),
        partial=list(known.values()),
    )


def _lag_row(item: GroupProgress, lag: int) -> LagRow:
    topics = [topic for topic in item.topics if not topic.startswith("%")]
    return LagRow(group=item.group, topics=topics, lag=lag, rate=item.rate)


def _last_changes(visit: Visit) -> list[AuditLine]:
    """Only for those who may see the audit."""
    if not visit.sees_audit:
        return []
    lines = (line for line in reversed(visit.desk.audit.lines) if line.cluster == visit.cluster)
    return list(islice((line for line in lines if ENDPOINTS[line.action].changes), LAST_CHANGES))


def _total(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
