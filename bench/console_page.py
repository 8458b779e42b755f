"""The table of docs/performance.md about the web console, from the results of `console.py` and `console_tail.py`.

    python bench/console_page.py                                # prints it
    python bench/console_page.py --write docs/performance.md    # puts it between its marks

A result that is not there has no table. Each row shows its bar and whether it was reached.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.page import VERDICT, NotAResult, put_between, table_of

RESULTS = Path(__file__).resolve().parent / "results" / "console"
MARKS = "<!-- figures of the console: begin -->", "<!-- figures of the console: end -->"
PAGE_MS, START_S, IDLE_MB, TAIL_SHARE, OVERVIEW_SHARE = 100, 1.0, 60.0, 0.05, 0.01
HEAP_GROWTH = 1.1
"""Of the median of the last third of a tail, over that of its first third."""
LATE_MS = 1000
Result = dict[str, Any]


def page(console: Result | None, tail: Result | None) -> str:
    parts = []
    if console is not None:
        parts += [_budgets(console), _pages(console["pages"]), _conditions(console)]
    if tail is not None:
        parts.append(_tail(tail))
    return "\n\n".join(parts)


def _row(what: str, value: float, shown: str, bar: float, bar_shown: str) -> list[str]:
    return [what, shown, bar_shown, "yes" if value < bar else "**no**"]


def _budgets(found: Result) -> str:
    start_s, idle_mb = median(found["start_s"]), found["idle_mib"] * 1.048576
    tail, overview = found["tail"], found["overview"]
    broker = overview["broker_open"] - overview["broker_idle"]
    rows = [
        _row("start, from the process to the ready line", start_s, f"{start_s:.2f} s", START_S, "< 1 s"),
        _row("memory of an idle console", idle_mb, f"{idle_mb:.1f} MB", IDLE_MB, "< 60 MB"),
        _row(
            f"a tail of {tail['shown_per_s']:.0f} messages a second, of a core", tail["console_share"],
            f"{tail['console_share']:.1%}", TAIL_SHARE, "< 5 %",
        ),
        _row("what an open overview costs the broker, of a core", broker, f"{broker:.1%}", OVERVIEW_SHARE, "< 1 %"),
    ]  # fmt: skip
    return table_of(["what", "found", *VERDICT], rows)


def _pages(pages: list[Result]) -> str:
    rows = [
        [
            f"`{row['path']}`", f"{row['median_ms']:.0f}", f"{row['worst_ms']:.0f}", f"{row['cpu_ms']:.0f}",
            f"{row['requests']:.1f}", f"{row['sent_kib']:.1f}", "< 100 ms",
            "yes" if row["median_ms"] < PAGE_MS else "**no**",
        ]
        for row in pages
    ]  # fmt: skip
    head = ["page", "median ms", "worst ms", "CPU ms of the console", "requests to the broker", "KiB sent", *VERDICT]
    return table_of(head, rows)


def _tail(found: Result) -> str:
    moments = found["moments"]
    third = max(1, len(moments) // 3)
    first, last = (median(item["heap_mib"] for item in part) for part in (moments[:third], moments[-third:]))
    late_ms = max(item["late_ms"] for item in moments)
    memory = [item["console_mib"] for item in moments]
    rows = [
        _row(
            "heap of the page, last third over first third",
            last / first,
            f"{last:.1f} : {first:.1f} MiB",
            HEAP_GROWTH,
            "< 1.1",
        ),
        _row("age of the newest row, worst", late_ms, f"{late_ms:.0f} ms", LATE_MS, "< 1 s"),
        ["memory of the console, first and last", f"{memory[0]:.0f}, {memory[-1]:.0f} MiB", "", ""],
    ]
    minutes, rate = moments[-1]["after_s"] / 60, found["about"]["rate"]
    text = f"A live tail in a browser, {minutes:.0f} min at {rate} messages a second; {moments[-1]['rows']} rows at the end:"
    return f"{text}\n\n{table_of(['what', 'found', *VERDICT], rows)}\n\n{_conditions(found)}"


def _conditions(found: Result) -> str:
    about = found["about"]
    return f"{about['when']}, {about['cores']} cores, Python {about['python']}, commit `{about['commit']}`."


def _read(name: str) -> Result | None:
    path = RESULTS / name
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def main() -> int:
    parser = argparse.ArgumentParser(description="The console's table of docs/performance.md.")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put it between the marks of this page")
    args = parser.parse_args()
    tables = page(_read("console.json"), _read("tail.json"))
    try:
        if args.write:
            args.write.write_text(put_between(args.write.read_text("utf-8"), tables, MARKS), "utf-8")
        else:
            print(tables)
    except (NotAResult, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
