"""Hooks of a producer: called around each send, its trace among them.

Receipts that pass here name topics as the caller does, without the namespace they have on the wire.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from rocketline.client.hooks import HookFunction, Hooks, PrepareFunction, SendContext, send_with_hooks
from rocketline.client.producer.receipts import SendReceipt, split_receipt
from rocketline.client.trace import ProducerTrace, TraceCounts
from rocketline.message import Message
from rocketline.protocol.namespaces import Namespace

log = logging.getLogger(__name__)


class SendHooks:
    """The hooks of one producer."""

    def __init__(self, group: str, namespace: Namespace, monotonic: Callable[[], float]) -> None:
        self._hooks: Hooks[SendContext] = Hooks()
        self._prepare: list[PrepareFunction] = []
        self._group = group
        self._namespace = namespace
        self._monotonic = monotonic
        self._trace: ProducerTrace | None = None
        self.are_needed = bool(namespace)
        """Whether sends have to come here: with hooks or a namespace."""

    def add(
        self,
        before: HookFunction[SendContext] | None,
        after: HookFunction[SendContext] | None,
        prepare: PrepareFunction | None = None,
    ) -> None:
        self._hooks.add(before, after)
        if prepare is not None:
            if not callable(prepare):
                raise TypeError(f"a hook must be a function, not {prepare!r}")
            self._prepare.append(prepare)
        self.are_needed = True

    def prepared(self, message: Message) -> Message:
        """The message as the hooks want it sent."""
        for prepare in self._prepare:
            try:
                changed: object = prepare(message)
            except Exception:
                log.exception("hook %r failed", prepare)
                continue
            if isinstance(changed, Message):
                message = changed
            else:
                log.error("hook %r returned %r, not a Message: it changes nothing", prepare, changed)
        return message

    async def send(
        self,
        messages: Sequence[Message],
        send: Callable[[], Awaitable[SendReceipt]],
        batch_ids: list[str] | None = None,
    ) -> list[SendReceipt]:
        """Receipts for all messages, which `send` sends in one request; `batch_ids`: those of a batch."""
        receipts = partial(self._receipts, send, batch_ids)
        return await self._with_hooks(messages, receipts) if self._hooks else await receipts()

    async def send_oneway(self, message: Message, send: Callable[[], Awaitable[None]]) -> None:
        async def no_receipts() -> list[SendReceipt]:
            await send()
            return []

        await (self._with_hooks([message], no_receipts) if self._hooks else send())

    def _with_hooks(
        self, messages: Sequence[Message], send: Callable[[], Awaitable[list[SendReceipt]]]
    ) -> Awaitable[list[SendReceipt]]:
        context = SendContext(self._group, self._namespace.name, messages)
        return send_with_hooks(self._hooks, context, send, self._monotonic)

    async def _receipts(
        self, send: Callable[[], Awaitable[SendReceipt]], batch_ids: list[str] | None
    ) -> list[SendReceipt]:
        receipt = await send()
        if self._namespace:
            receipt = msgspec.structs.replace(receipt, queue=self._namespace.unwrap_queue(receipt.queue))
        return [receipt] if batch_ids is None else split_receipt(receipt, batch_ids)

    def start_trace(self, trace: ProducerTrace) -> None:
        self._trace = trace
        self.add(trace.before, trace.after)
        trace.start()

    async def stop_trace(self) -> None:
        if self._trace is not None:
            self._hooks.remove(self._trace.before, self._trace.after)
            await self._trace.stop()

    @property
    def trace_counts(self) -> TraceCounts:
        """What became of the entries of the trace."""
        return self._trace.counts if self._trace is not None else TraceCounts()
