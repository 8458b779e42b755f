"""Which master wrote which span of a broker's log: the answer to 1007."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.bodies.json_body import Body, Int32, Int64


class EpochEntry(Body):
    epoch: Int32 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = 0


class EpochTable(Body):
    """Apache's EpochEntryCache."""

    broker_id: Int64 = 0
    broker_name: str = ""
    cluster_name: str = ""
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: Int64 = 0
