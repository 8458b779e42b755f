"""Records of runs: what is written, and what a reader makes of it, whatever is in the folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.entry import main
from rocketline.pipelines import runs
from rocketline.pipelines.runs import MAX_FILE_BYTES, MAX_RUNS, RunRecord, note, note_batch, read_runs


def test_a_run_is_running_then_done(tmp_path: Path) -> None:
    with RunRecord(tmp_path / "runs", "archive", "pipeline archive --option rocketmq.secretKey=hidden x") as record:
        (run,) = read_runs(tmp_path / "runs")
        assert (run.job, run.state, run.rows, run.ended_ms) == ("archive", "running", None, None)
        note("half of it", rows=10, behind=7)
        note("all of it", rows=5, behind=0, spark_url="http://127.0.0.1:4040")
        (run,) = read_runs(tmp_path / "runs")
        assert (run.state, run.rows, run.behind, run.progress) == ("running", 15, 0, "all of it")
        note("a word")
        (run,) = read_runs(tmp_path / "runs")
        assert (run.rows, run.behind, run.progress) == (15, 0, "a word")
        record.finish("archived", ("topic", "messages"), [("orders", 15), (None, tmp_path)])
    (run,) = read_runs(tmp_path / "runs")
    assert (run.state, run.outcome, run.columns, run.rows) == ("done", "archived", ["topic", "messages"], 15)
    assert run.table == [["orders", 15], [None, str(tmp_path)]]
    assert run.spark_url == "http://127.0.0.1:4040"
    assert "hidden" not in run.command
    note("nobody listens any more")
    assert read_runs(tmp_path / "runs")[0].progress == "a word"


def test_a_run_that_raises_has_failed(tmp_path: Path) -> None:
    with pytest.raises(ValueError), RunRecord(tmp_path, "dlq"):
        raise ValueError("no such topic")
    (run,) = read_runs(tmp_path)
    assert (run.state, run.outcome) == ("failed", "ValueError: no such topic")
    with RunRecord(tmp_path, "dlq") as record:
        record.finish("damaged", is_bad=True)
    assert read_runs(tmp_path)[0].state == "failed"


def test_a_killed_run_is_lost_after_a_while(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from rocketline.pipelines.runs import RunRecord\n"
        "with RunRecord(Path(sys.argv[1]), 'lag'): print('on', flush=True); time.sleep(3600)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)
    process.stdout.close()
    (run,) = read_runs(tmp_path, run_ms := int(time.time() * 1000))
    assert run.state == "running"
    (run,) = read_runs(tmp_path, run_ms + 31_000)
    assert (run.state, run.ended_ms) == ("lost", None)


def test_a_run_without_news_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "TOUCH_EVERY_S", 0.01)
    with RunRecord(tmp_path, "archive") as record:
        os.utime(record.path, (0, 0))
        deadline = time.monotonic() + PATIENCE_S
        while read_runs(tmp_path)[0].state != "running":
            assert time.monotonic() < deadline


def test_records_are_bounded(tmp_path: Path) -> None:
    for number in range(MAX_RUNS + 5):
        (tmp_path / f"{number:013}-old-00000000.jsonl").write_text("")
    with RunRecord(tmp_path, "chatty") as record:
        for _ in range(600):
            note("x" * 5000, rows=1)
    assert len(list(tmp_path.iterdir())) == MAX_RUNS
    assert record.path.stat().st_size <= MAX_FILE_BYTES
    (run,) = read_runs(tmp_path)
    assert (run.state, run.rows) == ("done", 600)


def test_a_folder_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with RunRecord(tmp_path / "file" / "runs", "archive"):
        note("goes on")


def test_anything_may_be_in_the_folder(tmp_path: Path) -> None:
    start = '{"at": 5, "kind": "start", "job": "<script>"}\n'
    name = "1795017089376-x-0123456789ab.jsonl"
    files = {
        "0000000000001-a-00000000.jsonl": start + '{"at": 6, "kind": "progr',
        "0000000000002-a-00000000.jsonl": "[" * 100_000,
        "0000000000003-a-00000000.jsonl": start + '{"at": 6, "kind": "end", "state": "anything"}',
        "0000000000004-a-00000000.jsonl": '{"at": "6", "kind": 7}',
        name: start,
        "notes.txt": start,
    }
    for path, content in files.items():
        (tmp_path / path).write_text(content)
    (tmp_path / "0000000000005-a-00000000.jsonl").write_bytes(b"\xff\xfe" + start.encode())
    (tmp_path / "0000000000006-a-00000000.jsonl").mkdir()
    found = {run.id[:13]: (run.job, run.state) for run in read_runs(tmp_path, 10**15)}
    assert found == {"0000000000003": ("<script>", "failed"), "0000000000001": ("<script>", "lost")}


def test_batches_of_a_stream_say_how_far_it_is_behind(tmp_path: Path) -> None:
    # Queue 1 was made again and is shorter, queue 2 is not planned yet; what is behind is the two of queue 0.
    latest = {"T": {"a": {"0": 42, "1": 5, "2": 7}}, "lag.messages": 1000, "lag.seconds": 3.5}
    end = {"T": {"a": {"0": 40, "1": 99}}}
    source = SimpleNamespace(latestOffset=json.dumps(latest), endOffset=json.dumps(end))
    with RunRecord(tmp_path, "archive"):
        note_batch(SimpleNamespace(name="archive", batchId=3, numInputRows=1000, sources=[source]))
        (run,) = read_runs(tmp_path)
        assert (run.rows, run.behind, run.progress) == (1000, 2, "archive batch 3: 1,000 messages")
        source.latestOffset = None
        note_batch(SimpleNamespace(name="archive", batchId=4, numInputRows=1, sources=[source]))
    assert read_runs(tmp_path)[0].behind is None


def test_the_command_lists_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunRecord(tmp_path, "archive") as record:
        record.finish("archived")
    assert main(["pipeline", "runs", str(tmp_path), "--output", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["job"], row["state"], row["outcome"]) == ("archive", "done", "archived")
    monkeypatch.setenv(runs.RUNS_VARIABLE, str(tmp_path))
    assert main(["pipeline", "runs", "--output", "csv"]) == 0
    assert "archive,done" in capsys.readouterr().out
    monkeypatch.delenv(runs.RUNS_VARIABLE)
    assert main(["pipeline", "runs"]) == 2
