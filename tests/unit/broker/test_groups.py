"""Consumer groups as configured: created on first use where that is allowed, kept, and guarded."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.golden.wire import load as golden

from rocketline.broker.tables.groups import BUILT_IN, Groups
from rocketline.broker.tables.json_table import JsonTable
from rocketline.clock import ManualClock
from rocketline.errors import RequestRejected, StoreError
from rocketline.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketline.protocol.codes import ResponseCode
from rocketline.testing.disks import FaultyDisk, MemoryDisk

FILE = Path("/config/subscriptionGroup.json")
ILLEGAL = ["", "a b", "../../x", "g" * 256, "grün", "a\0"]

MakeGroups = Callable[..., Groups]


@pytest.fixture
def disk() -> FaultyDisk:
    memory = MemoryDisk()
    memory.make_folder(FILE.parent)
    return FaultyDisk(memory)


@pytest.fixture
def make(disk: FaultyDisk) -> MakeGroups:
    def start(*, auto_create: bool = True) -> Groups:
        groups = Groups(JsonTable(disk, FILE, SubscriptionGroupWrapper), ManualClock(), auto_create=auto_create)
        groups.load()
        return groups

    return start


def refusal(call: Callable[[], object]) -> int:
    with pytest.raises(RequestRejected) as caught:
        call()
    return caught.value.code


def test_a_new_broker_has_the_built_in_groups(make: MakeGroups) -> None:
    assert make().table == {name: SubscriptionGroupConfig(name) for name in BUILT_IN}


def test_a_group_is_created_by_its_first_use_and_survives_a_restart(make: MakeGroups) -> None:
    groups = make()
    created = groups.require("readers")
    assert created == SubscriptionGroupConfig("readers")
    assert groups.get("readers") is created
    again = make()
    assert again.table["readers"] == created
    assert again.version == groups.version


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_name_is_no_group(make: MakeGroups, name: str) -> None:
    groups = make()
    assert groups.get(name) is None
    assert refusal(lambda: groups.require(name)) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert name not in groups.table


def test_without_auto_creation_only_groups_of_the_system_come_by_themselves(make: MakeGroups) -> None:
    groups = make(auto_create=False)
    assert refusal(lambda: groups.require("readers")) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert groups.require("CID_RMQ_SYS_REVIVE_GROUP").group_name == "CID_RMQ_SYS_REVIVE_GROUP"
    groups.put(SubscriptionGroupConfig("readers"))
    assert groups.require("readers").group_name == "readers"


def test_a_disabled_group_cannot_read(make: MakeGroups) -> None:
    groups = make()
    groups.put(SubscriptionGroupConfig("readers", consume_enable=False))
    assert refusal(lambda: groups.require_readable("readers")) == ResponseCode.NO_PERMISSION
    groups.put(SubscriptionGroupConfig("readers"))
    assert groups.require_readable("readers").consume_enable


def test_every_change_gets_a_new_version(make: MakeGroups) -> None:
    groups = make()
    start = groups.version.counter
    groups.put(SubscriptionGroupConfig("readers"))
    groups.put(SubscriptionGroupConfig("readers", retry_max_times=3))
    assert groups.version.counter == start + 2
    assert groups.table["readers"].retry_max_times == 3


def test_a_group_that_cannot_be_saved_is_not_there(make: MakeGroups, disk: FaultyDisk) -> None:
    groups = make()
    disk.fail("write", errno.ENOSPC, forever=True)
    with pytest.raises(StoreError, match="No space left"):
        groups.require("readers")
    disk.heal()
    assert "readers" not in groups.table
    assert make().table == groups.table


def test_an_apache_file_is_taken_as_it_is_and_kept(make: MakeGroups, disk: FaultyDisk) -> None:
    disk.write_atomic(FILE, golden.config("subscriptionGroup.json"))
    groups = make()
    assert len(groups.table) > len(BUILT_IN)
    groups.put(SubscriptionGroupConfig("readers"))
    again = make()
    assert again.table == groups.table
    assert again.snapshot() == groups.snapshot()


def test_a_barred_pair_stays_barred_after_a_restart(make: MakeGroups, disk: FaultyDisk) -> None:
    wrapper = SubscriptionGroupWrapper(forbidden_table={"readers": {"orders": 4, "bills": 3, "odd": -1}})
    JsonTable(disk, FILE, SubscriptionGroupWrapper).save(wrapper)
    groups = make()
    groups.put(SubscriptionGroupConfig("readers"))
    again = make()
    assert not again.may_read("readers", "orders")
    assert again.may_read("readers", "bills")
    assert again.may_read("readers", "odd")
    assert again.may_read("others", "orders")


def test_an_unreadable_table_is_not_replaced_by_an_empty_one(make: MakeGroups, disk: FaultyDisk) -> None:
    disk.write_atomic(FILE, b"{broken")
    with pytest.raises(StoreError, match=r"subscriptionGroup\.json"):
        make()
    assert disk.read(FILE) == b"{broken"
