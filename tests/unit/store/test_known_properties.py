from hypothesis import given
from hypothesis import strategies as st

from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.properties import decode_properties
from rocketline.store.known_properties import KnownProperties

pieces = st.sampled_from(
    [
        b"UNIQ_KEY\x01", b"UNIQ_KEY", b"\x01", b"\x02", b"AB12", b"TAGS\x01red\x02", b"KEYS\x01k1 \x1ck2\x02",
        b"WAIT\x01true\x02", b"WAIT\x01false\x02", b"DELAY\x013\x02", b"\xff", b"\xe4\xb8", b"\0", b"x" * 600,
        b"UNIQ_KEY\x017F000001\x02",
    ]
)  # fmt: skip


def said_by(raw: bytes, waits: bool) -> tuple[bytes, bool, int, tuple[bytes, ...]]:
    properties = decode_properties(raw.decode("utf-8", "replace"))
    tags = properties.get("TAGS")
    keys = (*properties.get("KEYS", "").split(), *([f"T#{tags}"] if tags else []))
    is_plain = "DELAY" not in properties and not (waits and properties.get("WAIT", "true") != "true")
    return (
        properties.get("UNIQ_KEY", "").encode(),
        is_plain,
        tag_hash(tags) if tags else 0,
        tuple(map(str.encode, keys)),
    )


@given(st.lists(st.lists(pieces, max_size=6).map(b"".join), max_size=12), st.booleans())
def test_what_is_remembered_is_what_properties_say(texts: list[bytes], waits: bool) -> None:
    known = KnownProperties(waits)
    for raw in texts * 2:
        unique, said = known.look(raw)
        assert (unique.decode("utf-8", "replace").encode(), *said) == said_by(raw, waits)


@given(
    st.sampled_from([b"", b"n\x01v\x02", b"TAGS\x01red\x02", b"n\x01"]),
    st.sampled_from([b"A0", b"A0000000", b"A00000000001", b"A0\xff\xe400000001"]),
    st.lists(pieces, max_size=3).map(b"".join),
)
def test_with_any_other_end_of_the_id_properties_say_the_same(before: bytes, unique: bytes, after: bytes) -> None:
    known = KnownProperties(False)
    raw = before + b"UNIQ_KEY\x01" + unique + after
    found = known.find_id(raw)
    if found is None:
        return
    start, end, said = found
    assert raw[end - 8 - len(start) : end - 8] == start
    for ending in (raw[end - 8 : end], b"ZZZZZZZZ", b"12345678"):
        other = raw[: end - 8] + ending + raw[end:]
        unique_id = (start + ending).decode("utf-8", "replace").encode()
        assert (unique_id, *said) == said_by(other, False)


def test_the_id_is_found_where_it_is_long_enough_and_nothing_else_is_special() -> None:
    known = KnownProperties(False)
    plain = b"UNIQ_KEY\x017F00000112345678\x02WAIT\x01true"
    for _ in range(2):
        assert known.find_id(plain) == (b"7F000001", 25, (True, 0, ()))
        assert known.find_id(b"TAGS\x01a\x02" + plain) == (b"7F000001", 32, (True, tag_hash("a"), (b"T#a",)))
        assert known.find_id(b"UNIQ_KEY\x0112345678") == (b"", 17, (True, 0, ()))
        assert known.find_id(b"UNIQ_KEY\x011234567\x02") is None
        assert known.find_id(b"KEYS\x01k\x02" + plain) is None, "keys differ"
        assert known.find_id(plain + b"\x02UNIQ_KEY\x0112345678") is None, "the last one counts"
        assert known.find_id(b"X" + plain) is None, "another name"
        assert known.find_id(b"WAIT\x01true\x02") is None


def test_properties_that_are_alike_but_for_their_id_are_remembered_once() -> None:
    known = KnownProperties(False)
    for number in range(100):
        assert known.look(b"UNIQ_KEY\x01%d\x02TAGS\x01red\x02" % number)[0] == b"%d" % number
    assert len(known._known) == 1


def test_what_is_remembered_is_bounded() -> None:
    known = KnownProperties(False)
    for number in range(10_000):
        known.look(b"n\x01%d\x02UNIQ_KEY\x01A\x02" % number)
    assert len(known._known) <= 4096
