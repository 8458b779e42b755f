"""Refuses sends while the broker cannot keep up.

As Apache's broker does it: the request is not decoded, the answer is code 2, and clients slow down or go elsewhere. There
are two reasons: the store has no free buffer, or the request has waited so long already (see loop_delay.py) that its sender
will soon give up. What the broker stores for itself is not checked; it may still find room in the file that is being
written.
"""

from __future__ import annotations

from rocketline.broker.loop_delay import LoopDelay
from rocketline.errors import RequestRejected
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler, Reply

REMARK = (
    "[REJECTREQUEST]system busy, start flow control for a while: the transient store pool has no free buffer "
    "(transientStorePoolSize)"
)
WAITED = (
    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {}ms (waitTimeMillsInSendQueue)"
)


SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


def with_busy_checks(
    routes: dict[int, Handler], store: MessageStore, loop_delay: LoopDelay | None
) -> dict[int, Handler]:
    """The routes, with a check before each handler that stores what a client sends."""
    checked: dict[int, Handler] = {code: unless_busy(store, routes[code], loop_delay) for code in SENDS}
    send_back = RequestCode.CONSUMER_SEND_MSG_BACK
    return {**routes, **checked, send_back: unless_busy(store, routes[send_back])}


def unless_busy(store: MessageStore, handler: Handler, loop_delay: LoopDelay | None = None) -> Handler:
    """The handler, with the checks that apply here before it."""
    if store.config.transient_pool:
        handler = _unless_full(store, handler)
    return handler if loop_delay is None else _unless_late(loop_delay, handler)


def _unless_full(store: MessageStore, handler: Handler) -> Handler:
    def guarded(channel: Channel, request: Command) -> Reply:
        if store.free_buffers == 0:
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, REMARK)
        return handler(channel, request)

    return guarded


def _unless_late(loop_delay: LoopDelay, handler: Handler) -> Handler:
    waited_ms = loop_delay.over_limit_ms

    def guarded(channel: Channel, request: Command) -> Reply:
        if late := waited_ms():
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, WAITED.format(late))
        return handler(channel, request)

    return guarded
