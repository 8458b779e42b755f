"""Texts of properties with the same, nearly the same and other names: always what decoding them one by one gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketline import _impl
from rocketline.protocol.properties import decode_properties
from rocketline.spark import property_columns
from rocketline.spark.property_columns import read_properties


@pytest.fixture(autouse=True)
def only_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled function is compared with Python's in `test_compiled_columns`."""
    if "take_properties" in _impl.PAIRS:
        monkeypatch.setattr(property_columns, "take_properties", _impl.PAIRS["take_properties"][0])


def text(*pairs: tuple[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()


def check(texts: list[bytes], *names: str) -> None:
    ends = np.cumsum([len(one) for one in texts], dtype=np.int64)
    begins = ends - np.array([len(one) for one in texts], np.int64)
    found = read_properties(b"".join(texts), begins, ends, names, True)
    expected = [decode_properties(one.decode("utf-8", "replace")) for one in texts]
    assert found.maps is not None
    found.maps.validate(full=True)
    assert [dict(row) for row in found.maps.to_pylist()] == expected
    for name in names:
        found.named[name].validate(full=True)
        assert found.named[name].to_pylist() == [properties.get(name) for properties in expected]


ALIKE = [text(("KEYS", f"k{number}"), ("TAGS", "t" * (number + 1)), ("имя", "é")) for number in range(5)]


@pytest.mark.parametrize(
    "other",
    [
        text(("KEYS", "k"), ("TAGS", "t"), ("имя", "é")),
        text(("KEYS", "k"), ("TAGZ", "t"), ("имя", "é")),
        text(("TAGS", "t"), ("KEYS", "k"), ("имя", "é")),
        text(("KEYS", "k"), ("TAGS", "t")),
        text(("KEYS", "k"), ("TAGS", "t"), ("имя", "é"), ("more", "m")),
        text(("KEYS", "k"), ("KEYS", "l"), ("имя", "é")),
        text(("KEY\0", "k"), ("TAGS", "t"), ("имя", "é")),
        text(("KEYS", "k"), ("TAGS", ""), ("имя", "é")),
        b"KEYS\x01k\x02TAGS\x01t\x02\xff\xff\xff\x01v\x02",
        b"KEYS\x01k",
        b"",
    ],
)
def test_one_text_among_others_that_are_alike(other: bytes) -> None:
    for texts in ([*ALIKE, other], [other, *ALIKE], [other, other], [other]):
        check(texts, "KEYS", "TAGS", "nothing")


def test_zeros_at_the_end_of_a_name_count() -> None:
    check([text(("a\0", "1"), ("b", "2"))] * 3, "a\0", "a", "b")
    check([text(("a\0", "1")), text(("ab", "2"))], "a\0", "ab")


def test_no_texts_at_all() -> None:
    check([], "KEYS")
    check([b"", b""], "KEYS")


names = st.sampled_from(["KEYS", "TAGS", "a", "b\0", "b\0\0", "é", "ж"])
pairs = st.lists(st.tuples(names, st.text(max_size=6)), max_size=4)


@given(st.lists(pairs, max_size=6), st.integers(1, 4))
def test_any_texts(rows: list[list[tuple[str, str]]], times: int) -> None:
    check([text(*row) for row in rows for _ in range(times)], "KEYS", "b\0")
