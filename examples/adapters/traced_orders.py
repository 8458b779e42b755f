"""One trace from the program that places an order to the handler that bills it, printed span by span.

    python examples/adapters/traced_orders.py 127.0.0.1:9876

Needs `pip install 'rocketline[otel]' opentelemetry-sdk`. A real program sends its spans to a collector instead.
"""

from __future__ import annotations

import asyncio
import sys

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from rocketline import ConsumeFrom, Message, MessageView, Producer, PushConsumer
from rocketline.adapters.opentelemetry import MessageSpans


async def main(namesrv: str) -> None:
    provider = TracerProvider()
    exporter = ConsoleSpanExporter(
        formatter=lambda span: f"{span.context.trace_id:032x} {span.kind.name} {span.name}\n"
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans, billed = MessageSpans(provider), asyncio.Event()

    async def bill(message: MessageView) -> None:
        with provider.get_tracer("shop").start_as_current_span("write invoice"):
            await asyncio.sleep(0)

    async with Producer(namesrv, group="shop") as producer:
        spans.watch_producer(producer)
        with provider.get_tracer("shop").start_as_current_span("place order"):
            await producer.send(Message("orders", b"1001", tag="created"))
    async with PushConsumer(namesrv, group="billing", from_where=ConsumeFrom.FIRST) as consumer:
        spans.watch_consumer(consumer)
        consumer.add_hook(after=lambda context: billed.set())
        consumer.subscribe("orders", "created", bill)
        await consumer.start()
        await billed.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
