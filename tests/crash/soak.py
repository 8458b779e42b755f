"""`python -m tests.crash.soak`: every scenario with the counts that convince, in work items of a minute or so.

Each item has a seed, and its result is a line in build/soak/. A run goes on where the last one stopped; `--part 1/2` and
`--part 2/2` share the items between two processes. A failed item prints the command that repeats it:

    python -m tests.crash.soak --scenario S1 --seed 123 --runs 1
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.replication import apache, fixed
from tests.replication import scenarios as groups
from tests.spark import soak as tables

import rocketline

from .outcome import Outcome
from .results import FOLDER, record, recorded, row_name, table, write_document
from .scenarios import (
    bit_rot,
    clocks,
    consumers,
    derived_files,
    failing_flush,
    floods,
    full_disk,
    kills,
    metadata,
    name_servers,
    ownership,
    pops,
    power_cuts,
    slow_disk,
    strangers,
    timers,
    torn_writes,
    transactions,
)

ITEM_LIMIT_S = 1800.0


@dataclass(frozen=True)
class Item:
    """Some runs of a scenario in one variant, all from one seed."""

    scenario: str
    variant: str
    seed: int
    runs: int

    @property
    def command(self) -> str:
        variant = f" --variant '{self.variant}'" if self.variant else ""
        return f"python -m tests.crash.soak --scenario {self.scenario}{variant} --seed {self.seed} --runs {self.runs}"


@dataclass(frozen=True)
class Part:
    """A scenario in one variant: how many items of how many runs."""

    scenario: str
    run: Callable[..., Any]
    variant: str
    items: int
    runs: int
    seed_step: int = 1

    def all_items(self) -> Iterator[Item]:
        for number in range(self.items):
            yield Item(self.scenario, self.variant, 1 + number * self.seed_step, self.runs)


def parts() -> list[Part]:
    """The counts of the table of scenarios."""
    found = [
        Part("S1", kills.run, "SYNC_FLUSH", 30, 100),
        Part("S1", kills.run, "ASYNC_FLUSH", 5, 100),
        *(Part("S2", power_cuts.run, mode, 100, 10) for mode in power_cuts.MODES),
        *(Part("S3", torn_writes.run, shape, 1, 1) for shape in torn_writes.shapes()),
        *(Part("S4", bit_rot.run, variant, 14, 50) for variant in bit_rot.VARIANTS),
        *(Part("S5", derived_files.run, variant, 4, 10) for variant in derived_files.VARIANTS),
        # The seed is the number of the flush that fails, so items of ten runs are ten apart.
        Part("S6", failing_flush.run, "patched", 20, 10, seed_step=10),
        Part("S7", full_disk.run, full_disk.INJECTED, 18, 10),
        *(Part("S8", metadata.run, variant, 5, 10) for variant in metadata.VARIANTS),
        *(Part("S9", fixed.run, variant, 10, 5) for variant in fixed.AWAY),
        Part("S10", fixed.run, fixed.GONE, 100, 5),
        *(Part("S11", strangers.run, variant, 20, 5000) for variant in strangers.VARIANTS),
        *(Part("S13", name_servers.run, variant, 10, 5) for variant in name_servers.VARIANTS),
        *(Part("S14", consumers.run, variant, 10, 5) for variant in consumers.VARIANTS),
        *(Part("I7", pops.run, variant, 10, 3) for variant in pops.VARIANTS),
        *(Part("S15", clocks.run, variant, 10, 5) for variant in clocks.VARIANTS),
        Part("S15", timers.run, timers.KILLED, 20, 5),
        *(Part("S19", floods.run, variant, 5, 2) for variant in floods.VARIANTS),
        *(Part("S22", transactions.run, variant, 20, 25) for variant in transactions.VARIANTS),
        Part("S23", slow_disk.run, slow_disk.RUNNING, 8, 10),
        Part("S23", slow_disk.run, slow_disk.FROM_START, 1, 10),
        Part("S23", slow_disk.run, slow_disk.TABLES, 1, 10),
        *(Part("S26", ownership.run, variant, 2, 10) for variant in ownership.VARIANTS),
    ]
    if shutil.which("etcd"):
        for name in groups.SOAK_RUNS:
            found += [
                Part(
                    name,
                    partial(groups.run, scenario=name),
                    variant,
                    runs // groups.RUNS_PER_ITEM,
                    groups.RUNS_PER_ITEM,
                )
                for variant, runs in groups.variants_of(name).items()
            ]
    else:
        print("F0 to F16 are left out: there is no etcd on the path")
    if shutil.which("java"):
        names = ("F0", *apache.MUST_FAIL)
        found += [Part(name, partial(apache.soak, scenario=name), apache.VARIANT, 1, 1) for name in names]
        found += [Part(tables.SCENARIO, tables.run, variant, 5, 2) for variant in tables.VARIANTS]
    else:
        print("F0, F3, F4 and F7 on Apache's brokers, and T1, are left out: there is no java on the path")
    if failing_flush.can_strace():
        found.append(Part("S6", failing_flush.run, failing_flush.STRACE, 3, 10, seed_step=10))
    if full_disk.can_mount(Path(tempfile.gettempdir()) / "rocketline-mount-probe"):
        found.append(Part("S7", full_disk.run, full_disk.TMPFS, 4, 5))
    return found


def planned() -> dict[str, int]:
    """How many runs each row of the table is to have."""
    counts: dict[str, int] = {}
    for part in parts():
        name = row_name(part.scenario, part.variant)
        counts[name] = counts.get(name, 0) + part.items * part.runs
    return counts


def main() -> int:
    options = _options()
    chosen = [part for part in parts() if not options.scenario or part.scenario in options.scenario]
    chosen = [part for part in chosen if options.variant is None or part.variant == options.variant]
    if not chosen:
        print(f"there is no scenario {options.scenario} with variant {options.variant}")
        return 2
    if options.write_docs:
        write_document(recorded(options.results), planned=planned())
    elif options.seed is not None:
        return _repeat(chosen, options)
    else:
        _soak(chosen, options)
    outcomes = recorded(options.results)
    print(table(outcomes, planned()))
    return 1 if any(outcome.violations for outcome in outcomes) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak", description=__doc__)
    parser.add_argument(
        "--scenario",
        action="append",
        default=[],
        help="S1 to S11, S13 to S15, S19, S22, S23, S26, I7, T1, F0 to F14 or F16; may be repeated",
    )
    parser.add_argument("--variant", help="only this variant of the scenario")
    parser.add_argument(
        "--seed", type=int, help="repeat one item with this seed instead of soaking; nothing is recorded"
    )
    parser.add_argument("--runs", type=int, help="runs of the repeated item")
    parser.add_argument("--part", default="1/1", help="which share of the items, such as 2/3")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no item after this long")
    parser.add_argument("--again", action="store_true", help="also run items that have a result")
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder of the results")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where stores are made")
    parser.add_argument("--write-docs", action="store_true", help="only bring docs/reliability.md up to date")
    return parser.parse_args()


def _repeat(chosen: list[Part], options: argparse.Namespace) -> int:
    failed = False
    for part in chosen:
        outcome = run_item(
            part.run, Item(part.scenario, part.variant, options.seed, options.runs or part.runs), options.folder
        )
        failed = failed or bool(outcome.violations)
    return int(failed)


def _soak(chosen: list[Part], options: argparse.Namespace) -> None:
    share, _, shares = options.part.partition("/")
    done = (
        {(each.scenario, each.variant, each.seed) for each in recorded(options.results)} if not options.again else set()
    )
    work = [(part, item) for part in chosen for item in part.all_items()][int(share) - 1 :: int(shares)]
    started = time.monotonic()
    for part, item in work:
        if (item.scenario, item.variant, item.seed) in done:
            continue
        if time.monotonic() - started > options.minutes * 60:
            print("time is over; the next run goes on from here")
            return
        record(run_item(part.run, item, options.folder), options.results)


def run_item(run: Callable[..., Any], item: Item, folder: Path) -> Outcome:
    """One item in a fresh folder, which is kept when something was violated."""
    place = Path(tempfile.mkdtemp(prefix=f"rocketline-{item.scenario}-", dir=folder))
    started = time.monotonic()
    try:
        outcome = asyncio.run(_limited(run, item, place))
    except Exception as error:
        outcome = Outcome(item.scenario, item.variant, item.seed, violations=[f"the harness failed: {error!r}"])
    outcome.impl = rocketline.__impl__
    print(f"{time.strftime('%H:%M:%S')} {outcome} ({time.monotonic() - started:.1f} s)", flush=True)
    if outcome.violations:
        print(f"    repeat: {item.command}\n    folder: {place}", flush=True)
    else:
        shutil.rmtree(place, ignore_errors=True)
    return outcome


async def _limited(run: Callable[..., Any], item: Item, place: Path) -> Outcome:
    found = run(place, item.seed, item.variant, runs=item.runs)
    outcome: Outcome = await asyncio.wait_for(found, ITEM_LIMIT_S) if inspect.isawaitable(found) else found
    return outcome


if __name__ == "__main__":
    sys.exit(main())
