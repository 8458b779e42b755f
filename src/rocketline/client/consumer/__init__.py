"""Receiving messages."""

from rocketline.client.consumer.assignment import (
    allocate_averagely,
    allocate_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
)
from rocketline.client.consumer.handlers import OrderedResult, RetryLater, Rollback, SuspendQueue
from rocketline.client.consumer.pop import PopConsumer
from rocketline.client.consumer.pull import PullConsumer, SeekTo
from rocketline.client.consumer.push import PushConsumer
from rocketline.client.consumer.running import MessageModel
from rocketline.client.consumer.start_offset import ConsumeFrom
from rocketline.client.consumer.subscription import Sql

__all__ = [
    "ConsumeFrom",
    "MessageModel",
    "OrderedResult",
    "PopConsumer",
    "PullConsumer",
    "PushConsumer",
    "RetryLater",
    "Rollback",
    "SeekTo",
    "Sql",
    "SuspendQueue",
    "allocate_averagely",
    "allocate_by_circle",
    "by_config",
    "by_machine_room",
    "consistent_hash",
    "machine_room_nearby",
]
