"""SIGINT and SIGTERM end the `run` of a consumer, and a loop over messages: its message is finished, its offset is
committed, and nothing is printed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.reading import eventually

from rocketline.client import blocking
from rocketline.message import Message
from rocketline.testing import LocalCluster

BEGIN = """
import asyncio, sys
from rocketline import ConsumeFrom, MessageView, PopConsumer, PushConsumer
from rocketline.client import blocking

namesrv = sys.argv[1]

def handle(message: MessageView) -> None:
    print("handling", flush=True)
    print("handled", sys.stdin.readline().strip(), flush=True)
"""
ON_LOOP = """
async def main():
    async with PushConsumer(namesrv, group="g", from_where=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("T", handle)
        await consumer.run()
    print("closed", flush=True)
"""
PROGRAMS = {
    "async": ON_LOOP + "asyncio.run(main())",
    "no add_signal_handler": ON_LOOP
    + """
class Loop(asyncio.SelectorEventLoop):
    def add_signal_handler(self, *args):
        raise NotImplementedError

with asyncio.Runner(loop_factory=Loop) as runner:
    runner.run(main())
""",
    "two at once": """
async def main():
    async with (PushConsumer(namesrv, group="g", from_where=ConsumeFrom.FIRST) as consumer,
                PushConsumer(namesrv, group="other") as other):
        consumer.subscribe("T", handle)
        other.subscribe("T", "none has this tag", handle)
        await asyncio.gather(consumer.run(), other.run())
    print("closed", flush=True)

asyncio.run(main())
""",
    "blocking": """
with blocking.PushConsumer(namesrv, group="g", from_where=ConsumeFrom.FIRST) as consumer:
    consumer.subscribe("T", handle)
    consumer.run()
print("closed", flush=True)
""",
    "loop": """
async def main():
    async with PushConsumer(namesrv, group="g", from_where=ConsumeFrom.FIRST) as consumer:
        async for message in consumer.messages("T"):
            handle(message)
    print("closed", flush=True)

asyncio.run(main())
""",
    "loop, blocking": """
with blocking.PushConsumer(namesrv, group="g", from_where=ConsumeFrom.FIRST) as consumer:
    for message in consumer.messages("T"):
        handle(message)
print("closed", flush=True)
""",
    "loop over popped": """
async def main():
    async with PopConsumer(namesrv, group="g", from_where=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe("T")
        async for message in consumer.messages():
            handle(message)
    print("closed", flush=True)

asyncio.run(main())
""",
    "loop over popped, blocking": """
with blocking.PopConsumer(namesrv, group="g", from_where=ConsumeFrom.FIRST) as consumer:
    consumer.subscribe("T")
    for message in consumer.messages():
        handle(message)
print("closed", flush=True)
""",
}


def signalled(program: str, namesrv: str, number: signal.Signals, said: str = "") -> str:
    """What a program prints that gets a signal while its handler runs, and that it ends well."""
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + program, namesrv],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "handling\n"
            child.send_signal(number)
            assert not said or child.stdout.readline() == said
            out, err = child.communicate("all of it\n", timeout=PATIENCE_S)
        finally:
            child.kill()
    assert (err, child.returncode) == ("", 0)
    return out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_signal_ends_a_consumer_as_stop_does(program: str, number: signal.Signals) -> None:
    with LocalCluster() as cluster, blocking.Producer(cluster.namesrv, group="p") as producer:
        receipt = producer.send(Message("T", b"x"))
        assert signalled(PROGRAMS[program], cluster.namesrv, number) == "handled all of it\nclosed\n"
        with blocking.PullConsumer(cluster.namesrv, group="g") as reader:
            eventually(lambda: reader.committed(receipt.queue), 1)


def test_a_program_with_handlers_of_its_own_keeps_them() -> None:
    program = """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True) or loop.call_soon_threadsafe(consumer.stop))

async def main():
    global loop, consumer
    loop = asyncio.get_running_loop()
    async with PushConsumer(namesrv, group="g", from_where=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("T", handle)
        await consumer.run()

asyncio.run(main())
"""
    with LocalCluster() as cluster, blocking.Producer(cluster.namesrv, group="p") as producer:
        producer.send(Message("T", b"x"))
        assert signalled(program, cluster.namesrv, signal.SIGTERM, "mine\n") == "handled all of it\n"


def test_a_second_signal_ends_a_program_whose_message_takes_too_long() -> None:
    program = """
import logging, time

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")

async def main():
    async with PushConsumer(namesrv, group="g", from_where=ConsumeFrom.FIRST) as consumer:
        async for message in consumer.messages("T"):
            print("handling", flush=True)
            time.sleep(3600)

asyncio.run(main())
"""
    with LocalCluster() as cluster, blocking.Producer(cluster.namesrv, group="p") as producer:
        producer.send(Message("T", b"x"))
        with subprocess.Popen(
            [sys.executable, "-c", BEGIN + program, cluster.namesrv], stdout=subprocess.PIPE, text=True
        ) as child:
            try:
                assert child.stdout is not None
                while child.stdout.readline() != "handling\n":
                    pass
                child.terminate()
                assert child.stdout.readline() == "SIGTERM: consumers stop\n"
                child.terminate()
                assert child.wait(PATIENCE_S) == -signal.SIGTERM
            finally:
                child.kill()
