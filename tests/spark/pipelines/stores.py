"""Stores for the pipelines' tests, written by our own store code into real folders."""

from __future__ import annotations

import random
from pathlib import Path

from rocketline.clock import ManualClock
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import encode_properties
from rocketline.store.config import StoreConfig
from rocketline.store.message_store import MessageStore, StoreMessage

HOST = encode_host("127.0.0.1", 10911)
CONFIG = StoreConfig(
    log_segment_bytes=64 << 10,
    queue_segment_bytes=6000,
    index_slots=500,
    index_entries=2000,
    max_message_bytes=4096,
)
TOPICS = ("orders", "payments", "SCHEDULE_TOPIC_XXXX", "заказы")


def fill(root: Path, count: int = 3000, seed: int = 1, deleted: bool = True) -> Path:
    """A store with several files of everything; one topic is deleted half way and made again."""
    clock = ManualClock()
    choose = random.Random(seed)
    store = MessageStore(root, CONFIG, HOST, clock=clock)
    store.open()
    for number in range(count):
        if number == count // 2 and deleted:
            store.delete_topic("payments")
        clock.advance(choose.random() * 0.01)
        properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number % 97} order-{number}"}
        if number % 3:
            properties["TAGS"] = choose.choice(["red", "green"])
        store.append(
            StoreMessage(
                topic=choose.choice(TOPICS),
                queue_id=choose.randrange(3),
                body=choose.randbytes(choose.randrange(200)),
                properties=properties,
                properties_raw=encode_properties(properties).encode(),
                flag=0,
                sys_flag=0,
                born_ms=1_600_000_000_000,
                born_host=HOST,
            )
        )
        if number % 100 == 0:
            store.dispatch()
    store.dispatch()
    store.close()
    return root


def content(root: Path, part: str) -> dict[str, bytes]:
    """Bytes of a part's files by name; those of the index, which are named by the clock, by their order."""
    paths = sorted(path for path in (root / part).rglob("*") if path.is_file())
    names = [str(path.relative_to(root)) for path in paths] if part != "index" else [str(n) for n in range(len(paths))]
    return {name: path.read_bytes() for name, path in zip(names, paths)}
