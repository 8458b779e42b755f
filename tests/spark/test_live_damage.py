"""An answer of a broker whose record sizes are wrong, as the source `rocketmq` handles it."""

import logging

import pyarrow as pa
import pytest
from tests.spark.records import record

from rocketline.client.bulk.range import BulkReply
from rocketline.errors import CorruptRecord
from rocketline.message import MessageQueue
from rocketline.spark.columns import COLUMNS, ColumnPlan
from rocketline.spark.connections import Endpoint
from rocketline.spark.live.reader import LiveReading
from rocketline.spark.requested import RequestedColumns

QUEUE = MessageQueue("orders", "broker-a", 3)
PLAN = ColumnPlan(("queueOffset", "body"))


def damaged() -> BulkReply:
    records = bytearray(record() + record())
    records[4] ^= 0xFF  # of the magic
    return BulkReply(QUEUE, 100, 102, memoryview(bytes(records)), 0)


def reading(fail_on_loss: bool) -> LiveReading:
    asked = RequestedColumns(PLAN.columns, PLAN.columns, pa.schema([COLUMNS.field(name) for name in PLAN.columns]))
    return LiveReading(Endpoint(("127.0.0.1:9876",), "g"), asked, fail_on_loss=fail_on_loss)


def test_it_ends_the_reading_and_says_where() -> None:
    with pytest.raises(
        CorruptRecord, match=r"orders.*from 100 to 102 cannot be read: no sound record at byte 0.*failOnDataLoss"
    ):
        list(reading(fail_on_loss=True)._decoded([damaged()], PLAN))


def test_it_is_passed_over_when_loss_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert list(reading(fail_on_loss=False)._decoded([damaged()], PLAN)) == []
    assert [text for text in caplog.messages if "from 100 to 102 cannot be read" in text]


def whole(queue_id: int, *records: bytes) -> BulkReply:
    queue = MessageQueue("orders", "broker-a", queue_id)
    return BulkReply(queue, 10 * queue_id, 10 * queue_id + len(records), memoryview(b"".join(records)), 0)


def test_of_queues_that_are_decoded_together_only_the_damaged_one_is_named(caplog: pytest.LogCaptureFixture) -> None:
    flipped = bytearray(record(body=b"flipped", log_offset=777))
    flipped[88] ^= 1
    sound = [whole(number, record(body=b"%d" % number, log_offset=number)) for number in range(3)]
    together = [sound[0], damaged(), sound[1], whole(2, bytes(flipped)), sound[2]]
    lenient = reading(fail_on_loss=False)
    with caplog.at_level(logging.WARNING):
        found = []
        for batch, faults in lenient._decoded(together, PLAN):
            lenient._report(faults, together)
            found += batch.column("body").to_pylist()
        for batch, faults in lenient._decoded([sound[0], *together[2:]], PLAN):
            lenient._report(faults, together)
            found += batch.column("body").to_pylist()
    assert found == [b"0", b"1", b"2", b"0", b"1", b"2"]
    named = [text.split(" is damaged")[0].split(" cannot be read")[0] for text in caplog.messages]
    flipped_one = "orders@broker-a:2 from 20 to 21: the record at log offset 777"
    assert named == ["orders@broker-a:3 from 100 to 102", flipped_one, flipped_one]
