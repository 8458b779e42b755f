"""Gets one request onto some broker: route, queue, attempts, one time limit over all of them.

Rules, as RocketMQ's synchronous send has them: an attempt that fails on the way (no connection, no answer) or is
answered with a code that another broker may not share is made again, at most `retries` times, on another broker when
there is one. Any other refusal is final. A caller who chose the queue gets all attempts on that queue. A retry can
store a message twice: its unique id stays the same, so consumers can tell.

All attempts share one time limit. An attempt that may still be followed by another can be given a shorter one of its own
(`attempt_timeout_s`), so that a broker that hangs does not use up the time of those that work.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import NamedTuple

from rocketline.client.producer.broker_health import BrokerHealth
from rocketline.client.producer.outgoing import Outgoing, SendOptions
from rocketline.client.producer.queue_choice import QueuesInTurn, Selector
from rocketline.client.producer.receipts import SendReceipt, SendStatus, read_receipt
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.routes import TopicRoute
from rocketline.client.session import ClientSession
from rocketline.errors import (
    BrokerError,
    InvalidMessage,
    NoPermission,
    RequestTimeout,
    RocketlineError,
    RouteNotFound,
    SendFailed,
    TransportError,
)
from rocketline.message import MessageQueue
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetMaxOffsetHeader
from rocketline.protocol.names import DEFAULT_TOPIC


class Failure(NamedTuple):
    """An attempt that stored nothing, as far as we know."""

    queue: MessageQueue
    address: str
    error: RocketlineError

    def __str__(self) -> str:
        where = f"{self.queue.broker_name}@{self.address} queue {self.queue.queue_id}"
        return f"{where}: {_without_hint(self.error)}"


class Sender:
    """The sending half of a producer; consumers use one too, to put messages on their retry topic."""

    def __init__(
        self,
        session: ClientSession,
        options: SendOptions,
        chance: random.Random | None = None,
        health: BrokerHealth | None = None,
    ) -> None:
        self._session = session
        self._options = options
        # From the shared generator: a simulation that seeds it can be repeated.
        self._chance = chance or random.Random(random.getrandbits(64))
        self._health = health
        self._turns: dict[str, QueuesInTurn] = {}

    async def send(
        self,
        outgoing: Outgoing,
        timeout_s: float,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        failed: Sequence[Failure] = (),
        started: float | None = None,
    ) -> SendReceipt:
        """The receipt of the first attempt that stored the message; SendFailed tells of every attempt otherwise.

        `failed` are attempts made elsewhere before; the time limit counts from `started`, or from now.
        """
        loop, options, topic = asyncio.get_running_loop(), self._options, outgoing.topic
        left_s = timeout_s
        if started is None:
            started = loop.time()
        else:
            left_s -= loop.time() - started
        deadline = started + timeout_s
        failures = list(failed)
        stored: SendReceipt | None = None
        failed_broker = failures[-1].queue.broker_name if failures else None
        for attempt in range(len(failures), options.retries + 1):
            if left_s <= 0:
                break
            route = self._session.routes.writable(topic)
            if route is None:
                route = await self._find_route(topic, left_s)
                left_s = deadline - loop.time()
            chosen, broker = self.target(route, queue, selector, failed_broker)
            if chosen.broker_name == failed_broker:
                await self._pause(attempt, deadline)
                left_s = deadline - loop.time()
            if options.attempt_timeout_s is not None and attempt < options.retries:
                left_s = min(left_s, options.attempt_timeout_s)
            try:
                if left_s <= 0:
                    raise RequestTimeout("the time limit was used up looking for a route")
                if self._health is None:
                    answer = await broker.call(send_command(outgoing, chosen), left_s)
                    receipt = read_receipt(answer, outgoing.message_id, chosen, broker.address)
                else:
                    receipt = await self._watched_attempt(self._health, outgoing, chosen, broker, left_s)
            except (TransportError, BrokerError) as error:
                if isinstance(error, BrokerError) and not error.retryable:
                    raise
                failures.append(Failure(chosen, broker.address, error))
            else:
                if receipt.status is SendStatus.OK or not options.retry_not_stored:
                    return receipt
                stored = receipt
            failed_broker = chosen.broker_name
            if selector is not None:
                queue = chosen  # a selector is asked once: the same key must not end up in two queues
            left_s = deadline - loop.time()
        if stored is not None:
            return stored
        raise _all_failed(outgoing, failures, loop.time() - started, timeout_s)

    async def send_oneway(
        self, outgoing: Outgoing, timeout_s: float, queue: MessageQueue | None = None, selector: Selector | None = None
    ) -> None:
        """Hand the message to the socket; nothing tells whether it arrived."""
        route = self._session.routes.writable(outgoing.topic) or await self._find_route(outgoing.topic, timeout_s)
        chosen, broker = self.target(route, queue, selector)
        await broker.send_oneway(send_command(outgoing, chosen), timeout_s)

    async def select(self, topic: str, selector: Selector, timeout_s: float) -> MessageQueue:
        """The queue a selector chooses among those that can be written now."""
        route = self._session.routes.writable(topic) or await self._find_route(topic, timeout_s)
        return _selected(selector, route)

    def target(
        self,
        route: TopicRoute,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        avoid: str | None = None,
    ) -> tuple[MessageQueue, RemoteBroker]:
        """Where the next message goes, if possible to another broker than the one to avoid."""
        if queue is None:
            queue = _selected(selector, route) if selector is not None else self._next_queue(route, avoid)
        broker = self._session.master_of(queue.broker_name)
        if broker is None:
            raise RouteNotFound(f"{queue}: no route names a master of broker {queue.broker_name!r}")
        return queue, broker

    async def _find_route(self, topic: str, left_s: float) -> TopicRoute:
        try:
            async with asyncio.timeout(left_s):
                return await self._session.routes.find_writable(topic, self._options.topic_queue_count)
        except TimeoutError as error:
            servers = ";".join(self._session.name_server.addresses)
            raise RouteNotFound(f"no route to topic {topic!r} within {left_s:g} s from {servers}") from error

    def _next_queue(self, route: TopicRoute, avoid: str | None) -> MessageQueue:
        turns = self._turns.get(route.topic)
        if turns is None:
            # Producers that start together should not all begin with the first queue.
            turns = self._turns[route.topic] = QueuesInTurn(self._chance.randrange(1 << 16))
        if self._health is not None:
            return turns.choose_well(route.writable, self._health, avoid)
        return turns.choose(route.writable, avoid)

    async def _watched_attempt(
        self, health: BrokerHealth, outgoing: Outgoing, queue: MessageQueue, broker: RemoteBroker, left_s: float
    ) -> SendReceipt:
        started = self._session.clock.monotonic()
        try:
            answer = await broker.call(send_command(outgoing, queue), left_s)
            receipt = read_receipt(answer, outgoing.message_id, queue, broker.address)
        except TransportError:
            health.failed(queue.broker_name, reached=False)
            raise
        except BrokerError as error:
            if error.retryable:  # any other refusal is about the message, not about the broker
                health.failed(queue.broker_name, reached=True)
            raise
        health.took(queue.broker_name, self._session.clock.monotonic() - started)
        return receipt

    async def answers(self, broker_name: str) -> bool | None:
        """Whether a broker is there, whatever it says; None when no route names its master."""
        broker = self._session.master_of(broker_name)
        if broker is None:
            return None
        header = GetMaxOffsetHeader(DEFAULT_TOPIC, 0, broker_name=broker_name)
        try:
            await broker.call(Command(RequestCode.GET_MAX_OFFSET, header.encode()), self._session.timing.probe_call_s)
        except TransportError:
            return False
        return True

    async def _pause(self, attempt: int, deadline: float) -> None:
        """Before asking the very broker that just failed: give it a moment."""
        left_s = deadline - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, min(self._session.timing.send_again_s * attempt, left_s)))


def _selected(selector: Selector, route: TopicRoute) -> MessageQueue:
    queue = selector(route.writable)
    if not isinstance(queue, MessageQueue):
        raise InvalidMessage(f"the queue selector for topic {route.topic!r} returned {queue!r}, not one of its queues")
    return queue


def send_command(outgoing: Outgoing, queue: MessageQueue) -> Command:
    """The request that puts a message into a queue."""
    ext = outgoing.ext
    ext["e"] = str(queue.queue_id)
    ext["n"] = queue.broker_name
    return Command(outgoing.code, ext, outgoing.body)


def _all_failed(outgoing: Outgoing, failures: list[Failure], took_s: float, timeout_s: float) -> SendFailed:
    reasons = "; ".join(map(str, failures))
    attempts = "1 attempt" if len(failures) == 1 else f"{len(failures)} attempts"
    error = SendFailed(
        f"message {outgoing.message_id} for topic {outgoing.topic!r} was not acknowledged after {attempts} "
        f"in {took_s:.2f} s (limit {timeout_s:g} s): {reasons}{_hint(failures)}"
    )
    error.__cause__ = failures[-1].error if failures else None
    return error


def _hint(failures: list[Failure]) -> str:
    if not failures or not all(isinstance(failure.error, NoPermission) for failure in failures):
        return ""
    last = failures[-1].error
    said = last.hint if isinstance(last, NoPermission) else ""
    hint = ". Hint: nothing is wrong with the route; the topic's permission or the credentials used do not allow it"
    return hint + said.replace(" Hint:", ":").lstrip(".")


def _without_hint(error: RocketlineError) -> str:
    """It is told once for all attempts."""
    return str(error).removesuffix(error.hint) if isinstance(error, BrokerError) else str(error)
