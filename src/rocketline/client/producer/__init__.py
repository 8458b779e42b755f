"""Sending messages."""

from rocketline.client.producer.batching import split_batch
from rocketline.client.producer.producer import Producer
from rocketline.client.producer.receipts import SendReceipt, SendStatus

__all__ = ["Producer", "SendReceipt", "SendStatus", "split_batch"]
