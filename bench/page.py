"""The tables of docs/performance.md, from one or several results of bench/compare.py.

    python bench/page.py compiled.json python.json                          # prints them
    python bench/page.py bench/results/*.json --write docs/performance.md   # puts them between its markers

Results of the same implementation are combined: a row has the median of their medians, and the range of all of them.
Each row shows its bar (bench/bars.py) and whether it was reached; bars that were not reached are published too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.bars import BARS, is_reached
from bench.growth import growths

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
TITLES = {
    "c": "Compiled, against Apache's broker",
    "python": "Pure Python, against Apache's broker",
    "both": "Compiled against pure Python",
    "apache": "Apache's broker against itself: the effect of chance",
}
LINE = 120
Document = dict[str, Any]
Found = dict[str, Any]


class NotAResult(ValueError):
    """A file that bench/compare.py did not write, or a page without markers."""


def read(path: Path) -> Document:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise NotAResult(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict) or not {"about", "sides", "summary"} <= document.keys():
        raise NotAResult(f"{path} is not a result of bench/compare.py --json or --keep")
    return document


def without_runs(document: Document) -> Document:
    """The part for the repository: medians and ranges, to five digits."""
    return {key: _rounded(value) for key, value in document.items() if not key.endswith("runs")}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


def page(documents: Sequence[Document]) -> str:
    parts = []
    for implementation, title in TITLES.items():
        chosen = [document for document in documents if document["about"]["implementation"] == implementation]
        if chosen:
            parts.append(f"### {title}\n\n{_section(chosen, implementation)}")
    return "\n\n".join(parts)


def _section(documents: list[Document], implementation: str) -> str:
    ours, peer = documents[0]["sides"]
    rows = merged_rows(documents)
    closed = [row for row in rows if not row["is_open"]]
    is_open = [row for row in rows if row["is_open"]]
    tables = [_closed_table(closed, ours, peer, implementation), _open_table(is_open, ours, peer, implementation)]
    tables += [_rest_table(documents, ours, peer, implementation), _growth_table(documents, ours, implementation)]
    tables += [_peers_table(documents), _notes(rows), _conditions(documents)]
    return "\n\n".join(table for table in tables if table)


def merged_rows(documents: Iterable[Document]) -> list[Found]:
    """One row per workload, in the order in which they came."""
    same: dict[str, list[Found]] = {}
    for document in documents:
        for row in document["summary"]:
            if row["pairs"]:
                same.setdefault(row["workload"], []).append(row)
    return [_merged(rows) for rows in same.values()]


def _merged(rows: list[Found]) -> Found:
    first = rows[0]
    merged: Found = {}
    for key, value in first.items():
        values = [row[key] for row in rows]
        if key in ("pairs", "void"):
            merged[key] = sum(values)
        elif key == "notes":
            merged[key] = [note for notes in values for note in notes]
        elif isinstance(value, dict) and "median" not in value:
            merged[key] = {side: _merged_spread([of[side] for of in values]) for side in value}
        elif isinstance(value, str | bool):
            merged[key] = value
        else:
            merged[key] = _merged_spread(values)
    return merged


def _merged_spread(spreads: Iterable[Found | None]) -> Found | None:
    known = [spread for spread in spreads if spread]
    if not known:
        return None
    return {
        "median": statistics.median(spread["median"] for spread in known),
        "low": min(spread["low"] for spread in known),
        "high": max(spread["high"] for spread in known),
    }


def _closed_table(rows: list[Found], ours: str, peer: str, implementation: str) -> str:
    head = ["load", f"{ours}, msg/s", f"{peer}, msg/s", "ratio (range)", "CPU us per message", "CPU ratio", *VERDICT]
    return table_of(
        head,
        [
            [
                _name(row),
                _number(row["rate"][ours]),
                _number(row["rate"][peer]),
                _range(row["ratio"]),
                _both(row["cpu_per_million_s"], ours, peer, 1),
                _number(row["cpu_ratio"], 2),
                *_verdict(row["workload"], implementation, _figures(row)),
            ]
            for row in rows
        ],
    )


def _open_table(rows: list[Found], ours: str, peer: str, implementation: str) -> str:
    head = ["load at a given rate", f"p50 us, {ours} : {peer}", "p99 us", "p99.9 us", "p99 ratio (range)"]
    head += ["CPU us per message", "memory, MiB", *VERDICT]
    return table_of(
        head,
        [
            [
                _name(row),
                *(_both(row[key], ours, peer) for key in ("p50_us", "p99_us", "p999_us")),
                _range(row["p99_ratio"]),
                _both(row["cpu_per_million_s"], ours, peer, 1),
                _both(row["anonymous_mib"], ours, peer),
                *_verdict(row["workload"], implementation, _figures(row)),
            ]
            for row in rows
        ],
    )


VERDICT = ["bar", "reached"]


def _figures(row: Found) -> dict[str, float | bool | None]:
    def middle(key: str) -> float | None:
        return row[key] and float(row[key]["median"])

    return {
        "ratio": middle("ratio"),
        "cpu": middle("cpu_ratio"),
        "p99": middle("p99_ratio"),
        "client-bound": row["client_bound"],
    }


def _verdict(name: str, implementation: str, figures: dict[str, float | bool | None]) -> list[str]:
    if name not in BARS or implementation not in ("c", "python"):
        return ["", ""]
    bar = BARS[name].of(implementation)
    reached = is_reached(bar, figures)
    return [bar, "?" if reached is None else "yes" if reached else "**no**"]


def _rest_table(documents: list[Document], ours: str, peer: str, implementation: str) -> str:
    """Starts, recovery and memory. Ratios are of the medians: the two sides did not start at the same moment."""
    gib = documents[0]["plan"].get("recovery_gib", 0)
    kinds: list[tuple[str, str, str, Callable[[Found], float]]] = [
        ("start to first ack, s", "starts", "first ack", lambda found: found["first_ack_s"]),
        (f"kill -9 with {gib:g} GiB to first ack, s", "recoveries", "", lambda found: found["first_ack_s"]),
        ("idle, MiB", "starts", "idle memory", lambda found: found["idle_rss"] / 2**20),
        (
            "after all runs, anonymous memory, MiB",
            "rests",
            "memory after runs",
            lambda found: found["anonymous"] / 2**20,
        ),
        ("after all runs, with mapped files, MiB", "rests", "", lambda found: found["rss"] / 2**20),
        ("idle CPU after all runs, % of a core", "rests", "", lambda found: found["cpu"] * 100),
    ]
    lines = []
    for what, key, bar, figure in kinds:
        found = [one for document in documents for one in document.get(key, []) if not one.get("void")]
        values = [[figure(one) for one in found if one["side"] == side] for side in (ours, peer)]
        if not all(values):
            continue
        mine, other = (statistics.median(of) for of in values)
        ratio = mine / other if other else None
        verdict = _verdict(bar, implementation, {"time": ratio, "memory": ratio})
        lines.append([what, *map(_plain, values), "" if ratio is None else f"{ratio:.3f}", *verdict])
    return table_of(["start and memory, name server and broker together", ours, peer, "ratio", *VERDICT], lines)


def _growth_table(documents: list[Document], ours: str, implementation: str) -> str:
    spreads = {row["workload"]: row["cpu_per_million_s"][ours] for row in merged_rows(documents)}
    for name in dict.fromkeys(name for document in documents for name in document.get("stored", {})):
        spreads[name] = _merged_spread(document.get("stored", {}).get(name) for document in documents)
    costs = {name: spread["median"] for name, spread in spreads.items() if spread}
    lines = [
        [
            grown.what,
            *(f"{cost:.1f}" for cost in grown.costs),
            ", ".join(f"{step:.2f}" for step in grown.steps),
            *_verdict("growth", implementation, {"per-decade": grown.worst}),
        ]
        for grown in growths(costs)
    ]
    head = [f"growth: CPU us per message of {ours} with", "smallest", "x 10", "x 100", "per decade"]
    return table_of([*head, *VERDICT], lines)


def _peers_table(documents: list[Document]) -> str:
    lines = [
        [
            f"`{row['workload']}`",
            row["side"],
            _number(row["rate"]),
            _range(row["ratio"]),
            _number(row["p99_us"]),
            _number(row["cpu_per_million_s"], 1),
            _number(row["cpu_ratio"], 2),
        ]
        for document in documents
        for row in document.get("peers", [])
    ]
    head = ["other servers, same sends", "server", "msg/s", "ours / it (range)", "p99 us", "CPU us per message"]
    return table_of([*head, "ours / it"], lines)


def _notes(rows: list[Found]) -> str:
    """Equal notes of several workloads on one line."""
    noted: dict[str, list[str]] = {}
    for row in rows:
        for note in row["notes"]:
            noted.setdefault(note, []).append(row["workload"])
    return "\n".join(_item(f"{', '.join(dict.fromkeys(names))}: {note}") for note, names in noted.items())


def _conditions(documents: list[Document]) -> str:
    """Where, when and how each comparison was made."""
    return "Conditions:\n\n" + "\n".join(_item(str(document["conditions"])) for document in documents)


def _item(text: str) -> str:
    """One item of a list, in lines that the documents allow."""
    return textwrap.fill(
        " ".join(text.split()), LINE, initial_indent="- ", subsequent_indent="  ", break_long_words=False
    )


def table_of(head: Sequence[str], lines: list[list[str]]) -> str:
    if not lines:
        return ""
    rows = [list(head), ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _name(row: Found) -> str:
    return f"`{row['workload']}`: {row['what']}"


def _number(spread: Found | None, digits: int = 0) -> str:
    return "-" if spread is None else f"{spread['median']:,.{digits}f}"


def _range(spread: Found | None) -> str:
    return "-" if spread is None else f"{spread['median']:.2f} ({spread['low']:.2f}-{spread['high']:.2f})"


def _both(spreads: Found, ours: str, peer: str, digits: int = 0) -> str:
    return f"{_number(spreads[ours], digits)} : {_number(spreads[peer], digits)}"


def _plain(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:,.2f}" if middle < 20 else f"{middle:,.0f}"


def put_between(text: str, tables: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The page with new tables between its markers.

    >>> put_between(f"a\\n{BEGIN}\\nold\\n{END}\\nb", "new") == f"a\\n{BEGIN}\\n\\nnew\\n\\n{END}\\nb"
    True
    """
    before, begin, rest = text.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise NotAResult(f"the page has no lines {marks[0]} and {marks[1]} between which the tables go")
    return f"{before}{begin}\n\n{tables}\n\n{end}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Tables of docs/performance.md from results of bench/compare.py.")
    parser.add_argument("results", nargs="+", type=Path, metavar="JSON")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put them between the markers of this page")
    args = parser.parse_args()
    try:
        tables = page([read(path) for path in args.results])
        if args.write:
            args.write.write_text(put_between(args.write.read_text("utf-8"), tables), "utf-8")
        else:
            print(tables)
    except (NotAResult, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
