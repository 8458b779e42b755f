"""Statistics, hooks and filters of a consumer.

One object per consumer, shared by its pull loops and its delivery. Errors in a hook or filter are logged and
do not affect the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketline.client.consumer.group.stats import ConsumerStats
from rocketline.client.consumer.push.handlers import NotDone, RetryLater, SuspendQueue
from rocketline.client.hooks import ConsumeContext, ConsumeOutcome, Hooks
from rocketline.clock import Clock
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.namespaces import NO_NAMESPACE, Namespace

log = logging.getLogger(__name__)

MessageFilter = Callable[[MessageView], bool]


class ConsumeObserver:
    """Statistics, hooks and filters of one consumer."""

    def __init__(
        self,
        group: str,
        clock: Clock,
        *,
        namespace: Namespace = NO_NAMESPACE,
        consume_timeout_s: float = 15 * 60.0,
    ) -> None:
        """`group` as its users know it, without the namespace."""
        self.stats = ConsumerStats(clock)
        self.hooks: Hooks[ConsumeContext] = Hooks()
        self.namespace = namespace
        self.filters: list[MessageFilter] = []
        self._group = group
        self._consume_timeout_s = consume_timeout_s

    async def before(self, queue: MessageQueue, messages: list[MessageView]) -> ConsumeContext:
        """Call the hooks before a handler; the context is for `after`."""
        namespace = self.namespace
        context = ConsumeContext(self._group, namespace.name, namespace.unwrap_queue(queue), tuple(messages))
        await self.hooks.before(context)
        return context

    async def after(self, context: ConsumeContext, error: Exception | None, took_s: float) -> None:
        context.error = error
        context.success = error is None
        context.outcome = self._outcome(error, took_s)
        context.duration_s = took_s
        await self.hooks.after(context)

    def _outcome(self, error: Exception | None, took_s: float) -> ConsumeOutcome:
        """In Java's order: an exception counts as one however long the call took."""
        if isinstance(error, NotDone):
            return ConsumeOutcome.RETURNNULL
        if error is not None and not isinstance(error, RetryLater | SuspendQueue):
            return ConsumeOutcome.EXCEPTION
        if took_s >= self._consume_timeout_s:
            return ConsumeOutcome.TIME_OUT
        return ConsumeOutcome.SUCCESS if error is None else ConsumeOutcome.FAILED

    def wanted(self, messages: list[MessageView]) -> list[MessageView]:
        """The messages that no filter refuses, with topics as users know them."""
        if self.namespace:
            for message in messages:
                message.topic = self.namespace.unwrap(message.topic)
        if self.filters:
            return [message for message in messages if self._keeps(message)]
        return messages

    def _keeps(self, message: MessageView) -> bool:
        for keep in self.filters:
            try:
                if not keep(message):
                    return False
            except Exception:
                log.exception("filter %r failed; message %s stays", keep, message.message_id)
        return True
