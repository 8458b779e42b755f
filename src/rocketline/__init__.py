"""Apache RocketMQ in Python: clients here, servers in `rocketline.broker` and `rocketline.nameserver`.

Names are imported when they are first used, so that a server does not load the client, nor a client the servers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketline.client import (
        ClientOptions,
        ConnectionEvent,
        ConsumeFrom,
        Credentials,
        CredentialsFile,
        MessageModel,
        PopConsumer,
        Producer,
        PullConsumer,
        PushConsumer,
        RetryLater,
        SeekTo,
        SendReceipt,
        SendStatus,
        Tls,
        Transaction,
        TransactionalProducer,
        decode,
    )
    from rocketline.errors import RocketlineError
    from rocketline.message import Message, MessageQueue, MessageView

__version__ = "0.1.0"

_HOMES = {
    "ClientOptions": "rocketline.client",
    "ConnectionEvent": "rocketline.client",
    "ConsumeFrom": "rocketline.client",
    "Credentials": "rocketline.client",
    "CredentialsFile": "rocketline.client",
    "Message": "rocketline.message",
    "MessageModel": "rocketline.client",
    "MessageQueue": "rocketline.message",
    "MessageView": "rocketline.message",
    "PopConsumer": "rocketline.client",
    "Producer": "rocketline.client",
    "PullConsumer": "rocketline.client",
    "PushConsumer": "rocketline.client",
    "RetryLater": "rocketline.client",
    "RocketlineError": "rocketline.errors",
    "SeekTo": "rocketline.client",
    "SendReceipt": "rocketline.client",
    "SendStatus": "rocketline.client",
    "Tls": "rocketline.client",
    "Transaction": "rocketline.client",
    "TransactionalProducer": "rocketline.client",
    "decode": "rocketline.client",
}

__all__ = [
    "ClientOptions",
    "ConnectionEvent",
    "ConsumeFrom",
    "Credentials",
    "CredentialsFile",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageView",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RetryLater",
    "RocketlineError",
    "SeekTo",
    "SendReceipt",
    "SendStatus",
    "Tls",
    "Transaction",
    "TransactionalProducer",
    "__version__",
    "decode",
]


def __getattr__(name: str) -> Any:
    if name == "__impl__":
        return import_module("rocketline._impl").NAME
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rocketline' has no attribute {name!r}")
    try:
        return getattr(import_module(home), name)
    except AttributeError as error:
        # Python would take it for "there is no such name" and say nothing of what really failed.
        raise ImportError(f"rocketline.{name} cannot be used here: importing {home} failed with {error!r}") from error


def __dir__() -> list[str]:
    return __all__
