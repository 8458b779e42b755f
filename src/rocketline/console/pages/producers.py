"""All producers that are connected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketline.admin.overview import all_producers
from rocketline.console.access import Role
from rocketline.console.endpoints import View, reads
from rocketline.console.views import ListInput, ListView, listed, matches, silent

if TYPE_CHECKING:
    from rocketline.console.visit import Visit


class ProducerView(View, kw_only=True):
    group: str
    client: str
    address: str
    language: str
    version: int
    brokers: list[str]
    seen_ms: int | None


class Producers(ListView, kw_only=True):
    items: list[ProducerView]


@reads("/producers", Role.VIEWER, "producers.html")
async def producers(visit: Visit, wanted: ListInput) -> Producers:
    """All producers of all brokers, one request to each."""
    found = await all_producers(visit.admin)
    table: dict[tuple[str, str], ProducerView] = {}
    for item in found.value:
        row = table.setdefault(
            (item.group, item.client),
            ProducerView(
                group=item.group, client=item.client, address=item.address, language=item.language,
                version=item.version, brokers=[], seen_ms=None,
            ),
        )  # fmt: skip
        row.brokers.append(item.broker)
        row.seen_ms = max(row.seen_ms or 0, item.seen_ms) or None
    rows = [row for row in table.values() if matches(row.group, wanted.q) or matches(row.client, wanted.q)]
    keys: dict[str, Any] = {"group": lambda row: (row.group, row.client), "client": lambda row: row.client}
    shown, total, pages = listed(rows, wanted, keys, "group")
    return Producers(items=shown, total=total, page=min(wanted.page, pages), pages=pages, partial=silent(found.missing))
