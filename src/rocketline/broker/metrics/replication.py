"""Metrics of copies: what this broker is, how many replicas are in sync, and how far each is behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from rocketline.broker.parts import BrokerParts
from rocketline.broker.replication.roles import Role
from rocketline.broker.replication.source import ReplicaConnection
from rocketline.metrics.families import Family, gauge


async def replication_families(parts: BrokerParts) -> AsyncIterator[Family]:
    roles, store = parts.roles, parts.store
    role = gauge("rocketline_replication_role", "1 for what this broker is: master, replica or fenced.")
    for each in Role:
        role.add(int(roles.role is each), role=each.value)
    yield role
    if roles.is_master and roles.source is not None:
        behind = gauge("rocketline_replica_behind_bytes", "Bytes of the log that a replica does not have yet.")
        seconds = gauge("rocketline_replica_behind_seconds", "Seconds since a replica had all that its master had.")
        in_sync = gauge("rocketline_replicas_in_sync", "Replicas that are near enough to count as in sync.")
        now, near = parts.clock.monotonic(), 0
        for connection in _each_once(roles.source.connections):
            gap = store.log_next_offset - connection.end
            near += gap < parts.config.replication.max_gap_bytes
            behind.add(gap, replica=connection.name)
            if connection.caught_up_at is not None:
                seconds.add(max(0.0, now - connection.caught_up_at) if gap else 0.0, replica=connection.name)
        in_sync.add(near)
        for family in (behind, seconds, in_sync):
            yield family
    elif not roles.is_master:
        follows = gauge("rocketline_replica_follows", "1 while this replica is connected to its master.")
        follows.add(int(roles.has_master))
        yield follows


def _each_once(connections: Iterable[ReplicaConnection]) -> Iterable[ReplicaConnection]:
    """Those that follow. Apache's slaves on one machine look alike: the one that is farthest behind counts."""
    following = [found for found in connections if found.next_offset is not None]
    return {found.name: found for found in sorted(following, key=lambda found: -found.end)}.values()
