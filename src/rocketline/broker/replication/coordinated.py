"""Makes a broker's part in the election of its group from its settings and parts."""

from __future__ import annotations

from collections.abc import Callable

from rocketline.broker.config import BrokerConfig
from rocketline.broker.parts import BrokerParts
from rocketline.broker.replication.identity import IdentityFile, Takes
from rocketline.broker.replication.member import GroupMember
from rocketline.coordination import Coordinator
from rocketline.coordination.etcd import EtcdCoordinator
from rocketline.store.config import FlushDiskType, StoreConfig
from rocketline.system.processes import boot_id

Coordinators = Callable[[BrokerConfig], Coordinator]


def etcd_of(config: BrokerConfig) -> Coordinator:
    return EtcdCoordinator(config.coordination, config.cluster, config.name)


def make_member(parts: BrokerParts, coordinator: Coordinator, addresses: tuple[str, str]) -> GroupMember:
    """`addresses` are those for clients and for followers."""
    config, environment = parts.config, parts.environment
    file = IdentityFile(environment.root, environment.disk)
    identity = file.open(config.cluster, config.name).opened(
        boot_id(), _taken_by(config.store), after_crash=parts.after_crash, is_shorter=parts.store.copies.is_shorter
    )
    file.save(identity)
    return GroupMember(
        parts.roles,
        coordinator,
        file,
        identity,
        addresses,
        clock=environment.clock,
        max_behind_s=config.replication.max_behind_ms / 1000,
        ha_tls=environment.ha_tls,
        have_copied=parts.table_changes.have_copied,
    )


def _taken_by(store: StoreConfig) -> Takes:
    """In one boot of the machine the page cache keeps what was written to files."""
    if store.transient_pool:
        return Takes.KILL
    return Takes.NOTHING if store.flush.disk_type is FlushDiskType.SYNC_FLUSH else Takes.POWER
