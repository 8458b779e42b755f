"""Apache's `mqadmin` asks a group of ours that elects its master what it would ask a controller."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.replication.group import CLUSTER, GROUP, ReplicatedGroup
from tests.support.apache import SERVER_VERSION
from tests.support.etcd import need_etcd
from tests.support.java import require_java
from tests.support.java_driver import client_coordinates
from tests.support.mqadmin import MqAdmin

pytestmark = pytest.mark.interop


async def test_mqadmin_sees_the_group_and_changes_its_master(tmp_path: Path) -> None:
    need_etcd()
    require_java(*client_coordinates(SERVER_VERSION))
    with MqAdmin(SERVER_VERSION) as tools:

        async def told(*words: object) -> str:
            printed = await asyncio.to_thread(tools.run, "", *(str(word) for word in words))
            assert not printed.failed, printed
            return printed.out

        async with ReplicatedGroup(tmp_path) as group:
            record = await group.all_in_sync()
            former, other = await group.master(), (await group.others())[0]
            told_of = await told("getSyncStateSet", "-a", other.address, "-b", GROUP)
            assert f"#MasterAddr\t{former.address}" in told_of
            assert told_of.count("InSyncReplica:") == 2
            assert f"#ControllerLeaderAddress\t{former.address}" in await told(
                "getControllerMetaData", "-a", other.address
            )
            wanted = next(key for key in record.members if key != record.master)
            answer = await told("electMaster", "-a", other.address, "-b", wanted, "-bn", GROUP, "-c", CLUSTER)
            assert f"#BrokerMasterAddr\t{other.address}" in answer
            await group.all_in_sync()
            assert await group.master() is other
