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


def said_by(raw: bytes, waits: bool) -> tuple[bytes, bool, int, tuple[str, ...]]:
    properties = decode_properties(raw.decode("utf-8", "replace"))
    tags = properties.get("TAGS")
    keys = (*properties.get("KEYS", "").split(), *([f"T#{tags}"] if tags else []))
    is_plain = "DELAY" not in properties and not (waits and properties.get("WAIT", "true") != "true")
    return properties.get("UNIQ_KEY", "").encode(), is_plain, tag_hash(tags) if tags else 0, keys


@given(st.lists(st.lists(pieces, max_size=6).map(b"".join), max_size=12), st.booleans())
def test_what_is_remembered_is_what_properties_say(texts: list[bytes], waits: bool) -> None:
    known = KnownProperties(waits)
    for raw in texts * 2:
        unique, said = known.look(raw)
        assert (unique.decode("utf-8", "replace").encode(), *said) == said_by(raw, waits)


@given(
    st.lists(pieces, max_size=3).map(b"".join),
    st.lists(st.sampled_from([b"A1", b"B2", b"C", b"", b"\x02", b"\xff"]), max_size=4),
)
def test_many_that_are_alike_are_what_each_is(ending: bytes, ids: list[bytes]) -> None:
    known = KnownProperties(False)
    raws = [b"n\x01v\x02UNIQ_KEY\x01" + unique + b"\x02" + ending for unique in (b"A0", *ids)]
    known.look(raws[0])
    alike = known.look_alike(raws)
    if alike is not None:
        wanted = [said_by(raw, False) for raw in raws]
        assert [(unique.encode(), *alike[1]) for unique in alike[0]] == wanted
    if not ending and set(ids) <= {b"A1", b"B2", b"C"}:
        assert alike is not None


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
