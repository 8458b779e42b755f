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
        list(reading(fail_on_loss=True)._decoded(damaged(), PLAN))


def test_it_is_passed_over_when_loss_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert list(reading(fail_on_loss=False)._decoded(damaged(), PLAN)) == []
    assert [text for text in caplog.messages if "from 100 to 102 cannot be read" in text]
