"""The targets of our gRPC front against Apache's proxy in local mode on the same core, which of them a run reaches, and the
kept figures as a table of docs/performance.md.

    python bench/grpc_bars.py                               # prints the table of bench/results/grpc/front.json
    python bench/grpc_bars.py --write docs/performance.md   # puts it between its marks
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.page import put_between

KEPT = Path(__file__).resolve().parent / "results" / "grpc" / "front.json"
MARKS = "<!-- figures of gRPC: begin -->", "<!-- figures of gRPC: end -->"

RATE = 1.0
"""Of each load, messages per second: at least so many times Apache's."""
MEMORY = 0.2
"""Without mapped files: at most so many times Apache's."""
START_S = 1.0
"""Until it is ready: at most so many seconds."""


@dataclass(frozen=True)
class Verdict:
    """A figure beside its bar."""

    name: str
    value: float
    bar: float
    is_least: bool
    """The bar is the least that is wanted, not the most."""

    @property
    def is_reached(self) -> bool:
        return self.value >= self.bar if self.is_least else self.value <= self.bar

    def __str__(self) -> str:
        sign = "at least" if self.is_least else "at most"
        reached = "reached" if self.is_reached else "NOT REACHED"
        return f"{self.name}: {self.value:.2f}, {sign} {self.bar:g} wanted: {reached}"

    def shown(self) -> dict[str, Any]:
        return {**asdict(self), "is_reached": self.is_reached}


def verdicts(ratios: Mapping[str, Sequence[float]], memory_ratio: float, start_s: float) -> list[Verdict]:
    """`ratios` are those of the pairs of each load, ours to Apache's; what counts is their median."""
    found = [Verdict(load, statistics.median(of_pairs), RATE, True) for load, of_pairs in ratios.items()]
    return [*found, Verdict("memory", memory_ratio, MEMORY, False), Verdict("start", start_s, START_S, False)]


Figures = Mapping[str, Mapping[str, float]]
"""By side, then by name."""


def page_table(medians: Mapping[str, Figures], ratios: Mapping[str, Sequence[float]], sides: Figures) -> str:
    """In Markdown. `medians` are those of each load; `sides` have memory and start."""
    ours, theirs = sides["rocketline"], sides["apache"]
    mib = [side["anonymous_bytes"] / (1 << 20) for side in (ours, theirs)]
    shown = {verdict.name: verdict for verdict in verdicts(ratios, mib[0] / mib[1], ours["ready_s"])}
    rows = ["| | ours | Apache's proxy 5.4.0 | ratio | bar | reached |", "| --- | --- | --- | --- | --- | --- |"]

    def add(title: str, name: str, cells: Sequence[str], unit: str = "") -> None:
        verdict = shown[name]
        bar = f"at {'least' if verdict.is_least else 'most'} {verdict.bar:g}{unit}"
        rows.append(f"| {' | '.join([title, *cells, bar])} | {'yes' if verdict.is_reached else '**no**'} |")

    for load, of_sides in medians.items():
        cells = [
            f"{figures['rate']:,.0f} msg/s, {figures['cpu_us']:.0f} us of CPU"
            for figures in (of_sides["rocketline"], of_sides["apache"])
        ]
        of_pairs = ratios[load]
        ratio = f"{statistics.median(of_pairs):.2f} ({min(of_pairs):.2f}-{max(of_pairs):.2f})"
        add(f"`{load}`", load, [*cells, ratio])
    memory = [f"{mib[0]:.0f} MiB", f"{mib[1]:.0f} MiB", f"{mib[0] / mib[1]:.2f}"]
    add("memory after the runs, without mapped files", "memory", memory)
    add("ready after", "start", [f"{ours['ready_s']:.2f} s", f"{theirs['ready_s']:.1f} s", ""], " s")
    return "\n".join(rows)


def kept_table() -> str:
    """The table of the run that was kept."""
    kept = json.loads(KEPT.read_text("utf-8"))
    return page_table(kept["medians"], kept["ratios"], kept["sides"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put it between the marks of this page")
    page = parser.parse_args().write
    if page:
        page.write_text(put_between(page.read_text("utf-8"), kept_table(), MARKS), "utf-8")
    else:
        print(kept_table())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
