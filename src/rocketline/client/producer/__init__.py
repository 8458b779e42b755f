"""Sending messages."""

from rocketline.client.producer.batching import split_batch
from rocketline.client.producer.producer import Producer
from rocketline.client.producer.receipts import SendReceipt, SendStatus
from rocketline.client.producer.transactional import TransactionalProducer, TransactionReceipt
from rocketline.protocol.transactions import Transaction

__all__ = [
    "Producer",
    "SendReceipt",
    "SendStatus",
    "Transaction",
    "TransactionReceipt",
    "TransactionalProducer",
    "split_batch",
]
