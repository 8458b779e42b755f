"""Words: the same keys in both languages, none in templates or scripts, all that are used exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rocketline.console
from rocketline.console.look import Look
from rocketline.console.texts import texts_of

FOLDER = Path(rocketline.console.__file__).parent
EN, ZH = texts_of("en").table, texts_of("zh").table
ALLOWED = re.compile(r"rocketline|English|中文|Ctrl K|KiB")


def test_both_languages_have_the_same_keys() -> None:
    assert EN.keys() == ZH.keys()


def test_texts_have_the_same_places() -> None:
    for key in EN:
        assert set(re.findall(r"\{\w+\}|%\d", EN[key])) == set(re.findall(r"\{\w+\}|%\d", ZH[key])), key
        assert EN[key].strip(), key
        assert ZH[key].strip(), key


def test_chinese_is_chinese() -> None:
    english = [key for key, text in ZH.items() if not re.search("[一-鿿]", text)]
    kept = {"Broker", "NameServer", "Tag", "Key", "Pop", "SHA-256", "Offset ID", "Normal", "Super", "ID"}
    assert [key for key in english if ZH[key] not in kept] == []


@pytest.mark.parametrize("path", sorted((FOLDER / "templates").glob("*.html")), ids=lambda path: path.name)
def test_templates_have_no_words_of_their_own(path: Path) -> None:
    text = path.read_text().replace("data-cells", "")
    text = re.sub(r"\{#.*?#\}|\{%.*?%\}", " ", text, flags=re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}", " ", text, flags=re.DOTALL)
    text = re.sub(r"<code>[^<]*</code>", " ", text)  # commands and the like are the same everywhere
    outside = re.sub(r"<!doctype html>|<[^>]*>", " ", text)
    shown = " ".join(re.findall(r'(?:title|placeholder|aria-label|alt)="([^"]*)"', text))
    left = re.findall(r"[^\W\d_]{2,}", ALLOWED.sub("", re.sub(r"&\w+;", "", outside)))
    assert left == []
    assert re.findall(r"[^\W\d_]{3,}", shown.replace("body.region", "").replace("amount", "").replace("AND", "")) == []


def test_every_text_that_is_used_exists() -> None:
    used = set()
    for path in [*(FOLDER / "templates").glob("*.html"), *FOLDER.rglob("*.py")]:
        content = path.read_text()
        used |= set(re.findall(r"""\bt\(\s*["']([a-z_]+\.[a-z_.0-9]+)["']""", content))
        used |= {f"problems.{key}" for key in re.findall(r'Problem\(\s*\d+, "([a-z_]+)"', content)}
        if path.suffix == ".py":
            used |= {f"results.{key}" for key in re.findall(r'Result\(\s*title="([a-z_]+)"', content)}
    missing = {key for key in used if not key.endswith((".", "_")) and key not in EN}
    assert missing == set()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_numbers_have_units(language: str) -> None:
    look = Look(texts_of(language), "Asia/Shanghai")
    assert look.number(1234567) == "1,234,567"
    assert look.size(65536) == "64.0 KiB"
    assert "–" in look.number(None, "why")
    assert 'title="why"' in look.number(None, "why")
    assert look.clock(0) == ""
    assert look.clock(1_764_000_000_123) == "2025-11-25 00:00:00.123"


def test_scripts_make_no_html() -> None:
    for path in (FOLDER / "static").glob("*.js"):
        found = re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.read_text()
        )
        assert found is None, path.name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", path.read_text())


def test_a_first_visit_is_small() -> None:
    import gzip

    total = sum(len(gzip.compress(path.read_bytes())) for path in (FOLDER / "static").iterdir())
    assert total < 60_000
