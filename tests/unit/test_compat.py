"""docs/compat.md: what Apache's clients can meet is listed with a reason."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "compat.md").read_text("utf-8")
LIST = "### Differences that an Apache client can meet"
ABOUT_SERVERS = ("Wire protocol", "Access control", "Name server", "Broker")


def test_every_difference_is_listed_or_marked_as_not_visible() -> None:
    listed = [name for row in rows_of_list() for name in (row[0], *row[0].split("; "))]
    for section in ABOUT_SERVERS:
        for feature in re.findall(r"^\| (.+?) \| differs \|", text_of(section), re.M):
            assert any(name == feature or name.startswith(f"{feature}: ") for name in listed), (
                f"{section}: what does an Apache client see of {feature!r}? If nothing, its state is `differs inside`"
            )


def test_every_listed_difference_has_its_row_and_a_reason() -> None:
    reasons = re.findall(r"^(\d)\. \*\*", PAGE, re.M)
    features = {name for section in ABOUT_SERVERS for name in re.findall(r"^\| (.+?) \| ", text_of(section), re.M)}
    for name, reason, seen in rows_of_list():
        assert set(reason.split(", ")) <= set(reasons), name
        assert seen, name
        for feature in [name] if name in features else name.split("; "):
            assert feature in features or feature.partition(": ")[0] in features, f"{feature!r} is in no table"


def text_of(section: str) -> str:
    return PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0].partition(LIST)[0]


def rows_of_list() -> list[list[str]]:
    text = PAGE.partition(LIST)[2].partition("\n## ")[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    return found[2:]
