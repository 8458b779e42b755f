"""Clients: producers and consumers for asyncio; `rocketline.client.blocking` has the same for plain threads.

Names are imported when they are first used: a tool that only asks brokers questions loads neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketline.client.consumer import (
        ConsumeFrom,
        MessageModel,
        OrderedResult,
        PopConsumer,
        PullConsumer,
        PushConsumer,
        RetryLater,
        Rollback,
        SeekTo,
        Sql,
        SuspendQueue,
        allocate_averagely,
        allocate_by_circle,
        by_config,
        by_machine_room,
        consistent_hash,
        machine_room_nearby,
    )
    from rocketline.client.hooks import ConsumeContext, ConsumeOutcome, SendContext
    from rocketline.client.middleware import Middleware
    from rocketline.client.producer import (
        LATENCY_STEPS,
        Producer,
        QueueSelector,
        SendCallback,
        SendReceipt,
        SendStatus,
        Transaction,
        TransactionalProducer,
        TransactionReceipt,
        at_random,
        by_hash,
        in_machine_rooms,
        split_batch,
    )
    from rocketline.client.timing import ClientTiming

_HOMES = ("timing", "middleware", "hooks", "producer", "consumer")
"""Where the names below are to be found, small modules first."""

__all__ = [
    "LATENCY_STEPS",
    "ClientTiming",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeOutcome",
    "MessageModel",
    "Middleware",
    "OrderedResult",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "QueueSelector",
    "RetryLater",
    "Rollback",
    "SeekTo",
    "SendCallback",
    "SendContext",
    "SendReceipt",
    "SendStatus",
    "Sql",
    "SuspendQueue",
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
    "in_machine_rooms",
    "machine_room_nearby",
    "split_batch",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
