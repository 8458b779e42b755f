"""Compiling expressions of all types, and TAG expressions."""

from __future__ import annotations

import pytest

from rocketline.errors import InvalidExpression
from rocketline.filtering import SqlFilter, TagFilter, compile_filter
from rocketline.protocol.hashing import tag_hash


@pytest.mark.parametrize("kind", [None, "", "TAG"])
def test_tags_are_the_default(kind: str | None) -> None:
    compiled = compile_filter(kind, " paid||sent ")
    assert isinstance(compiled, TagFilter)
    assert compiled.tags == {"paid", "sent"}
    assert compiled.accept_tags is not None
    assert compiled.accept_text is not None
    assert [compiled.accept_text(tag) for tag in ("paid", "sent", "lost", None)] == [True, True, False, False]
    assert compiled.accept_tags(tag_hash("paid"))
    assert not compiled.accept_tags(tag_hash("lost"))


@pytest.mark.parametrize("text", [None, "", "*"])
def test_everything_needs_no_test(text: str | None) -> None:
    compiled = compile_filter("TAG", text)
    assert isinstance(compiled, TagFilter)
    assert (compiled.accept_tags, compiled.accept_text, compiled.text) == (None, None, "*")


def test_hashes_collide_and_texts_do_not() -> None:
    compiled = compile_filter("TAG", "Aa")
    assert isinstance(compiled, TagFilter)
    assert compiled.accept_tags is not None
    assert compiled.accept_text is not None
    assert (compiled.accept_tags(tag_hash("BB")), compiled.accept_text("BB")) == (True, False)


def test_sql_is_compiled() -> None:
    compiled = compile_filter("SQL92", "a > 1")
    assert isinstance(compiled, SqlFilter)
    assert compiled.matches({"a": "2"})


@pytest.mark.parametrize(
    ("kind", "text", "named"),
    [
        ("TAG", "||", "names no tag"),
        ("sql92", "a", "'sql92' is not known"),
        ("x" * 1000, "a", "is not known"),
        ("SQL92", None, "found the end"),
    ],
)
def test_what_cannot_be_compiled_is_refused(kind: str, text: str | None, named: str) -> None:
    with pytest.raises(InvalidExpression, match=named) as caught:
        compile_filter(kind, text)
    assert len(str(caught.value)) < 200
