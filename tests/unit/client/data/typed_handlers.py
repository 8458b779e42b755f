"""Handlers as users write them. A type checker must refuse the lines that say so, and no others."""

from dataclasses import dataclass

from rocketline import MessageView, PushConsumer
from rocketline.client import Sql, blocking, decode


@dataclass
class Order:
    id: int


def one(message: MessageView) -> None: ...
def many(messages: list[MessageView]) -> None: ...
async def one_async(message: MessageView) -> None: ...
def nothing() -> None: ...
def two(message: MessageView, more: int) -> None: ...
def text(message: str) -> None: ...
def order(order: Order, message: MessageView) -> None: ...
async def orders(orders: list[Order], messages: list[MessageView]) -> None: ...
def number(number: int, message: MessageView) -> None: ...
def read(body: bytes) -> int:
    return len(body)


def asynchronous(consumer: PushConsumer) -> None:
    consumer.subscribe("T", one)
    consumer.subscribe("T", "a || b", one_async, in_thread=False)
    consumer.subscribe("T", Sql("a > 1"), many)
    consumer.subscribe("T", lambda message: print(message.body))
    consumer.subscribe("T", order, deserializer=Order)
    consumer.subscribe("T", "*", orders, deserializer=Order)
    consumer.subscribe("T", number, deserializer=read)
    consumer.subscribe("T", order, deserializer="json")
    consumer.subscribe("T", nothing)  # expect-error
    consumer.subscribe("T", "*", two)  # expect-error
    consumer.subscribe("T", text)  # expect-error
    consumer.subscribe("T", "*")  # expect-error
    consumer.subscribe("T", order)  # expect-error
    consumer.subscribe("T", one, deserializer=Order)  # expect-error
    consumer.subscribe("T", number, deserializer=Order)  # expect-error
    consumer.subscribe("T", order, deserializer="xml")  # expect-error


def plain(consumer: blocking.PushConsumer, message: MessageView) -> None:
    consumer.subscribe("T", one)
    consumer.subscribe("T", "a", order, deserializer=Order)
    print(decode(message, Order).id)
    consumer.subscribe("T", nothing)  # expect-error
    consumer.subscribe("T", "a", order)  # expect-error
    print(decode(message, Order).name)  # expect-error
