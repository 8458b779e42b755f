"""A pytest plugin: notes which functions each test calls, or runs the tests of a list in its order.

MUTANTS_RECORD=folder  write a JSON line for each test: its id, its seconds, the functions below src/rocketline it called
MUTANTS_SELECT=file    run the tests whose ids stand in this file, in its order, each with the limit in seconds before its id
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest
from hypothesis import Phase, settings

import rocketline

HERE = str(Path(rocketline.__file__).parent) + os.sep
called: set[CodeType] = set()


def pytest_sessionstart() -> None:
    """The same examples each time; that a test fails is enough, the smallest example is not needed."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", settings(), derandomize=True, database=None, phases=phases)
    settings.load_profile("mutants")


def _on_call(frame: FrameType, event: str, argument: object) -> None:
    called.add(frame.f_code)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    folder = os.environ.get("MUTANTS_RECORD")
    if folder is None:
        return (yield)
    called.clear()
    started = time.monotonic()
    threading.settrace(_on_call)
    sys.settrace(_on_call)
    result = yield
    sys.settrace(None)
    seconds = round(time.monotonic() - started, 3)
    ours = [code for code in tuple(called) if code.co_filename.startswith(HERE)]
    names = sorted(f"{code.co_filename.removeprefix(HERE)}:{code.co_qualname}" for code in ours)
    with (Path(folder) / f"{os.getpid()}.jsonl").open("a") as record:
        record.write(json.dumps({"test": item.nodeid, "seconds": seconds, "called": names}) + "\n")
    return result


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if file := os.environ.get("MUTANTS_SELECT"):
        lines = (line.partition(" ") for line in Path(file).read_text().splitlines())
        limits = {test: int(limit_s) for limit_s, _, test in lines}
        order = {test: at for at, test in enumerate(limits)}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])
        for item in items:
            # By a thread, which ends the process: an exception of a signal would end in the event loop.
            item.add_marker(pytest.mark.timeout(limits[item.nodeid], method="thread"), append=False)
