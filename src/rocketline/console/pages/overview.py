"""The overview: health in one line, brokers, rates, the groups that lag most, dead letters, changes."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from rocketline.admin.dead_letters import DeadLetterCount, count_dead_letters
from rocketline.admin.overview import GroupSummary, group_summaries, is_system_group
from rocketline.admin.partial import Partial, merged
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
    groups: Partial[list[GroupSummary]] = Partial([], limited=True)
    letters: Partial[list[DeadLetterCount]] = Partial([], limited=True)
    if any(row.is_registered for row in rows):  # else nobody can be asked, and the page shows who left
        groups = await visit.kept(group_summaries)
        letters = await visit.kept(count_dead_letters)
    users = [item for item in groups.value if not is_system_group(item.name)]
    lags = [
        LagRow(
            group=item.name,
            topics=[topic for topic in item.progress.topics if not topic.startswith("%")],
            lag=item.progress.lag,
            rate=item.progress.rate,
        )
        for item in users
        if item.progress is not None and item.progress.queues
    ]
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
        lag=sum(row.lag for row in lags) if lags or groups.complete else None,
        groups=len(users),
        worst=sorted((row for row in lags if row.lag), key=lambda row: -row.lag)[:WORST],
        letters=letter_counts(letters.value)[:NEWEST_LETTERS],
        errors=None if findings is None else sum(item.level == "error" for item in findings),
        warnings=None if findings is None else sum(item.level == "warning" for item in findings),
        examined_ms=sampler.examined_ms if sampler is not None and sampler.examined_ms else None,
        changes=_last_changes(visit),
        partial=list(known.values()),
    )


def _last_changes(visit: Visit) -> list[AuditLine]:
    """Only for those who may see the audit."""
    if not visit.sees_audit:
        return []
    lines = (line for line in reversed(visit.desk.audit.lines) if line.cluster == visit.cluster)
    return list(islice((line for line in lines if ENDPOINTS[line.action].changes), LAST_CHANGES))


def _total(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
