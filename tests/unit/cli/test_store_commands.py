"""`rocketline store`: verify, dump and rebuild on real folders, ours and Apache's."""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.protocol.compression import ZLIB, compress
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.record_layout import COMPRESSED
from rocketline.store.config import StoreConfig
from rocketline.store.message_store import MessageStore, StoreMessage

GOLDEN = Path(__file__).parents[2] / "golden" / "store"
HOST = encode_host("127.0.0.1", 10911)
CONFIG = StoreConfig(log_segment_bytes=4096, queue_segment_bytes=200, index_slots=50, index_entries=200)

Call = Callable[..., Any]


def message(topic: str, queue_id: int, body: bytes, sys_flag: int = 0, **properties: str) -> StoreMessage:
    raw = encode_properties(properties).encode()
    return StoreMessage(topic, queue_id, body, properties, raw, 0, sys_flag, 1_700_000_000_000, HOST)


def fill(root: Path) -> MessageStore:
    store = MessageStore(root, CONFIG, HOST)
    store.open()
    for number in range(30):
        store.append(message("orders", number % 2, b"body %d " % number * 20, KEYS=f"k{number} shared", TAGS="red"))
    store.append(message("other", 0, b"\xff\x00binary"))
    store.append(message("other", 0, compress(b"inflated " * 50, ZLIB), COMPRESSED | ZLIB, UNIQ_KEY="u1"))
    store.append(message("other", 0, b"not deflated at all", COMPRESSED | ZLIB))
    store.append(message("other", 0, "\x1b[31mred \u2028grüße".encode()))
    store.dispatch()
    return store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    fill(root).close()
    return root


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "clean.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "clean" / "store"


def damage(root: Path, at: int = 100) -> None:
    path = root / "commitlog" / f"{4096:020d}"
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0xFF
    path.write_bytes(raw)


def dumped(called: Call, *arguments: object) -> list[dict[str, Any]]:
    result = called("store", "dump", *arguments, "--output", "json")
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


class TestVerify:
    def test_a_sound_store(self, called: Call, root: Path) -> None:
        for folder in (root, root / "commitlog"):
            result = called("store", "verify", folder)
            assert result.returncode == 0
            lines = result.stdout.splitlines()
            assert lines[0] == f"store           {root}, stopped cleanly"
            assert "34 records" in lines[1]
            assert lines[-1] == "sound"

    def test_apaches_store(self, called: Call, clean: Path) -> None:
        result = called("store", "verify", clean, "--output", "json")
        (report,) = json.loads(result.stdout)
        assert (result.returncode, report["verdict"], report["records"]) == (0, "sound", 1974)

    def test_damage_is_named_and_exit_code_1(self, called: Call, root: Path) -> None:
        damage(root)
        result = called("store", "verify", root)
        assert result.returncode == 1
        assert "DAMAGE: commit log, log offset 4096 to" in result.stdout
        assert result.stdout.splitlines()[-1].startswith("DAMAGED: 1 in commit log")
        (report,) = json.loads(called("store", "verify", root, "--output", "json").stdout)
        assert report["verdict"] == "damaged"
        assert report["damaged"]["commit log"] == 1
        assert {finding["part"] for finding in report["findings"]} == {"commit log", "consume queues", "key index"}

    def test_several_brokers_in_one_folder(self, called: Call, tmp_path: Path) -> None:
        for name in ("broker-a", "broker-b"):
            fill(tmp_path / name).close()
        damage(tmp_path / "broker-a")
        result = called("store", "verify", tmp_path)
        assert result.returncode == 1
        assert [line for line in result.stdout.splitlines() if line.startswith("store")] == [
            f"store           {tmp_path / name}, stopped cleanly" for name in ("broker-a", "broker-b")
        ]

    def test_a_store_in_use(self, called: Call, tmp_path: Path) -> None:
        store = fill(tmp_path)
        result = called("store", "verify", tmp_path)
        store.close()
        assert result.returncode == 0
        assert "in use" in result.stdout.splitlines()[0]

    @pytest.mark.parametrize("command", ["verify", "dump", "rebuild"])
    def test_no_store_is_exit_code_2(self, called: Call, tmp_path: Path, command: str) -> None:
        (tmp_path / "letter.txt").write_text("hello")
        for folder, named in ((tmp_path, "is no store"), (tmp_path / "x", "does not exist")):
            result = called("store", command, folder)
            assert (result.returncode, result.stdout) == (2, "")
            assert result.stderr.startswith(f"error: {folder} {named}")


class TestDump:
    def test_every_record_as_json(self, called: Call, root: Path) -> None:
        records = dumped(called, root)
        assert len(records) == 34
        first = records[0]
        assert (first["topic"], first["queue"], first["offset"], first["log_offset"]) == ("orders", 0, 0, 0)
        assert first["body"] == "body 0 " * 20
        assert first["properties"] == {"KEYS": "k0 shared", "TAGS": "red"}
        assert first["store_host"] == "127.0.0.1:10911"
        binary, inflated, broken, _ = records[30:]
        assert binary["body_base64"] == "/wBiaW5hcnk="
        assert inflated["body"] == "inflated " * 50
        assert "cannot be inflated" in broken["body_problem"]
        assert broken["body"] == "not deflated at all"

    @pytest.mark.parametrize(
        ("arguments", "count"),
        [
            (["--topic", "orders"], 30),
            (["--topic", "orders", "--queue", 1], 15),
            (["--topic", "orders", "--queue", 1, "--queue-offset", 3], 1),
            (["--key", "k7"], 1),
            (["--key", "shared"], 30),
            (["--key", "u1"], 1),
            (["--key", "nobody"], 0),
            (["--limit", 5], 5),
            (["--since", "2001-01-01"], 34),
            (["--until", "2001-01-01"], 0),
            (["--since", 32_503_680_000_000], 0),
        ],
    )
    def test_what_is_selected(self, called: Call, root: Path, arguments: list[object], count: int) -> None:
        assert len(dumped(called, root, *arguments)) == count

    def test_by_log_offset(self, called: Call, root: Path) -> None:
        offsets = [record["log_offset"] for record in dumped(called, root)]
        assert [record["log_offset"] for record in dumped(called, root, "--offset", offsets[17])] == [offsets[17]]
        part = dumped(called, root, "--from", offsets[10] - 5, "--to", offsets[20])
        assert [record["log_offset"] for record in part] == offsets[10:20]
        result = called("store", "dump", root, "--offset", offsets[17] + 1)
        assert result.returncode == 2
        assert f"no sound record at log offset {offsets[17] + 1}" in result.stderr

    def test_by_time(self, called: Call, root: Path) -> None:
        records = dumped(called, root)
        middle = records[20]["store_ms"]
        wanted = [record["log_offset"] for record in records if record["store_ms"] >= middle]
        assert [record["log_offset"] for record in dumped(called, root, "--since", middle)] == wanted

    def test_damage_is_shown_and_passed_over(self, called: Call, root: Path) -> None:
        whole = dumped(called, root)
        damage(root)
        found = dumped(called, root)
        (bad,) = [record for record in found if "damaged" in record]
        assert bad["log_offset"] == 4096
        assert "CRC" in bad["damaged"]
        assert [record for record in found if record is not bad] == [
            record for record in whole if record["log_offset"] != 4096
        ]
        assert "damaged: log offset 4096 to" in called("store", "dump", root).stdout

    def test_lines_for_people_hold_no_control_characters(self, called: Call, root: Path) -> None:
        lines = called("store", "dump", root, "--topic", "other").stdout.splitlines()
        assert len(lines) == 4
        assert lines[3].endswith("\\x1b[31mred \\u2028grüße")
        assert lines[1].endswith("inflated " * 22 + "in")
        assert "(compressed body cannot be inflated" in lines[2]

    def test_a_table_for_the_terminal(
        self, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from rocketline.cli.jobs.store_text import PAGE_ROWS, print_table
        from rocketline.store.recovery.scan import Gap
        from rocketline.store.tools.folder import StoreFolder
        from rocketline.store.tools.read_only import ReadOnlyDisk
        from rocketline.store.tools.selection import RecordSelection, select

        monkeypatch.setenv("COLUMNS", "160")
        records = list(select(StoreFolder(root / "commitlog", root), RecordSelection(), ReadOnlyDisk()))
        print_table([*records, Gap(10, 20, "torn"), *records * 6])
        lines = capsys.readouterr().out.splitlines()
        assert sum("log offset" in line for line in lines) == 2, f"a heading for every {PAGE_ROWS} rows"
        assert sum("orders:1#" in line for line in lines) == 15 * 7
        assert sum("damaged" in line and "torn" in line for line in lines) == 1

    @pytest.mark.parametrize(("option", "value"), [("--since", "yesterday"), ("--limit", "0"), ("--offset", "-1")])
    def test_a_mistake_is_exit_code_2(self, called: Call, root: Path, option: str, value: str) -> None:
        result = called("store", "dump", root, option, value)
        assert result.returncode == 2
        assert option in result.stderr


@pytest.mark.parametrize("command", ["verify", "rebuild"])
def test_progress_is_shown_on_a_terminal_only(
    called: Call, root: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    assert called("store", command, root).stderr == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    shown = called("store", command, root)
    assert (shown.returncode, command in shown.stderr, "\x1b[" in shown.stdout) == (0, True, False)


class TestRebuild:
    def test_what_was_done_is_told(self, called: Call, root: Path) -> None:
        damage(root, 4)
        result = called("store", "rebuild", root)
        assert result.returncode == 0, result.stderr
        lines = result.stdout.splitlines()
        assert lines[0].startswith(f"{root}: 33 records in")
        assert lines[1] == "  consume queues  3 queues, 34 messages"
        assert lines[3].startswith("  skipped         log offset 4096 to")
        assert lines[4].endswith("records/s")

    def test_sizes_come_from_the_files(self, called: Call, clean: Path) -> None:
        (built,) = json.loads(called("store", "rebuild", clean / "commitlog", "-o", "json").stdout)
        assert (built["records"], built["units"], built["gaps"]) == (1974, 1974, [])
        (report,) = json.loads(called("store", "verify", clean, "--output", "json").stdout)
        assert (report["verdict"], report["units"], report["index_files"]) == ("sound", 1974, 3)

    def test_a_store_in_use_is_refused(self, called: Call, tmp_path: Path) -> None:
        store = fill(tmp_path)
        result = called("store", "rebuild", tmp_path)
        store.close()
        assert result.returncode == 1
        assert "stop the broker first" in result.stderr

    def test_a_folder_that_cannot_be_written_to_is_refused(
        self, called: Call, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from rocketline.errors import StoreError
        from rocketline.store.files.disk import RealDisk
        from rocketline.store.tools import rebuild

        class ReadOnlyMount(RealDisk):
            def lock(self, path: Path) -> Any:
                raise StoreError(f"cannot open {path}: Read-only file system")

        monkeypatch.setattr(rebuild, "RealDisk", ReadOnlyMount)
        result = called("store", "rebuild", root)
        assert result.returncode == 1
        assert f"{root} cannot be rebuilt, it is not writable: cannot open" in result.stderr


@pytest.mark.parametrize("command", ["verify", "dump", "rebuild"])
def test_every_command_explains_itself(called: Call, command: str) -> None:
    result = called("store", command, "--help")
    assert result.returncode == 0
    assert f"rocketline store {command}" in result.stdout


def test_a_reader_that_has_enough_is_no_failure(root: Path) -> None:
    import subprocess

    from rocketline.cli.servers.child import cli_command, cli_environment

    dump = subprocess.Popen(
        cli_command("store", "dump", str(root), "--output", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=cli_environment(),
    )
    assert dump.stdout is not None
    assert dump.stderr is not None
    dump.stdout.close()
    assert dump.wait(PATIENCE_S) == 0
    assert dump.stderr.read() == b""
    dump.stderr.close()
