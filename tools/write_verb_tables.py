"""Run every verb of Apache's `mqadmin` and of `rocketline admin` on our cluster and on Apache's, and write the results into
docs/compat.md. If a verb gives another result than tests/support/operating/cases.py expects, that is reported and nothing is
written. Needs Java: `PYTHONPATH=src:. python tools/write_verb_tables.py`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster
from tests.support.mqadmin import MqAdmin
from tests.support.operating import page
from tests.support.operating.cases import MQADMIN, OURS, Case
from tests.support.operating.comparing import Told, by_mqadmin, by_ours, is_good_enough, outcome
from tests.support.operating.history import Side, history

from rocketline.testing import LocalCluster


def main() -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        apache = ApacheCluster(folder / "apache", jvm_options=QUICK_START)
        (folder / "apache").mkdir()
        stack.callback(apache.kill)
        namesrvs = {"ours": stack.enter_context(LocalCluster()).namesrv, "theirs": apache.start().namesrv}
        tools = stack.enter_context(MqAdmin(SERVER_VERSION))
        sides = []
        for name, namesrv in namesrvs.items():
            (folder / name).mkdir()
            sides.append(stack.enter_context(history(namesrv, folder / name)))
        bad = compare(tools, *sides)
    if not bad:
        page.PAGE.write_text(page.written(page.PAGE.read_text("utf-8")), "utf-8")
        print(f"written: {page.PAGE}")
    return 1 if bad else 0


def compare(tools: MqAdmin, ours: Side, theirs: Side) -> int:
    """Run all cases; returns how many gave an unexpected result."""
    by_tool = partial(by_mqadmin, tools)
    return sum(not is_good(by_tool, case, ours, theirs) for case in MQADMIN) + sum(
        not is_good(by_ours, case, ours, theirs) for case in OURS
    )


def is_good(run: Callable[[Side, Case], Told], case: Case, ours: Side, theirs: Side) -> bool:
    started = time.monotonic()
    here, there = run(ours, case), run(theirs, case)
    found = outcome(here, there)
    good = is_good_enough(found, case.outcome)
    print(f"{'  ' if good else '! '}{case.words}: {found.value} ({time.monotonic() - started:.1f} s)", flush=True)
    if not good:
        print(f"    expected: {case.outcome.value}")
        show("ours", here)
        show("theirs", there)
    return good


def show(name: str, told: Told) -> None:
    print(f"    {name}{' (failed)' if told.failed else ''}:")
    for line in told.lines[:30]:
        print(f"      {line[:300]}")


if __name__ == "__main__":
    sys.exit(main())
