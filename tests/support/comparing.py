"""Field by field: what a producer sent and was told, against what a Java consumer saw.

The rules are those Apache's own broker keeps, so that the same comparison judges any broker.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from .java_client import JavaClient, Outgoing, Seen, Sent

COMPRESSED = 0x1
CODEC_FLAG = {"LZ4": 0x100, "ZSTD": 0x200, "ZLIB": 0x300}

# A stored record without body, topic and properties, with IPv4 hosts.
EMPTY_RECORD_BYTES = 91

# Fields that depend on which client read the message, not on what the broker holds.
READER_FIELDS = frozenset({"properties", "broker_name", "accepted", "delivered_ms"})


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the name server says of a cluster, by broker name."""

    cluster_of: Mapping[str, str]
    address_of: Mapping[str, str]

    @classmethod
    def ask(cls, java: JavaClient, namesrv: str) -> ClusterFacts:
        info = java.cluster_info(namesrv)
        cluster_of = {broker: cluster for cluster, brokers in info["clusterAddrTable"].items() for broker in brokers}
        address_of = {broker: data["brokerAddrs"]["0"] for broker, data in info["brokerAddrTable"].items()}
        return cls(cluster_of, address_of)


def assert_same_message(seen: Seen, outgoing: Outgoing, sent: Sent, facts: ClusterFacts) -> None:
    """A single message (not one of a batch), as a consumer must see it."""
    broker = seen.broker_name
    assert broker is not None
    added = {"CLUSTER": facts.cluster_of[broker], "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    _assert_content(seen, outgoing, sent.msg_id)
    assert seen.stored_properties == {**_properties(outgoing, sent.msg_id), **added}
    assert sent.properties == _properties(outgoing, sent.msg_id)
    _assert_place(seen, facts)
    if sent.status is not None:  # a one-way sender is told nothing
        assert sent.status == "SEND_OK"
        assert sent.transaction_id == sent.msg_id
        assert sent.region_id == "DefaultRegion"
        assert (sent.broker_name, sent.queue_id, sent.queue_offset, sent.offset_msg_id) == (
            broker,
            seen.queue_id,
            seen.queue_offset,
            seen.offset_msg_id,
        )


def assert_uncompressed(seen: Seen, *, trailing_separator: bool = True) -> None:
    """The body lies in the record as it was sent: flags, checksum and record size follow from it."""
    assert seen.sys_flag == 0
    assert seen.body_crc == zlib.crc32(seen.body) & 0x7FFFFFFF
    properties = sum(len(f"{name}|{value}|".encode()) for name, value in seen.stored_properties.items())
    properties -= 0 if trailing_separator else 1
    assert seen.store_size == EMPTY_RECORD_BYTES + len(seen.body) + len(seen.topic.encode()) + properties


def assert_compressed(seen: Seen, codec: str, reader: str) -> None:
    """The record keeps the codec in its flags and is smaller than the body the consumer got.

    `reader` is the consumer's version: from 5.0 on a client takes the "compressed" bit back once it has
    decompressed the body, older ones show the flags as stored.
    """
    assert seen.sys_flag == CODEC_FLAG[codec] | (COMPRESSED if reader.startswith("4.") else 0)
    assert seen.store_size < len(seen.body)


def assert_same_batch(
    seen: Iterable[Seen], outgoing: list[Outgoing], receipt: Sent, parts: list[Sent], facts: ClusterFacts
) -> None:
    """The messages of one batch: one receipt for all of them, consecutive places in one queue."""
    in_order = sorted(seen, key=lambda message: message.queue_offset)
    assert len(in_order) == len(outgoing)
    assert receipt.status == "SEND_OK"
    assert receipt.queue_offset is not None
    assert receipt.msg_id.split(",") == [part.msg_id for part in parts]
    assert (receipt.offset_msg_id or "").split(",") == [message.offset_msg_id for message in in_order]
    for index, (message, given, part) in enumerate(zip(in_order, outgoing, parts)):
        _assert_content(message, given, part.msg_id)
        # No broker properties here: Apache stores what the batch holds, message by message.
        assert message.stored_properties == _properties(given, part.msg_id)
        _assert_place(message, facts)
        assert (message.broker_name, message.queue_id) == (receipt.broker_name, receipt.queue_id)
        assert message.queue_offset == receipt.queue_offset + index


def assert_same_records(left: Iterable[Seen], right: Iterable[Seen]) -> None:
    """Two consumers saw the same stored messages, each once."""
    assert _records(left) == _records(right)


def _assert_content(seen: Seen, outgoing: Outgoing, msg_id: str) -> None:
    assert seen.topic == outgoing.topic
    assert seen.body == outgoing.body
    assert seen.tags == outgoing.tags
    assert seen.keys == (" ".join(outgoing.keys) if outgoing.keys else None)
    assert seen.flag == outgoing.flag
    assert seen.msg_id == msg_id
    assert seen.reconsume_times == 0
    assert seen.prepared_transaction_offset == 0


def _assert_place(seen: Seen, facts: ClusterFacts) -> None:
    """Hosts, times, and the offset message id, which is the store host and the commit-log offset in hex."""
    assert seen.broker_name is not None
    assert seen.store_host == facts.address_of[seen.broker_name]
    assert seen.born_host.startswith("127.0.0.1:")
    assert seen.born_timestamp <= seen.store_timestamp
    host, _, port = seen.store_host.rpartition(":")
    address = bytes(map(int, host.split("."))).hex()
    assert seen.offset_msg_id == f"{address}{int(port):08x}{seen.commit_log_offset:016x}".upper()


def _properties(outgoing: Outgoing, msg_id: str) -> dict[str, str]:
    """What the sending client puts into a message."""
    properties = {"UNIQ_KEY": msg_id, "WAIT": "true" if outgoing.wait_store else "false", **outgoing.properties}
    if outgoing.tags is not None:
        properties["TAGS"] = outgoing.tags
    if outgoing.keys:
        properties["KEYS"] = " ".join(outgoing.keys)
    if outgoing.delay_level:
        properties["DELAY"] = str(outgoing.delay_level)
    return properties


def _records(messages: Iterable[Seen]) -> list[dict[str, object]]:
    records = []
    for message in sorted(messages, key=lambda message: (message.store_host, message.commit_log_offset)):
        record = {item.name: getattr(message, item.name) for item in fields(message)}
        record = {name: value for name, value in record.items() if name not in READER_FIELDS}
        records.append({**record, "properties": message.stored_properties})
    return records
