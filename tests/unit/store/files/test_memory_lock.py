import logging
import mmap
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.store.samples import locked_bytes, message, opened, tiny

from rocketline.store.files.disk import RealDisk
from rocketline.store.files.memory_lock import LockedWindow, PageLocks

PAGE = 4096
PAGES = 16


@pytest.fixture
def memory() -> Iterator[memoryview]:
    mapped = mmap.mmap(-1, PAGES * PAGE)
    view = memoryview(mapped)
    yield view
    view.release()
    mapped.close()


@pytest.fixture(autouse=True)
def may_lock(memory: memoryview) -> None:
    locks = PageLocks("a test")
    if not locks.lock(memory, 0, PAGES * PAGE):
        pytest.skip("this process may not lock memory")
    locks.unlock(memory, 0, PAGES * PAGE)


def locked_pages() -> int:
    return locked_bytes() // PAGE


def test_locked_memory_counts_until_it_is_unlocked(memory: memoryview) -> None:
    locks = PageLocks("a test")
    before = locked_pages()
    assert locks.lock(memory, PAGE, 4 * PAGE)
    assert locked_pages() - before == 3
    locks.unlock(memory, PAGE, 3 * PAGE)
    assert locked_pages() - before == 1
    locks.unlock(memory, 3 * PAGE, 4 * PAGE)
    assert locked_pages() == before


def test_an_empty_range_is_no_refusal(memory: memoryview) -> None:
    locks = PageLocks("a test")
    assert not locks.lock(memory, PAGE, PAGE)
    assert not locks.is_refused


def test_memory_that_is_gone_can_be_unlocked() -> None:
    view = memoryview(bytearray(PAGE))
    view.release()
    PageLocks("a test").unlock(view, 0, PAGE)


def test_a_window_locks_ahead_and_unlocks_behind(memory: memoryview) -> None:
    before = locked_pages()
    window = LockedWindow("a test")
    window.move(memory, 0, 4 * PAGE)
    assert locked_pages() - before == 4
    window.move(memory, 3 * PAGE + 17, 8 * PAGE)
    assert locked_pages() - before == 5, "the page being written stays locked"
    window.move(memory, 3 * PAGE + 18, 8 * PAGE)
    assert locked_pages() - before == 5
    window.move(memory, 12 * PAGE, 13 * PAGE)
    assert locked_pages() - before == 1, "what was jumped over is neither locked nor left locked"
    window.clear()
    assert locked_pages() == before


def test_a_window_leaves_a_file_for_the_next_one(memory: memoryview) -> None:
    before = locked_pages()
    window = LockedWindow("a test")
    window.move(memory, 0, 4 * PAGE)
    mapped = mmap.mmap(-1, PAGES * PAGE)
    following = memoryview(mapped)
    window.move(following, 0, 2 * PAGE)
    assert locked_pages() - before == 2
    following.release()
    mapped.close()
    assert locked_pages() == before, "unmapping unlocks"
    window.move(memory, 0, PAGE)
    assert locked_pages() - before == 1
    window.clear()


def test_the_end_of_the_log_is_locked_while_it_is_written(tmp_path: Path) -> None:
    before = locked_pages()
    config = tiny(lock_memory=True, log_segment_bytes=16 * PAGE)
    store = opened(RealDisk(), config, root=tmp_path)
    store.append(message(bytes(1000)))
    assert locked_pages() - before == 16
    while store.log_next_offset < 40 * PAGE:
        store.append(message(bytes(1000)))
    assert 0 < locked_pages() - before <= 16, "only the file that is being written"
    store.close()
    assert locked_pages() == before


def test_without_the_setting_nothing_is_locked(tmp_path: Path) -> None:
    before = locked_pages()
    store = opened(RealDisk(), root=tmp_path)
    store.append(message())
    assert locked_pages() == before
    store.close()


REFUSED = """
import logging, mmap, os, resource, sys
from pathlib import Path
from rocketline.store.files.memory_lock import LockedWindow, PageLocks
from rocketline.store.log.transient_pool import TransientPool

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
before = resident()
pool = TransientPool(4, 4 << 20)
print("pool locked:", pool.is_locked, "taken:", resident() - before >= 15 << 20)
view = memoryview(mmap.mmap(-1, 1 << 20))
window = LockedWindow("the end of the log")
for start in range(0, 1 << 20, 1 << 18):
    window.move(view, start, start + (1 << 18))
"""


def test_a_refusal_is_explained_once_and_the_work_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REFUSED], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    lines = done.stdout.splitlines()
    assert lines[1] == "pool locked: False taken: True"
    assert [line.split(":")[0] for line in (lines[0], *lines[2:])] == [
        "WARNING cannot lock the transient store pool (16777216 bytes) in memory",
        "WARNING cannot lock the end of the log in memory",
    ]
    for line in (lines[0], lines[2]):
        assert "RLIMIT_MEMLOCK allows 4096 bytes" in line
        assert "ulimit -l" in line


def test_a_lock_that_works_says_nothing(memory: memoryview, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert PageLocks("a test").lock(memory, 0, PAGE)
    PageLocks("a test").unlock(memory, 0, PAGE)
    assert not caplog.records
