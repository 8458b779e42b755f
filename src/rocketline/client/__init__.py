"""Clients: producers and consumers for asyncio; `rocketline.client.blocking` has the same for plain threads.

Names are imported when they are first used. A tool that only sends requests to brokers loads neither producers nor
consumers, and a process that Spark starts for a task loads only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketline.client.connection_events import ConnectionEvent
    from rocketline.client.consumer.group.assignment import (
        allocate_averagely,
        allocate_by_circle,
        by_config,
        by_machine_room,
        consistent_hash,
        machine_room_nearby,
    )
    from rocketline.client.consumer.group.start_offset import ConsumeFrom
    from rocketline.client.consumer.group.subscription import Sql
    from rocketline.client.consumer.pop.consumer import PopConsumer
    from rocketline.client.consumer.pop.pop_loop import ByBrokers, PopSettings
    from rocketline.client.consumer.pull.consumer import PullConsumer, SeekTo
    from rocketline.client.consumer.push.consumer import PushConsumer
    from rocketline.client.consumer.push.handlers import OrderedResult, RetryLater, Rollback, SuspendQueue
    from rocketline.client.consumer.push.orderly import Ordering
    from rocketline.client.consumer.push.pull_loop import PullSettings
    from rocketline.client.consumer.push.push_member import MessageModel
    from rocketline.client.hooks import ConsumeContext, ConsumeOutcome, SendContext
    from rocketline.client.middleware import Middleware
    from rocketline.client.options import ClientOptions
    from rocketline.client.producer.autobatch import AutoBatch
    from rocketline.client.producer.background import SendCallback
    from rocketline.client.producer.batching import split_batch
    from rocketline.client.producer.broker_health import LATENCY_STEPS, SlowBrokers
    from rocketline.client.producer.producer import Producer
    from rocketline.client.producer.queue_choice import QueueSelector, at_random, by_hash, in_machine_rooms
    from rocketline.client.producer.receipts import SendReceipt, SendStatus
    from rocketline.client.producer.send_options import Compression, Retries
    from rocketline.client.producer.transactional import TransactionalProducer, TransactionReceipt
    from rocketline.client.serializers import decode
    from rocketline.client.timing import ClientTiming
    from rocketline.protocol.signing import Credentials
    from rocketline.protocol.transactions import Transaction
    from rocketline.transport.credentials import CredentialsFile
    from rocketline.transport.tls import Tls

_HOMES = {
    "AutoBatch": "client.producer.autobatch",
    "ByBrokers": "client.consumer.pop.pop_loop",
    "ClientOptions": "client.options",
    "ClientTiming": "client.timing",
    "Compression": "client.producer.send_options",
    "ConnectionEvent": "client.connection_events",
    "ConsumeContext": "client.hooks",
    "ConsumeFrom": "client.consumer.group.start_offset",
    "ConsumeOutcome": "client.hooks",
    "Credentials": "protocol.signing",
    "CredentialsFile": "transport.credentials",
    "LATENCY_STEPS": "client.producer.broker_health",
    "MessageModel": "client.consumer.push.push_member",
    "Middleware": "client.middleware",
    "Ordering": "client.consumer.push.orderly",
    "OrderedResult": "client.consumer.push.handlers",
    "PopConsumer": "client.consumer.pop.consumer",
    "PopSettings": "client.consumer.pop.pop_loop",
    "Producer": "client.producer.producer",
    "PullConsumer": "client.consumer.pull.consumer",
    "PullSettings": "client.consumer.push.pull_loop",
    "PushConsumer": "client.consumer.push.consumer",
    "QueueSelector": "client.producer.queue_choice",
    "Retries": "client.producer.send_options",
    "RetryLater": "client.consumer.push.handlers",
    "Rollback": "client.consumer.push.handlers",
    "SeekTo": "client.consumer.pull.consumer",
    "SendCallback": "client.producer.background",
    "SendContext": "client.hooks",
    "SendReceipt": "client.producer.receipts",
    "SendStatus": "client.producer.receipts",
    "SlowBrokers": "client.producer.broker_health",
    "Sql": "client.consumer.group.subscription",
    "SuspendQueue": "client.consumer.push.handlers",
    "Tls": "transport.tls",
    "Transaction": "protocol.transactions",
    "TransactionReceipt": "client.producer.transactional",
    "TransactionalProducer": "client.producer.transactional",
    "allocate_averagely": "client.consumer.group.assignment",
    "allocate_by_circle": "client.consumer.group.assignment",
    "at_random": "client.producer.queue_choice",
    "by_config": "client.consumer.group.assignment",
    "by_hash": "client.producer.queue_choice",
    "by_machine_room": "client.consumer.group.assignment",
    "consistent_hash": "client.consumer.group.assignment",
    "decode": "client.serializers",
    "in_machine_rooms": "client.producer.queue_choice",
    "machine_room_nearby": "client.consumer.group.assignment",
    "split_batch": "client.producer.batching",
}
"""The module of each name, below `rocketline`."""

__all__ = [
    "LATENCY_STEPS",
    "AutoBatch",
    "ByBrokers",
    "ClientOptions",
    "ClientTiming",
    "Compression",
    "ConnectionEvent",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeOutcome",
    "Credentials",
    "CredentialsFile",
    "MessageModel",
    "Middleware",
    "OrderedResult",
    "Ordering",
    "PopConsumer",
    "PopSettings",
    "Producer",
    "PullConsumer",
    "PullSettings",
    "PushConsumer",
    "QueueSelector",
    "Retries",
    "RetryLater",
    "Rollback",
    "SeekTo",
    "SendCallback",
    "SendContext",
    "SendReceipt",
    "SendStatus",
    "SlowBrokers",
    "Sql",
    "SuspendQueue",
    "Tls",
    "Transaction",
    "TransactionReceipt",
    "TransactionalProducer",
    "allocate_averagely",
    "allocate_by_circle",
    "at_random",
    "by_config",
    "by_hash",
    "by_machine_room",
    "consistent_hash",
    "decode",
    "in_machine_rooms",
    "machine_room_nearby",
    "split_batch",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"rocketline.{home}"), name)


def __dir__() -> list[str]:
    return __all__
