"""The commands in the pages about tables and offloaded logs, as a user types them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import ROOT
from tests.spark.live import send, stored
from tests.spark.pipelines.stores import CONFIG, fill
from tests.support.admin import create_topic

from rocketline.cli.main import main
from rocketline.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPE = ["--set", f"maxHashSlotNum={CONFIG.index_slots}", "--set", f"maxIndexNum={CONFIG.index_entries}",
         "--set", f"mappedFileSizeConsumeQueue={CONFIG.queue_segment_bytes}"]  # fmt: skip
_COMMAND = re.compile(r"rocketline pipeline (?:[^`\n\\]|\\\n)+")


def commands_in(page: str) -> list[str]:
    """Those that are whole, in their order."""
    text = (ROOT / "docs" / "howto" / page).read_text("utf-8")
    found = [re.sub(r"\s*\\\n\s*", " ", command).strip() for command in _COMMAND.findall(text)]
    return [command for command in found if " --" in command and "..." not in command and "s3a://" not in command]


def run(command: str, places: dict[str, str]) -> int:
    words = [places.get(word, word) for word in shlex.split(command)]
    assert words.pop(0) == "rocketline"
    return main(words)


def test_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster() as cluster:
        for topic in ("orders", "customers", "copy"):
            create_topic(cluster.brokers[0].address, topic, 1)
        send(cluster.namesrv, "orders", [b'{"customer": "c", "amount": 1.5}', b"no JSON"])
        changes = (b'{"id": 1, "name": "a"}', b'{"id": 2, "name": "b"}', b'{"id": 1, "op": "d"}')
        send(cluster.namesrv, "customers", [*changes])
        monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
        lake = str(tmp_path / "lake")
        places = {"/data/lake": lake, "DIR": lake, "127.0.0.1:9876": cluster.namesrv, "HOST:PORT": cluster.namesrv}
        commands = commands_in("spark-tables.md")
        assert [command.split()[2] for command in commands] == ["table", "table", "audit-table", "replay", "restore"]
        for command in commands:
            assert run(command, places) == 0, (command, capsys.readouterr().err)
        said = capsys.readouterr().out
        assert "1 rows, 1 rejected" in said
        assert "every message is in the table once, with the same bytes" in said
        assert [view.body for view in stored(cluster.namesrv, "customers")] == [*changes, changes[1]]
        assert (
            sorted(view.body for view in stored(cluster.namesrv, "orders"))[2:]
            == [b'{"customer": "c", "amount": 1.5}'] * 2
        )

        keyed = f"rocketline pipeline audit-table {lake} --format iceberg --topic customers"
        assert run(keyed, {}) == 0
        assert "the table has the latest message of each id in the log" in capsys.readouterr().out
        again = f"rocketline pipeline restore {lake} --format iceberg --topic customers --to-namesrv {cluster.namesrv}"
        assert run(f"{again} --as-of 2099-01-31T12:00:00Z --to-topic copy", {}) == 0
        assert [view.body for view in stored(cluster.namesrv, "copy")] == [changes[1]]
        assert run(f"rocketline pipeline table {lake} --topic orders", {}) == 2, "the format is not guessed"
        assert "--format" in capsys.readouterr().err


def test_offloaded_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fill(tmp_path / "broker-a", 600)
    cold, restored = str(tmp_path / "cold"), tmp_path / "restored"
    places = {"/data/broker-a": str(store), "s3://bucket/cold/broker-a": cold, "/data/restored": str(restored)}
    commands = commands_in("offload.md")
    assert [command.split()[2:4] for command in commands] == [
        ["offload", "--store"], ["offload", "--verify"], ["restore", "--from"],
    ]  # fmt: skip
    for command in commands:
        more = f" {shlex.join(SHAPE)}" if "restore" in command else ""
        assert run(command + more, places) == 0, (command, capsys.readouterr().err)
    assert "sound" in capsys.readouterr().out
    first = sorted((store / "commitlog").iterdir())[0]
    assert (restored / "commitlog" / first.name).read_bytes() == first.read_bytes()
    Path(cold, "commitlog", first.name).write_bytes(b"")
    assert run(f"rocketline pipeline offload --verify {cold}", {}) == 1
    assert run(f"rocketline pipeline offload --verify {cold} --to {cold}", {}) == 2
