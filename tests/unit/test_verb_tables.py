"""The tables of verbs in docs/compat.md are those that are tried on both clusters (tests/interop/test_mqadmin_verbs.py)."""

from __future__ import annotations

import pytest
from tests.support.operating.cases import MQADMIN, OURS, OURS_NOT_RUN, Case
from tests.support.operating.page import PAGE, WRITER, written

from rocketline.cli import verbs
from rocketline.cli.verb import VERBS, find_verb, parser_of

ABSENT = "x"
VALUES = dict.fromkeys(("namesrv", "broker", "offset_id", "unique_id", "client", "folder"), ABSENT)


def test_the_page_has_them() -> None:
    text = PAGE.read_text("utf-8")
    assert written(text) == text, f"run: python {WRITER}"


def test_every_verb_of_ours_is_tried() -> None:
    assert verbs.__all__
    assert {case.verb for case in OURS} | OURS_NOT_RUN.keys() == VERBS.keys()


@pytest.mark.parametrize("case", OURS + MQADMIN, ids=lambda case: case.words)
def test_flags_of_mqadmin_are_understood_by_our_verb_of_that_name(case: Case) -> None:
    found = find_verb(case.verb)
    if found is not None:
        words = case.words.lstrip("~").format(**VALUES).split()
        assert parser_of(found).parse_args(words[1:])
