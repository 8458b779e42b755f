"""Tables of Arrow without Spark hold what `BulkReply.messages` gives, field by field."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.records import record, row_of
from tests.support.admin import create_topic
from tests.support.patience import PATIENCE_S

from rocketline.client import blocking
from rocketline.client.bulk.range import BulkReply
from rocketline.client.bulk.reader import BulkReader
from rocketline.columns import COLUMNS, MORE_COLUMNS, read_tables, to_table
from rocketline.errors import ConfigError, CorruptRecord, InvalidMessage, RangeNotAvailable
from rocketline.message import Message, MessageQueue
from rocketline.protocol.record_layout import COMPRESSED
from rocketline.spark.replies import joined, together
from rocketline.testing import LocalCluster

EVERYTHING = (*COLUMNS.names, *MORE_COLUMNS.names)
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]
SIZES = {QUEUES[0]: 40, QUEUES[1]: 0, QUEUES[2]: 7}


def order(number: int) -> Message:
    """Orders of every shape: with and without tag, keys and properties, some of them long enough to be compressed."""
    return Message(
        "orders",
        b"order %d " % number * (1000 if number % 5 == 0 else 1),
        tag=("paid", "created", None)[number % 3],
        keys=[f"k{number}", "заказ"][: number % 3],
        properties={"price": str(number)} if number % 2 else {},
        flag=number,
    )


@pytest.fixture(scope="module")
def reader() -> Iterator[BulkReader]:
    """A reader of a broker with a topic of three queues, of which the second is empty."""
    with LocalCluster() as cluster:
        create_topic(cluster.brokers[0].address, "orders", len(QUEUES))
        create_topic(cluster.brokers[0].address, "nothing", 2)
        with blocking.Producer(cluster.namesrv, group="fill") as producer:
            for queue, size in SIZES.items():
                for number in range(size):
                    producer.send(order(number), queue=queue)
        with BulkReader(cluster.namesrv, group="columns", timeout=PATIENCE_S, batch=16) as made:
            yield made


def rows(replies: Iterable[BulkReply]) -> list[dict[str, Any]]:
    """What tables must hold, by decoding message by message."""
    return [row_of(message, message.broker_name) for reply in replies for message in reply.messages()]


def reply_of(*records: bytes, delta: int = 0, first: int = 0) -> BulkReply:
    return BulkReply(QUEUES[0], first, first + len(records), memoryview(b"".join(records)), delta)


def test_a_reply_has_a_row_for_each_message_with_every_field(reader: BulkReader) -> None:
    for reply in reader.read(QUEUES[0], 3, 38):
        table = to_table(reply, EVERYTHING)
        table.validate(full=True)
        assert table.to_pylist() == rows([reply])
        assert table.schema == pa.schema([*COLUMNS, *MORE_COLUMNS])


def test_the_orders_are_of_every_shape(reader: BulkReader) -> None:
    """The comparison above has something to compare, and some bodies travelled compressed."""
    (table,) = read_tables(reader, QUEUES[0], columns=("tags", "keys", "body", "properties", "sysFlag", "storeSize"))
    assert set(table["tags"].to_pylist()) == {"paid", "created", None}
    assert set(table["keys"].to_pylist()[:3]) == {None, "k1", "k2 заказ"}
    assert ("price", "39") in table["properties"].to_pylist()[39]
    assert table["body"].to_pylist() == [order(number).body for number in range(40)]
    assert table["storeSize"][35].as_py() < len(order(35).body)
    assert not any(flag & COMPRESSED for flag in table["sysFlag"].to_pylist())


def test_the_columns_are_those_of_the_spark_source_unless_some_are_chosen(reader: BulkReader) -> None:
    (reply,) = reader.read(QUEUES[2], 0, 7)
    assert to_table(reply).schema == COLUMNS
    chosen = to_table(reply, ("flag", "body", "queueOffset"))
    assert chosen.to_pylist() == [
        {"flag": number, "body": order(number).body, "queueOffset": number} for number in range(7)
    ]
    assert chosen.column_names == ["flag", "body", "queueOffset"]
    assert to_table(reply, ()).num_rows == 7


@pytest.mark.parametrize("delta", [1000, -2, 1 << 40])
def test_offsets_are_as_the_queue_counts_them(reader: BulkReader, delta: int) -> None:
    (reply,) = reader.read(QUEUES[2], 2, 7)
    moved = replace(reply, offset_delta=delta)
    assert to_table(moved, EVERYTHING).to_pylist() == rows([moved])
    assert to_table(moved, ("queueOffset",))["queueOffset"].to_pylist() == [delta + number for number in range(2, 7)]
    assert to_table(moved, ("flag",))["flag"].to_pylist() == list(range(2, 7))


def test_a_topic_is_read_queue_after_queue_to_its_end(reader: BulkReader) -> None:
    tables = list(read_tables(reader, "orders", columns=EVERYTHING))
    replies = [reply for queue in QUEUES for reply in reader.read(queue, 0, SIZES[queue])]
    assert len(replies) > 3, "replies of at most sixteen messages"
    assert len(tables) == 2, "gathered, and none of the empty queue"
    assert pa.concat_tables(tables).to_pylist() == rows(replies)
    assert list(read_tables(reader, "orders", columns=EVERYTHING)) == tables
    assert list(read_tables(reader, iter(QUEUES), columns=EVERYTHING)) == tables
    assert list(read_tables(reader, QUEUES[1:], columns=EVERYTHING)) == tables[1:]


def test_a_range_of_a_queue(reader: BulkReader) -> None:
    def numbers(start: int | None, end: int | None = None) -> list[int]:
        return [
            number
            for table in read_tables(reader, QUEUES[0], start, end, columns=["queueOffset"])
            for number in table["queueOffset"].to_pylist()
        ]

    assert numbers(5, 30) == list(range(5, 30))
    assert numbers(None, 3) == [0, 1, 2]
    assert numbers(37) == [37, 38, 39]
    assert numbers(5, 5) == numbers(40) == []


def test_where_nothing_is_there_is_no_table_but_an_empty_reply_has_its_columns(reader: BulkReader) -> None:
    assert list(read_tables(reader, "nothing")) == []
    assert list(read_tables(reader, [])) == []
    assert to_table(reply_of()) == COLUMNS.empty_table()


def test_what_cannot_be_read_is_refused_before_anything_is(reader: BulkReader) -> None:
    with pytest.raises(ConfigError, match="no column 'offset': there are topic, brokerName"):
        read_tables(reader, "orders", columns=("body", "offset"))
    with pytest.raises(ConfigError, match="no column 'offset'"):
        to_table(reply_of(record()), ("offset",))
    with pytest.raises(ConfigError, match="body, body: one is named twice"):
        to_table(reply_of(record()), ("body", "body"))
    with pytest.raises(ConfigError, match="offsets of one queue"):
        read_tables(reader, "orders", end=3)
    with pytest.raises(InvalidMessage, match=r"\[41, 40\) is not a range"):
        read_tables(reader, QUEUES[0], 41)


def test_a_range_that_the_queue_does_not_have_is_told_of(reader: BulkReader) -> None:
    with pytest.raises(RangeNotAvailable, match="ends at 40"):
        list(read_tables(reader, QUEUES[0], 50, 60))


def test_damage_is_told_of_with_queue_and_offset() -> None:
    broken = bytearray(record(body=b"flipped", queue_offset=5, log_offset=777))
    broken[88] ^= 1
    damaged = reply_of(record(queue_offset=4), bytes(broken), delta=100, first=104)
    with pytest.raises(
        CorruptRecord,
        match=r"orders@broker-a:0 from 104 to 106 .* queue offset 105, log offset 777, is damaged: its body does not",
    ):
        to_table(damaged, ("queueId",))
    with pytest.raises(CorruptRecord, match="orders@broker-a:0 from 7 to 9 cannot be read: no sound record at byte"):
        to_table(reply_of(record(), record()[:-1], first=7))


def test_replies_are_gathered_where_their_offsets_count_alike() -> None:
    replies = [reply_of(record(), first=number, delta=(0, 0, 5, 5, 5)[number]) for number in range(5)]
    found = [joined(part) for part in together(replies)]
    assert [(reply.first_offset, reply.next_offset, reply.offset_delta) for reply in found] == [(0, 2, 0), (2, 5, 5)]
    assert [len(reply.records) // len(record()) for reply in found] == [2, 3]
    assert [*together(replies[:2], enough=1)] == [[replies[0]], [replies[1]]]
    queues = [MessageQueue("orders", broker, number) for broker, number in (("a", 0), ("a", 1), ("b", 0))]
    of_brokers = [replace(replies[0], queue=queue) for queue in queues]
    assert [*together(of_brokers)] == [of_brokers[:2], of_brokers[2:]]


@pytest.mark.parametrize("missing", ["pyarrow", "numpy"])
def test_what_is_missing_is_told_of_with_its_remedy(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "rocketline.columns")
    with pytest.raises(ImportError, match=rf"{missing}.* pip install 'rocketline\[arrow\]'") as refused:
        import rocketline.columns  # noqa: F401
    assert refused.value.name == missing
