"""Requests between brokers that have copies of one log, and about them."""

from __future__ import annotations

from rocketline.protocol.headers.base import Header, Int32, Int64


class ExchangeHaInfoHeader(Header):
    """906, request and answer. A master that returns tells its addresses; anybody else asks for them.

    Fields that begin with rocketline are ours: a replica says which member it is and what it has, and gets a ticket.
    """

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None
    rocketline_member: Int64 | None = None
    rocketline_address: str | None = None
    """Where clients find it."""
    rocketline_log_end: Int64 | None = None
    rocketline_last_record: str | None = None
    """`offset:size:crc` of the last record of its log."""
    rocketline_ticket: str | None = None
    """In hexadecimal digits."""
    rocketline_ha_tls: bool | None = None
    rocketline_accounts: bool | None = None
    """Whether the answer should have users and rights in its body."""
    rocketline_copy_tables: Int32 | None = None
    """Of a master to a replica: its epoch, in which the replica shall copy tables before it answers."""

    def __repr__(self) -> str:
        return f"ExchangeHaInfoHeader(member={self.rocketline_member})"  # it may have a ticket


class ResetMasterFlushOffsetHeader(Header):
    """908."""

    master_flush_offset: Int64


class NotifyRoleChangedHeader(Header):
    """1008."""

    master_address: str
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


class ElectMasterHeader(Header):
    """1002: have another member lead; `broker_id` 0 or below: any. `rocketline_unclean`: the member that is asked
    leads though it may lack what was acknowledged."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    designate_elect: bool | None = None
    rocketline_unclean: bool | None = None


class CleanBrokerMetadataHeader(Header):
    """1011: forget members that do not run any more, or all named ones."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    """Numbers, separated by semicolons."""
    clean_living_broker: bool | None = None


class ReplicaInfoHeader(Header):
    """1004."""

    broker_name: str | None = None


class GroupMasterHeader(Header):
    """Answers to 1002 and 1004."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class ControllerMetadataHeader(Header):
    """Answer to 1005: whom to ask about the group."""

    group: str
    controller_leader_id: str
    controller_leader_address: str
    is_leader: bool
    peers: str
