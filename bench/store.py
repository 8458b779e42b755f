"""Measures the cost of the message store and how it grows: `python bench/store.py [--only limits,append,recovery,growth]`.

limits     the limits of this machine: copying memory, writing to the page cache, flushing
append     messages into the store by body size and flush mode, against those limits
recovery   opening a store after a clean stop, after a kill, and with queues and index to rebuild, per GiB of log
growth     cost of an append and of a read with more messages and with more queues, and memory per queue; for comparison
           the floor of a read: the same bytes copied from plain maps of the same files, without any check

Figures in us are CPU time, because a flush mostly waits for the disk. One process with one thread that appends; flusher
threads are counted too.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine

from rocketline.protocol.message_ids import encode_host
from rocketline.store.config import FlushConfig, FlushDiskType, StoreConfig
from rocketline.store.files.mapping import FileMap
from rocketline.store.message_store import MessageStore, StoreEvents, StoreMessage
from rocketline.store.queue.consume_queue import UNIT

MIB = 1 << 20
HOST = encode_host("127.0.0.1", 10911)
SIZES = (128, 1024, 4096, 16384, 65536)
GROUP = 64
"""Appends that wait for the same flush under SYNC_FLUSH."""
MOST_QUEUES = 10_000
RUN = 6
"""Consecutive messages for the same queue in the growth part."""

Rows = list[dict[str, Any]]
Places = list[tuple[str, int, int]]
"""Topic, queue and number of messages."""


@contextmanager
def folder(scratch: Path | None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rocketline-store-", dir=scratch))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def messages(body_bytes: int, queues: int, count: int = 1000, run: int = 1) -> list[StoreMessage]:
    """Messages with a unique id each, as a producer sends them, spread over the queues of as many topics as it takes.

    `run` of them, one after the other, are of the same queue.
    """
    body = random.Random(1).randbytes(body_bytes)
    made = []
    for number in range(count):
        unique = f"7F0000012A1E14C214797DF6{number:08X}"
        raw = f"UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02".encode()
        queue = number // run % queues
        made.append(
            StoreMessage(
                f"topic-{queue // 8}", queue % 8, body, {"UNIQ_KEY": unique, "WAIT": "true"}, raw, 0, 0, 1, HOST
            )
        )
    return made


def fill(store: MessageStore, made: list[StoreMessage], count: int) -> None:
    """Append, and dispatch as a broker does: after each read of a socket."""
    append, size = store.append, len(made)
    for number in range(count):
        append(made[number % size])
        if number % 64 == 0:
            store.dispatch()
    store.dispatch()


def open_store(path: Path, config: StoreConfig, events: StoreEvents = StoreEvents()) -> MessageStore:
    store = MessageStore(path, config, HOST)
    store.open(events)
    return store


def limits(scratch: Path | None) -> Rows:
    source, size = bytearray(b"x") * (64 * MIB), 64 * MIB
    target = bytearray(size)
    rows: Rows = [{"what": "copy memory", "figure": f"{_speed(size, lambda: _copy(target, source)):,.0f} MiB/s"}]
    with folder(scratch) as path:
        file = path / "file"
        fd = os.open(file, os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(fd, 0, size)
        rows.append(
            {"what": "write to the page cache", "figure": f"{_speed(size, lambda: _pwrite(fd, source)):,.0f} MiB/s"}
        )
        os.fdatasync(fd)
        with mmap.mmap(fd, size) as mapped:
            rows.append(
                {"what": "write through a map", "figure": f"{_speed(size, lambda: _copy(mapped, source)):,.0f} MiB/s"}
            )
        began, count = time.perf_counter(), 500
        for number in range(count):
            os.pwrite(fd, b"x" * 4096, number * 4096)
            os.fdatasync(fd)
        rows.append({"what": "flush 4 KiB", "figure": f"{count / (time.perf_counter() - began):,.0f} /s"})
        os.close(fd)
    return rows


def _copy(target: Any, source: bytearray) -> None:
    target[: len(source)] = source


def _pwrite(fd: int, source: bytearray) -> None:
    os.pwrite(fd, source, 0)


def _speed(size: int, work: Callable[[], None]) -> float:
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        work()
        best = max(best, size / MIB / (time.perf_counter() - began))
    return best


def append(scratch: Path | None) -> Rows:
    rows: Rows = []
    for size in SIZES:
        for mode in ("async", "async, pool", "sync"):
            rows.append(_append_row(scratch, size, mode))
    return rows


def _append_row(scratch: Path | None, size: int, mode: str) -> dict[str, Any]:
    kind = FlushDiskType.SYNC_FLUSH if mode == "sync" else FlushDiskType.ASYNC_FLUSH
    config = StoreConfig(
        log_segment_bytes=256 * MIB,
        flush=FlushConfig(kind),
        transient_pool=mode == "async, pool",
        transient_pool_size=3,
    )
    made = messages(size, 8)
    count = max(2000, min(100_000, 256 * MIB // size))
    with folder(scratch) as path:
        flushed = Event()
        store = open_store(path, config, StoreEvents(flushed=lambda next_offset: flushed.set()))
        fill(store, made, 1000)
        began, cpu = time.perf_counter(), time.process_time()
        if mode == "sync":
            count = min(count, 20_000)
            _append_waiting(store, made, count, flushed)
        else:
            fill(store, made, count)
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        store.close()
    return {
        "body": size,
        "mode": mode,
        "us CPU": round(cpu / count * 1e6, 2),
        "msg/s": round(count / wall),
        "MiB/s": round(count * size / MIB / wall, 1),
    }


def _append_waiting(store: MessageStore, made: list[StoreMessage], count: int, flushed: Event) -> None:
    for number in range(0, count, GROUP):
        for offset in range(GROUP):
            end = store.append(made[(number + offset) % len(made)]).next_log_offset
        while store.flushed_offset < end:
            flushed.wait(1)
            flushed.clear()
        store.dispatch()


def recovery(scratch: Path | None, log_bytes: int) -> Rows:
    rows: Rows = []
    for size in (128, 1024, 4096, 16384):
        with folder(scratch) as path:
            config = StoreConfig()
            store = open_store(path, config)
            made = messages(size, 64)
            per_message = store.append(made[0]).size
            count = log_bytes // per_message
            fill(store, made, count)
            store.close()
            log_mib = count * per_message / MIB
            clean, _ = _opened_in(path, config)
            (path / "abort").touch()
            killed, _ = _opened_in(path, config)
            shutil.rmtree(path / "consumequeue")
            shutil.rmtree(path / "index")
            rebuilt, cpu = _opened_in(path, config)
            rows.append(
                {
                    "body": size,
                    "messages": count,
                    "log MiB": round(log_mib),
                    "clean stop s": round(clean, 3),
                    "killed s": round(killed, 3),
                    "all rebuilt s": round(rebuilt, 2),
                    "MiB/s": round(log_mib / rebuilt),
                    "s per GiB": round(rebuilt / log_mib * 1024, 2),
                    "MiB per CPU s": round(log_mib / cpu),
                }
            )
    return rows


def _opened_in(path: Path, config: StoreConfig) -> tuple[float, float]:
    """(seconds, seconds of the processor)"""
    store = MessageStore(path, config, HOST)
    began, cpu = time.perf_counter(), time.process_time()
    store.open()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    store.close()
    return seconds, cpu


def growth(scratch: Path | None, most_messages: int) -> Rows:
    rows = []
    for queues in (10, 1000, MOST_QUEUES):
        rows.append(_growth_row(scratch, 300_000, queues))
    count = 100_000
    while count <= most_messages:
        rows.append(_growth_row(scratch, count, 10))
        count *= 10
    return rows


def _growth_row(scratch: Path | None, count: int, queues: int) -> dict[str, Any]:
    """Cost of the last appends and of reads anywhere, once there are that many messages and queues."""
    last = 100_000
    made = _mixed(queues)
    with folder(scratch) as path:
        store = open_store(path, StoreConfig())
        gc.collect()
        before = machine.memory([os.getpid()]).anonymous
        fill(store, made, len(made))
        gc.collect()
        per_queue = (machine.memory([os.getpid()]).anonymous - before) / queues
        fill(store, made, count - last)
        cpu = time.process_time()
        fill(store, made, last)
        append_us = (time.process_time() - cpu) / last * 1e6
        reads = _read_us(store, path, made)
        stopping = time.perf_counter()
        store.close()
        stop_s = time.perf_counter() - stopping
    return {
        "messages": count,
        "queues": queues,
        "append us": round(append_us, 2),
        "first read us": round(reads.first, 2),
        "floor": round(reads.first_floor, 2),
        "read us": round(reads.again, 2),
        "its floor": round(reads.floor, 2),
        "KiB per queue": round(per_queue / 1024, 1) if queues >= 1000 else None,
        "stop s": round(stop_s, 2),
    }


def _mixed(queues: int) -> list[StoreMessage]:
    """The same number of messages for any number of queues, and of queues dispatched together: otherwise the objects of the
    benchmark, and groups of one message instead of six, would look like a cost of more queues."""
    made = messages(128, queues, RUN * MOST_QUEUES, RUN)
    runs = [made[start : start + RUN] for start in range(0, len(made), RUN)]
    random.Random(2).shuffle(runs)
    return [message for run in runs for message in run]


class _Reads(NamedTuple):
    """Microseconds of a read at a random place, and of the same from plain maps: the first time, when the kernel mostly
    has to map a page of the log, and the minimum of later times."""

    first: float
    first_floor: float
    again: float
    floor: float


def _read_us(store: MessageStore, path: Path, made: list[StoreMessage], reads: int = 20_000) -> _Reads:
    kinds: list[tuple[Callable[[Places], None], Places]] = [
        (partial(_read_all, store), _places(store, made, reads, seed=3)),
        (_BareMaps(path).read_all, _places(store, made, reads, seed=4)),
    ]
    found = []
    for _ in range(5):
        spent = [0.0, 0.0]
        # In turns: the first to touch a page of the log pays for both, and the load of the machine changes.
        for start in range(0, reads, 500):
            for kind, (read_all, places) in enumerate(kinds):
                cpu = time.thread_time()  # a flusher thread may still be working
                read_all(places[start : start + 500])
                spent[kind] += time.thread_time() - cpu
        found.append([seconds / reads * 1e6 for seconds in spent])
    return _Reads(*found[0], *map(min, zip(*found[1:], strict=True)))


def _places(store: MessageStore, made: list[StoreMessage], count: int, seed: int) -> Places:
    pick = random.Random(seed)
    places = []
    for message in pick.choices(made, k=count):
        topic, queue_id = message.topic, message.queue_id
        places.append((topic, queue_id, pick.randrange(store.max_offset(topic, queue_id))))
    return places


def _read_all(store: MessageStore, places: Places) -> None:
    for place in places:
        store.read(*place, 1)


class _BareMaps:
    """The files of a store, mapped again: the cost of reading with as many maps and nothing else."""

    def __init__(self, root: Path) -> None:
        self._queues = {
            (queue.parent.name, int(queue.name)): _maps(queue) for queue in (root / "consumequeue").glob("*/*")
        }
        self._log = _maps(root / "commitlog")

    def read_all(self, places: Places) -> None:
        queues, log, unpack = self._queues, self._log, UNIT.unpack_from
        log_bytes, units = len(log[0]), len(next(iter(queues.values()))[0]) // UNIT.size
        for topic, queue_id, number in places:
            offset, size, _ = unpack(queues[topic, queue_id][number // units], number % units * UNIT.size)
            start = offset % log_bytes
            bytes(log[offset // log_bytes][start : start + size])


def _maps(folder: Path) -> list[memoryview]:
    found = []
    for file in sorted(folder.iterdir()):
        with file.open("r+b") as opened:
            found.append(FileMap(opened.fileno(), file.stat().st_size).buffer)
    return found


def show(title: str, rows: Rows, console: Console) -> None:
    table = Table(title=title)
    for head in rows[0]:
        table.add_column(head, justify="left" if head in ("what", "mode") else "right")
    for row in rows:
        table.add_row(
            *("" if value is None else f"{value:,}" if isinstance(value, int) else str(value) for value in row.values())
        )
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="limits,append,recovery,growth", help="parts, separated by commas")
    parser.add_argument("--log-mib", type=int, default=1024, help="log to recover from, per body size (1024)")
    parser.add_argument("--messages", type=int, default=10_000_000, help="most messages of the growth part (10^7)")
    parser.add_argument("--scratch", type=Path, help="folder for the stores")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    args = parser.parse_args()
    parts: dict[str, Callable[[], Rows]] = {
        "limits": lambda: limits(args.scratch),
        "append": lambda: append(args.scratch),
        "recovery": lambda: recovery(args.scratch, args.log_mib * MIB),
        "growth": lambda: growth(args.scratch, args.messages),
    }
    console = Console(width=None if sys.stdout.isatty() else 140)
    results = {}
    for name in args.only.split(","):
        if name not in parts:
            parser.error(f"there is no part {name!r}; there are: {', '.join(parts)}")
        results[name] = parts[name]()
        show(name, results[name], console)
    if args.json:
        about = machine.describe(Path(__file__).resolve().parent.parent)
        args.json.write_text(json.dumps({"about": about, **results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
