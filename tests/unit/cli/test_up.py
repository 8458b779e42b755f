"""`rocketline up` as users start it: a child process, its output, its signals and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.admin import Admin
from rocketline.cli.servers.child import ChildCluster, cli_command, cli_environment
from rocketline.client import Producer, SendStatus
from rocketline.errors import ConfigError
from rocketline.message import Message

Run = Callable[..., "subprocess.CompletedProcess[str]"]

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_ready_once_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        cli_command("up", "--data", str(tmp_path), *FREE_PORTS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=cli_environment(),
    )
    assert process.stdout is not None
    ready = process.stdout.readline()
    word, namesrv, brokers = ready.split()
    assert word == "ready"
    name, _, address = brokers.removeprefix("brokers=").partition("@")
    assert name == "broker-a"
    for place in (namesrv.removeprefix("namesrv="), address):
        host, _, port = place.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S):
            pass
    process.send_signal(number)
    rest, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, rest, errors) == (0, "", "")


def test_one_broker_has_the_folder_itself_as_its_store(tmp_path: Path) -> None:
    with ChildCluster(["--data", str(tmp_path)]):
        assert (tmp_path / "abort").exists()
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "checkpoint").exists()


def test_several_brokers_have_a_name_a_port_and_a_folder_each(tmp_path: Path) -> None:
    with ChildCluster(["--data", str(tmp_path), "--brokers", "3"]) as cluster:
        assert list(cluster.brokers) == ["broker-a", "broker-b", "broker-c"]
        assert len(set(cluster.brokers.values())) == 3
        for name in cluster.brokers:
            assert (tmp_path / name / "abort").exists()


def test_without_a_data_folder_a_temporary_one_is_announced_and_removed() -> None:
    with ChildCluster() as cluster:
        pass
    words = [word.rstrip(",") for word in cluster.errors.split() if "rocketline-" in word]
    assert len(words) == 1
    assert "removed at the end" in cluster.errors
    assert not Path(words[0]).exists()


def test_the_same_data_and_ports_serve_again(tmp_path: Path) -> None:
    with ChildCluster(["--data", str(tmp_path)]) as first:
        ports = tuple(int(place.rpartition(":")[2]) for place in (first.namesrv, first.brokers["broker-a"]))
    with ChildCluster(["--data", str(tmp_path)], ports=ports) as second:  # type: ignore[arg-type]
        assert (second.namesrv, second.brokers) == (first.namesrv, first.brokers)


def test_settings_come_from_the_file_and_unknown_ones_are_named_once(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "brokerName=shop\nbrokerColour=red\nbrokerShape=round\nbrokerIP1=10.1.2.3\nflushDiskType=ASYNC_FLUSH\n"
    )
    with ChildCluster(["--data", str(tmp_path / "data"), "--config", str(file)]) as cluster:
        assert list(cluster.brokers) == ["shop"]
        assert cluster.brokers["shop"].startswith("127.0.0.1:")
    warnings = [line for line in cluster.errors.splitlines() if "brokerColour" in line]
    assert len(warnings) == 1
    assert "brokerShape" in warnings[0]
    assert str(file) in warnings[0]


def test_the_log_goes_to_standard_error(tmp_path: Path) -> None:
    with ChildCluster(["--data", str(tmp_path), "-v"]) as cluster:
        pass
    assert f"data in {tmp_path}" in cluster.errors


@pytest.mark.parametrize("flag", ["--namesrv-port", "--broker-port"])
def test_a_port_in_use_is_named(rocketline: Run, taken_port: int, tmp_path: Path, flag: str) -> None:
    result = rocketline("up", "--data", tmp_path, *FREE_PORTS, flag, taken_port)
    assert result.returncode == 1
    assert result.stdout == ""
    assert _only_line(result.stderr).startswith(f"error: cannot listen on 127.0.0.1:{taken_port}: ")
    assert not (tmp_path / "abort").exists()


def test_a_data_folder_in_use_is_named_and_not_harmed(rocketline: Run, tmp_path: Path) -> None:
    with ChildCluster(["--data", str(tmp_path)]) as cluster:
        result = rocketline("up", "--data", tmp_path, *FREE_PORTS)
        assert result.returncode == 1
        line = _only_line(result.stderr)
        assert line.startswith("error: ")
        assert str(tmp_path) in line
        assert "in use" in line or "another" in line
        assert cluster.stop() == 0
    with ChildCluster(["--data", str(tmp_path)]):
        pass


def test_a_file_in_place_of_the_data_folder_is_named(rocketline: Run, tmp_path: Path) -> None:
    file = tmp_path / "not-a-folder"
    file.write_text("mine")
    result = rocketline("up", "--data", file, *FREE_PORTS)
    assert result.returncode == 1
    assert _only_line(result.stderr).startswith(f"error: the data folder {file} cannot be used: ")
    assert file.read_text() == "mine"


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    result = subprocess.run(
        [*_without_root_rights(), *cli_command("up", "--data", str(folder), *FREE_PORTS)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=cli_environment(),
    )
    assert result.returncode == 1
    assert _only_line(result.stderr).startswith(f"error: the data folder {folder} cannot be used: ")
    assert list(folder.iterdir()) == []


def _without_root_rights() -> list[str]:
    """Root may write everywhere, unless it gives that right up."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root without setpriv cannot be kept from writing")
    return [setpriv, "--bounding-set=-dac_override", "--inh-caps=-dac_override"]


def test_a_file_cannot_open_it_to_the_network(rocketline: Run, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("bindAddress=0.0.0.0\n")
    result = rocketline("up", "--data", tmp_path / "data", "--config", file, *FREE_PORTS)
    assert result.returncode == 1
    assert "--host 0.0.0.0" in _only_line(result.stderr)


def test_a_file_cannot_show_metrics_to_the_network(rocketline: Run, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("metricsExporterType=PROM\nmetricsPromExporterHost=0.0.0.0\n")
    result = rocketline("up", "--data", tmp_path / "data", "--config", file, *FREE_PORTS)
    assert result.returncode == 1
    assert "metricsPromExporterHost=0.0.0.0" in _only_line(result.stderr)


@pytest.mark.parametrize("processes", [(), ("--processes",)])
def test_the_host_flag_alone_opens_nothing_to_strangers(
    rocketline: Run, tmp_path: Path, processes: tuple[str, ...]
) -> None:
    result = rocketline("up", "--data", tmp_path, "--host", "0.0.0.0", *processes, *FREE_PORTS)
    assert result.returncode == 1
    line = _only_line(result.stderr)
    assert "authenticationEnabled=true" in line
    assert "--insecure" in line


def test_the_host_flag_can_with_insecure(tmp_path: Path) -> None:
    with ChildCluster(["--data", str(tmp_path), "--host", "0.0.0.0", "--insecure"]) as cluster:
        port = int(cluster.namesrv.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S):
            pass


def test_secure_asks_for_accounts_and_tls_and_lets_its_administrator_in(rocketline: Run, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    with ChildCluster(["--data", str(tmp_path), "--secure"]) as cluster:
        listing = ("admin", "listUser", "-c", "DefaultCluster")
        shown = rocketline(*listing, ROCKETLINE_CONFIG=str(tmp_path / "contexts.json"))
        assert (shown.returncode, "Super" in shown.stdout) == (0, True), shown.stderr
        secret = json.loads((tmp_path / "admin.json").read_text())["secretKey"]
        assert secret not in shown.stdout + shown.stderr
        stranger = rocketline(*listing, "-n", cluster.namesrv)
        assert (stranger.returncode, "Super" in stranger.stdout) == (1, False)


def test_a_file_that_is_not_there_is_named(rocketline: Run, tmp_path: Path) -> None:
    result = rocketline("up", "--config", tmp_path / "none.conf", *FREE_PORTS)
    assert result.returncode == 1
    assert _only_line(result.stderr).startswith(f"error: cannot read the settings file {tmp_path / 'none.conf'}: ")


def test_a_wrong_value_is_named_with_its_source(rocketline: Run, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("flushDiskType=SOMETIMES\n")
    result = rocketline("up", "--config", file, *FREE_PORTS)
    assert result.returncode == 1
    line = _only_line(result.stderr)
    assert str(file) in line
    assert "flushDiskType='SOMETIMES'" in line


@pytest.mark.parametrize("processes", [(), ("--processes", "--brokers", "2")])
def test_a_file_of_a_replica_is_refused(rocketline: Run, tmp_path: Path, processes: tuple[str, ...]) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerId=1\nbrokerRole=SLAVE\n")
    result = rocketline("up", "--config", file, "--data", tmp_path / "data", *FREE_PORTS, *processes)
    assert (result.returncode, result.stdout) == (1, "")
    line = _only_line(result.stderr)
    assert "brokerRole=SLAVE is a replica's" in line
    assert "set brokerId=0 and leave brokerRole=SLAVE out" in line


def test_a_child_that_cannot_start_tells_why(taken_port: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"127.0.0.1:{taken_port}"):
        ChildCluster(["--data", str(tmp_path)], ports=(taken_port, 0)).start()


def _only_line(text: str) -> str:
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


async def test_replicas_of_a_broker_copy_it(tmp_path: Path) -> None:
    with ChildCluster(["--data", str(tmp_path), "--replicas", "2"]) as cluster:
        async with Admin(cluster.namesrv) as admin, Producer(cluster.namesrv, group="pg") as producer:
            assert (await producer.send(Message("orders", b"copied"))).status is SendStatus.OK

            async def has_all() -> bool:
                group = (await admin.cluster_info()).broker_addr_table["broker-a"].broker_addrs
                status = await admin.broker_at(group[0], "broker-a").replication()
                ends = [replica.slave_ack_offset for replica in status.ha_connection_info]
                return sorted(group) == [0, 1, 2] and ends == [status.master_commit_log_max_offset] * 2

            async with asyncio.timeout(PATIENCE_S):
                while not await has_all():
                    await asyncio.sleep(0.05)
