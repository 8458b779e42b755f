"""Which master wrote which span: the file, empty epochs, and up to where two logs are the same."""

from pathlib import Path

import pytest

from rocketline.broker.replication.epochs import Epochs, common_end
from rocketline.errors import LogDiverged, StoreError
from rocketline.protocol.replication_frames import Epoch
from rocketline.testing.disks import MemoryDisk

ROOT = Path("/data")


def epochs(*entries: tuple[int, int]) -> Epochs:
    found = Epochs(MemoryDisk(), ROOT)
    found.entries = tuple(Epoch(*entry) for entry in entries)
    return found


def test_the_file_is_apaches() -> None:
    disk = MemoryDisk()
    disk.make_folder(ROOT)
    written = Epochs(disk, ROOT)
    written.save((Epoch(1, 0),))
    written.save((Epoch(1, 0), Epoch(2, 1272)))
    # As Apache 5.4.0 wrote it.
    assert disk.read(ROOT / "epochFileCheckpoint") == b"2\n1763523775\n1-0\n2-1272\n"
    read = Epochs(disk, ROOT)
    read.load()
    assert read.entries == written.entries
    disk.write_atomic(ROOT / "epochFileCheckpoint", b"2\n1\n1-0\n2-1272\n")
    read.load()
    assert read.entries == (Epoch(1, 0),)
    disk.write_atomic(ROOT / "epochFileCheckpoint.bak", b"nonsense")
    with pytest.raises(StoreError, match="is damaged"):
        read.load()


def test_an_epoch_without_a_message_is_replaced() -> None:
    known = epochs((1, 0), (2, 500))
    assert known.with_epoch(Epoch(3, 500)) == ((1, 0), (3, 500))
    assert known.with_epoch(Epoch(3, 700)) == ((1, 0), (2, 500), (3, 700))
    assert known.with_epoch(Epoch(2, 500)) == known.entries
    with pytest.raises(StoreError, match="cannot begin"):
        known.with_epoch(Epoch(2, 700))


def test_an_offset_belongs_to_the_last_epoch_before_it() -> None:
    known = epochs((1, 100), (4, 500))
    assert [known.at(offset) for offset in (0, 100, 499, 500, 900)] == [(1, 100)] * 3 + [(4, 500)] * 2
    assert (known.end_of(Epoch(1, 100), 900), known.end_of(Epoch(4, 500), 900)) == (500, 900)


@pytest.mark.parametrize(
    ("own", "own_end", "others", "others_end", "common"),
    [
        ([(1, 0)], 500, [(1, 0)], 900, 500),  # behind
        ([(1, 0)], 900, [(1, 0)], 500, 500),  # ahead
        ([(1, 0)], 900, [(1, 0), (2, 600)], 1500, 600),  # wrote on after it was deposed
        ([(1, 0), (2, 600)], 900, [(1, 0), (3, 600)], 1500, 600),  # epoch 2 wrote what nobody got
        ([(1, 0), (2, 600)], 900, [(1, 0), (2, 600), (3, 700)], 1500, 700),
        ([], 0, [(5, 0)], 900, 0),
        ([], 500, [(1, 800)], 900, 500),  # from before there were epochs
        ([(1, 800)], 850, [(2, 800)], 900, 800),
        ([(1, 0)], 300, [(2, 0)], 900, 0),
    ],
)
def test_two_logs_are_the_same_up_to(
    own: list[tuple[int, int]], own_end: int, others: list[tuple[int, int]], others_end: int, common: int
) -> None:
    assert common_end(epochs(*own), own_end, [Epoch(*entry) for entry in others], others_end) == common


def test_an_epoch_at_the_end_of_a_log_goes_if_the_master_does_not_know_it() -> None:
    """The master went on where it began: with it, what comes now would be taken for what that epoch wrote."""
    known = epochs((1, 0), (2, 500))
    assert known.shared(500, [Epoch(1, 0), Epoch(3, 600)]) == ((1, 0),)
    assert known.shared(500, [Epoch(1, 0), Epoch(2, 500)]) == known.entries
    assert known.shared(700, [Epoch(1, 0), Epoch(2, 500)]) == known.entries


def test_logs_without_a_common_point_are_not_cut() -> None:
    with pytest.raises(LogDiverged, match="no common"):
        common_end(epochs((3, 100)), 500, [Epoch(7, 900)], 1000)
    with pytest.raises(LogDiverged, match="knows no epochs"):
        common_end(epochs(), 500, [Epoch(1, 200)], 1000)
