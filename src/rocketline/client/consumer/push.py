"""The push consumer: messages come to your function.

Underneath it pulls: the rebalancer decides which queues are ours, a pull loop per queue keeps one long poll open, delivery runs
the handlers, and progress is committed with the pulls and every 5 s.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Self

from rocketline.client.consumer.assigned_queues import AssignedQueues
from rocketline.client.consumer.assignment import Strategy, allocate_averagely
from rocketline.client.consumer.delivery import ConcurrentDelivery
from rocketline.client.consumer.handlers import Handler, HandlerFunction
from rocketline.client.consumer.offsets import BrokerOffsets, LocalOffsets, OffsetStore
from rocketline.client.consumer.pull_loop import PullSettings
from rocketline.client.consumer.queue_buffer import BufferLimits
from rocketline.client.consumer.rebalancer import Rebalancer
from rocketline.client.consumer.retries import SendBack
from rocketline.client.consumer.start_offset import StartFrom
from rocketline.client.consumer.stream import MessageStream
from rocketline.client.consumer.subscription import Subscription
from rocketline.client.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo
