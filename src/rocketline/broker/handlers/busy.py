"""Refusing work that would be stored while the store has no buffer left for it.

As Apache's broker does it: the request is not even looked at, the answer is code 2, and clients slow down or go elsewhere.
What the broker stores for itself is not asked about; it may still find room in the file that is being written.
"""

from __future__ import annotations

from rocketline.errors import RequestRejected
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Reply
from rocketline.transport.router import Handler

REMARK = (
    "[REJECTREQUEST]system busy, start flow control for a while: the transient store pool has no free buffer "
    "(transientStorePoolSize)"
)


def unless_busy(store: MessageStore, handler: Handler) -> Handler:
    """The handler, behind a look at the transient pool when there is one."""
    if not store.config.transient_pool:
        return handler

    def guarded(channel: Channel, request: Command) -> Reply:
        if store.free_buffers == 0:
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, REMARK)
        return handler(channel, request)

    return guarded
