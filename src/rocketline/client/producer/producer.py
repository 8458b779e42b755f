"""The producer: messages in, receipts out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Self

from rocketline.client.identity import check_group, client_id, parse_name_servers
from rocketline.client.producer.batching import outgoing_batch
from rocketline.client.producer.outgoing import (
    MAX_MESSAGE_BYTES,
    Outgoing,
    SendOptions,
    check_message,
    compressed,
    outgoing_message,
)
from rocketline.client.producer.receipts import SendReceipt, split_receipt
from rocketline.client.producer.sender import Selector, Sender
from rocketline.client.session import ClientSession, open_session
from rocketline.client.timing import ClientTiming
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import InvalidMessage, ProducerClosed
from rocketline.message import Message, MessageQueue

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]

# Compressing this much takes longer than handing it to a thread and back.
THREAD_OVER_BYTES = 64 * 1024


class Producer:
    """Sends messages; an async context manager.

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            receipt = await producer.send(Message("orders", b"...", tag="created", keys=["42"]))

    Any number of tasks may send at once (`asyncio.gather`); at most `max_in_flight` messages wait for their answer, the
    rest wait for their turn.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        group: str,
        timeout: float = 3.0,
        retries: int = 2,
        retry_not_stored: bool = False,
        compression: str = "zlib",
        compression_level: int = 5,
        compress_over_bytes: int = 4096,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        topic_queue_count: int = 4,
        max_in_flight: int = 10_000,
        instance_name: str | None = None,
        client_ip: str | None = None,
        timing: ClientTiming | None = None,
        clock: Clock = SYSTEM_CLOCK,
        chance: random.Random | None = None,
    ) -> None:
        self.group = check_group(group)
        self._name_servers = parse_name_servers(name_servers)
        self._options = SendOptions(
            timeout_s=timeout,
            retries=retries,
            retry_not_stored=retry_not_stored,
            compression=compression,
            compression_level=compression_level,
            compress_over_bytes=compress_over_bytes,
            max_message_bytes=max_message_bytes,
            topic_queue_count=topic_queue_count,
        )
        self.client_id = client_id(instance_name, ip=client_ip)
        self._max_in_flight = max_in_flight
        self._timing = timing
        self._clock = clock
        self._chance = chance
        self._session: ClientSession | None = None
        self._sender: Sender | None = None
        self._turn = asyncio.Semaphore(max_in_flight)

    async def __aenter__(self) -> Self:
        if self._session is not None:
            raise ProducerClosed(f"producer {self.group!r} is already running")
        session = open_session(self.client_id, self._name_servers, self._timing, self._clock)
        try:
            session.add_producer(self)
        except BaseException:
            await session.release()
            raise
        self._session = session
        self._sender = Sender(session, self._options, self._chance)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Say goodbye to the brokers and close the connections; messages still in flight fail."""
        session, self._session, self._sender = self._session, None, None
        if session is None:
            return
        try:
            await session.remove_producer(self)
        finally:
            await session.release()

    async def send(
        self, message: Message, *, queue: MessageQueue | QueueSelector | None = None, timeout: float | None = None
    ) -> SendReceipt:
        """Send and wait until a broker has stored the message.

        `queue` fixes the queue, or chooses it: a function of (queues, message). `timeout` covers everything, route
        lookup and retries included.
        """
        outgoing = await self._outgoing(message)
        fixed, selector = _choice(message, queue)
        async with self._turn:
            return await self._running.send(outgoing, timeout or self._options.timeout_s, fixed, selector)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | QueueSelector | None = None) -> None:
        """Send without waiting for an answer: quick, and may get lost."""
        outgoing = await self._outgoing(message)
        fixed, selector = _choice(message, queue)
        await self._running.send_oneway(outgoing, self._options.timeout_s, fixed, selector)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | QueueSelector | None = None,
        timeout: float | None = None,
    ) -> list[SendReceipt]:
        """Send messages of one topic in one request, into one queue; one receipt for each."""
        sender = self._running
        session = self._open_session
        outgoing, ids = outgoing_batch(
            messages, self.group, session.unique_ids.next, session.clock.now_ms(), self._options
        )
        fixed, selector = _choice(messages[0], queue)
        async with self._turn:
            receipt = await sender.send(outgoing, timeout or self._options.timeout_s, fixed, selector)
        return split_receipt(receipt, ids)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to now."""
        route = await self._open_session.routes.find_writable(topic, self._options.topic_queue_count)
        return route.writable

    async def _outgoing(self, message: Message) -> Outgoing:
        session = self._open_session
        options = self._options
        check_message(message, options.max_message_bytes)
        body, sys_flag = message.body, 0
        if len(body) >= options.compress_over_bytes:
            if len(body) >= THREAD_OVER_BYTES:
                body, sys_flag = await asyncio.to_thread(compressed, body, options)
            else:
                body, sys_flag = compressed(body, options)
        unique_id = session.unique_ids.next()
        return outgoing_message(message, self.group, unique_id, session.clock.now_ms(), options, body, sys_flag)

    @property
    def _running(self) -> Sender:
        if self._sender is None:
            raise self._not_running()
        return self._sender

    @property
    def _open_session(self) -> ClientSession:
        if self._session is None:
            raise self._not_running()
        return self._session

    def _not_running(self) -> ProducerClosed:
        return ProducerClosed(f"producer {self.group!r} is not running: use it inside 'async with'")


def _choice(
    message: Message, queue: MessageQueue | QueueSelector | None
) -> tuple[MessageQueue | None, Selector | None]:
    if queue is None:
        return None, None
    if isinstance(queue, MessageQueue):
        if queue.topic != message.topic:
            raise InvalidMessage(f"the message is for topic {message.topic!r}, the queue is {queue}")
        return queue, None
    select = queue
    return None, lambda queues: select(queues, message)
