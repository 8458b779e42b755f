"""Metrics of access control."""

from __future__ import annotations

from collections.abc import Iterator

from rocketline.auth.refusal_log import Reason, RefusalLog
from rocketline.metrics.families import Family, counter, gauge


def access_families(refusals: RefusalLog | None, *, is_open: bool) -> Iterator[Family]:
    """`refusals`: None where everybody may do everything. `is_open`: other machines can reach the server, and it asks for no
    accounts."""
    insecure = gauge("rocketline_open_to_network", "1: other machines are served, and no accounts are asked for.")
    insecure.add(int(is_open))
    yield insecure
    if refusals is not None:
        refused = counter("rocketline_requests_refused_total", "Requests that access control refused.")
        for reason in Reason:
            refused.add(refusals.counts[reason], reason=reason.value)
        yield refused
