"""`rocketline up --processes`: the parent with fake child processes, then the command as users start it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline import ConsumeFrom, Message, MessageQueue, MessageView, Producer, PushConsumer
from rocketline.admin import Admin
from rocketline.cli.logs import LoggingOptions
from rocketline.cli.servers.child import ChildCluster
from rocketline.cli.servers.plan import plan_cluster
from rocketline.cli.servers.processes import ProcessCluster
from rocketline.errors import ProcessFailed
from rocketline.protocol.bodies import TopicConfig

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NAMES = ["broker-a", "broker-b", "broker-c"]
SMALL_FILES = (
    "--set", "mappedFileSizeCommitLog=1048576", "--set", "mappedFileSizeConsumeQueue=20000",
    "--set", "maxHashSlotNum=500", "--set", "maxIndexNum=2000",
)  # fmt: skip

SERVES = """
import os, sys
sys.stdin.buffer.readline()
print('{"address":"127.0.0.1:7"}', flush=True)
"""


def fake(tmp_path: Path, code: str, count: int = 1) -> ProcessCluster:
    """A cluster whose brokers are a few lines of Python."""
    plan = plan_cluster(tmp_path, {}, count=count)
    return ProcessCluster(plan, LoggingOptions(), command=(sys.executable, "-S", "-c", code), pauses_s=(0.0, 0.0))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def _lives(pid: int) -> bool:
    """Whether a process runs; one that has ended, and that its parent has not asked about yet, does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# Children that stand in for brokers


async def test_one_that_cannot_start_says_why_and_the_others_stop(tmp_path: Path) -> None:
    folder = tmp_path / "only-one-can-make-it"
    code = f"""
import os, sys
sys.stdin.buffer.readline()
try:
    os.mkdir({str(folder)!r})
except FileExistsError:
    print('{{"error":"no luck today"}}', flush=True)
    sys.exit(1)
sys.stdin.buffer.read()
os.rmdir({str(folder)!r})
"""
    with pytest.raises(ExceptionGroup) as caught:
        await fake(tmp_path, code, count=2).start()
    assert [str(error) for error in caught.value.exceptions] == ["no luck today"]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; sys.exit(3)", r"broker-a ended with exit code 3 before it served"),
        ("import os; os.kill(os.getpid(), 9)", r"broker-a was ended by signal 9 \(Killed\) before it served"),
        ("print('hello')", r"not a start report: b'hello"),
    ],
)
async def test_one_that_ends_without_a_word_is_named(tmp_path: Path, code: str, reason: str) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(ProcessFailed, match=reason)):
        await fake(tmp_path, code).start()


async def test_one_that_ends_too_often_ends_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    count = tmp_path / "count"
    code = f"open({str(count)!r}, 'a').write('x')\n{SERVES}\nsys.exit(5)"
    async with fake(tmp_path, code) as cluster:
        with pytest.RaisesGroup(pytest.RaisesExc(ProcessFailed, match="exit code 5.*2 restarts did not help")):
            await cluster.watch()
        assert cluster.brokers[0].pid is None
    assert count.read_text() == "xxx"
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert told == ["broker broker-a ended with exit code 5 at 127.0.0.1:7; it is started again in 0 s"] * 2


async def test_one_that_served_for_a_while_has_all_its_restarts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketline.cli.servers.processes.CLEAN_SLATE_S", 0.0)
    count = tmp_path / "count"
    code = f"""{SERVES}
with open({str(count)!r}, "a") as file:
    file.write("x")
if os.path.getsize({str(count)!r}) < 6:
    sys.exit(5)
sys.stdin.buffer.read()
"""
    async with fake(tmp_path, code) as cluster:
        watching = asyncio.create_task(cluster.watch())
        await _until(lambda: count.exists() and len(count.read_text()) == 6)
        assert not watching.done()
        watching.cancel()
        await asyncio.wait([watching])


async def test_one_that_does_not_stop_is_killed_and_that_is_a_failure(tmp_path: Path) -> None:
    cluster = fake(tmp_path, SERVES + "import time\nwhile True: time.sleep(60)")
    await cluster.start()
    broker = cluster.brokers[0]
    pid = broker.pid
    assert pid is not None
    with pytest.raises(ProcessFailed, match=r"broker-a did not stop within 0\.05 s and was killed"):
        await broker.stop(limit_s=0.05)
    assert not _lives(pid)
    await cluster.close()


async def test_one_that_fails_as_it_stops_is_a_failure_with_its_words(tmp_path: Path) -> None:
    code = SERVES + """sys.stdin.buffer.read(); print('{"error":"the disk is full"}'); sys.exit(1)"""
    cluster = fake(tmp_path, code)
    await cluster.start()
    with pytest.raises(ProcessFailed, match="broker-a ended with exit code 1: the disk is full when it was to stop"):
        await cluster.close()


# The command


def _pids(data: Path) -> dict[str, int]:
    """The process of every broker that runs, which its abort file names."""
    return {path.parent.name: int(path.read_text()) for path in sorted(data.glob("broker-*/abort"))}


async def _make_topic(namesrv: str, names: list[str]) -> None:
    """A topic on every broker, once the name server knows all of it."""
    async with Admin(namesrv) as admin, asyncio.timeout(PATIENCE_S):
        for broker in await admin.brokers():
            await broker.put_topic(TopicConfig("orders", 2, 2))
        while [broker.name for broker in await admin.brokers_of("orders")] != names:
            await asyncio.sleep(0.01)
            admin.forget()


async def _send_to_each(namesrv: str, names: list[str]) -> set[bytes]:
    """Ten acknowledged messages on every broker."""
    bodies = set()
    async with Producer(namesrv, group="shop") as producer:
        for name in names:
            for number in range(10):
                body = b"%s %d" % (name.encode(), number)
                await producer.send(Message("orders", body), queue=MessageQueue("orders", name, number % 2))
                bodies.add(body)
    return bodies


async def _consume(namesrv: str, group: str, wanted: set[bytes]) -> None:
    found: set[bytes] = set()

    async def take(message: MessageView) -> None:
        found.add(message.body)
        if found >= wanted:
            consumer.stop()

    async with (
        asyncio.timeout(PATIENCE_S),
        PushConsumer(namesrv, group=group, from_where=ConsumeFrom.FIRST) as consumer,
    ):
        consumer.subscribe("orders", "*", take)
        await consumer.run()
    assert found == wanted


async def test_three_brokers_serve_one_comes_back_and_all_stop_cleanly(tmp_path: Path) -> None:
    with ChildCluster(["--data", str(tmp_path), "--brokers", "3", "--processes", *SMALL_FILES]) as cluster:
        assert list(cluster.brokers) == NAMES
        pids = _pids(tmp_path)
        assert list(pids) == NAMES
        assert len({cluster.pid, *pids.values()}) == 4
        await _make_topic(cluster.namesrv, NAMES)
        bodies = await _send_to_each(cluster.namesrv, NAMES)
        await _consume(cluster.namesrv, "before", bodies)

        os.kill(pids["broker-b"], signal.SIGKILL)
        await _until(lambda: "broker broker-b serves again" in cluster.errors)
        assert "broker broker-b was ended by signal 9 (Killed)" in cluster.errors
        assert cluster.brokers["broker-b"] in cluster.errors
        again = _pids(tmp_path)
        assert {name: again[name] == pids[name] for name in NAMES} == {
            "broker-a": True, "broker-b": False, "broker-c": True,
        }  # fmt: skip
        await _consume(cluster.namesrv, "after", bodies)

        assert cluster.stop() == 0
        assert not any(map(_lives, again.values()))
        assert _pids(tmp_path) == {}
        assert all((tmp_path / name / "checkpoint").exists() for name in NAMES)


async def test_brokers_whose_parent_is_killed_stop_by_themselves(tmp_path: Path) -> None:
    cluster = ChildCluster(["--data", str(tmp_path), "--brokers", "2", "--processes", *SMALL_FILES])
    cluster.start()
    pids = _pids(tmp_path)
    assert list(pids) == NAMES[:2]
    assert cluster.kill() == -signal.SIGKILL
    await _until(lambda: not any(map(_lives, pids.values())))
    assert _pids(tmp_path) == {}


def test_names_ports_metrics_and_logs_are_as_without_it(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerIP1=10.1.2.3\nbrokerColour=red\n")
    arguments = ["--data", str(tmp_path / "data"), "--processes", "-c", str(file), "-v", "--log-format", "json"]
    with ChildCluster([*arguments, "--set", "brokerName=shop", *SMALL_FILES]) as cluster:
        assert list(cluster.brokers) == ["shop"]
        assert cluster.brokers["shop"].startswith("127.0.0.1:")
        assert (tmp_path / "data" / "abort").exists()
    assert not (tmp_path / "data" / "abort").exists()
    assert cluster.errors.count("brokerColour") == 1
    assert '"broker": "shop"' in cluster.errors


def test_a_port_in_use_is_named_as_without_it(rocketline: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = rocketline("up", "--data", tmp_path, "--namesrv-port", 0, "--broker-port", port, "--processes")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"error: cannot listen on 127.0.0.1:{port}: ")
    assert len(result.stderr.splitlines()) == 1
