"""Work shared between plain processes, to measure what a machine gains from its second core without Spark.

`seconds_of(kind, processes, store)` is the time from the moment when all of them are ready to the one when the last is done.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from zlib import crc32

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rocketline.pipelines.audit import stretches
from rocketline.store.config import StoreConfig
from rocketline.store.tools.folder import StoreFolder
from rocketline.store.tools.log_check import check_range
from rocketline.store.tools.queue_check import CheckLimits
from rocketline.store.tools.read_only import ReadOnlyDisk

CHECKSUMS, WALK = KINDS = ("plain: checksums", "plain: audit's walk")
BLOCK, TIMES = bytes(range(256)) * 256, 100_000
STRETCH_BYTES = 8 << 20
LIMIT_S = 300


def seconds_of(kind: str, processes: int, store: Path) -> float:
    """Each of the processes does its share."""
    running = [
        subprocess.Popen(
            [sys.executable, __file__, kind, str(number), str(processes), str(store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        begin = time.perf_counter()
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
        codes = [process.wait(LIMIT_S) for process in running]
        if any(codes):
            raise SystemExit(f"{kind}: a process ended with {codes}")
        return time.perf_counter() - begin
    finally:
        for process in running:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def do_share(kind: str, number: int, processes: int, store: Path) -> None:
    folder = StoreFolder(store / "commitlog", store)
    parts = stretches(folder, lambda _: STRETCH_BYTES) if kind == WALK else []
    print("ready", flush=True)
    sys.stdin.read()
    for part in parts[number::processes]:
        check_range(folder, StoreConfig(), ReadOnlyDisk(), CheckLimits(None, None), part)
    if kind == CHECKSUMS:
        for _ in range(TIMES // processes):
            crc32(BLOCK)


if __name__ == "__main__":
    do_share(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
