"""Runs the load of a rival's client: `CLIENTS/bin/python bench/rival_load.py RIVAL ADDRESS TOPIC CASE SECONDS CORE LOOP`.

Runs in an environment of its own (`bench/rivals.py` makes it) and prints the figures as a line of JSON. CASE is one of
`bench/producing.py`, each in the form recommended by the client's own documentation:

    1              one send after the other, each awaited
    64 256         so many awaited at a time; Apache's client: `send_async` with a window
    batched-N      the fastest form of the client: Apache's as above (it has no batches), `publish_async` of nats-py with a
                   window, pipelines of redis-py with 64 messages each
    blocking-N     Apache's: so many threads that call `send`

Every acknowledgement is checked. If the client can, it asks the server at the end how many messages it has.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.stopwatch import Produced, Stopwatch, in_flight, run_on

BODY = b"x" * 128
PIPELINE = 64
TIMEOUT_S = 30


def official(address: str, topic: str, case: str, seconds: float) -> Produced:
    """Apache's own client over gRPC."""
    rocketmq = import_module("rocketmq")
    configuration = rocketmq.ClientConfiguration(address, rocketmq.Credentials(), request_timeout=TIMEOUT_S)
    producer = rocketmq.Producer(configuration, (topic,))
    producer.startup()

    def message() -> Any:
        made = rocketmq.Message()
        made.topic, made.body = topic, BODY
        return made

    kind, _, number = case.rpartition("-")
    try:
        assert producer.send(message()).message_id
        watch = Stopwatch(seconds)
        watch.sent = 1
        if number == "1" or kind == "blocking":
            _in_threads(lambda: producer.send(message()).message_id, int(number), watch)
        else:
            _with_a_window(lambda: producer.send_async(message()), int(number), watch)
        return watch.figures(case)
    finally:
        producer.shutdown()


def _in_threads(send: Any, count: int, watch: Stopwatch) -> None:
    lock, failures = threading.Lock(), []

    def work() -> None:
        more = True
        while more:
            began = time.perf_counter()
            try:
                assert send()
            except Exception as error:
                failures.append(error)
                return
            with lock:
                more = watch.note(began)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _with_a_window(send: Any, count: int, watch: Stopwatch) -> None:
    lock, window, failures = threading.Lock(), threading.Semaphore(count), []
    going_on = True

    def over(future: Future[Any], began: float) -> None:
        nonlocal going_on
        try:
            assert future.result().message_id
            with lock:
                going_on = watch.note(began) and going_on
        except Exception as error:
            failures.append(error)
        finally:
            window.release()

    while going_on and not failures:
        window.acquire()
        began = time.perf_counter()
        send().add_done_callback(lambda future, began=began: over(future, began))
    for _ in range(count):
        window.acquire()
    if failures:
        raise failures[0]


async def nats(address: str, topic: str, case: str, seconds: float) -> Produced:
    client = await import_module("nats").connect(f"nats://{address}")
    kind, _, number = case.rpartition("-")
    try:
        stream = client.jetstream(timeout=TIMEOUT_S, publish_async_max_pending=max(256, int(number)))
        await stream.add_stream(name=topic, subjects=[topic], storage="file")

        async def awaited() -> None:
            assert (await stream.publish(topic, BODY)).seq

        async def windowed() -> None:
            assert (await (await stream.publish_async(topic, BODY))).seq

        watch = Stopwatch(seconds)
        await in_flight(windowed if kind == "batched" else awaited, int(number), watch)
        found = watch.figures(case)
        stored = (await stream.stream_info(topic)).state.messages
        assert stored == watch.sent, f"{watch.sent} were acknowledged, the server has {stored}"
        return found
    finally:
        await client.close()


async def redis(address: str, topic: str, case: str, seconds: float) -> Produced:
    host, _, port = address.partition(":")
    kind, _, number = case.rpartition("-")
    client = import_module("redis.asyncio").Redis(host=host, port=int(port), max_connections=int(number) + 1)
    try:

        async def add() -> None:
            assert await client.xadd(topic, {"b": BODY})

        watch = Stopwatch(seconds)
        if kind == "batched":
            tasks = max(1, int(number) // PIPELINE)
            await asyncio.gather(*(_pipelines(client, topic, min(PIPELINE, int(number)), watch) for _ in range(tasks)))
        else:
            await in_flight(add, int(number), watch)
        found = watch.figures(case)
        stored = await client.xlen(topic)
        assert stored == watch.sent, f"{watch.sent} were acknowledged, the server has {stored}"
        return found
    finally:
        await client.aclose()


async def _pipelines(client: Any, topic: str, size: int, watch: Stopwatch) -> None:
    more = True
    while more:
        began = time.perf_counter()
        pipeline = client.pipeline(transaction=False)
        for _ in range(size):
            pipeline.xadd(topic, {"b": BODY})
        assert all(await pipeline.execute())
        for _ in range(size):
            more = watch.note(began)


def main() -> int:
    rival, address, topic, case, seconds, core, loop = sys.argv[1:]
    os.sched_setaffinity(0, {int(core)})
    if rival == "official":
        found = official(address, topic, case, float(seconds))
    else:
        found = run_on(loop, {"nats": nats, "redis": redis}[rival](address, topic, case, float(seconds)))
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
