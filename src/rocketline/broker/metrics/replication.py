"""Metrics of copies: what this broker is, how many replicas are in sync, and how far each is behind."""

from __future__ import annotations

from collections.abc import AsyncIterator

from rocketline.broker.parts import BrokerParts
from rocketline.broker.replication.roles import Role
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
        for connection in roles.source.connections:
            if connection.next_offset is None:
                continue
            gap = store.log_next_offset - connection.end
            near += gap < parts.config.replication.max_gap_bytes
            behind.add(gap, replica=connection.remote)
            if connection.caught_up_at is not None:
                seconds.add(max(0.0, now - connection.caught_up_at) if gap else 0.0, replica=connection.remote)
        in_sync.add(near)
        for family in (behind, seconds, in_sync):
            yield family
    elif not roles.is_master:
        follows = gauge("rocketline_replica_follows", "1 while this replica is connected to its master.")
        follows.add(int(roles.has_master))
        yield follows
