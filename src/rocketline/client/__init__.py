"""Clients: producers and consumers for asyncio; `rocketline.client.blocking` has the same for plain threads."""

from rocketline.client.consumer import (
    ConsumeFrom,
    MessageModel,
    OrderedResult,
    PullConsumer,
    PushConsumer,
    RetryLater,
    Rollback,
    SeekTo,
    Sql,
    SuspendQueue,
    allocate_averagely,
    allocate_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
)
from rocketline.client.hooks import ConsumeContext, ConsumeOutcome, SendContext
from rocketline.client.middleware import Middleware
from rocketline.client.producer import (
    Producer,
    SendReceipt,
    SendStatus,
    Transaction,
    TransactionalProducer,
    TransactionReceipt,
    split_batch,
)
from rocketline.client.timing import ClientTiming

__all__ = [
    "ClientTiming",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeOutcome",
    "MessageModel",
    "Middleware",
    "OrderedResult",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RetryLater",
    "Rollback",
    "SeekTo",
    "SendContext",
    "SendReceipt",
    "SendStatus",
    "Sql",
    "SuspendQueue",
    "Transaction",
    "TransactionReceipt",
    "TransactionalProducer",
    "allocate_averagely",
    "allocate_by_circle",
    "by_config",
    "by_machine_room",
    "consistent_hash",
    "machine_room_nearby",
    "split_batch",
]
