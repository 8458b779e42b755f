"""The pop consumer: messages of all queues, shared out one by one by the brokers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

from rocketline.client.base import GroupClient
from rocketline.client.consumer.group.start_offset import ConsumeFrom
from rocketline.client.consumer.group.subscription import Sql
from rocketline.client.consumer.pop.pop_member import PopMember, PopMemberOptions
from rocketline.client.consumer.pop.pop_receipts import retry_delay_s
from rocketline.client.consumer.pop.pop_stream import PopStream
from rocketline.client.options import ClientOptions
from rocketline.client.session import opened_before_fork
from rocketline.errors import ClientError, ConfigError, ConsumerClosed, InvalidMessage
from rocketline.message import MessageView
from rocketline.protocol.pop_info import MAX_POP_MESSAGES

SHORTEST_INVISIBLE_S = 1.0
LONGEST_INVISIBLE_S = 12 * 3600.0
LONGEST_WAIT_S = 15.0


class PopConsumer(GroupClient):
    """Takes messages that come again unless they are acknowledged in time; an async context manager.

        async with PopConsumer("127.0.0.1:9876", group="billing") as consumer:
            await consumer.subscribe("orders", "created || paid")
            for message in await consumer.receive(16, invisible=30.0, wait=10.0):
                await charge(message)
                await consumer.ack(message)

    No queue belongs to a member of the group: any number of them, more than there are queues too, take messages from all
    queues, and one that hangs keeps only what it has taken. What is not acknowledged within its invisible time is
    delivered again, to anybody, as is what was given back by `nack`. `extend` asks for more time.

    Receipts are strings, `message.receipt_handle`: another process of the group may acknowledge by them. An extension
    makes a new one, which the message then has; the old one does not count any more.

    `async for message in consumer.messages()` does it all by itself: it extends what is being worked on, and asking for
    the next message acknowledges the one before.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str,
        from_where: ConsumeFrom = ConsumeFrom.LAST,
        invisible: float = 60.0,
        ordered: bool = False,
        options: ClientOptions = ClientOptions(),
    ) -> None:
        """`from_where` is where a group begins that never popped before: FIRST or LAST. `invisible` is for how many
        seconds a message is hidden from the others unless a call says otherwise. With `ordered`, nothing of a queue comes
        while a message of it is out; all members of a group should do the same."""
        if from_where not in (ConsumeFrom.FIRST, ConsumeFrom.LAST):
            raise ConfigError(f"from_where {from_where!r}: a popping group begins FIRST or LAST")
        super().__init__(name_servers, group, options)
        self._options = PopMemberOptions(self._wire_group, from_where, ordered)
        self._invisible_s = _checked(invisible, SHORTEST_INVISIBLE_S)
        self._member: PopMember | None = None
        self._streams: list[PopStream] = []

    async def __aenter__(self) -> Self:
        if self._session is not None:
            raise ConsumerClosed(f"consumer {self.group!r} is already open")
        session = self._new_session()
        try:
            member = PopMember(session, self._options, self._namespace)
            member.open()
        except BaseException:
            await session.release()
            raise
        self._session, self._member = session, member
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back the messages of `messages` loops and unregister. What `receive` returned stays with the caller."""
        session, member = self._session, self._member
        if session is None or member is None or member.closing or session.is_inherited:
            return
        member.closing = True
        streams, self._streams = self._streams, []
        try:
            for stream in streams:
                await stream.close()
            await member.close()
        finally:
            self._session = self._member = None
            await session.release()

    async def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        """Receive messages of a topic; `expression` selects tags, `*` or some joined by `||`, or with `Sql` properties."""
        await self._open.subscribe(self._namespace.wrap(topic), expression)

    async def unsubscribe(self, topic: str) -> None:
        """Receive no more of a topic; what was received can still be settled."""
        await self._open.unsubscribe(self._namespace.wrap(topic))

    async def receive(
        self, max_messages: int = MAX_POP_MESSAGES, *, invisible: float | None = None, wait: float = 15.0
    ) -> list[MessageView]:
        """Messages of any queue of any broker as soon as there are some; none when `wait` seconds are over.

        At most 32 come at once. They are hidden from the others for `invisible` seconds.
        """
        if not 1 <= max_messages <= MAX_POP_MESSAGES:
            raise InvalidMessage(f"max_messages {max_messages}: 1 to {MAX_POP_MESSAGES} expected")
        if not 0 <= wait < math.inf:
            raise InvalidMessage(f"wait {wait}: 0 or more seconds expected")
        invisible_s = self._invisible_s if invisible is None else _checked(invisible, SHORTEST_INVISIBLE_S)
        member = self._open
        if not member.topics:
            raise ClientError(f"consumer {self.group!r} subscribes to nothing: call subscribe() first")
        messages = await member.sources.receive(max_messages, invisible_s, wait)
        if self._namespace:
            for message in messages:
                message.topic = self._namespace.unwrap(message.topic)
        return messages

    async def ack(self, receipt: MessageView | str, *, topic: str | None = None) -> None:
        """A message is done: by itself or by its receipt handle, which needs its `topic` if several are subscribed to.

        ReceiptExpired: it took too long, the message comes again. ReceiptUsed: that was done already. InvalidReceipt: it
        is no receipt handle, or not of this topic. NoMessage: there is nothing where it points.
        """
        await self._open.receipts.ack(receipt, topic)

    async def ack_batch(self, receipts: Sequence[MessageView | str], *, topic: str | None = None) -> None:
        """Messages are done, with one request per broker. All that can be acknowledged is; AcksFailed names the others."""
        await self._open.receipts.ack_batch(receipts, topic)

    async def extend(self, receipt: MessageView | str, seconds: float, *, topic: str | None = None) -> str:
        """Keep a message hidden for that long from now; returns its new receipt handle, the old one counts no more."""
        return await self._open.receipts.change(receipt, _checked(seconds, SHORTEST_INVISIBLE_S), topic)

    async def nack(self, receipt: MessageView | str, *, delay: float | None = None, topic: str | None = None) -> None:
        """A message failed: let it come again after `delay` seconds, by default after 10 s, 30 s, 1 min, ... like those
        of a push consumer. Brokers take some seconds more to notice."""
        if delay is None:
            delay = retry_delay_s(receipt.reconsume_times if isinstance(receipt, MessageView) else 0)
        await self._open.receipts.give_back(receipt, _checked(delay, 0.0), topic)

    def messages(self, *, batch: int = 16, invisible: float | None = None, hold: float = 15 * 60.0) -> PopStream:
        """Messages for `async for`, kept hidden while they are worked on, `hold` seconds at the most.

        Up to `batch` are received at once. Asking for the next message acknowledges the one before; what a loop that is
        left has not finished is given back when the consumer is closed. The loop ends after its message when its `stop` is
        called, or when SIGINT or SIGTERM comes and nobody else handles it.
        """
        if not 1 <= batch <= MAX_POP_MESSAGES:
            raise InvalidMessage(f"batch {batch}: 1 to {MAX_POP_MESSAGES} expected")
        member, session = self._open, self._session
        assert session is not None
        invisible_s = self._invisible_s if invisible is None else _checked(invisible, SHORTEST_INVISIBLE_S)

        async def receive(count: int) -> list[MessageView]:
            return await self.receive(count, invisible=invisible_s, wait=LONGEST_WAIT_S)

        stream = PopStream(
            self.group,
            receive,
            member.receipts,
            session.clock,
            batch=batch,
            invisible_s=invisible_s,
            hold_s=hold,
            retry_s=session.timing.pull_retry_s,
        )
        self._streams.append(stream)
        return stream

    def __aiter__(self) -> PopStream:
        return self.messages()

    @property
    def _open(self) -> PopMember:
        if self._session is None or self._member is None:
            raise ConsumerClosed(f"consumer {self.group!r} is not open: use it inside 'async with'")
        if self._session.is_inherited:
            raise ConsumerClosed(opened_before_fork(f"consumer {self.group!r}"))
        return self._member


def _checked(seconds: float, least: float) -> float:
    if not least <= seconds <= LONGEST_INVISIBLE_S:
        raise InvalidMessage(f"an invisible time of {seconds} s: {least:g} s to {LONGEST_INVISIBLE_S:g} s expected")
    return seconds
