"""Measures what consuming costs: `python bench/consuming.py [drain|polls|filters ...]` (see bench/README.md).

    drain     10^6 messages of 1 KiB out of our broker, with our consumers and with Apache's client
    polls     10,000 held long polls against ten: memory of each, processor time to wake one
    filters   TAG and SQL92 filters that select 1 % against no filter: rates at which pulls scan a queue

`--quick` runs everything with tiny sizes, to check that it works. Exit code 1 when a filter misses its bar or something
failed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import draining, held_polls, scanning
from bench.compare import OURS_COMMAND
from bench.generators import JavaLoad, LoadFailed, RawLoad
from bench.sides import CommandSide, Side, SideFailed
from bench.wire import WireError
from tests.support.java import JavaCompileError, JavaUnavailable

PARTS = ("drain", "polls", "filters")
SERVER_CORE, LOAD_CORE = 0, 1
STOP_S = 300.0
"""Time for a broker to flush the files of ten thousand queues."""


@contextmanager
def broker(scratch: Path, name: str, settings: Mapping[str, object] | None = None) -> Iterator[Side]:
    """Our servers in a process of their own."""
    command = OURS_COMMAND + "".join(f" --set {key}={value}" for key, value in (settings or {}).items())
    side = CommandSide("rocketline", SERVER_CORE, command, STOP_S)
    side.start(scratch / name)
    try:
        yield side
    finally:
        side.stop()


def drain(args: argparse.Namespace, scratch: Path) -> bool:
    count = (args.messages or (6_400 if args.quick else 1_000_000)) // draining.PER_SEND * draining.PER_SEND
    readers = [reader for reader in draining.READERS if not (args.no_java and reader.startswith("java"))]
    readers = [reader for reader in readers if args.reader in reader]
    java = JavaLoad(LOAD_CORE, scratch) if any(reader.startswith("java") for reader in readers) else None
    try:
        with broker(scratch, "drain") as side:
            draining.fill(side, RawLoad(LOAD_CORE), count)
            print(f"drain: {count:,} messages of {draining.BODY_BYTES} bytes", flush=True)
            for run in range(args.rounds or 1):
                for reader in readers:
                    print(f"  {draining.drain(side, reader, run, count, java, LOAD_CORE)}", flush=True)
    finally:
        if java is not None:
            java.close()
    return True


def polls(args: argparse.Namespace, scratch: Path) -> bool:
    held = args.polls or (200 if args.quick else 10_000)
    with broker(scratch, "polls", held_polls.FILES) as side:
        rounds, idle_s = (1, 0.1) if args.quick else (3, 3.0)
        found = asyncio.run(held_polls.measure(side, held, args.rounds or rounds, idle_s))
        print("polls:\n  " + str(found).replace("\n", "\n  "), flush=True)
    return True


def filters(args: argparse.Namespace, scratch: Path) -> bool:
    count = args.messages or (6_400 if args.quick else 100_000)
    with broker(scratch, "filters") as side:
        found = asyncio.run(scanning.measure(side, count, args.rounds or (1 if args.quick else 5)))
        print("filters:\n  " + str(found).replace("\n", "\n  "), flush=True)
    # With tiny sizes a scan takes less than one tick of the CPU clock.
    return args.quick or not found.missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that it works")
    parser.add_argument("--messages", type=int, help="messages of drain (1000000) and filters (100000)")
    parser.add_argument("--polls", type=int, help="polls held at once (10000)")
    parser.add_argument("--rounds", type=int, help="how often each is measured: drain 1, polls 3, filters 5")
    parser.add_argument("--reader", default="", metavar="TEXT", help="only readers of drain whose name contains this")
    parser.add_argument("--no-java", action="store_true", help="leave out Apache's client")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    os.sched_setaffinity(0, {LOAD_CORE % (os.cpu_count() or 1)})
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    work = {"drain": drain, "polls": polls, "filters": filters}
    with tempfile.TemporaryDirectory(prefix="rocketline-bench-") as scratch:
        try:
            done = [work[part](args, Path(scratch)) for part in args.parts or PARTS]
            return 0 if all(done) else 1
        except (SideFailed, LoadFailed, WireError, JavaUnavailable, JavaCompileError) as error:
            print(error, file=sys.stderr)
            return 1


if __name__ == "__main__":
    raise SystemExit(main())
