"""Orders of a shop for demonstrations and tests: some are sent twice, some are late, some are broken.

{"order_id": "o-17", "customer": "c-3", "amount": 12.5, "at": "2026-01-31T12:00:00.000Z"}
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple


class OrderMessage(NamedTuple):
    order_id: str
    customer: str
    body: bytes


def order_messages(count: int, seed: int = 7, now: datetime | None = None) -> Iterator[OrderMessage]:
    """`count` orders; one of 25 is sent twice, one of 40 is ten minutes late, one of 200 is broken."""
    choose = random.Random(seed)
    at = now or datetime.now(UTC)
    for number in range(count):
        when = at - timedelta(seconds=choose.random() * 60) - timedelta(minutes=10) * (number % 40 == 7)
        order, customer = f"o-{number}", f"c-{choose.randrange(25)}"
        fields = {
            "order_id": order,
            "customer": customer,
            "amount": round(choose.uniform(1, 200), 2),
            "at": when.isoformat(timespec="milliseconds"),
        }
        body = b"{ this is no order" if number % 200 == 13 else json.dumps(fields).encode()
        yield OrderMessage(order, customer, body)
        if number % 25 == 3:
            yield OrderMessage(order, customer, body)
