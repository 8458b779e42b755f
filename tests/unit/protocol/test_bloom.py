import pytest

from rocketline.errors import ConfigError
from rocketline.protocol.bloom import BloomFilter, has_bits, murmur3_64, set_bits

# Printed by Apache RocketMQ 5.4.0's BloomFilter.createByFn and calcBitPositions.
PARAMETERS = [
    # error rate, expected count -> hashes, bits
    (20, 32, 3, 112),
    (10, 128, 4, 616),
    (1, 1000, 7, 9592),
    (50, 3, 1, 8),
    (25, 100, 2, 296),
    (99, 1, 1, 8),
    (3, 65536, 6, 478312),
]
POSITIONS = [
    ("", (0, 0, 0)),
    ("g#T", (90, 68, 28)),
    ("CG_sql#F_sql", (83, 41, 111)),
    ("a", (94, 99, 7)),
    ("0123456789abcde", (87, 93, 12)),
    ("0123456789abcdef", (11, 47, 60)),
    ("0123456789abcdefg", (27, 71, 85)),
    ("0123456789abcdef0123456789abcdef", (63, 52, 102)),
    ("0123456789abcdef0123456789abcdef01234567", (13, 72, 46)),
    ("группа#тема", (56, 111, 55)),
    ("🚀#T", (15, 76, 87)),
    ("please_rename_unique_group_name_4#TopicTest", (63, 14, 51)),
    ("%RETRY%" + "g" * 120, (88, 30, 37)),
]


@pytest.mark.parametrize(("percent", "expected", "hashes", "bits"), PARAMETERS)
def test_parameters_are_apaches(percent: int, expected: int, hashes: int, bits: int) -> None:
    assert BloomFilter.for_error_rate(percent, expected) == BloomFilter(bits, hashes)


@pytest.mark.parametrize(("key", "positions"), POSITIONS)
def test_positions_are_apaches(key: str, positions: tuple[int, ...]) -> None:
    assert BloomFilter.for_error_rate(20, 32).positions(key) == positions


def test_more_hashes_and_bits() -> None:
    assert BloomFilter.for_error_rate(10, 128).positions("CG_sql#F_sql") == (363, 97, 447, 181)
    assert BloomFilter.for_error_rate(10, 128).positions("g#T") == (202, 292, 140, 261)


@pytest.mark.parametrize(
    ("percent", "expected", "named"),
    [(0, 32, "maxErrorRateOfBloomFilter=0"), (100, 32, "=100"), (20, 0, "expectConsumerNumUseFilter=0")],
)
def test_parameters_that_cannot_work_are_named(percent: int, expected: int, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        BloomFilter.for_error_rate(percent, expected)


def test_every_length_of_a_tail_is_hashed() -> None:
    hashes = {murmur3_64(bytes(range(1, length + 1))) for length in range(50)}
    assert len(hashes) == 50
    assert murmur3_64(b"") == 0
    assert murmur3_64(b"hello") == 0xCBD8A7B341BD9B02


def test_bits_are_counted_from_the_lowest_of_each_byte() -> None:
    bitmap = bytearray(14)
    set_bits(bitmap, (83, 41, 111))
    assert bitmap.hex() == "0000000000020000000008000080", "as Apache stored it for CG_sql#F_sql"
    assert has_bits(bitmap, (83, 41, 111))
    assert has_bits(bytes(bitmap), (41,))
    assert not has_bits(bitmap, (83, 41, 110))
    assert has_bits(bitmap, ())


def test_who_was_put_in_is_found_and_few_others_are() -> None:
    bloom = BloomFilter.for_error_rate(20, 32)
    bitmap = bytearray(bloom.bitmap_bytes)
    for number in range(32):
        set_bits(bitmap, bloom.positions(f"group-{number}#topic"))
    assert all(has_bits(bitmap, bloom.positions(f"group-{number}#topic")) for number in range(32))
    strangers = sum(has_bits(bitmap, bloom.positions(f"stranger-{number}#topic")) for number in range(2000))
    assert strangers < 2000 * 30 // 100
