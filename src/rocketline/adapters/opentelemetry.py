"""OpenTelemetry spans of producers and consumers (the extra `otel`).

    spans = MessageSpans()
    async with Producer("127.0.0.1:9876", group="shop") as producer:
        spans.watch_producer(producer)
        await producer.send(Message("orders", b"..."))

Names and attributes are those of OpenTelemetry's conventions for messaging:

* `create TOPIC` for each message, at once over. Its context travels in the message, in the properties `traceparent` and
  `tracestate` of the W3C. A message of a batch, whoever made the batch, so has a context of its own.
* `send TOPIC` for each request that sends messages, with links to what created them.
* `process TOPIC` for each run of a handler. With one message its parent is what created the message; with a list it has
  a link for each.

Only the API of OpenTelemetry is used: without an SDK in the program, nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from rocketline import __version__
from rocketline.client import ConsumeContext, SendContext
from rocketline.client.hooks import HookFunction, PrepareFunction
from rocketline.message import Message, MessageView

SYSTEM = "rocketmq"
SPAN = "rocketline.span"
TOKEN = "rocketline.token"  # noqa: S105 (a name in `props`, no secret)
MAX_LINKS = 128
"""Links of one span; OpenTelemetry's SDK keeps no more unless it is told to."""

Attributes = dict[str, AttributeValue]


class WatchedProducer(Protocol):
    """Any producer, async or blocking."""

    def add_hook(
        self,
        before: HookFunction[SendContext] | None = None,
        after: HookFunction[SendContext] | None = None,
        *,
        prepare: PrepareFunction | None = None,
    ) -> None: ...


class WatchedConsumer(Protocol):
    """A push consumer, async or blocking."""

    def add_hook(
        self, before: HookFunction[ConsumeContext] | None = None, after: HookFunction[ConsumeContext] | None = None
    ) -> None: ...


class MessageSpans:
    """Makes the spans of any number of clients."""

    def __init__(
        self, tracer_provider: TracerProvider | None = None, propagator: TextMapPropagator | None = None
    ) -> None:
        """By default the program's own tracer provider, and the W3C's trace context in messages."""
        self._tracer = trace.get_tracer("rocketline", __version__, tracer_provider)
        self._propagator = propagator or TraceContextTextMapPropagator()

    def watch_producer(self, producer: WatchedProducer) -> None:
        """Make spans of everything a producer sends from now on."""
        producer.add_hook(self._before_send, self._after_send, prepare=self._created)

    def watch_consumer(self, consumer: WatchedConsumer) -> None:
        """Make a span of every run of a push consumer's handlers; it is the current span while the handler runs."""
        consumer.add_hook(self._before_handler, self._after_handler)

    @contextmanager
    def processing(self, *messages: MessageView, group: str) -> Iterator[Span]:
        """The current span while messages of a pull or pop consumer are processed.

        with spans.processing(message, group="billing"):
            charge(message)
        """
        span = self._process_span(messages, group)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield span
            except BaseException as error:
                _fail(span, error)
                raise

    def _created(self, message: Message) -> Message:
        """The message with the context of the span that stands for its creation."""
        attributes = _attributes("create", message.topic) | _of_message(message)
        span = self._tracer.start_span(f"create {message.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        span.end()
        if not span.get_span_context().is_valid:
            return message
        properties = dict(message.properties)
        self._propagator.inject(properties, trace.set_span_in_context(span))
        return msgspec.structs.replace(message, properties=properties)

    def _before_send(self, context: SendContext) -> None:
        topic, messages = context.messages[0].topic, context.messages
        attributes = _attributes("send", topic) | _of_all(messages, context.namespace)
        context.props[SPAN] = self._tracer.start_span(
            f"send {topic}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=self._links([message.properties for message in messages]),
        )

    def _after_send(self, context: SendContext) -> None:
        span = context.props.pop(SPAN)
        if context.error is not None:
            _fail(span, context.error)
        elif len(context.receipts) == 1:
            receipt = context.receipts[0]
            span.set_attribute("messaging.message.id", receipt.message_id)
            span.set_attribute("messaging.destination.partition.id", str(receipt.queue.queue_id))
        span.end()

    def _before_handler(self, context: ConsumeContext) -> None:
        span = self._process_span(context.messages, context.group, context.namespace)
        context.props[SPAN] = span
        context.props[TOKEN] = otel_context.attach(trace.set_span_in_context(span))

    def _after_handler(self, context: ConsumeContext) -> None:
        otel_context.detach(context.props.pop(TOKEN))
        span = context.props.pop(SPAN)
        if context.error is not None:
            _fail(span, context.error)
        span.end()

    def _process_span(self, messages: Sequence[MessageView], group: str, namespace: str = "") -> Span:
        topic = messages[0].topic
        attributes = _attributes("process", topic) | _of_all(messages, namespace)
        attributes["messaging.consumer.group.name"] = group
        parent: Context | None = None
        links: list[Link] = []
        if len(messages) == 1:
            message = messages[0]
            attributes["messaging.message.id"] = message.message_id
            attributes["messaging.destination.partition.id"] = str(message.queue_id)
            parent = self._propagator.extract(message.properties)
        else:
            links = self._links([message.properties for message in messages])
        return self._tracer.start_span(
            f"process {topic}", parent, kind=SpanKind.CONSUMER, attributes=attributes, links=links
        )

    def _links(self, carriers: Sequence[Mapping[str, str]]) -> list[Link]:
        """Links to what created messages."""
        contexts = (
            trace.get_current_span(self._propagator.extract(carrier, Context())).get_span_context()
            for carrier in carriers[:MAX_LINKS]
        )
        return [Link(context) for context in contexts if context.is_valid]


def _attributes(operation: str, topic: str) -> Attributes:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _of_all(messages: Sequence[Message] | Sequence[MessageView], namespace: str) -> Attributes:
    attributes: Attributes = {"messaging.batch.message_count": len(messages)}
    if len(messages) == 1:
        attributes = _of_message(messages[0])
    if namespace:
        attributes["messaging.rocketmq.namespace"] = namespace
    return attributes


def _of_message(message: Message | MessageView) -> Attributes:
    attributes: Attributes = {"messaging.message.body.size": len(message.body)}
    if message.tag:
        attributes["messaging.rocketmq.message.tag"] = message.tag
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = list(message.keys)
    if message.sharding_key:
        attributes["messaging.rocketmq.message.group"] = message.sharding_key
    return attributes


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
