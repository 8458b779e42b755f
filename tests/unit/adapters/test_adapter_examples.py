"""The examples of the adapters, each on a cluster of its own; the one of Celery is in test_kombu.py."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.testing import LocalCluster

EXAMPLES = Path(__file__).parents[3] / "examples" / "adapters"


@contextmanager
def running(namesrv: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program; its output ends at the latest when patience does."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=EXAMPLES,
        env={**os.environ, "NAMESRV_ADDR": namesrv},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        giving_up = threading.Timer(PATIENCE_S, process.kill)
        giving_up.start()
        try:
            yield process
        finally:
            giving_up.cancel()
            process.kill()


@pytest.fixture
def own_namesrv() -> Iterator[str]:
    with LocalCluster() as cluster:
        yield cluster.namesrv


def test_faststream_orders(own_namesrv: str) -> None:
    with running(own_namesrv, "-m", "faststream", "run", "faststream_orders:app") as billing:
        with running(own_namesrv, "faststream_orders.py", "1001", "1002") as placing:
            assert placing.communicate()[0].splitlines() == ["placed 1001", "placed 1002"]
        assert billing.stdout is not None
        invoices = set()
        for line in billing.stdout:
            invoices.update(re.findall(r"invoice for order (\d+): 12.0", line))
            if len(invoices) == 2:
                break
        assert invoices == {"1001", "1002"}
        billing.send_signal(signal.SIGINT)
        billing.communicate()
        assert billing.returncode == 0


def test_traced_orders(own_namesrv: str) -> None:
    with running(own_namesrv, "traced_orders.py", own_namesrv) as program:
        spans = [line.split(" ", 2) for line in program.communicate()[0].splitlines()]
    assert sorted((kind, name) for _, kind, name in spans) == [
        ("CLIENT", "send orders"), ("CONSUMER", "process orders"), ("INTERNAL", "place order"),
        ("INTERNAL", "write invoice"), ("PRODUCER", "create orders"),
    ]  # fmt: skip
    assert len({trace for trace, _, _ in spans}) == 1
