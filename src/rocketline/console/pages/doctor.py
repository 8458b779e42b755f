"""Findings of the doctor, with advice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketline.admin.doctor import examine
from rocketline.console.access import Role
from rocketline.console.endpoints import Input, View, reads
from rocketline.console.limits import Heavy

if TYPE_CHECKING:
    from rocketline.console.visit import Visit


class Finding(View, kw_only=True):
    level: str
    where: str
    problem: str
    advice: str


class Findings(View, kw_only=True):
    items: list[Finding]
    examined_ms: int


@reads("/doctor", Role.VIEWER, "doctor.html", api="/findings", heavy=Heavy.SCAN)
async def findings(visit: Visit, wanted: Input) -> Findings:
    """Examine the cluster now; takes a few seconds."""
    found = [
        Finding(level=item.level, where=item.where, problem=item.problem, advice=item.advice)
        async for item in examine(visit.admin)
    ]
    found.sort(key=lambda item: item.level != "error")
    return Findings(items=found, examined_ms=visit.now_ms)
