"""A store folder that travels between rocketline and Apache, killed at each departure, and what each host saw in it.

    rocketline -> (trimmed, queues and index built anew by `store rebuild`) -> Apache -> rocketline
    -> (trimmed, queues and index lost) -> Apache -> (trimmed) -> rocketline

Before the first host, a store without a broker wrote records that no client of 127.0.0.1 can cause: IPv6 addresses. Each
host is observed on arrival, then writes a little of everything, and is killed under load: the first two just after their log
has rolled, the others in the middle of a file. Nothing is judged here: the tests do that with the observations.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import ChildCluster
from rocketline.errors import StoreInUse, TransportError
from rocketline.store.message_store import MessageStore

from .apache import QUICK_START, ApacheCluster
from .cargo import (
    ALL_FILES,
    DELAYED,
    GROUP,
    IPV6,
    KEY_TOPICS,
    LEFT_BYTES,
    LOAD,
    LONG,
    OLD,
    SAME_HASH,
    SEGMENT_BYTES,
    SETTINGS,
    SPREAD,
    STORE_CONFIG,
    STORE_V6,
    Placement,
    place,
    store_directly,
)
from .java_client import JavaClient, Queue, QueueOffsets, Seen
from .java_driver import JavaCallError
from .reading import eventually, read_everything, read_queue
from .store_files import SCHEDULE_TOPIC, LogWalk, QueueKey, Unit, trim, walk_log, written_units
from .wire import QUEUES, Acknowledged, Wire

JUST_ROLLED = range(SEGMENT_BYTES // 8)
MIDDLE = range(SEGMENT_BYTES // 3, SEGMENT_BYTES // 2)
LOADERS = 8
LOAD_AT_LEAST = 150


@dataclass(slots=True)
class Visit:
    """What one host found on arrival, and what it was given."""

    host: str
    log: LogWalk
    units: Mapping[QueueKey, Mapping[int, Unit]]
    contents: Mapping[str, list[Seen]]
    pending: list[Seen]
    found: Mapping[tuple[str, str], list[Seen]]
    bounds: Mapping[Queue, QueueOffsets]
    committed: int
    refusal: str
    """Why a second store could not open the folder meanwhile."""
    viewed: Mapping[int, bytes]
    """Bodies of the IPv6 records by log offset, asked for by offset."""
    before: tuple[Acknowledged, ...]
    """Everything acknowledged by earlier hosts."""
    acknowledged: list[Acknowledged] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)


class Host(Protocol):
    @property
    def namesrv(self) -> str: ...

    @property
    def broker(self) -> str: ...

    def kill(self) -> object: ...


class Travelling:
    """The journey of one folder."""

    def __init__(self, java: JavaClient, directory: Path) -> None:
        self.store = directory / "store"
        self.visits: list[Visit] = []
        self.direct: list[Acknowledged] = []
        """What was stored before the first broker."""
        self.lost_queues = directory / "lost_queues"
        """A copy of the folder as it was when its queues and index had just been lost."""
        self._java = java
        self._directory = directory
        self._names = ApacheCluster(directory / "names", broker=False, jvm_options=QUICK_START)
        self._committed = 0
        self._random = random.Random(4)

    def run(self) -> None:
        (self._directory / "names").mkdir()
        self._names.start()
        try:
            self._travel()
        finally:
            self._names.kill()

    def _travel(self) -> None:
        self.direct = store_directly(self.store)
        with self.rocketline() as host:
            for topic in (OLD, IPV6, LONG):
                self._java.create_topic(host.namesrv, topic, QUEUES)
            self._java.create_group(host.namesrv, GROUP)
            self._visit("rocketline", host)
        trim(self.store, 2)
        self._rebuild()
        with self.apache("first") as host:
            self._visit("apache", host)
        with self.rocketline() as host:
            self._visit("rocketline", host)
        trim(self.store, 1)
        for name in ("consumequeue", "index"):
            shutil.rmtree(self.store / name)
        (self.store / "checkpoint").unlink()
        shutil.copytree(self.store, self.lost_queues)
        with self.apache("second", enabledAppendPropCRC="true") as host:
            self._visit("apache", host)
        trim(self.store, len(list((self.store / "commitlog").iterdir())) // 2)
        with self.rocketline() as host:
            self._visit("rocketline", host)

    def _rebuild(self) -> None:
        command = [sys.executable, "-m", "rocketline.cli", "store", "rebuild", str(self.store)]
        for key, value in SETTINGS.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)

    @contextmanager
    def rocketline(self) -> Iterator[Host]:
        arguments = ["--data", str(self.store)]
        for key, value in SETTINGS.items():
            arguments += ["--set", f"{key}={value}"]
        cluster = _Child(arguments)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.kill()

    @contextmanager
    def apache(self, name: str, **conf: str) -> Iterator[Host]:
        directory = self._directory / name
        directory.mkdir()
        settings = {**SETTINGS, **ALL_FILES, **conf}
        cluster = ApacheCluster(
            directory,
            namesrv=False,
            namesrv_addr=self._names.namesrv,
            store=self.store,
            broker_conf=settings,
            jvm_options=QUICK_START,
        )
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.kill()

    def _visit(self, name: str, host: Host) -> None:
        before = (*self.direct, *(item for visit in self.visits for item in visit.acknowledged))
        visit = asyncio.run(self._observe(name, host, before))
        self.visits.append(visit)
        asyncio.run(self._write(visit, host))

    async def _observe(self, name: str, host: Host, before: tuple[Acknowledged, ...]) -> Visit:
        java, namesrv = self._java, host.namesrv
        if self.visits:
            self._await_delayed(namesrv)
        topics = sorted({item.topic for item in before})
        contents = read_everything(java, namesrv, topics)
        broker = java.read_queues(namesrv, OLD)[0].broker
        pending = read_queue(java, namesrv, Queue(SCHEDULE_TOPIC, broker, 1)) if self.visits else []
        queues = [queue for topic in topics for queue in java.read_queues(namesrv, topic)]
        found = {(topic, key): self._query(namesrv, topic, key) for topic in KEY_TOPICS for key in SAME_HASH}
        log = walk_log(self.store)
        async with Wire(host.broker) as wire:
            committed = await wire.committed(GROUP, SPREAD, 0) if self.visits else 0
            in_log = [item for item in self.direct if item.topic == IPV6 and item.log_offset >= log.min_offset]
            viewed = {item.log_offset: bytes((await wire.record_at(item.log_offset)).body) for item in in_log}
        return Visit(
            host=name,
            log=log,
            units=written_units(self.store),
            contents=contents,
            pending=pending,
            found=found,
            bounds={queue: java.offsets(namesrv, queue) for queue in queues},
            committed=committed,
            refusal=self._try_to_open(),
            viewed=viewed,
            before=before,
        )

    def _try_to_open(self) -> str:
        store = MessageStore(self.store, STORE_CONFIG, STORE_V6)
        try:
            store.open()
        except StoreInUse as error:
            return str(error)
        store.close()
        return ""

    def _await_delayed(self, namesrv: str) -> None:
        """The last host was killed with a message in flight; it arrives here."""
        [queue] = [queue for queue in self._java.read_queues(namesrv, DELAYED) if queue.queue_id == 0]
        wanted = b"delayed %d" % len(self.visits)

        def arrived() -> bool:
            bounds = self._java.offsets(namesrv, queue)
            newest = self._java.pull(namesrv, queue, max(bounds.min, bounds.max - 8))
            return any(message.body == wanted for message in newest.messages)

        eventually(arrived, True)

    def _query(self, namesrv: str, topic: str, key: str) -> list[Seen]:
        try:
            return self._java.query_message(namesrv, topic, key)
        except JavaCallError:  # nothing found, or no such topic yet
            return []

    async def _write(self, visit: Visit, host: Host) -> None:
        number = len(self.visits)
        self._java.release(host.namesrv)
        async with Wire(host.broker) as wire:
            visit.acknowledged = wire.acknowledged
            for i in range(60):
                await wire.send(SPREAD, b"%d spread %d" % (number, i), i % QUEUES, TAGS=f"tag{i % 3}", KEYS=f"k{i}")
            for topic in KEY_TOPICS:
                for key in SAME_HASH:
                    await wire.send(topic, f"{number} {topic} {key}".encode(), KEYS=f"other{number} {key}")
            for i in range(3):
                await wire.send(LONG, b"%d long %d" % (number, i))
            for left in LEFT_BYTES:
                visit.placements.append(await place(wire, left))
            self._committed += 7
            await wire.commit(GROUP, SPREAD, 0, self._committed)
            await self._until_saved()
            await wire.send(DELAYED, b"%d in two hours" % number, DELAY="2")
            await self._load_and_kill(wire, host, number)

    async def _until_saved(self) -> None:
        """The group's offset is in the file; each broker has its own way to spell a number as a key."""
        saved = self.store / "config" / "consumerOffset.json"
        entry = re.compile(rf'"{SPREAD}@{GROUP}":\s*{{\s*"?0"?:\s*{self._committed}\b')
        async with asyncio.timeout(PATIENCE_S):
            while not entry.search(_text_of(saved)):
                await asyncio.sleep(0.02)

    async def _load_and_kill(self, wire: Wire, host: Host, number: int) -> None:
        """Many senders at once; the kill comes when the log has reached the wanted part of a file."""
        first = len(wire.acknowledged)
        reached = asyncio.Event()
        places = JUST_ROLLED if number <= 2 else MIDDLE

        async def sender(queue_id: int) -> None:
            count = 0
            while True:
                count += 1
                padding = b"." * self._random.choice((0, 100, 500, 2000))
                body = b"%d load %d %d " % (number, queue_id, count) + padding
                try:
                    known = await wire.send(LOAD, body, queue_id % QUEUES, TAGS=f"load{queue_id}")
                except TransportError:
                    return
                loaded = len(wire.acknowledged) - first
                if loaded >= LOAD_AT_LEAST and known.log_offset % SEGMENT_BYTES in places:
                    reached.set()

        senders = [asyncio.create_task(sender(queue_id)) for queue_id in range(LOADERS)]
        async with asyncio.timeout(PATIENCE_S):
            await reached.wait()
        await wire.send(DELAYED, b"delayed %d" % number, DELAY="1")
        await asyncio.to_thread(host.kill)
        await asyncio.gather(*senders)


class _Child(ChildCluster):
    @property
    def broker(self) -> str:
        return self.brokers["broker-a"]


def _text_of(path: Path) -> str:
    """Nothing while there is no such file: it is away for a moment each time it is replaced."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
