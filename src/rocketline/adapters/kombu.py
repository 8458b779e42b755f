"""A transport for Kombu, and so for Celery (the extra `kombu`).

    import rocketline.adapters.kombu  # makes the name rocketmq:// known

    app = Celery("shop", broker="rocketmq://127.0.0.1:9876//")

A queue of Kombu is a topic, and all its consumers are one group, which pops: a message is hidden for
`visibility_timeout` from when a worker got it. Acknowledged in time it is done; rejected, it is done too; requeued, or left
by a worker that stops, it is given back, and comes again after some seconds; else it comes again when its time is over. A
message that came 16 times goes to the dead letters of its group.

What is in the URL: the address of a name server, the account (`rocketmq://key:secret@host:9876//`), and as virtual host a
namespace (`rocketmq://host:9876/shop`). Kombu's own ways hold for several name servers (URLs joined by `;`) and for TLS
(`ssl=True`, or an ssl.SSLContext). Options in `transport_options`:

* `visibility_timeout`: seconds, 1800 by default. It must be longer than the longest task, and than the wait of tasks
  that Celery holds back until their time (`eta`, `countdown`);
* `queue_name_prefix`: put before the name of each queue to make its topic;
* `group_prefix`: put before the topic to make the group of its consumers, `kombu-` by default;
* `polling_interval`: seconds of pause after nothing came, 0.05 by default.

Exchanges of type direct and topic exist inside Kombu; declaring one of type fanout is a ConfigError, and so are
Celery's `inspect` and `control`. Priorities are not kept.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from queue import Empty
from threading import Lock
from time import sleep
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads
from kombu.utils.scheduling import FairCycle

from rocketline import __version__
from rocketline.client import ClientOptions, ConsumeFrom, Credentials
from rocketline.client.blocking import PopConsumer, Producer
from rocketline.errors import (
    BrokerError,
    ConfigError,
    InvalidReceipt,
    NoMessage,
    ReceiptExpired,
    ReceiptUsed,
    RouteNotFound,
    SendFailed,
    TopicNotExist,
    TransportError,
)
from rocketline.message import Message, MessageView
from rocketline.protocol.pop_info import MAX_POP_MESSAGES

log = logging.getLogger(__name__)

VISIBILITY_TIMEOUT_S = 1800.0
LONGEST_WAIT_S = 1.0
"""For new messages, before Kombu is given its turn."""
TOO_LATE = (ReceiptExpired, ReceiptUsed, InvalidReceipt, NoMessage)

_ESCAPED = re.compile(r"[^a-zA-Z0-9-]")


def topic_name(queue: str) -> str:
    """The topic of a queue: what topics must not have in their name becomes `_` and its number, and `_` is doubled.

    So no two queues share a topic.

    >>> topic_name("mail.fast"), topic_name("mail_2Efast")
    ('mail_2Efast', 'mail__2Efast')
    """
    return _ESCAPED.sub(_escaped, queue)


def _escaped(found: re.Match[str]) -> str:
    return "__" if found[0] == "_" else "".join(f"_{byte:02X}" for byte in found[0].encode())


class Channel(virtual.Channel):
    """Puts and pops messages; all channels of a connection share its clients."""

    connection: Transport

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._without_ack: set[str] = set()

    def exchange_declare(self, exchange: str | None = None, type: str = "direct", *args: Any, **kwargs: Any) -> None:
        if type == "fanout":  # Kombu would take what is published to it, and deliver nothing
            raise ConfigError(
                f"exchange {exchange} is of type fanout, which rocketmq:// has not: use type direct or topic, "
                "or a PushConsumer with MessageModel.BROADCASTING"
            )
        super().exchange_declare(exchange, type, *args, **kwargs)

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[..., Any], consumer_tag: str, **kwargs: Any
    ) -> None:
        (self._without_ack.add if no_ack else self._without_ack.discard)(queue)
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> virtual.Message | None:
        message: virtual.Message | None = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.connection.acknowledge(queue, message.delivery_tag)
        return message

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        self._finish(delivery_tag)
        super().basic_ack(delivery_tag, multiple)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if not requeue:
            self._finish(delivery_tag)
        super().basic_reject(delivery_tag, requeue)

    def _finish(self, delivery_tag: str) -> None:
        try:
            queue = self.qos.get(delivery_tag).delivery_info["queue"]
        except KeyError:
            return  # it was given back meanwhile
        self.connection.acknowledge(queue, delivery_tag)

    def _restore(self, message: virtual.Message) -> None:
        """A message that was requeued, or is left over when the channel closes, comes again."""
        self.connection.give_back(message.delivery_info["queue"], message.delivery_tag)

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        self.connection.producer.send(Message(self.connection.topic(queue), dumps(message).encode()))

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        for message in self.connection.take(queue, 1, timeout or 0.0):
            return message
        raise Empty

    def _poll(self, cycle: FairCycle, callback: Callable[..., Any], timeout: float | None = None) -> Any:
        """Look at all queues; when nothing is there, wait a while at one after the other."""
        count = len(self._active_queues)
        if count > 1:
            try:
                return cycle.get(callback)
            except Empty:
                pass
        wait_s = LONGEST_WAIT_S if timeout is None else min(timeout, LONGEST_WAIT_S)
        return cycle.get(callback, wait_s=wait_s / count)

    def _get_and_deliver(self, queue: str, callback: Callable[..., Any], wait_s: float = 0.0) -> None:
        room = self.qos.can_consume_max_estimate()
        count = MAX_POP_MESSAGES if room is None else min(room, MAX_POP_MESSAGES)
        messages = self.connection.take(queue, count, wait_s) if count else iter(())
        delivered = False
        try:
            for message in messages:
                if queue in self._without_ack:
                    self.connection.acknowledge(queue, message["properties"]["delivery_tag"])
                callback(message, queue)
                delivered = True
        finally:
            for message in messages:  # what a callback that raised has left
                self.connection.give_back(queue, message["properties"]["delivery_tag"])
        if not delivered:
            raise Empty

    def _purge(self, queue: str) -> int:
        """Take and acknowledge what can be taken; what workers have now is not touched."""
        count = 0
        for message in iter(lambda: next(self.connection.take(queue, 1, 0.0), None), None):
            self.connection.acknowledge(queue, message["properties"]["delivery_tag"])
            count += 1
        return count


class Transport(virtual.Transport):
    """A connection: one producer, and a pop consumer for each queue that is read."""

    Channel = Channel

    client: Any
    default_port = 9876
    driver_type = "rocketmq"
    driver_name = "rocketline"
    polling_interval = 0.05
    connection_errors = (
        *virtual.Transport.connection_errors,
        TransportError,
        RouteNotFound,
        SendFailed,
    )
    channel_errors = (*virtual.Transport.channel_errors, BrokerError)

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        options = client.transport_options
        self._topic_prefix: str = options.get("queue_name_prefix", "")
        self._group_prefix: str = options.get("group_prefix", "kombu-")
        self._invisible_s = float(options.get("visibility_timeout", VISIBILITY_TIMEOUT_S))
        self._lock = Lock()
        self._producer: Producer | None = None
        self._consumers: dict[str, PopConsumer] = {}

    def driver_version(self) -> str:
        return __version__

    def close_connection(self, connection: Transport) -> None:
        super().close_connection(connection)
        with self._lock:
            consumers, self._consumers = self._consumers, {}
            producer, self._producer = self._producer, None
        for client in (*consumers.values(), producer):
            if client is not None:
                client.close()

    def topic(self, queue: str) -> str:
        return topic_name(self._topic_prefix + queue)

    @property
    def producer(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = Producer(self._name_server, group="kombu", options=self._client_options).__enter__()
            return self._producer

    def take(self, queue: str, count: int, wait_s: float) -> Iterator[dict[str, Any]]:
        """Up to so many messages of a queue, as soon as there are some."""
        try:
            messages = self._consumer(queue).receive(count, invisible=self._invisible_s, wait=wait_s)
        except RouteNotFound as error:
            if not isinstance(error.__cause__, TopicNotExist):
                raise
            sleep(wait_s)  # the first message will create the topic
            return iter(())
        return filter(None, (_payload(message, queue) for message in messages))

    def acknowledge(self, queue: str, receipt: str) -> None:
        try:
            self._consumer(queue).ack(receipt)
        except TOO_LATE as error:
            log.warning("a message of queue %s was acknowledged too late and comes again: %s", queue, error)

    def give_back(self, queue: str, receipt: str) -> None:
        try:
            self._consumer(queue).nack(receipt, delay=0.0)
        except TOO_LATE as error:
            log.info("a message of queue %s was given back too late and comes again anyway: %s", queue, error)

    def _consumer(self, queue: str) -> PopConsumer:
        with self._lock:
            consumer = self._consumers.get(queue)
            if consumer is None:
                topic = self.topic(queue)
                consumer = PopConsumer(
                    self._name_server,
                    group=self._group_prefix + topic,
                    from_where=ConsumeFrom.FIRST,
                    options=self._client_options,
                ).__enter__()
                try:
                    consumer.subscribe(topic)
                except BaseException:
                    consumer.close()
                    raise
                self._consumers[queue] = consumer
            return consumer

    @property
    def _name_server(self) -> str:
        return f"{self.client.hostname or 'localhost'}:{self.client.port or self.default_port}"

    @property
    def _client_options(self) -> ClientOptions:
        client = self.client
        credentials = Credentials(client.userid, client.password or "") if client.userid else None
        namespace = (client.virtual_host or "").strip("/") or None
        if client.ssl and isinstance(client.ssl, dict):
            raise ConfigError("ssl of a rocketmq:// connection must be True or an ssl.SSLContext, not a dict")
        return ClientOptions(credentials=credentials, namespace=namespace, tls=client.ssl or False)


def _payload(message: MessageView, queue: str) -> dict[str, Any] | None:
    """What was put, with the receipt of this delivery as its tag; None for a message that Kombu has not made."""
    try:
        payload: dict[str, Any] = loads(message.body)
        properties = payload["properties"]
        properties["delivery_tag"] = message.receipt_handle
        properties["delivery_info"].update(queue=queue, redelivered=message.reconsume_times > 0)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        log.error("message %s of queue %s is none of Kombu's, and is left alone until it goes to the dead letters: %r",
                  message.message_id, queue, error)  # fmt: skip
        return None
    return payload


TRANSPORT_ALIASES.setdefault("rocketmq", f"{__name__}:{Transport.__qualname__}")
