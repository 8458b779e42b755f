"""Every verb of Apache's `mqadmin` 5.4.0, and every one of ours, on our cluster and on Apache's with the same history: the
same exits and the same facts, as tests/support/operating/cases.py says. One JVM runs all verbs of `mqadmin`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from tests.interop.conftest import Cluster
from tests.support.apache import SERVER_VERSION
from tests.support.java import require_java
from tests.support.java_driver import client_coordinates
from tests.support.mqadmin import MqAdmin
from tests.support.operating.cases import MQADMIN, NOT_RUN, OURS, Case
from tests.support.operating.comparing import by_mqadmin, by_ours, is_good_enough, outcome
from tests.support.operating.history import Side, history

# One worker runs all of it, in order: verbs change what the next ones show.
pytestmark = pytest.mark.interop


class Sides(NamedTuple):
    ours: Side
    theirs: Side
    tools: MqAdmin


@pytest.fixture(scope="module")
def sides(rocketline: Cluster, apache: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    require_java(*client_coordinates(SERVER_VERSION))
    with ExitStack() as stack:
        tools = stack.enter_context(MqAdmin(SERVER_VERSION))
        histories = [history(cluster.namesrv, tmp_path_factory.mktemp("verbs")) for cluster in (rocketline, apache)]
        with ThreadPoolExecutor() as pool:
            ours, theirs = pool.map(stack.enter_context, histories)
        yield Sides(ours, theirs, tools)


@pytest.mark.parametrize("case", MQADMIN, ids=lambda case: case.words)
def test_a_verb_of_mqadmin(sides: Sides, case: Case) -> None:
    here, there = by_mqadmin(sides.tools, sides.ours, case), by_mqadmin(sides.tools, sides.theirs, case)
    found = outcome(here, there)
    assert is_good_enough(found, case.outcome), (found, here.lines, there.lines, here.text, there.text)


def test_every_verb_of_mqadmin_is_run(sides: Sides) -> None:
    verbs = sides.tools.verbs()
    assert len(verbs) > 80
    assert sorted(verbs) == sorted({case.verb for case in MQADMIN} | NOT_RUN.keys())


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.words)
def test_a_verb_of_ours(sides: Sides, case: Case) -> None:
    here, there = by_ours(sides.ours, case), by_ours(sides.theirs, case)
    found = outcome(here, there)
    assert is_good_enough(found, case.outcome), (found, here.lines, there.lines, here.text, there.text)


def test_a_broker_says_everything_of_itself_that_apaches_does(sides: Sides) -> None:
    def keys(side: Side) -> set[str]:
        lines = by_mqadmin(sides.tools, side, Case("brokerStatus -b {broker}")).text.splitlines()
        found = {line.partition(":")[0].strip() for line in lines if ":" in line}
        return {key for key in found if not key.startswith(("commitLogDiskRatio_", "scheduleMessageOffset_"))}

    assert keys(sides.theirs) - keys(sides.ours) == set()


def test_what_must_not_be_changed_is_refused_to_the_tools_too(sides: Sides) -> None:
    # Not compared: Apache's broker would use the new folder from then on.
    told = by_mqadmin(sides.tools, sides.ours, Case("updateBrokerConfig -b {broker} -k storePathRootDir -v /x"))
    assert told.failed
    assert "CODE: 16" in told.text
    assert "'storePathRootDir' cannot be changed" in told.text
