"""What the travelling store carries: its settings and topics, and the messages that no ordinary client would send.

Files are small enough that everything rolls, and the index has so few slots that every key shares one with strangers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocketline.message import UNIQ_KEY
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import encode_properties
from rocketline.settings import load
from rocketline.store.message_store import MessageStore, StoreConfig, StoreMessage

from .wire import QUEUES, Acknowledged, Wire

SEGMENT_BYTES = 64 << 10
UNITS_PER_FILE = 50
DELAYS_MS = (5_000, 7_200_000)
FILES = {
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
    "mappedFileSizeConsumeQueue": str(20 * UNITS_PER_FILE),
    "maxHashSlotNum": "7",
    "maxIndexNum": "1000",
}
STORE_CONFIG, _ = load(StoreConfig, FILES, "travelling")
SETTINGS = {**FILES, "messageDelayLevel": "5s 2h", "flushConsumerOffsetInterval": "100"}

# After a crash Apache 5.4.0 looks into its ten newest log files only; with files of 1 GiB that is plenty.
ALL_FILES = {"commitLogRecoverMaxNum": "1000"}

OLD, SPREAD, SIZES, LOAD, DELAYED, IPV6 = "old", "spread", "sizes", "load", "delayed", "ipv6"
LONG = "%RETRY%" + "long_" * 40
KEY_TOPICS = ("keysAa", "keysBB")
SAME_HASH = ("AaAa", "BBBB", "AaBB", "BBAa")
"""Keys with one Java hash; the two topics have one as well, so all eight pairs collide in the index."""
GROUP = "readers"

STORE_V6 = encode_host("fd00::10", 10911)
BORN_HOSTS = (encode_host("10.1.2.3", 4567), encode_host("2001:db8::7", 4567))

LEFT_BYTES = (9, 8, 7, 4, 1, 0)
"""What a message of the chosen size would leave of its file. Eight are a blank's own: with fewer it moves on."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A message made to measure: where it went, and where the end of the log and of the file were before."""

    left: int
    log_offset: int
    next_offset: int
    next_base: int


async def place(wire: Wire, left: int) -> Placement:
    """Send a message that would leave `left` bytes of the log's last file."""
    while True:
        probe = await wire.send(SIZES, b"?")
        record = await wire.record_at(probe.log_offset)
        next_offset = probe.log_offset + record.size
        next_base = (probe.log_offset // SEGMENT_BYTES + 1) * SEGMENT_BYTES
        body_bytes = next_base - next_offset - left - (record.size - len(record.body))
        if body_bytes > 0:
            break
    known = await wire.send(SIZES, b"#" * body_bytes)
    return Placement(left, known.log_offset, next_offset, next_base)


def store_directly(folder: Path) -> list[Acknowledged]:
    """A store with three files of old messages, then records with IPv6 hosts in every combination."""
    known: list[Acknowledged] = []

    def append(store: MessageStore, topic: str, body: bytes, queue_id: int, born_host: bytes) -> None:
        properties = {UNIQ_KEY: f"{len(known):032X}", "KEYS": f"direct{len(known)}"}
        raw = encode_properties(properties).encode()
        message = StoreMessage(topic, queue_id, body, properties, raw, 0, 0, 1_700_000_000_000, born_host)
        result = store.append(message)
        assert not result.reason, result
        known.append(Acknowledged(topic, queue_id, result.queue_offset, result.log_offset, body))

    store = MessageStore(folder, STORE_CONFIG, encode_host("127.0.0.1", 10911))
    store.open()
    while store.log_next_offset < 3 * SEGMENT_BYTES + SEGMENT_BYTES // 8:
        append(store, OLD, b"old " * 100, len(known) % QUEUES, BORN_HOSTS[0])
    for born_host in BORN_HOSTS:
        append(store, IPV6, b"stored by IPv4", 0, born_host)
    store.close()
    store = MessageStore(folder, STORE_CONFIG, STORE_V6)
    store.open()
    for born_host in BORN_HOSTS * 2:
        append(store, IPV6, b"stored by IPv6", 0, born_host)
    for number in range(3):
        append(store, LONG, b"long %d" % number, 0, BORN_HOSTS[1])
    store.close()
    return known
