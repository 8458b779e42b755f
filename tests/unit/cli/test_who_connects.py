"""Who opens TCP connections and who only accepts them, seen from outside the processes."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import cli_command, cli_environment
from rocketline.client import Producer, PushConsumer
from rocketline.message import Message, MessageView

ESTABLISHED = "01"

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[int, str]]:
    """(process id, address) of a server that is ready."""
    with subprocess.Popen(
        cli_command(*map(str, arguments)), stdout=subprocess.PIPE, text=True, env=cli_environment()
    ) as process:
        try:
            assert process.stdout is not None
            yield process.pid, process.stdout.readline().strip().replace("@", "=").rpartition("=")[2]
        finally:
            process.terminate()


def connections(pid: int) -> set[tuple[int, int]]:
    """(own port, other's port) of every open TCP connection of a process."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(link.readlink()))
        except FileNotFoundError:
            continue
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    open_lines = [words for words in lines if words[3] == ESTABLISHED and f"socket:[{words[9]}]" in inodes]
    return {(int(words[1].rpartition(":")[2], 16), int(words[2].rpartition(":")[2], 16)) for words in open_lines}


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_clients_and_brokers_open_connections_and_a_name_server_opens_none(tmp_path: Path) -> None:
    got = asyncio.Event()

    async def handle(message: MessageView) -> None:
        got.set()

    with (
        serving("nameserver", "--port", 0) as (name_server, namesrv),
        serving("broker", "-n", namesrv, "--data", tmp_path, "--port", 0) as (broker, address),
    ):
        async with Producer(namesrv, group="makers") as producer, PushConsumer(namesrv, group="takers") as consumer:
            await producer.send(Message("orders", b"x"))
            consumer.subscribe("orders", "*", handle)
            await consumer.start()
            async with asyncio.timeout(PATIENCE_S):
                await got.wait()
            of_name_server, of_broker = connections(name_server), connections(broker)
    opened_by_broker = {other for own, other in of_broker if own != port_of(address)}
    assert opened_by_broker == {port_of(namesrv)}
    assert {own for own, _ in of_name_server} == {port_of(namesrv)}, "all accepted, none opened"
    assert len(of_name_server) == 3, "the broker's, the producer's and the consumer's"
    assert len([own for own, _ in of_broker if own == port_of(address)]) == 2
