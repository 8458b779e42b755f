"""Makes a broker's part in the election of its group from its settings and parts."""

from __future__ import annotations

from collections.abc import Callable

from rocketline.broker.config import BrokerConfig
from rocketline.broker.parts import BrokerParts
from rocketline.broker.replication.identity import IdentityFile
from rocketline.broker.replication.member import GroupMember
from rocketline.coordination import Coordinator
from rocketline.coordination.etcd import EtcdCoordinator
from rocketline.store.config import FlushDiskType
from rocketline.system.processes import boot_id

Coordinators = Callable[[BrokerConfig], Coordinator]


def etcd_of(config: BrokerConfig) -> Coordinator:
    return EtcdCoordinator(config.coordination, config.cluster, config.name)


def make_member(parts: BrokerParts, coordinator: Coordinator, addresses: tuple[str, str]) -> GroupMember:
    """`addresses` are those for clients and for followers."""
    config, environment = parts.config, parts.environment
    file = IdentityFile(environment.root, environment.disk)
    identity = file.open(config.cluster, config.name)
    boot = boot_id()
    # In the same boot the page cache kept what the process wrote to files; where nobody tells, another one is assumed.
    is_kept = bool(boot) and identity.boot_id == boot and not config.store.transient_pool
    is_flushed = config.store.flush.disk_type is FlushDiskType.SYNC_FLUSH
    return GroupMember(
        parts.roles,
        coordinator,
        file,
        identity,
        addresses,
        clock=environment.clock,
        max_behind_s=config.replication.max_behind_ms / 1000,
        may_lack=parts.after_crash and not is_kept and not is_flushed,
        boot_id=boot,
        ha_tls=environment.ha_tls,
    )
