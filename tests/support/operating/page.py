"""The tables of docs/compat.md that say verb by verb how the tools of operators do on both clusters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from .cases import MQADMIN, NOT_RUN, OURS, OURS_NOT_RUN, Case, Outcome

PAGE = Path(__file__).parents[3] / "docs" / "compat.md"
WRITER = "tools/write_verb_tables.py"
WORDS = {
    Outcome.SAME: "the same facts",
    Outcome.FORM: "the same but for numbers",
    Outcome.WORKS: "works on both",
    Outcome.SAME_REFUSAL: "refused by both in the same words",
    Outcome.BOTH_REFUSE: "refused by both",
    Outcome.REFUSED: "refused by ours",
}
WORST = list(WORDS)


def table(head: str, cases: Iterable[Case], not_run: Mapping[str, str]) -> list[str]:
    by_verb: dict[str, list[Case]] = {}
    for case in cases:
        by_verb.setdefault(case.verb, []).append(case)
    lines = [f"| {head} | result | notes |", "| --- | --- | --- |"]
    for verb, tried in by_verb.items():
        outcomes = [case.outcome for case in tried]
        # What is not there is asked for too, and refused: that says little about a verb that works.
        working = [outcome for outcome in outcomes if outcome is not Outcome.SAME_REFUSAL]
        result = WORDS[max(working or outcomes, key=WORST.index)]
        notes = "; ".join(dict.fromkeys(case.note for case in tried if case.note))
        lines.append(f"| {verb} | {result} | {notes}{' ' if notes else ''}|")
    return lines + [f"| {verb} | not run | {why} |" for verb, why in not_run.items()]


def tables() -> dict[str, list[str]]:
    """By the name of the place in the page."""
    return {
        "mqadmin": table("verb of `mqadmin`", MQADMIN, NOT_RUN),
        "rocketline admin": table("verb of `rocketline admin`", OURS, OURS_NOT_RUN),
    }


def written(text: str) -> str:
    """The page with its tables as they must be."""
    for name, lines in tables().items():
        begin, end = f"<!-- {name}: written by {WRITER} -->", f"<!-- {name}: end -->"
        place = re.compile(re.escape(begin) + r"\n.*?" + re.escape(end), flags=re.DOTALL)
        if not place.search(text):
            raise ValueError(f"{PAGE}: there is no {begin}")
        body = "\n".join([begin, "", *lines, "", end])
        text = place.sub(lambda _: body, text)
    return text
