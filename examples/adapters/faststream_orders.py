"""Bill orders with FastStream: models in, models out, failed orders again later.

    faststream run --app-dir examples/adapters faststream_orders:app     # bills orders until Ctrl-C
    python examples/adapters/faststream_orders.py 1001 1002              # places two orders

The environment variable NAMESRV_ADDR names another cluster than 127.0.0.1:9876.
"""

from __future__ import annotations

import asyncio
import os
import sys

from faststream import FastStream
from pydantic import BaseModel

from rocketline import ConsumeFrom
from rocketline.adapters.faststream import RocketBroker


class Order(BaseModel):
    number: int
    price: float


class Invoice(BaseModel):
    order: int
    total: float


broker = RocketBroker(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"))
app = FastStream(broker)


@broker.subscriber("orders", group="billing", tag="created", from_where=ConsumeFrom.FIRST, max_workers=8)
@broker.publisher("invoices")
async def bill(order: Order) -> Invoice:
    """Whatever this raises brings the order back, after 10 s, 30 s, 1 min and so on."""
    return Invoice(order=order.number, total=round(order.price * 1.2, 2))


@broker.subscriber("invoices", group="post", from_where=ConsumeFrom.FIRST)
async def post(invoice: Invoice) -> None:
    print(f"invoice for order {invoice.order}: {invoice.total}", flush=True)


async def place(*numbers: int) -> None:
    async with broker:
        for number in numbers:
            await broker.publish(Order(number=number, price=10.0), "orders", tag="created", keys=[str(number)])
            print(f"placed {number}")


if __name__ == "__main__":
    asyncio.run(place(*map(int, sys.argv[1:])))
