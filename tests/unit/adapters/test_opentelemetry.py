"""Spans of producers and consumers, as an exporter gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.support.patience import PATIENCE_S

from rocketline import (
    ConsumeFrom,
    Message,
    MessageQueue,
    MessageView,
    PopConsumer,
    Producer,
    PushConsumer,
    RetryLater,
    RocketlineError,
    Transaction,
    TransactionalProducer,
)
from rocketline.adapters.opentelemetry import MessageSpans
from rocketline.client import blocking


class Recorded:
    """Spans of one test."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = MessageSpans(self.provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


async def consumed(
    namesrv: str, topic: str, recorded: Recorded, handler: Callable[..., object], spans: int = 1, batch_size: int = 1
) -> list[ReadableSpan]:
    """The spans of processing, when as many as that are there."""
    done = asyncio.Event()
    async with PushConsumer(
        namesrv, group=f"{topic}-g", from_where=ConsumeFrom.FIRST, batch_size=batch_size, concurrency=1
    ) as consumer:
        recorded.spans.watch_consumer(consumer)
        name = f"process {topic}"
        consumer.add_hook(after=lambda _: done.set() if len(recorded.named(name)) >= spans else None)
        consumer.subscribe(topic, "*", handler)
        await consumer.start()
        await asyncio.wait_for(done.wait(), PATIENCE_S)
    return recorded.named(name)


async def test_one_trace_from_the_caller_to_a_handler_in_a_thread(namesrv: str, recorded: Recorded) -> None:
    inside: list[trace.SpanContext] = []

    def handle(message: MessageView) -> None:
        inside.append(trace.get_current_span().get_span_context())

    async with Producer(namesrv, group="otel") as producer:
        recorded.spans.watch_producer(producer)
        with recorded.provider.get_tracer("test").start_as_current_span("caller"):
            receipt = await producer.send(Message("otel-one", b"body", tag="created", keys=["42"]))
    (process,) = await consumed(namesrv, "otel-one", recorded, handle)
    caller, create, send = (recorded.one(name) for name in ("caller", "create otel-one", "send otel-one"))
    assert create.parent == send.parent == caller.context
    assert [link.context.span_id for link in send.links] == [create.context.span_id]
    assert process.parent is not None and process.parent.span_id == create.context.span_id
    assert {span.context.trace_id for span in (caller, create, send, process)} == {caller.context.trace_id}
    assert [span.kind for span in (create, send, process)] == [SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER]
    assert inside == [process.context]
    assert dict(process.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "otel-one",
        "messaging.destination.partition.id": str(receipt.queue.queue_id),
        "messaging.consumer.group.name": "otel-one-g",
        "messaging.message.id": receipt.message_id,
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.tag": "created",
        "messaging.rocketmq.message.keys": ("42",),
    }


@pytest.mark.parametrize("autobatch", [False, True])
async def test_a_batch_links_to_each_message(namesrv: str, recorded: Recorded, autobatch: bool) -> None:
    topic = f"otel-batch-{autobatch}"
    messages = [Message(topic, str(number).encode()) for number in range(3)]
    async with Producer(namesrv, group="otel", autobatch=autobatch) as producer:
        recorded.spans.watch_producer(producer)
        if autobatch:
            await asyncio.gather(*map(producer.send, messages))
        else:
            await producer.send_batch(messages)
    process, *_ = await consumed(namesrv, topic, recorded, lambda batch: None, batch_size=3)
    created = {span.context.span_id for span in recorded.named(f"create {topic}")}
    assert len(created) == 3
    for span in (recorded.one(f"send {topic}"), process):
        assert {link.context.span_id for link in span.links} == created
        assert (span.attributes or {})["messaging.batch.message_count"] == 3


async def test_failures(namesrv: str, recorded: Recorded) -> None:
    def handle(message: MessageView) -> None:
        raise RetryLater("not now", delay_level=-1)

    async with Producer(namesrv, group="otel", retries=0) as producer:
        recorded.spans.watch_producer(producer)
        await producer.send(Message("otel-fails", b"x"))
        with pytest.raises(RocketlineError) as failed:
            await producer.send(Message("otel-fails", b"x"), queue=MessageQueue("otel-fails", "no-such-broker", 0))
    (process,) = await consumed(namesrv, "otel-fails", recorded, handle)
    send = recorded.named("send otel-fails")[1]
    for span, kind in ((process, "RetryLater"), (send, type(failed.value).__qualname__)):
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == kind
        assert [event.name for event in span.events] == ["exception"]


async def test_a_pop_loop_and_a_blocking_producer(namesrv: str, recorded: Recorded) -> None:
    def send() -> None:
        with blocking.Producer(namesrv, group="otel") as producer:
            recorded.spans.watch_producer(producer)
            producer.send(Message("otel-pop", b"x"))

    await asyncio.to_thread(send)
    async with PopConsumer(namesrv, group="otel-pop-g", from_where=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe("otel-pop")
        messages: list[MessageView] = []
        while not messages:
            messages = await consumer.receive(1)
        with recorded.spans.processing(messages[0], group=consumer.group) as span:
            assert trace.get_current_span() is span
        await consumer.ack(messages[0])
    process = recorded.one("process otel-pop")
    assert process.parent is not None
    assert process.parent.span_id == recorded.one("create otel-pop").context.span_id


async def test_a_transaction_knows_the_trace_of_its_message(namesrv: str, recorded: Recorded) -> None:
    def execute(message: Message) -> Transaction:
        inside.update(message.properties)
        return Transaction.COMMIT

    inside: dict[str, str] = {}
    async with TransactionalProducer(namesrv, group="otel-tx", check=lambda message: Transaction.UNKNOWN) as producer:
        recorded.spans.watch_producer(producer)
        await producer.send_in_transaction(Message("otel-tx", b"x"), execute)
    assert f"{recorded.one('create otel-tx').context.span_id:016x}" in inside["traceparent"]


def test_without_an_sdk_messages_stay_as_they_are(namesrv: str) -> None:
    spans = MessageSpans(trace.NoOpTracerProvider())
    message = Message("otel-none", b"x")
    assert spans._created(message) is message
