"""Clients: producers and consumers for asyncio; `rocketline.client.blocking` has the same for plain threads."""

from rocketline.client.consumer import (
    ConsumeFrom,
    MessageModel,
    OrderedResult,
    PullConsumer,
    PushConsumer,
    RetryLater,
    Rollback,
    SuspendQueue,
    allocate_averagely,
)
from rocketline.client.producer import Producer, SendReceipt, SendStatus, split_batch
from rocketline.client.timing import ClientTiming

__all__ = [
    "ClientTiming",
    "ConsumeFrom",
    "MessageModel",
    "OrderedResult",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RetryLater",
    "Rollback",
    "SendReceipt",
    "SendStatus",
    "SuspendQueue",
    "allocate_averagely",
    "split_batch",
]
