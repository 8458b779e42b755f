"""Settling popped messages: acknowledge, extend, give back, each by receipt handle, with the mistakes told apart.

A broker takes a late or doubled acknowledgement without a word and then delivers the message again. So this side keeps
what it needs to say so: handles it has settled, for as long as they would count, and the least that each broker's clock
can show by now, from the pop times of its answers. A handle is called expired only when that lower bound is past it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rocketline.client.consumer.pop.pop_requests import acknowledge, acknowledge_all, change_invisible
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.session import ClientSession
from rocketline.errors import (
    AcksFailed,
    InvalidReceipt,
    ReceiptExpired,
    ReceiptUsed,
    RequestNotSupported,
    RocketlineError,
    RouteNotFound,
)
from rocketline.message import POP_CK, MessageView
from rocketline.protocol.pop_info import ReceiptHandle

MAX_BATCH = 1024
"""Messages acknowledged by one request."""
MAX_REMEMBERED = 100_000

RETRY_DELAYS_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""When a message comes again that failed for the first time, the second, ...: Java's push consumer in pop mode."""

UNSEEN_DELAY_S = 1.0
"""When a message comes again that nobody here has looked at."""

Known = tuple[str, ReceiptHandle]
"""Topic on the wire, and handle."""


def retry_delay_s(reconsume_times: int) -> float:
    return float(RETRY_DELAYS_S[min(max(reconsume_times, 0), len(RETRY_DELAYS_S) - 1)])


class Receipts:
    """The handles of one group's consumer."""

    def __init__(self, session: ClientSession, group: str, topic_of: Callable[[str | None], str]) -> None:
        """`topic_of` finds the wire name of a topic; of the only one, if none is given."""
        self._session = session
        self._group = group
        self._topic_of = topic_of
        self._clocks: dict[str, tuple[int, float]] = {}
        self._used: dict[str, int] = {}

    def heard(self, broker_name: str, broker_ms: int) -> None:
        """A broker's clock showed this a moment ago."""
        known = self._broker_ms(broker_name)
        if broker_ms > 0 and (known is None or broker_ms >= known):
            self._clocks[broker_name] = (broker_ms, self._session.clock.monotonic())

    def _broker_ms(self, broker_name: str) -> int | None:
        """The least a broker's clock can show now; None before it has answered."""
        known = self._clocks.get(broker_name)
        if known is None:
            return None
        return known[0] + int((self._session.clock.monotonic() - known[1]) * 1000)

    def left_s(self, handle: ReceiptHandle) -> float:
        """For how long a message still is ours, at most."""
        now_ms = self._broker_ms(handle.broker_name)
        return (handle.next_visible_ms - (handle.pop_ms if now_ms is None else now_ms)) / 1000

    def check(self, receipt: MessageView | str, topic: str | None = None) -> Known:
        """What a receipt stands for; InvalidReceipt, ReceiptUsed or ReceiptExpired when it cannot be settled."""
        text = receipt if isinstance(receipt, str) else receipt.receipt_handle
        if text is None:
            raise InvalidReceipt(f"message {receipt.message_id} was not popped: it has no receipt handle")  # type: ignore[union-attr]
        handle = ReceiptHandle.parse(text)
        wire_topic = self._topic_of(receipt.topic if isinstance(receipt, MessageView) else topic)
        if self._key(wire_topic, handle) in self._used:
            raise ReceiptUsed(f"receipt handle {text!r} of topic {wire_topic!r} was settled or replaced before")
        now_ms = self._broker_ms(handle.broker_name)
        if now_ms is not None and now_ms > handle.next_visible_ms:
            raise ReceiptExpired(
                f"receipt handle {text!r} of topic {wire_topic!r} expired {(now_ms - handle.next_visible_ms) / 1000:.1f} s "
                "ago: the message comes again. Extend it while it is worked on, or pop with a longer invisible time"
            )
        return wire_topic, handle

    async def ack(self, receipt: MessageView | str, topic: str | None = None) -> None:
        wire_topic, handle = self.check(receipt, topic)
        broker = await self._broker(wire_topic, handle)
        self._use(wire_topic, handle)
        try:
            await acknowledge(broker, self._group, wire_topic, handle)
        except BaseException:  # also when we are cancelled: acknowledging twice is harmless, not at all is not
            self._forget(wire_topic, handle)
            raise

    async def ack_batch(self, receipts: Sequence[MessageView | str], topic: str | None = None) -> None:
        failures: dict[str, RocketlineError] = {}
        by_broker: dict[str, list[Known]] = {}
        for receipt in receipts:
            try:
                known = self.check(receipt, topic)
                await self._broker(*known)
            except RocketlineError as error:
                failures[_text(receipt)] = error
            else:
                self._use(*known)
                by_broker.setdefault(known[1].broker_name, []).append(known)
        parts = [known[at : at + MAX_BATCH] for known in by_broker.values() for at in range(0, len(known), MAX_BATCH)]
        for failed in await asyncio.gather(*map(self._ack_part, parts)):
            failures |= failed
        if failures:
            raise AcksFailed(failures, len(receipts))

    async def _ack_part(self, known: list[Known]) -> dict[str, RocketlineError]:
        """Acknowledge messages of one broker; what failed."""
        broker = await self._broker(*known[0])
        try:
            await acknowledge_all(broker, self._group, known)
            return {}
        except RequestNotSupported:  # before 5.1
            results = await asyncio.gather(
                *(acknowledge(broker, self._group, *item) for item in known), return_exceptions=True
            )
        except RocketlineError as error:
            results = [error] * len(known)
        failures: dict[str, RocketlineError] = {}
        for item, result in zip(known, results):
            if isinstance(result, RocketlineError):
                self._forget(*item)
                failures[str(item[1])] = result
            elif isinstance(result, BaseException):
                raise result
        return failures

    async def change(self, receipt: MessageView | str, invisible_s: float, topic: str | None = None) -> str:
        """Have a message come again that much later from now; its new handle, which a message then has itself."""
        wire_topic, handle = self.check(receipt, topic)
        broker = await self._broker(wire_topic, handle)
        self._use(wire_topic, handle)
        try:
            changed = await change_invisible(broker, self._group, wire_topic, handle, round(invisible_s * 1000))
        except BaseException:
            self._forget(wire_topic, handle)
            raise
        if changed is None:
            raise ReceiptUsed(f"receipt handle {str(handle)!r} of topic {wire_topic!r} was acknowledged before")
        if changed.is_ordered:  # its pop time stays, only the end of the invisible time moves
            self._forget(wire_topic, handle)
        else:
            self.heard(handle.broker_name, changed.pop_ms)
        text = str(changed)
        if isinstance(receipt, MessageView):
            receipt.properties[POP_CK] = text
        return text

    async def give_back(self, receipt: MessageView | str, delay_s: float, topic: str | None = None) -> None:
        """Like `change`, and done with it here: the new handle is nobody's."""
        wire_topic, _ = self.check(receipt, topic)
        self._use(wire_topic, ReceiptHandle.parse(await self.change(receipt, delay_s, topic)))

    async def _broker(self, topic: str, handle: ReceiptHandle) -> RemoteBroker:
        name = handle.broker_name
        broker = self._session.master_of(name)
        if broker is None:
            route = await self._session.routes.refresh(topic)
            broker = self._session.master_of(name)
            if name not in route.brokers:
                raise InvalidReceipt(f"receipt handle {str(handle)!r}: topic {topic!r} has no broker {name!r}")
        if broker is None:
            raise RouteNotFound(f"broker {name!r} of topic {topic!r} has no master at the moment")
        return broker

    @staticmethod
    def _key(topic: str, handle: ReceiptHandle) -> str:
        # In order, all handles of a delivery have the same pop time: one done is done, however often it was extended.
        if handle.is_ordered:
            return f"{topic} {handle.pop_ms} {handle.broker_name} {handle.queue_id} {handle.queue_offset}"
        return f"{topic} {handle}"

    def _use(self, topic: str, handle: ReceiptHandle) -> None:
        if len(self._used) >= MAX_REMEMBERED:
            self._tidy()
        self._used[self._key(topic, handle)] = handle.next_visible_ms

    def _forget(self, topic: str, handle: ReceiptHandle) -> None:
        self._used.pop(self._key(topic, handle), None)

    def _tidy(self) -> None:
        """Forget handles that have expired, which says the same; if that is not enough, the oldest half."""
        now_ms = self._session.clock.now_ms()
        kept = {key: until_ms for key, until_ms in self._used.items() if until_ms > now_ms}
        self._used = dict(list(kept.items())[-MAX_REMEMBERED // 2 :])


def _text(receipt: MessageView | str) -> str:
    return receipt if isinstance(receipt, str) else receipt.receipt_handle or receipt.message_id
