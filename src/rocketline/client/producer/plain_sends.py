"""Awaited sends of plain messages: one coroutine, a frame made from a template, the request written at once.

Nearly every message is plain, and its first attempt succeeds; so that attempt is made here with as little as will do. What
is not plain goes the long way from the start. What fails goes on with the `Sender`, which knows of the attempt made here:
the rules for retries, and what an error tells, are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rocketline.client.producer.outgoing import SendOptions, check_message, outgoing_message, tag_and_keys
from rocketline.client.producer.receipts import SendReceipt, read_receipt
from rocketline.client.producer.send_frames import SendFrames
from rocketline.client.producer.sender import Failure, Sender, send_command
from rocketline.client.producer.window import Window
from rocketline.client.session import ClientSession
from rocketline.errors import BrokerError, TransportError
from rocketline.message import Message
from rocketline.protocol.codes import RequestCode

_CODE = int(RequestCode.SEND_MESSAGE_V2)

LongWay = Callable[[Message, None, float], Awaitable[SendReceipt]]


class PlainSends:
    """The plain sends of one producer without hooks, namespace, middleware or signature."""

    def __init__(
        self,
        session: ClientSession,
        sender: Sender,
        group: str,
        options: SendOptions,
        turn: Window,
        long_way: LongWay,
    ) -> None:
        self._session = session
        self._sender = sender
        self._group = group
        self._options = options
        self._turn = turn
        self._long_way = long_way
        self._loop = asyncio.get_running_loop()
        self._frames = SendFrames(group, options)
        self.is_open = True
        """Until the producer is closed: the long way says so to who comes later."""

    async def send(self, message: Message, timeout_s: float) -> SendReceipt:
        session, options, turn = self._session, self._options, self._turn
        check_message(message, options.max_message_bytes)
        unique_id, now_ms = session.unique_ids.next(), session.clock.now_ms()
        properties, route = tag_and_keys(message, unique_id), session.routes.writable(message.topic)
        if (
            properties is None
            or message.flag
            or route is None
            or len(message.body) >= options.compress_over_bytes
            or timeout_s <= 0
            or not self.is_open
            or session.is_inherited
            or asyncio.get_running_loop() is not self._loop
            or not turn.has_let_in()
        ):
            return await self._long_way(message, None, timeout_s)
        try:
            started = self._loop.time()
            queue, broker = self._sender.target(route)
            try:
                channel = session.remoting.connected(broker.address)
                if channel is not None and not channel.is_congested:
                    opaque = channel.take_opaque()
                    frame = self._frames.frame(queue, opaque, now_ms, properties, message.body)
                    answer = await channel.call_ready(frame, opaque, _CODE, timeout_s)
                else:
                    outgoing = outgoing_message(message, self._group, unique_id, now_ms, options, message.body, 0)
                    answer = await broker.call(send_command(outgoing, queue), timeout_s)
                return read_receipt(answer, unique_id, queue, broker.address)
            except (TransportError, BrokerError) as error:
                if isinstance(error, BrokerError) and not error.retryable:
                    raise
                failed = [Failure(queue, broker.address, error)]
            outgoing = outgoing_message(message, self._group, unique_id, now_ms, options, message.body, 0)
            return await self._sender.send(outgoing, timeout_s, failed=failed, started=started)
        finally:
            turn.leave()
