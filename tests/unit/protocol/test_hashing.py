from __future__ import annotations

from tests.golden.wire.load import ids

from rocketline import _impl
from rocketline.protocol.hashing import _short_tag_hash, index_key_hash, java_string_hash, joined_hash, tag_hash


def test_hashes_of_java() -> None:
    for vector in ids()["hash"]:
        text = (
            "".join(map(chr, vector["utf16"])).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        )
        assert java_string_hash(text) == vector["hashCode"], vector
        assert tag_hash(text) == vector["tagsCode"], vector


def test_index_key_hashes_of_java() -> None:
    for vector in ids()["index_key_hash"]:
        assert java_string_hash(vector["key"]) == vector["hashCode"]
        topic, separator, key = vector["key"].partition("#")
        if separator:
            assert index_key_hash(topic, key) == vector["indexKeyHash"]


def test_index_key_hash_of_the_smallest_integer() -> None:
    # Its absolute value is no 32-bit integer; Java takes 0 instead.
    key = "jllgvmc"
    assert java_string_hash("T#" + key) == -(2**31)
    assert index_key_hash("T", key) == 0


def test_joined_hash_is_the_hash_of_the_joined_text() -> None:
    for prefix, text in [
        ("", ""),
        ("T#", ""),
        ("", "k"),
        ("Ttopic#", "key1"),
        ("東京#", "😀key"),
        ("a" * 600, "b" * 700),
    ]:
        assert joined_hash(prefix, text) == java_string_hash(prefix + text)


def test_strings_longer_than_what_is_cached() -> None:
    text = "abc" * 1000
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    assert java_string_hash(text) & 0xFFFFFFFF == value


def test_long_texts_are_hashed_letter_by_letter_too() -> None:
    python, *_ = _impl.PAIRS.get("java_string_hash", (java_string_hash,))
    for count in (511, 512, 513, 1024, 1500):
        for letters in ("kq7", "ü東"):
            text = (letters * count)[:count]
            expected = 0
            for letter in text:
                expected = (expected * 31 + ord(letter)) & 0xFFFFFFFF
            assert java_string_hash(text) & 0xFFFFFFFF == expected
            assert python(text) & 0xFFFFFFFF == expected


def test_very_long_tags_are_not_remembered() -> None:
    before = _short_tag_hash.cache_info().currsize
    tags = [f"{number}" + "t" * 1000 for number in range(5)]
    assert [tag_hash(tag) for tag in tags] == [java_string_hash(tag) for tag in tags]
    assert _short_tag_hash.cache_info().currsize == before
