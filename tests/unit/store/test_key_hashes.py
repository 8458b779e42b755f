from hypothesis import given
from hypothesis import strategies as st

from rocketline.protocol.hashing import index_key_hash
from rocketline.store.index.key_hashes import KeyHashes

texts = st.one_of(st.text("abcXYZ0123456789-_", max_size=40), st.text(max_size=20))


@given(st.lists(st.tuples(st.sampled_from(["a", "orders", "ünï", ""]), texts), max_size=60))
def test_many_hashes_are_those_of_each(pairs: list[tuple[str, str]]) -> None:
    hashes = KeyHashes()
    wanted = [index_key_hash(topic, key) for topic, key in pairs]
    assert hashes.of(pairs).tolist() == wanted
    assert hashes.of(pairs).tolist() == wanted, "and the same when their beginnings are remembered"


def test_more_keys_than_are_treated_at_once() -> None:
    pairs = [("orders", f"order-{number}") for number in range(9001)]
    assert KeyHashes().of(pairs).tolist() == [index_key_hash(*pair) for pair in pairs]


def test_what_is_remembered_is_bounded() -> None:
    hashes = KeyHashes()
    pairs = [("orders", f"{number:010d}-tail-end") for number in range(70_000)]
    assert hashes.of(pairs).tolist() == [index_key_hash(*pair) for pair in pairs]
    assert hashes._kept < 65_537


def test_nothing_of_very_long_keys_is_remembered() -> None:
    hashes = KeyHashes()
    pairs = [("orders", f"{number}" + "k" * 600) for number in range(5)]
    assert hashes.of(pairs).tolist() == [index_key_hash(*pair) for pair in pairs]
    assert not hashes._heads
