"""A worker keeps the memory it will need again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.support.patience import PATIENCE_S

PROGRAM = """
import resource, sys
from rocketline.spark.memory import keep_memory

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        pieces = [bytes(1 << 20), bytes(3 << 20), bytes(1 << 19)]
        pieces = [bytearray(piece) for piece in pieces]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_memory()
keep_memory()
faults(3)
print(faults(20))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a matter of glibc")
def test_memory_that_was_used_once_is_used_again_without_a_fault() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    # Twenty times nine megabytes would be tens of thousands.
    assert int(done.stdout) < 2000


@pytest.mark.parametrize(("environment", "passed_over"), [({"SPARK_REUSE_WORKER": "1"}, True), ({}, False)])
def test_workers_that_run_many_tasks_do_not_look_through_what_is_loaded_after_each(
    environment: dict[str, str], passed_over: bool
) -> None:
    program = "import gc; from rocketline.spark.memory import spare_collections as f; f(); print(gc.get_freeze_count())"
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True, env={**kept, **environment},
    )  # fmt: skip
    assert (int(done.stdout) > 1000) is passed_over
