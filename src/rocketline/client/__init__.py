"""Clients: producers and consumers for asyncio; `rocketline.client.blocking` has the same for plain threads."""

from rocketline.client.consumer import (
    ConsumeFrom,
    MessageModel,
    PullConsumer,
    PushConsumer,
    RetryLater,
    Sql,
    allocate_averagely,
)
from rocketline.client.producer import Producer, SendReceipt, SendStatus, split_batch
from rocketline.client.timing import ClientTiming

__all__ = [
    "ClientTiming",
    "ConsumeFrom",
    "MessageModel",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RetryLater",
    "SendReceipt",
    "SendStatus",
    "Sql",
    "allocate_averagely",
    "split_batch",
]
