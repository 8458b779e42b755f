import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.leftovers import open_files
from tests.support.patching import patch_here
from tests.support.patience import PATIENCE_S

from rocketline.errors import DiskFull, StoreError, StoreInUse
from rocketline.files import backup_of
from rocketline.store.files import disk as disk_module
from rocketline.store.files.disk import Disk, RealDisk, read_with_backup, store_error
from rocketline.testing.disks import MemoryDisk


@pytest.fixture(params=[RealDisk, MemoryDisk])
def disk(request: pytest.FixtureRequest) -> Disk:
    return request.param()


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> Path:
    disk.make_folder(tmp_path / "data")
    return tmp_path / "data"


def test_a_new_mapped_file_has_its_full_size_and_reads_as_zeros(disk: Disk, folder: Path) -> None:
    file = disk.open_mapped(folder / "file", 100_000)
    assert len(file.buffer) == file.size == 100_000
    assert not any(file.buffer)
    assert disk.list(folder) == [("file", 100_000, False)]
    file.close()


def test_a_new_real_file_takes_no_blocks_until_reserved(tmp_path: Path) -> None:
    file = RealDisk().open_mapped(tmp_path / "file", 64 << 20)
    assert (tmp_path / "file").stat().st_blocks == 0
    file.reserve(0, 1 << 20)
    assert (tmp_path / "file").stat().st_blocks * 512 >= 1 << 20
    file.warm(0, 1 << 20)
    file.buffer[:5] = b"hello"
    file.forget(0, 1 << 20)
    assert file.buffer[:6] == b"hello\0"
    file.close()


def test_what_was_written_is_there_when_mapped_again(disk: Disk, folder: Path) -> None:
    file = disk.open_mapped(folder / "file", 8192, pinned=True)
    file.reserve(0, 8192)
    file.buffer[5000:5005] = b"hello"
    file.sync()
    file.close()
    again = disk.open_mapped(folder / "file", 8192)
    assert again.buffer[5000:5005] == b"hello"
    again.close()


def test_a_short_file_is_extended_and_a_long_one_refused(disk: Disk, folder: Path) -> None:
    disk.write_atomic(folder / "file", b"abc")
    file = disk.open_mapped(folder / "file", 10)
    assert bytes(file.buffer) == b"abc" + bytes(7)
    file.close()
    with pytest.raises(StoreError, match="10 bytes, more than the 5"):
        disk.open_mapped(folder / "file", 5)


def test_closing_leaves_slices_on_their_way_to_a_socket_usable(disk: Disk, folder: Path) -> None:
    file = disk.open_mapped(folder / "file", 4096)
    file.reserve(0, 4096)
    file.buffer[:5] = b"hello"
    on_its_way = file.buffer[:5]
    file.close()
    file.close()
    disk.remove(folder / "file")
    assert bytes(on_its_way) == b"hello"


def test_sync_and_forget_work_after_close(disk: Disk, folder: Path) -> None:
    file = disk.open_mapped(folder / "file", 4096)
    file.close()
    file.sync()
    file.forget(0, 4096)
    disk.sync(folder / "file")


def test_syncing_a_missing_file_names_it(disk: Disk, folder: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot flush .*/nothing: No such file"):
        disk.sync(folder / "nothing")


def test_erase_makes_zeros_and_keeps_what_lies_before(disk: Disk, folder: Path) -> None:
    file = disk.open_mapped(folder / "file", 3 << 20)
    file.reserve(0, 2 << 20)
    file.buffer[100:200] = b"x" * 100
    file.buffer[1 << 20 : (1 << 20) + 10] = b"y" * 10
    file.erase(150, 3 << 20)
    assert file.buffer[100:150] == b"x" * 50
    assert not any(file.buffer[150:])
    file.close()


def test_a_mapped_file_holds_no_descriptor_unless_pinned(tmp_path: Path) -> None:
    plain = RealDisk().open_mapped(tmp_path / "plain", 4096)
    assert open_files(tmp_path) == []
    pinned = RealDisk().open_mapped(tmp_path / "pinned", 4096, pinned=True)
    assert open_files(tmp_path) == [str(tmp_path / "pinned")]
    plain.close()
    pinned.close()
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_is_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def no_space(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    file = RealDisk().open_mapped(tmp_path / "file", 4096)
    patch_here(monkeypatch, os, "posix_fallocate", no_space)
    with pytest.raises(DiskFull, match=f"cannot reserve space in {tmp_path}/file: "):
        file.reserve(0, 4096)
    file.close()


def test_other_failures_are_store_errors_with_the_reason() -> None:
    error = store_error(OSError(errno.EIO, "Input/output error"), "flush", Path("/x"))
    assert type(error) is StoreError
    assert str(error) == "cannot flush /x: Input/output error"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=f"cannot create folder {tmp_path}/file/data: Not a directory"):
        RealDisk().make_folder(tmp_path / "file" / "data")


def test_listing_is_sorted_and_a_missing_folder_is_empty(disk: Disk, folder: Path) -> None:
    disk.write_atomic(folder / "b", b"12")
    disk.write_atomic(folder / "a", b"1")
    disk.make_folder(folder / "c" / "d")
    assert [(entry.name, entry.is_folder) for entry in disk.list(folder)] == [("a", False), ("b", False), ("c", True)]
    assert disk.list(folder)[1].size == 2
    assert disk.list(folder / "nothing") == []


def test_remove_and_remove_tree(disk: Disk, folder: Path) -> None:
    disk.make_folder(folder / "tree" / "deep")
    disk.write_atomic(folder / "tree" / "deep" / "file", b"1")
    disk.write_atomic(folder / "treefile", b"1")
    disk.remove(folder / "nothing")
    disk.remove_tree(folder / "tree")
    disk.remove_tree(folder / "tree")
    assert disk.exists(folder / "treefile")
    assert not disk.exists(folder / "tree")
    assert not disk.exists(folder / "tree" / "deep" / "file")


def test_write_atomic_replaces_and_keeps_the_former_version(disk: Disk, folder: Path) -> None:
    path = folder / "topics.json"
    assert disk.read(path) is None
    disk.write_atomic(path, b"one", keep_backup=True)
    assert disk.read(backup_of(path)) is None
    disk.write_atomic(path, b"two", keep_backup=True)
    disk.write_atomic(path, b"three", keep_backup=True)
    assert (disk.read(path), disk.read(backup_of(path))) == (b"three", b"two")
    assert len(disk.list(folder)) == 2


def parse_number(data: bytes) -> int:
    return int(data)


@pytest.mark.parametrize(
    ("main", "backup", "expected"),
    [(b"2", b"1", 2), (None, b"1", 1), (b"", b"1", 1), (b"{broken", b"1", 1), (None, None, None), (b"", None, None)],
)
def test_a_useless_file_falls_back_to_its_backup(
    disk: Disk, folder: Path, main: bytes | None, backup: bytes | None, expected: int | None
) -> None:
    path = folder / "offsets.json"
    if main is not None:
        disk.write_atomic(path, main)
    if backup is not None:
        disk.write_atomic(backup_of(path), backup)
    assert read_with_backup(disk, path, parse_number) == expected
    if expected == 1:
        # The next save must not turn the useless file into the backup.
        disk.write_atomic(path, b"3", keep_backup=True)
        assert disk.read(backup_of(path)) == b"1"


@pytest.mark.parametrize(("main", "backup"), [(b"", None), (None, b""), (b"", b"")])
def test_files_that_lost_their_content_are_named(
    disk: Disk, folder: Path, caplog: pytest.LogCaptureFixture, main: bytes | None, backup: bytes | None
) -> None:
    path = folder / "table.json"
    assert read_with_backup(disk, path, int) is None
    assert not caplog.records, "what was never there was not lost"
    for name, content in ((path, main), (backup_of(path), backup)):
        if content is not None:
            disk.write_atomic(name, content)
    assert read_with_backup(disk, path, int) is None
    assert "table.json and its backup are empty" in caplog.text


@pytest.mark.parametrize("backup", [None, b"{also"])
def test_nothing_is_lost_when_both_are_broken(disk: Disk, folder: Path, backup: bytes | None) -> None:
    path = folder / "offsets.json"
    disk.write_atomic(path, b"{broken")
    if backup is not None:
        disk.write_atomic(backup_of(path), backup)
    with pytest.raises(StoreError, match=r"offsets.json.*backup is missing or broken"):
        read_with_backup(disk, path, parse_number)
    assert disk.read(path) == b"{broken"


def test_a_lock_keeps_this_process_out_and_can_be_taken_again(disk: Disk, folder: Path) -> None:
    lock = disk.lock(folder / "lock")
    assert disk.read(folder / "lock") == b"lock"
    with pytest.raises(StoreInUse, match=str(folder)):
        disk.lock(folder / "lock")
    lock.release()
    lock.release()
    disk.lock(folder / "lock").release()


TRY_LOCK = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    print("got it")
except OSError:
    print("kept out")
"""


def test_the_lock_is_javas_record_lock_on_the_first_byte(tmp_path: Path) -> None:
    def other_process() -> str:
        command = [sys.executable, "-c", TRY_LOCK, str(tmp_path / "lock")]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout.strip()

    lock = RealDisk().lock(tmp_path / "lock")
    assert other_process() == "kept out"
    with pytest.raises(StoreInUse):
        RealDisk().lock(tmp_path / "lock")
    assert other_process() == "kept out"
    lock.release()
    assert other_process() == "got it"


HOLD_LOCK = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_locked_by_another_process_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD_LOCK, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreInUse, match=f"{tmp_path} is in use by another process"):
            RealDisk().lock(tmp_path / "lock")
    RealDisk().lock(tmp_path / "lock").release()


def test_usage_counts_bytes(disk: Disk, folder: Path) -> None:
    usage = disk.usage(folder)
    assert 0 < usage.free_bytes <= usage.total_bytes
    assert usage.used_bytes + usage.free_bytes == usage.total_bytes
    assert 0 <= usage.used_percent < 100


def test_usage_is_what_df_says(tmp_path: Path) -> None:
    """Blocks kept for the administrator are neither used nor free."""
    found = os.statvfs(tmp_path)
    usage = RealDisk().usage(tmp_path)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    assert abs(usage.used_bytes - used) < max(64 << 20, used // 10), "others write to the disk as well"
    with pytest.raises(StoreError, match=f"cannot measure {tmp_path}/nothing: No such file"):
        RealDisk().usage(tmp_path / "nothing")


def test_removing(disk: Disk, folder: Path) -> None:
    for durably in (False, True):
        disk.write_atomic(folder / "file", b"abc")
        disk.remove(folder / "file", durably)
        assert not disk.exists(folder / "file")
        disk.remove(folder / "file", durably)


def test_when_a_file_was_changed(disk: Disk, folder: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    disk.write_atomic(folder / "file", b"abc")
    # The kernel's own clock moves in steps of up to ten milliseconds.
    assert before_ms - 20 <= disk.modified_ms(folder / "file") <= time.time_ns() // 1_000_000
    with pytest.raises(StoreError, match=f"cannot look at {folder}/nothing: No such file"):
        disk.modified_ms(folder / "nothing")


def test_a_new_folder_is_durable_down_from_the_first_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    patch_here(monkeypatch, disk_module, "sync_folder", synced.append)
    RealDisk().make_folder(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    RealDisk().make_folder(tmp_path / "a" / "b" / "c")
    assert len(synced) == 3
