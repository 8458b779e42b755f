"""Receiving messages."""

from rocketline.client.consumer.assignment import (
    allocate_averagely,
    allocate_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
)
from rocketline.client.consumer.handlers import RetryLater
from rocketline.client.consumer.pull import PullConsumer
from rocketline.client.consumer.push import PushConsumer
from rocketline.client.consumer.running import MessageModel
from rocketline.client.consumer.start_offset import ConsumeFrom

__all__ = [
    "ConsumeFrom",
    "MessageModel",
    "PullConsumer",
    "PushConsumer",
    "RetryLater",
    "allocate_averagely",
    "allocate_by_circle",
    "by_config",
    "by_machine_room",
    "consistent_hash",
    "machine_room_nearby",
]
