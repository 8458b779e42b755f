"""The page about Spark and the examples run as they are pasted; the reference of options and columns is current."""

from __future__ import annotations

import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.spark.conftest import require_spark

from rocketline.cli.servers.child import ChildCluster, cli_environment
from rocketline.client import blocking
from rocketline.message import Message
from rocketline.spark import connections
from rocketline.spark.live import options as live_options
from rocketline.spark.log import source as log_source
from rocketline.spark.options import Options
from rocketline.spark.sink import sink

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference" / "spark.md"


@contextmanager
def shop(folder: Path) -> Iterator[str]:
    """A cluster with five orders; its name server."""
    with ChildCluster(["--data", str(folder)]) as cluster:
        with blocking.Producer(cluster.namesrv, group="shop") as producer:
            for number in range(1, 6):
                producer.send(Message("orders", b'{"customer": "c-%d", "amount": %d}' % (number % 2, number)))
        yield cluster.namesrv


def environment() -> dict[str, str]:
    """As a user has it: nothing says which Python the workers of Spark should use."""
    return {name: value for name, value in cli_environment().items() if not name.startswith("PYSPARK_")}


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_blocks_of_the_page_run_in_order(tmp_path: Path) -> None:
    require_spark()
    page = (ROOT / "docs" / "howto" / "spark.md").read_text("utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE))
    with shop(tmp_path / "store") as namesrv:
        places = {"127.0.0.1:9876": namesrv, "/tmp/shop": tmp_path / "store", "/tmp/orders": tmp_path / "orders"}
        for place, ours in places.items():
            assert place in program
            program = program.replace(place, str(ours))
        (tmp_path / "page.py").write_text(program)
        command = [sys.executable, str(tmp_path / "page.py")]
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = set(done.stdout.replace(" ", "").splitlines())
    assert {"|c-0|6.0|", "|c-1|9.0|", "|orders|5|", "|totals|2|"} <= shown


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_streaming_example_shows_its_table_until_it_is_interrupted(tmp_path: Path) -> None:
    require_spark()
    program = ROOT / "examples" / "spark" / "stream_orders.py"
    with shop(tmp_path / "store") as namesrv:
        command = [sys.executable, "-u", str(program), namesrv, "orders", str(tmp_path / "checkpoint")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment()) as process:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line.replace(" ", "").strip())
                if "|c-1|3|" in lines:
                    break
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
            assert process.wait() == 0, rest
    assert "|c-0|2|" in lines


def test_the_reference_is_what_its_tool_writes() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "write_spark_reference.py"))
    assert REFERENCE.read_text("utf-8") == tool["page"](), "run: python tools/write_spark_reference.py"


class Remembering(Options):
    """Remembers the names that were asked for."""

    asked: set[str]

    def text(self, name: str, *arguments: Any, **named: Any) -> str | None:
        self.asked.add(name)
        return super().text(name, *arguments, **named)


@pytest.mark.parametrize("heading", ["Reading topics", "Reading a commit log", "Writing"])
def test_the_reference_has_the_options_that_the_code_reads(heading: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remembering, "asked", set(), raising=False)
    for module in (live_options, log_source, sink, connections):
        monkeypatch.setattr(module, "Options", Remembering)
    if heading == "Reading topics":
        live_options.LiveOptions.parse({"namesrv": "h:1", "subscribe": "T"})
    elif heading == "Reading a commit log":
        log_source.LogOptions.parse({"path": "/data"})
    else:
        sink.SinkOptions.parse({"namesrv": "h:1", "topic": "T"}, StructType([StructField("body", BinaryType())]))
    _, _, part = REFERENCE.read_text("utf-8").partition(f"\n## {heading}")
    table, _, _ = part.partition("\n## ")
    cells = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    written = {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    own_options_of_spark = {"checkpointLocation"}
    access = {name for name in Remembering.asked | written if name.startswith("rocketmq.")}
    assert written - access == Remembering.asked - access - own_options_of_spark
