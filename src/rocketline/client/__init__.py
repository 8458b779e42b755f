"""Clients: producers and consumers for asyncio; `rocketline.client.blocking` has the same for plain threads."""

from rocketline.client.consumer import (
    ConsumeFrom,
    MessageModel,
    PullConsumer,
    PushConsumer,
    RetryLater,
    allocate_averagely,
    allocate_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
)
from rocketline.client.hooks import ConsumeContext, ConsumeOutcome, SendContext
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
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RetryLater",
    "SendContext",
    "SendReceipt",
    "SendStatus",
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
