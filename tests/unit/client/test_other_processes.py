"""A client in the wrong place: a forked child, another event loop, a thread. Each is told, none hangs.

A child is forked by a program of its own: this process has threads and event loops that must not be copied.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from tests.support.capabilities import needs_fork
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK_OPTIONS, FakeCluster, until
from tests.unit.client.test_blocking import threaded_cluster

from rocketline.cli.servers.child import cli_environment
from rocketline.client import Producer
from rocketline.errors import ClientError
from rocketline.message import Message
from rocketline.protocol.codes import RequestCode

SEND = RequestCode.SEND_MESSAGE_V2

BLOCKING = """
import os, sys
from rocketline.client import ClientOptions, blocking
from rocketline.errors import ClientError
from rocketline.message import Message

def send(producer, body):
    try:
        return type(producer.send(Message("T", body))).__name__
    except ClientError as error:
        return str(error)

with blocking.Producer(sys.argv[1], group="g", options=ClientOptions(instance_name="parent")) as producer:
    print("parent:", send(producer, b"before"), flush=True)
    if (child := os.fork()) == 0:
        print("child, old:", send(producer, b"never"), flush=True)
        with blocking.Producer(sys.argv[1], group="g", options=ClientOptions(instance_name="child")) as own:
            print("child, new:", send(own, b"child"), flush=True)
        raise SystemExit(7)  # leaves the parent's `with` as well
    print("left with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    print("parent:", send(producer, b"after"), flush=True)
"""

ASYNC = """
import asyncio, os, sys
from rocketline.client import ClientOptions, Producer
from rocketline.errors import ClientError
from rocketline.message import Message

async def send(producer, body):
    try:
        return type(await producer.send(Message("T", body))).__name__
    except ClientError as error:
        return str(error)

async def own():
    async with Producer(sys.argv[1], group="g", options=ClientOptions(instance_name="child")) as producer:
        return await send(producer, b"child")

async def main():
    async with Producer(sys.argv[1], group="g", options=ClientOptions(instance_name="parent")) as producer:
        print("parent:", await send(producer, b"before"), flush=True)
        if (child := os.fork()) == 0:
            print("child, old:", await send(producer, b"never"), flush=True)
            await producer.close()
            asyncio._set_running_loop(None)
            print("child, new:", asyncio.run(own()), flush=True)
            os._exit(7)
        print("left with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        print("parent:", await send(producer, b"after"), flush=True)

asyncio.run(main())
"""


@needs_fork
@pytest.mark.parametrize("program", [BLOCKING, ASYNC], ids=["blocking", "async"])
def test_a_forked_child_is_told_and_the_parent_goes_on(program: str) -> None:
    with threaded_cluster() as cluster:
        cluster.add_topic("T")
        lines = output_of(program, cluster.namesrv)
        assert len(lines) == 5
        assert lines[0] == "parent: SendReceipt"
        assert "forked" in lines[1] and "open a new one here" in lines[1]
        assert lines[2] == "child, new: SendReceipt"
        assert lines[3] == "left with 7"
        assert lines[4] == "parent: SendReceipt", "the child did no harm to the parent's connections"
        assert {bytes(request.body) for request in cluster.broker.requests_of(SEND)} == {b"before", b"child", b"after"}


CONSUMERS = """
import asyncio, os, sys
from rocketline.client import PopConsumer, PullConsumer, PushConsumer
from rocketline.errors import ClientError

async def said(work):
    try:
        return repr(await work)
    except ClientError as error:
        return str(error)

async def main():
    async with (
        PullConsumer(sys.argv[1], group="pull") as pull,
        PopConsumer(sys.argv[1], group="pop") as pop,
        PushConsumer(sys.argv[1], group="push") as push,
    ):
        pull.assign(await pull.queues("T"))
        push.subscribe("T", "*", print)
        if (child := os.fork()) == 0:
            for work in (pull.poll(timeout=0), pull.queues("T"), pop.receive(wait=0), push.start()):
                print(await said(work), flush=True)
            for consumer in (pull, pop, push):
                await consumer.close()
            os._exit(7)
        print("left with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        print("parent:", len(await pull.queues("T")), flush=True)

asyncio.run(main())
"""


@needs_fork
def test_consumers_of_a_forked_child_are_told_too() -> None:
    with threaded_cluster() as cluster:
        cluster.add_topic("T")
        lines = output_of(CONSUMERS, cluster.namesrv)
        assert [line.partition(",")[0] for line in lines[:4]] == [
            f"consumer {group!r} was opened before this process was forked" for group in ("pull", "pull", "pop", "push")
        ]
        assert lines[4:] == ["left with 7", "parent: 4"], "the child did no harm to the parent's connections"


def output_of(program: str, namesrv: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, namesrv],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=cli_environment(),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


HOLDING = """
import os, sys
from rocketline.client import blocking
from rocketline.message import Message

producer = blocking.Producer(sys.argv[1], group="g")
producer.__enter__()
producer.send(Message("T", b"x"))
if os.fork() == 0:
    os.close(1)
    os.close(2)
    sys.stdin.read()  # lives on until the test lets it go
    os._exit(0)
os._exit(0)
"""


@needs_fork
async def test_a_child_does_not_keep_its_dead_parents_connections(cluster: FakeCluster) -> None:
    """Or a broker would take the parent for alive as long as some child of it runs."""
    cluster.add_topic("T")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLDING,
        cluster.namesrv,
        stdin=asyncio.subprocess.PIPE,
        env=cli_environment(),
    )
    try:
        await cluster.broker.request(SEND)
        assert await process.wait() == 0
        await until(lambda: not cluster.broker.channels)
    finally:
        assert process.stdin is not None
        process.stdin.close()


async def test_another_event_loop_is_told_what_to_use(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    async with Producer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as producer:
        await producer.send(Message("T", b"x"))
        said: list[str] = []

        def elsewhere() -> None:
            for work in (
                producer.send(Message("T", b"y")),
                producer.queues("T"),
                producer.send_oneway(Message("T", b"z")),
            ):
                with pytest.raises(ClientError) as caught:
                    asyncio.run(work)
                said.append(str(caught.value))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.01)
        assert len(said) == 3 and all("another event loop" in text and "blocking.Producer" in text for text in said)
        assert (await producer.send(Message("T", b"w"))).message_id, "it works as before where it belongs"
    assert [bytes(request.body) for request in cluster.broker.requests_of(SEND)] == [b"x", b"w"]
