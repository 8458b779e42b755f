"""The tables of docs/performance.md about Spark, from the results of `against_kafka.py` and `growth.py`.

    python bench/spark/page.py                                # prints them
    python bench/spark/page.py --write docs/performance.md    # puts them between their marks

A result that is not there has no table. Each row shows its bar and whether it was reached.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.bars import is_reached
from bench.page import VERDICT, NotAResult, put_between, table_of

RESULTS = Path(__file__).resolve().parents[1] / "results" / "spark"
MARKS = "<!-- figures of Spark: begin -->", "<!-- figures of Spark: end -->"
LOADS = {
    "sink": ("a table written as a batch", "ratio >= 1.0"),
    "stream": ("the same rows read by a stream, ten micro-batches", "ratio >= 1.0"),
    "trickle": ("a hundred rows a second, read once a second", "cpu <= 1.2"),
}
JAVA_BAR = "cpu <= 1.5"
GROWTH_BAR, WORKERS_BAR = "per-decade <= 1.15", "gain >= 1.7"
Result = dict[str, Any]


def page(kafka: Result | None, growth: Result | None) -> str:
    parts = []
    if kafka is not None:
        parts += [_loads(kafka), _java(kafka), _conditions(kafka)]
    if growth is not None:
        parts += [_growth(growth["lines"]), _workers(growth["lines"]), _conditions(growth)]
    return "\n\n".join(part for part in parts if part)


def _loads(kafka: Result) -> str:
    head = ["load", "rocketline, rows/s", "Kafka, rows/s", "ratio (range)", "server CPU us a row, rocketline : Kafka"]
    head += ["Spark CPU us a row", "ratio (range)", *VERDICT]
    rows = []
    for name, (what, bar) in LOADS.items():
        if (found := kafka["loads"].get(name)) is None:
            continue
        ours, theirs = found["rocketmq"], found["kafka"]
        rates, cpu = _ratios(ours, theirs, "rows_s"), _ratios(ours, theirs, "spark_us")
        rows.append(
            [
                f"{name}: {what}",
                *(f"{_middle(side, 'rows_s'):,.0f}" for side in (ours, theirs)),
                _range(rates),
                *(f"{_middle(ours, key):.1f} : {_middle(theirs, key):.1f}" for key in ("server_us", "spark_us")),
                _range(cpu),
                *_verdict(bar, ratio=median(rates), cpu=median(cpu)),
            ]
        )
    return table_of(head, rows)


def _java(kafka: Result) -> str:
    """Rounds of the sink and of Java's client do not take turns: the ratio is that of the medians."""
    sink = kafka["loads"].get("sink")
    if not kafka["java_us"] or sink is None:
        return ""
    ours, java = _middle(sink["rocketmq"], "server_us"), median(kafka["java_us"])
    head = ["broker CPU us a row", "our sink", "batches of Apache's Java client", "ratio", *VERDICT]
    return table_of(
        head,
        [
            [
                "rows of the sink",
                f"{ours:.2f}",
                f"{java:.2f}",
                f"{ours / java:.2f}",
                *_verdict(JAVA_BAR, cpu=ours / java),
            ]
        ],
    )


def _growth(lines: list[Result]) -> str:
    sizes = sorted({line["rows"] for line in lines})
    seconds = {_place(line): line["seconds_per_million"] for line in lines}
    head = ["seconds for a million rows", "queues", "workers", *(f"of {size:,}" for size in sizes), "per decade"]
    rows = []
    for work, queues, workers in sorted({(line["work"], line["queues"], line["workers"]) for line in lines}):
        of = [seconds[work, size, queues, workers] for size in sizes]
        steps = [after / before for before, after in pairwise(of)]
        verdict = _verdict(GROWTH_BAR, **{"per-decade": max(steps)}) if steps else ["", ""]
        shown = ", ".join(f"{step:.2f}" for step in steps)
        rows.append([work, str(queues), str(workers), *(f"{each:.2f}" for each in of), shown, *verdict])
    return table_of([*head, *VERDICT], rows)


def _workers(lines: list[Result]) -> str:
    """Of the largest topics: what a job costs however small it is does not count there."""
    most = max(line["rows"] for line in lines)
    return table_of(
        [f"two workers instead of one, {most:,} rows", "queues", "times as fast", *VERDICT],
        [
            [
                line["work"],
                str(line["queues"]),
                f"{line['gain_of_two']:.2f}",
                *_verdict(WORKERS_BAR, gain=line["gain_of_two"]),
            ]
            for line in lines
            if line["rows"] == most and line["workers"] == 2
        ],
    )


def _place(line: Result) -> tuple[str, int, int, int]:
    return line["work"], line["rows"], line["queues"], line["workers"]


def _conditions(result: Result) -> str:
    about = result["machine"]
    return (
        f"Conditions: {about['processor']}, {about['cores']} cores, {about['memory_gib']} GiB, Linux {about['kernel']};\n"
        f"CPython {about['python']}, Spark {about['spark']}; commit {about['commit']}."
    )


def _middle(runs: list[Result], key: str) -> float:
    return median(run[key] for run in runs)


def _ratios(ours: list[Result], theirs: list[Result], key: str) -> list[float]:
    return [mine[key] / max(other[key], 1e-9) for mine, other in zip(ours, theirs)]


def _range(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def _verdict(bar: str, **figures: float) -> list[str]:
    return [bar, "yes" if is_reached(bar, figures) else "**no**"]


def _read(path: Path, needed: str) -> Result | None:
    if not path.exists():
        return None
    try:
        result = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise NotAResult(f"{path} cannot be read: {error}") from error
    if not isinstance(result, dict) or not {"machine", needed} <= result.keys():
        raise NotAResult(f"{path} is no result of a benchmark of Spark")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put them between the marks of this page")
    chosen = parser.parse_args()
    try:
        kafka, growth = _read(chosen.results / "kafka.json", "loads"), _read(chosen.results / "growth.json", "lines")
        if kafka is None and growth is None:
            raise NotAResult(f"{chosen.results} has no results: run against_kafka.py and growth.py first")
        tables = page(kafka, growth)
        if chosen.write:
            chosen.write.write_text(put_between(chosen.write.read_text("utf-8"), tables, MARKS), "utf-8")
        else:
            print(tables)
    except (NotAResult, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
