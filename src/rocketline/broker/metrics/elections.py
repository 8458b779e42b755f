"""Metrics of a group that elects its master, as this member sees it."""

from __future__ import annotations

from collections.abc import Iterator

from rocketline.broker.parts import BrokerParts
from rocketline.metrics.families import Family, counter, gauge


def election_families(parts: BrokerParts) -> Iterator[Family]:
    member = parts.member
    if member is None:
        return
    counts, record = member.counts, member.record
    for name, text, value in (
        ("rocketline_elections_won_total", "How often this member became master.", counts.won),
        ("rocketline_elections_followed_total", "How often this member began to follow a master.", counts.followed),
        (
            "rocketline_in_sync_changes_total",
            "Changes of the set in sync that this master made.",
            counts.in_sync_changes,
        ),
        (
            "rocketline_elections_retired_total",
            "How often this member stopped because of another election.",
            counts.retired,
        ),
        (
            "rocketline_fenced_writes_total",
            "Sends that failed because this broker leads no more.",
            parts.roles.fenced_writes,
        ),
        ("rocketline_election_failures_total", "Steps of an election that failed here.", counts.failures),
    ):
        family = counter(name, text)
        family.add(value)
        yield family
    for name, text, value in (
        ("rocketline_group_epoch", "Elections of the group so far.", record.epoch if record else 0),
        ("rocketline_group_members", "Members of the group.", len(record.members) if record else 0),
        (
            "rocketline_group_in_sync",
            "Members that have everything acknowledged.",
            len(record.in_sync) if record else 0,
        ),
        (
            "rocketline_group_problem",
            "1 while this member cannot take its part in elections.",
            int(bool(member.problem)),
        ),
        ("rocketline_group_running", "Members that hold their lease.", len(member.view.live)),
    ):
        shown = gauge(name, text)
        shown.add(value)
        yield shown
