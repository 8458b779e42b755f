"""Sending messages."""

from rocketline.client.producer.background import SendCallback
from rocketline.client.producer.batching import split_batch
from rocketline.client.producer.broker_health import LATENCY_STEPS
from rocketline.client.producer.producer import Producer
from rocketline.client.producer.queue_choice import QueueSelector, at_random, by_hash, in_machine_rooms
from rocketline.client.producer.receipts import SendReceipt, SendStatus
from rocketline.client.producer.transactional import TransactionalProducer, TransactionReceipt
from rocketline.protocol.transactions import Transaction

__all__ = [
    "LATENCY_STEPS",
    "Producer",
    "QueueSelector",
    "SendCallback",
    "SendReceipt",
    "SendStatus",
    "Transaction",
    "TransactionReceipt",
    "TransactionalProducer",
    "at_random",
    "by_hash",
    "in_machine_rooms",
    "split_batch",
]
