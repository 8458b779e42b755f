"""What people changed and read through this console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketline.console.access import Role
from rocketline.console.audit import AuditLine
from rocketline.console.endpoints import reads
from rocketline.console.views import ListInput, ListView, listed, matches

if TYPE_CHECKING:
    from rocketline.console.visit import Visit


class AuditView(ListView, kw_only=True):
    items: list[AuditLine]


@reads("/audit", Role.OPERATOR, "audit.html", of_console=True)
async def audit(visit: Visit, wanted: ListInput) -> AuditView:
    """The last lines of the audit, the newest first."""
    lines = [
        line
        for line in visit.desk.audit.lines
        if line.cluster in ("", visit.cluster)
        and any(matches(text, wanted.q) for text in (line.person, line.action, line.object))
    ]
    keys: dict[str, Any] = {"time": lambda line: line.time_ms}
    shown, total, pages = listed(lines, wanted, keys, "-time")
    return AuditView(items=shown, total=total, page=min(wanted.page, pages), pages=pages)
