"""The ways to start a front from the command line: in one process with all brokers, beside them, and with one of them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.grpc_client import defs, message
from tests.support.grpc_front import Address, Front
from tests.support.java import ROOT
from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import ChildCluster, cli_environment

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("grpc faults")]

READY = re.compile(r"ready brokers=\S+ grpc=(?P<grpc>\S+)\n")


@contextmanager
def started(how: str, folder: Path) -> Iterator[Address]:
    if how == "broker":
        with ChildCluster([f"--data={folder / 'up'}"]) as cluster, broker_of(cluster.namesrv, folder / "own") as grpc:
            yield Address(grpc, cluster.namesrv, is_ours=True, has_our_broker=True)
        return
    with ChildCluster([f"--data={folder}", "--brokers=2", "--grpc-port=0", *how.split()]) as cluster:
        yield Address(cluster.grpc, cluster.namesrv, is_ours=True, has_our_broker=True)


@contextmanager
def broker_of(namesrv: str, folder: Path) -> Iterator[str]:
    """A second broker of a cluster, in a process of its own with its own front."""
    command = [sys.executable, "-m", "tests.support.patient_cli", "broker", "-n", namesrv, f"--data={folder}"]
    command += ["--port=0", "--grpc-port=0", "--set=brokerName=broker-b"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=cli_environment()) as process:
        try:
            assert process.stdout is not None
            ready = READY.match(process.stdout.readline())
            assert ready is not None
            yield ready["grpc"]
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.mark.parametrize("how", ["--processes", "broker"])
async def test_a_message_comes_through(how: str, tmp_path: Path) -> None:
    with started(how, tmp_path) as address:
        async with Front(address) as front:
            topic, group = await front.topic(), await front.group()
            async with front.consumer(group, topic) as client:
                queues = (await client.route(topic)).message_queues
                assert {queue.broker.name for queue in queues} == (
                    {"broker-b"} if how == "broker" else {"broker-a", "broker-b"}
                )
                await client.send_all(message(topic, b"%d" % number) for number in range(4))
                got = set()
                for name in {queue.broker.name for queue in queues}:
                    wanted = 4 if how == "broker" else 2
                    items = await client.receive_until(group, topic, wanted, broker=name)
                    got |= {item.body for item in items}
                    assert (await client.ack(group, topic, *items)).status.code == defs.Code.OK
    assert got == {b"0", b"1", b"2", b"3"}
