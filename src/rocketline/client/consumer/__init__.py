"""Receiving messages."""

from rocketline.client.consumer.assignment import allocate_averagely
from rocketline.client.consumer.handlers import RetryLater
from rocketline.client.consumer.pull import PullConsumer
from rocketline.client.consumer.push import PushConsumer
from rocketline.client.consumer.running import MessageModel
from rocketline.client.consumer.start_offset import ConsumeFrom
from rocketline.client.consumer.subscription import Sql

__all__ = ["ConsumeFrom", "MessageModel", "PullConsumer", "PushConsumer", "RetryLater", "Sql", "allocate_averagely"]
