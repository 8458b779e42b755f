"""How replication of a broker goes: the answer to 907."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.bodies.json_body import Body, Int32, Int64


class HaConnection(Body):
    """One replica, as its master sees it."""

    addr: str = ""
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    """Bytes of the log that it does not have yet."""
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


class HaClient(Body):
    """The connection of a replica to its master, as the replica sees it."""

    master_addr: str = ""
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0
    activated: bool = False


class HaStatus(Body):
    """Apache's HARuntimeInfo: a master tells of its replicas, a replica of its connection."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    rocketline_log_begins: Int64 = 0
    """Log offset of the master's oldest file."""
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: list[HaConnection] = field(default_factory=list)
    ha_client_runtime_info: HaClient = field(default_factory=HaClient)
