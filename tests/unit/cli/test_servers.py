"""`rocketline nameserver` and `rocketline broker`, each in a process of its own."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.replicas import WANTING_REPLICAS

from rocketline.cli.servers.child import cli_command, cli_environment

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@contextmanager
def serving(*arguments: object, **environment: str) -> Iterator[str]:
    """The line that says it is ready; stops it at the end and expects a clean one."""
    process = subprocess.Popen(
        cli_command(*map(str, arguments)), stdout=subprocess.PIPE, text=True, env={**cli_environment(), **environment}
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().rstrip("\n")
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, rest) == (0, "")


def test_a_name_server_and_a_broker_find_each_other(rocketline: Run, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=from-file\nlistenPort=0\nbrokerClusterName=from-file\n")
    with serving("nameserver", "--port", 0) as ready:
        assert re.fullmatch(r"ready namesrv=127\.0\.0\.1:\d+", ready)
        namesrv = ready.partition("=")[2]
        flags = ("-c", file, "-n", namesrv, "--data", tmp_path / "data", "--name", "from-flag")
        with serving("broker", *flags, ROCKETLINE_BROKER_NAME="from-environment") as line:
            assert re.fullmatch(r"ready brokers=from-flag@127\.0\.0\.1:\d+", line)
            sent = rocketline("produce", "orders", "x", "--namesrv", namesrv)
            assert " orders@from-flag:" in sent.stdout


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=from-file\nlistenPort=0\nnamesrvAddr=127.0.0.1:1\n")
    with serving("broker", "-c", file, "--data", tmp_path / "data", ROCKETLINE_BROKER_NAME="from-environment") as line:
        assert line.startswith("ready brokers=from-environment@127.0.0.1:")


def test_a_broker_serves_even_while_its_name_server_is_down(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        namesrv = f"127.0.0.1:{nobody.getsockname()[1]}"
        with serving("broker", "-n", namesrv, "--data", tmp_path, "--port", 0) as line:
            assert line.startswith("ready brokers=broker-a@127.0.0.1:")


@pytest.mark.parametrize("command", ["nameserver", "broker"])
def test_a_port_in_use_is_named(rocketline: Run, tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        more = ("--data", tmp_path, "-n", "127.0.0.1:1") if command == "broker" else ()
        result = rocketline(command, "--port", port, *more)
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: cannot listen on 127.0.0.1:{port}: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(("settings", "words"), WANTING_REPLICAS)
def test_a_broker_refuses_what_only_replication_could_do(
    rocketline: Run, tmp_path: Path, settings: dict[str, str], words: list[str]
) -> None:
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    result = rocketline("broker", "--data", tmp_path / "data", "-n", "127.0.0.1:1", "--port", 0, *flags)
    assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert all(word in result.stderr for word in words), result.stderr


def test_a_flag_makes_a_master_of_a_slaves_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerId=1\nbrokerRole=SLAVE\nlistenPort=0\nnamesrvAddr=127.0.0.1:1\n")
    flags = ("-c", file, "--data", tmp_path / "data", "--set", "brokerId=0", "--set", "brokerRole=ASYNC_MASTER")
    with serving("broker", *flags) as line:
        assert line.startswith("ready brokers=broker-a@127.0.0.1:")


def test_a_name_server_takes_a_file_of_settings(rocketline: Run, tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=0\nscanNotActiveBrokerInterval=1\n")
    result = rocketline("nameserver", "-c", file)
    assert result.returncode == 1
    assert "scanNotActiveBrokerInterval=1" in result.stderr
    file.write_text("listenPort=0\n")
    with serving("nameserver", "-c", file) as ready:
        assert ready.startswith("ready namesrv=127.0.0.1:")


def test_a_server_may_open_as_many_files_as_the_system_allows():
    code = (
        "import resource; from rocketline.cli.servers.serving import allow_many_files; "
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)); "
        "allow_many_files(); print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == "True\n", done.stderr
