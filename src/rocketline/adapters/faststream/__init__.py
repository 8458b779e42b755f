"""A broker for FastStream (the extra `faststream`).

    broker = RocketBroker("127.0.0.1:9876")

    @broker.subscriber("orders", group="billing", tag="created || paid")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice:
        ...

Every subscriber is a push consumer with a group of its own. What becomes of a message follows FastStream's policies:

* acknowledged: it is consumed;
* nacked: it comes again, after 10 s, 30 s, 1 min and so on, and after 16 times goes to the dead letters;
* rejected: it goes to the dead letters at once;
* nothing of that, under `AckPolicy.MANUAL`: as if it were nacked.

The default is `AckPolicy.NACK_ON_ERROR`. `AckPolicy.ACK_FIRST` means that errors of the handler do not count; RocketMQ still
delivers the message again if the program dies while the handler runs.
"""

from typing import Annotated

from faststream import Context

from rocketline.adapters.faststream import message
from rocketline.adapters.faststream.broker import RocketBroker, RocketRouter
from rocketline.adapters.faststream.publishing import RocketResponse
from rocketline.adapters.faststream.testing import TestRocketBroker

RocketMessage = Annotated[message.RocketMessage, Context("message")]
"""For an argument of a handler: the message itself."""

__all__ = ["RocketBroker", "RocketMessage", "RocketResponse", "RocketRouter", "TestRocketBroker"]
