"""Sends that somebody looks at: hooks are called round them, a producer's trace among them, and receipts name what the
caller named, without the namespace that topics have on the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from rocketline.client.hooks import Hooks, SendContext, send_with_hooks
from rocketline.client.producer.receipts import SendReceipt, split_receipt
from rocketline.client.trace import ProducerTrace, TraceCounts
from rocketline.message import Message
from rocketline.protocol.namespaces import Namespace


class WatchedSends:
    """What one producer does round a send that is not plain."""

    def __init__(self, group: str, namespace: Namespace, monotonic: Callable[[], float]) -> None:
        self.hooks: Hooks[SendContext] = Hooks()
        self._group = group
        self._namespace = namespace
        self._monotonic = monotonic
        self._trace: ProducerTrace | None = None

    async def send(
        self,
        messages: Sequence[Message],
        send: Callable[[], Awaitable[SendReceipt]],
        batch_ids: list[str] | None = None,
    ) -> list[SendReceipt]:
        """Receipts for all messages, which `send` sends in one request; `batch_ids`: those of a batch."""
        if not self.hooks:
            return await self._receipts(send, batch_ids)
        return await self._with_hooks(messages, partial(self._receipts, send, batch_ids))

    async def send_oneway(self, message: Message, send: Callable[[], Awaitable[None]]) -> None:
        if not self.hooks:
            await send()
        else:
            await self._with_hooks([message], partial(_no_receipts, send))

    def _with_hooks(
        self, messages: Sequence[Message], send: Callable[[], Awaitable[list[SendReceipt]]]
    ) -> Awaitable[list[SendReceipt]]:
        context = SendContext(self._group, self._namespace.name, messages)
        return send_with_hooks(self.hooks, context, send, self._monotonic)

    async def _receipts(
        self, send: Callable[[], Awaitable[SendReceipt]], batch_ids: list[str] | None
    ) -> list[SendReceipt]:
        receipt = await send()
        if self._namespace:
            receipt = msgspec.structs.replace(receipt, queue=self._namespace.unwrap_queue(receipt.queue))
        return [receipt] if batch_ids is None else split_receipt(receipt, batch_ids)

    def start_trace(self, trace: ProducerTrace) -> None:
        self._trace = trace
        self.hooks.add(trace.before, trace.after)
        trace.start()

    async def stop_trace(self) -> None:
        if self._trace is not None:
            self.hooks.remove(self._trace.before, self._trace.after)
            await self._trace.stop()

    @property
    def trace_counts(self) -> TraceCounts:
        return self._trace.counts if self._trace is not None else TraceCounts()


async def _no_receipts(send: Callable[[], Awaitable[None]]) -> list[SendReceipt]:
    await send()
    return []
