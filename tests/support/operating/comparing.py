"""Running a verb on both sides, and whether it says the same of both.

Times, addresses, ids, places in a log and rates are no facts: they are taken out before anything is compared.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from tests.support.mqadmin import MqAdmin

from rocketline.cli.entry import main

from .cases import Case, Outcome
from .history import Side

NO_FACTS = (
    (r"\b[0-9A-F]{32,56}\b", "ID"),
    (r"[\w.-]+@\d+#\d+", "CLIENT"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([,.]\d+)?", "TIME"),
    (r"/?\b127\.0\.0\.1:\d+", "ADDRESS"),
    (r"(?<!\.)\b1\d{12}\b", "MS"),  # and not the end of a fraction
    (r"(CommitLog Offset: +|\b(?:commitLogOffset|storeSize|bodyCRC)=|\"log_offset\": )\d+", r"\1N"),
    (r"\b\d+\.\d+([Ee]-?\d+)?\b", "N"),
)
RANKS = (Outcome.SAME, Outcome.FORM, Outcome.WORKS)


class Told(NamedTuple):
    """What a verb said, without what is no fact."""

    failed: bool
    lines: list[str]
    text: str
    """As it was printed."""


def by_mqadmin(tools: MqAdmin, side: Side, case: Case) -> Told:
    printed = tools.run(side.namesrv, *side.filled(case.words))
    err = "" if case.words.startswith("~") else printed.err
    failed = printed.failed if err or "Exception" in printed.out else False
    said = err if failed else printed.out
    said = said.replace("]MessageTrack", "]\nMessageTrack")  # in no order, all on one line
    lines = [line for line in said.splitlines() if not re.match(r"\s+(at |\.\.\. \d+ more)", line)]
    return Told(failed, _facts(lines, side, case), printed.out + printed.err)


def by_ours(side: Side, case: Case) -> Told:
    """A verb of ours as a script runs it."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["admin", *side.filled(case.words), "-n", side.namesrv, "--output", "json"])
    text = out.getvalue() + err.getvalue()
    failed = err.getvalue().startswith("error: ")
    assert failed == (code != 0) or case.verb == "doctor", text
    lines = [f"exit {code}", *(err.getvalue().splitlines() if failed else _rows(json.loads(out.getvalue())))]
    return Told(failed, _facts(lines, side, case), text)


def _rows(shown: Any) -> list[str]:
    """A line for every row of every table."""
    if isinstance(shown, list):
        return [json.dumps(row, sort_keys=True) for row in shown]
    return [
        f"{name} {row}"
        for name, value in shown.items()
        for row in (_rows(value) if isinstance(value, (dict, list)) else [json.dumps(value)])
    ]


def _facts(lines: Iterable[str], side: Side, case: Case) -> list[str]:
    found = []
    for line in lines:
        for mine, name in ((side.broker, "BROKER"), (side.namesrv, "NAMESRV"), (str(side.folder), "FOLDER")):
            line = line.replace(mine, name)
        line = line.replace(side.client, "CLIENT")
        for pattern, name in NO_FACTS:
            line = re.sub(pattern, name, line)
        line = " ".join(line.split())
        if line and case.only in line:
            found.append(line)
    return sorted(found)


def outcome(ours: Told, theirs: Told) -> Outcome:
    if ours.failed and theirs.failed:
        return Outcome.SAME_REFUSAL if ours.lines == theirs.lines else Outcome.BOTH_REFUSE
    if ours.failed or theirs.failed:
        return Outcome.REFUSED if ours.failed else Outcome.UNFOUNDED
    if ours.lines == theirs.lines:
        return Outcome.SAME
    return Outcome.FORM if _form(ours.lines) == _form(theirs.lines) else Outcome.WORKS


def _form(lines: list[str]) -> set[str]:
    """What is left when numbers are no facts either; how many lines of a kind there are is a number too."""
    return {re.sub(r"-?\d+(\.\d+)?|NaN", "N", line) for line in lines}


def is_good_enough(found: Outcome, wanted: Outcome) -> bool:
    """Whether it came as it must, or better: numbers may be equal by chance."""
    if wanted in RANKS:
        return found in RANKS[: RANKS.index(wanted) + 1]
    return found == wanted or (wanted is Outcome.BOTH_REFUSE and found is Outcome.SAME_REFUSAL)
