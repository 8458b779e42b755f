"""Sentences of other parts in Chinese: none is forgotten, none is left over from code that is gone."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import pytest

import rocketline
import rocketline.console.pages.all
from rocketline.console.endpoints import ENDPOINTS
from rocketline.console.look import Look
from rocketline.console.said import said
from rocketline.console.texts import texts_of
from rocketline.protocol.names import group_problem, topic_problem

SOURCE = Path(rocketline.__file__).parent
CATALOGUE: dict[str, str] = tomllib.loads((SOURCE / "console/texts/said.zh.toml").read_text("utf-8"))
ELSEWHERE = re.compile(r"Connection|Network|No route|is V|Expected|Invalid enum|Object missing|\{first\}")
"""What the system and msgspec say."""
PLACES = re.compile(r"\{\w+\}")
DOCTOR = sorted((SOURCE / "admin").glob("doctor*.py"))
SQL92 = sorted((SOURCE / "filtering/sql92").glob("*.py"))


@cache
def neighbours() -> set[tuple[str, str]]:
    """Words that stand together in quotes in our sources."""
    found: set[tuple[str, str]] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(pairwise(node.value.split()))
    return found


def sentences(path: Path, function: str, arguments: slice) -> Iterator[str]:
    """The texts that a module gives to a function, with 7 for every value."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == function:
            for given in node.args[arguments]:
                yield from forms(given)


def forms(node: ast.expr) -> list[str]:
    """What a text can be, with 7 for every value."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return [*forms(node.body), *forms(node.orelse)]
    if isinstance(node, ast.FormattedValue):
        return forms(node.value)
    if isinstance(node, ast.JoinedStr):
        return ["".join(parts) for parts in product(*map(forms, node.values))]
    return ["7"]


def is_chinese(text: str | None) -> bool:
    return text is not None and re.search("[一-鿿]", text) is not None


@pytest.mark.parametrize("path", DOCTOR, ids=lambda path: path.stem)
def test_every_finding_of_the_doctor_is_said_in_chinese(path: Path) -> None:
    found = list(sentences(path, "Diagnosis", slice(2, 4)))
    assert found
    assert [
        text for text in found if not (is_chinese(said(text, "zh")) or text in ("chmod 600 7", "chmod 700 7"))
    ] == []


@pytest.mark.parametrize("path", SQL92, ids=lambda path: path.stem)
def test_every_mistake_in_a_condition_is_said_in_chinese(path: Path) -> None:
    found = [*sentences(path, "problem", slice(2, 3)), *sentences(path, "_unexpected", slice(0, 1))]
    assert [text for text in found if text != "7" and not is_chinese(said(text, "zh"))] == []


def test_every_call_of_the_api_is_described_in_chinese() -> None:
    assert [item.help for item in ENDPOINTS.values() if item.in_api and not is_chinese(said(item.help, "zh"))] == []


@pytest.mark.parametrize("name", ["", "x" * 300, "<b>"])
def test_rules_of_names_are_said_in_chinese(name: str) -> None:
    for problem in (topic_problem(name), group_problem(name)):
        assert problem is not None
        assert is_chinese(said(problem, "zh"))


@pytest.mark.parametrize("english", [key for key in CATALOGUE if not ELSEWHERE.search(key)])
def test_no_sentence_is_left_over(english: str) -> None:
    # Most neighbouring words stand together in the code too; some sentences are put together from two halves.
    pairs = [pair for part in PLACES.split(english) for pair in pairwise(part.split())]
    assert len(neighbours().intersection(pairs)) >= 0.6 * len(set(pairs)), english


def test_places_are_the_same() -> None:
    for english, chinese in CATALOGUE.items():
        assert set(PLACES.findall(english)) - {"{kind}"} == set(PLACES.findall(chinese)) - {"{kind}"}, english


def test_values_are_sentences_too() -> None:
    text = "cannot connect to 127.0.0.1:1: Connection refused"
    assert said(text, "zh") == "无法连接 127.0.0.1:1：连接被拒绝"
    assert said(text, "en") == text


def test_what_nobody_knows_is_marked_as_english() -> None:
    look = Look(texts_of("zh"))
    assert look.said("the <disk> is on fire") == '<span lang="en">the &lt;disk&gt; is on fire</span>'
    assert look.said("需要密码") == "需要密码"
    assert 'title="没有说明原因"' in look.unknown("no reason given")


def test_a_long_text_costs_nothing() -> None:
    assert said("topic " + "; ok" * 100_000, "zh") is None
