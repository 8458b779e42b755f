"""Receiving messages."""

from rocketline.client.consumer.assignment import allocate_averagely
from rocketline.client.consumer.handlers import RetryLater
from rocketline.client.consumer.pull import PullConsumer, SeekTo
from rocketline.client.consumer.push import PushConsumer
from rocketline.client.consumer.running import MessageModel
from rocketline.client.consumer.start_offset import ConsumeFrom

__all__ = ["ConsumeFrom", "MessageModel", "PullConsumer", "PushConsumer", "RetryLater", "SeekTo", "allocate_averagely"]
