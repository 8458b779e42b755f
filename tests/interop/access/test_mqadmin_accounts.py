"""The verbs of Apache's `mqadmin` 5.4.0 for accounts and rights: they print the same on Apache's broker and on ours."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.interop.access.conftest import SETTINGS, Sides
from tests.support.access.world import ROOT, Side
from tests.support.apache import SERVER_VERSION
from tests.support.java import require_java
from tests.support.java_driver import client_coordinates
from tests.support.mqadmin import MqAdmin, Printed

from rocketline.testing import LocalCluster

pytestmark = pytest.mark.interop

VERBS = [
    "createUser -b {broker} -u mq1 -p secret1 -t Normal",
    "createUser -b {broker} -u mq1 -p again",
    "createUser -c DefaultCluster -u mq2 -p secret2",
    "updateUser -b {broker} -u mq1 -p secret3",
    "updateUser -b {broker} -u mq1 -t Super",
    "updateUser -c DefaultCluster -u mq1 -s disable",
    "updateUser -b {broker} -u absent -p x",
    "getUser -b {broker} -u mq1",
    "getUser -c DefaultCluster -u mq2",
    "getUser -b {broker} -u absent",
    "listUser -b {broker} -f mq",
    "listUser -c DefaultCluster -f mq1",
    "listUser -b {broker} -f absent",
    "createAcl -b {broker} -s User:mq1 -r Topic:a,Topic:b -a Pub,Sub -d Allow",
    "createAcl -b {broker} -s User:mq1 -r Group:g* -a Sub -i 10.0.0.0/8,::1 -d Deny",
    "createAcl -c DefaultCluster -s User:mq2 -r * -a All -d Allow",
    "createAcl -b {broker} -s User:absent -r Topic:a -a Pub -d Allow",
    "createAcl -b {broker} -s User:mq1 -r Thing:a -a Pub -d Allow",
    "createAcl -b {broker} -s User:mq1 -r Topic:a -a Pub -i 10.*.0.1 -d Allow",
    "updateAcl -b {broker} -s User:mq1 -r Topic:a -a All -d Deny",
    "getAcl -b {broker} -s User:mq1",
    "getAcl -b {broker} -s User:absent",
    "listAcl -b {broker} -s mq",
    "listAcl -c DefaultCluster -s mq1 -r Group",
    "listAcl -b {broker} -r absent",
    "copyUser -f {broker} -t {broker} -u mq1,mq2",
    "copyAcl -f {broker} -t {broker} -s User:mq1,User:mq2",
    "listUser -b {broker} -f mq2",
    "listAcl -b {broker} -s mq2",
    "deleteAcl -b {broker} -s User:mq1 -r Topic:a",
    "getAcl -c DefaultCluster -s User:mq1",
    "deleteAcl -c DefaultCluster -s User:mq1",
    "deleteAcl -b {broker} -s User:absent",
    "deleteUser -b {broker} -u mq1",
    "deleteUser -c DefaultCluster -u mq2",
    "deleteUser -b {broker} -u absent",
]
"""One after the other: each goes on from where those before it left."""


@pytest.fixture(scope="module")
def tools() -> Iterator[MqAdmin]:
    require_java(*client_coordinates(SERVER_VERSION))
    with MqAdmin(SERVER_VERSION, (ROOT.name, ROOT.secret)) as tools:
        yield tools


@pytest.fixture(scope="module")
def both(theirs: Side) -> Iterator[Sides]:
    """Ours shows passwords to administrators, as copyUser needs them."""
    with LocalCluster(config={**SETTINGS, "rocketline.auth.revealPasswords": True}) as cluster:
        yield Sides(theirs, Side(cluster.namesrv, cluster.brokers[0].address))


def _run(tools: MqAdmin, side: Side, words: str) -> tuple[str, list[str]]:
    printed = tools.run(side.namesrv, *words.format(broker=side.broker).split())
    return printed.out.replace(side.broker, "BROKER"), _reasons(printed)


def _reasons(printed: Printed) -> list[str]:
    """What the broker said to a verb that failed."""
    return re.findall(r"CODE: .*?DESC: .*?(?=$|  BROKER)", printed.err, flags=re.MULTILINE)


@pytest.mark.parametrize("words", VERBS)
def test_a_verb(tools: MqAdmin, both: Sides, words: str) -> None:
    there, here = (_run(tools, side, words) for side in both)
    assert there[0] or there[1] or "absent" in words, "it says something"
    assert here == there


def test_passwords_stay_where_they_are_unless_told_otherwise(tools: MqAdmin, ours: Side) -> None:
    out, reasons = _run(tools, ours, f"getUser -b {{broker}} -u {ROOT.name}")
    assert reasons == []
    assert ROOT.name in out
    assert ROOT.secret not in out
