"""Bodies about the members of a group that elects its master, as Apache's controller has them."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.bodies.json_body import Body, Int32, Int64


class SyncStateSet(Body):
    """Body of the answer to 1004."""

    sync_state_set: list[Int64] = field(default_factory=list)
    sync_state_set_epoch: Int32 = 0


class ReplicaIdentity(Body):
    broker_name: str = ""
    broker_id: Int64 = 0
    broker_address: str = ""
    alive: bool = False


class GroupSyncState(Body):
    master_broker_id: Int64 = 0
    master_address: str = ""
    master_epoch: Int32 = 0
    sync_state_set_epoch: Int32 = 0
    rocketline_problem: str = ""
    """Why the member that was asked cannot take its part in elections now."""
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


class SyncStateTable(Body):
    """Body of the answer to 1006, by name of the group."""

    replicas_info_table: dict[str, GroupSyncState] = field(default_factory=dict)


class ElectedGroup(Body):
    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)


class ElectMasterBody(Body):
    """Body of the answer to 1002."""

    broker_member_group: ElectedGroup = field(default_factory=ElectedGroup)
    sync_state_set: list[Int64] = field(default_factory=list)
