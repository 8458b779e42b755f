"""Namespaces: tenants that share a cluster without sharing names.

Clients put the namespace before the names of topics and groups in requests, `NS%orders`, after the prefix of a derived
topic, `%RETRY%NS%billing`, and remove it from what their users see. A broker does not know about namespaces. System names
stay as they are, and so does a name that already has the namespace.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from rocketline.errors import ConfigError
from rocketline.message import DLQ_PREFIX, RETRY_PREFIX, Message, MessageQueue
from rocketline.protocol.names import DEFAULT_TOPIC, NOT_SENDABLE

SEPARATOR = "%"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
INSTANCE_ID = "INSTANCE_ID"
"""Property with the namespace of a message."""

_SYSTEM_TOPICS = NOT_SENDABLE | {DEFAULT_TOPIC, "BenchmarkTest", TRACE_TOPIC, "CHECKPOINT_TOPIC"}
_SYSTEM_PREFIXES = ("rmq_sys_", "CID_RMQ_SYS_")
_LEGAL = re.compile(r"[|a-zA-Z0-9_-]{1,100}", re.ASCII)


def is_system_name(name: str) -> bool:
    """Whether this topic or group is the same for all namespaces."""
    return name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES)


def without_any_namespace(name: str) -> str:
    """A name without its namespace, whichever it is.

    >>> without_any_namespace("NS%orders"), without_any_namespace("%RETRY%NS%billing"), without_any_namespace("orders")
    ('orders', '%RETRY%billing', 'orders')
    """
    if is_system_name(name):
        return name
    prefix, plain = _split(name)
    namespace, separator, rest = plain.partition(SEPARATOR)
    return prefix + rest if namespace and separator else name


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


class Namespace:
    """The namespace of one client; false when it has none: then all names stay as they are."""

    __slots__ = ("_start", "name")

    def __init__(self, name: str | None = None) -> None:
        if name and not _LEGAL.fullmatch(name):
            raise ConfigError(f"namespace {name!r}: letters, digits, '_', '-' and '|' expected, at most 100")
        self.name = name or ""
        self._start = f"{name}{SEPARATOR}" if name else ""

    def __bool__(self) -> bool:
        return bool(self.name)

    def wrap(self, name: str) -> str:
        """A name with the namespace.

        >>> Namespace("NS").wrap("orders"), Namespace("NS").wrap("%RETRY%billing"), Namespace("NS").wrap("NS%orders")
        ('NS%orders', '%RETRY%NS%billing', 'NS%orders')
        """
        if not self.name or not name or is_system_name(name):
            return name
        prefix, plain = _split(name)
        return name if plain.startswith(self._start) else f"{prefix}{self._start}{plain}"

    def unwrap(self, name: str) -> str:
        """A name without the namespace.

        >>> Namespace("NS").unwrap("%RETRY%NS%billing"), Namespace("NS").unwrap("OTHER%orders")
        ('%RETRY%billing', 'OTHER%orders')
        """
        if not self.name:
            return name
        prefix, plain = _split(name)
        return prefix + plain[len(self._start) :] if plain.startswith(self._start) else name

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self.wrap(queue.topic), queue.broker_name, queue.queue_id) if self.name else queue

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self.unwrap(queue.topic), queue.broker_name, queue.queue_id) if self.name else queue

    def wrap_message(self, message: Message) -> Message:
        """The message with the namespace in its topic, and in a property, as Java's clients send it."""
        if not self.name:
            return message
        properties = {**message.properties, INSTANCE_ID: self.name}
        return replace(message, topic=self.wrap(message.topic), properties=properties)


NO_NAMESPACE = Namespace()
