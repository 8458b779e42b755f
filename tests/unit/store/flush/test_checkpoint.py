import struct
from pathlib import Path

from rocketline.store.flush.checkpoint import CHECKPOINT_BYTES, Checkpoint
from rocketline.testing.disks import MemoryDisk

PATH = Path("/data/checkpoint")


def memory_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folder(PATH.parent)
    return disk


def test_a_new_one_knows_nothing() -> None:
    checkpoint = Checkpoint(memory_disk(), PATH)
    assert checkpoint.safe_ms(with_index=True) == 0


def test_apaches_fields_are_read_and_kept() -> None:
    disk = memory_disk()
    disk.write_atomic(PATH, struct.pack(">qqqqq", 11, 22, 33, 44, 55).ljust(CHECKPOINT_BYTES, b"\0"))
    checkpoint = Checkpoint(disk, PATH)
    assert (checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms) == (11, 22, 33)
    checkpoint.log_ms = 12
    checkpoint.save()
    checkpoint.close()
    saved = disk.crash().read(PATH)
    assert saved is not None
    assert len(saved) == CHECKPOINT_BYTES
    assert struct.unpack_from(">qqqqq", saved) == (12, 22, 33, 44, 55)


def test_the_safe_time_is_the_oldest() -> None:
    checkpoint = Checkpoint(memory_disk(), PATH)
    checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms = 30, 20, 10
    assert checkpoint.safe_ms(with_index=False) == 20
    assert checkpoint.safe_ms(with_index=True) == 10
