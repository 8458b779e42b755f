"""Gets one request onto some broker: looks up the route, chooses the queue, makes the attempts on the event loop.

Which attempts, and what a failure means, is decided in attempts.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rocketline.client.producer.attempts import LONGEST_PAUSE_S, Attempts, first_attempt, stored_nothing
from rocketline.client.producer.broker_health import BrokerHealth
from rocketline.client.producer.outgoing import SendRequest
from rocketline.client.producer.queue_choice import QueueChoice, QueuesInTurn, Selector
from rocketline.client.producer.receipts import SendReceipt, read_receipt
from rocketline.client.producer.send_options import SendOptions
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.route_cache import NOT_MASTER_CODES
from rocketline.client.routes import TopicRoute
from rocketline.client.session import ClientSession
from rocketline.errors import BrokerError, InvalidMessage, NoMaster, RouteNotFound, TransportError
from rocketline.message import MessageQueue
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetMaxOffsetHeader
from rocketline.protocol.names import DEFAULT_TOPIC

T = TypeVar("T")


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
        self._time = asyncio.get_running_loop().time
        # A middleware sees commands, and a signature goes over their fields.
        self._takes_frames = session.middleware is None and session.access.sign is None

    async def send(
        self,
        outgoing: SendRequest,
        timeout_s: float,
        choice: QueueChoice | None = None,
        attempts: Attempts | None = None,
    ) -> SendReceipt:
        """The receipt of the first attempt that stored the message; SendFailed tells of every attempt otherwise.

        `attempts` are those of a send that goes on; otherwise its time counts from now.
        """
        if attempts is None:
            attempts = first_attempt(self._options.retries, timeout_s, self._time, choice)
        session, health, topic = self._session, self._health, outgoing.topic
        connected = session.remoting.connected
        while attempts.left_s > 0:
            route = session.routes.writable(topic)
            if route is None:
                route = await self._awaited_route(topic, attempts)
                if route is None:
                    break
            queue, address = self.next_queue(route, attempts), ""
            if attempts.failed_on:  # give a broker that failed before a moment
                await self._pause(queue, attempts)
            if attempts.left_s <= 0:
                break
            started = session.clock.monotonic() if health is not None else 0.0
            try:
                broker = self.master_of(queue)
                address = broker.address
                channel = connected(address) if self._takes_frames and outgoing.is_plain else None
                if channel is not None and not channel.is_congested:  # fast path: a frame from a template, written now
                    opaque = channel.take_opaque()
                    frame = outgoing.frame(queue, opaque)
                    answer = await channel.call_ready(frame, opaque, outgoing.code, attempts.limit_s())
                else:
                    answer = await broker.call(outgoing.command(queue), attempts.limit_s())
                receipt = read_receipt(answer, outgoing.message_id, queue, address)
            except (TransportError, BrokerError) as error:
                self._doubt(queue, address, error)
                attempts.failed(queue, address, error)
            else:
                if health is not None:
                    health.took(queue.broker_name, session.clock.monotonic() - started)
                if attempts.is_stored(receipt):
                    return receipt
        return attempts.result(outgoing)

    async def _pause(self, queue: MessageQueue, attempts: Attempts) -> None:
        """Until the next attempt on a broker that failed before may be made, or it is found elsewhere."""
        session = self._session
        pause_s = attempts.pause_s(queue.broker_name, session.timing.send_again_s, self._chance.random())
        if not pause_s:
            return
        if (address := attempts.missed_at(queue.broker_name)) is None:
            await asyncio.sleep(pause_s)
        elif address == _address(session.master_of(queue.broker_name)):
            await session.routes.changed_within(queue.topic, pause_s)
        attempts.look_at_clock()

    def _doubt(self, queue: MessageQueue, address: str, error: TransportError | BrokerError) -> None:
        """Note that a broker did not take a message, and that it may not be where the route says, or no master any more."""
        if self._health is not None:
            self._health.failed(queue.broker_name, error)
        if isinstance(error, TransportError) and address:
            self._session.connection_failed(address, queue.topic)
        elif isinstance(error, TransportError) or error.code in NOT_MASTER_CODES:
            self._session.routes.doubt(queue.topic)

    async def send_oneway(self, outgoing: SendRequest, timeout_s: float, choice: QueueChoice | None = None) -> None:
        """Hand the message to the socket; nothing tells whether it arrived."""
        route = self._session.routes.writable(outgoing.topic) or await self._find_route(outgoing.topic, timeout_s)
        queue = self.next_queue(route, first_attempt(self._options.retries, timeout_s, self._time, choice))
        broker = self.master_of(queue)
        try:
            await broker.send_oneway(outgoing.command(queue), timeout_s)
        except TransportError:
            self._session.connection_failed(broker.address, outgoing.topic)
            raise

    async def select(self, topic: str, selector: Selector, timeout_s: float) -> MessageQueue:
        """The queue a selector chooses among those that can be written now."""
        route = self._session.routes.writable(topic) or await self._find_route(topic, timeout_s)
        return _selected(selector, route)

    def next_queue(self, route: TopicRoute, attempts: Attempts) -> MessageQueue:
        """Where the next attempt goes, if possible to another broker than the one that just failed."""
        queue = attempts.choice
        if queue is None:
            queue = self._next_queue(route, attempts.failed_broker)
        elif not isinstance(queue, MessageQueue):  # asked once: the same key must not end up in two queues
            queue = attempts.choice = _selected(queue, route)
        return queue

    def master_of(self, queue: MessageQueue) -> RemoteBroker:
        """The broker that takes what goes to a queue; NoMaster when it has none at the moment."""
        broker = self._session.master_of(queue.broker_name)
        if broker is None:
            if not self._session.routes.was_named(queue.broker_name):
                raise RouteNotFound(f"{queue}: no route has ever named a broker {queue.broker_name!r}")
            raise NoMaster(f"no route names a master of broker {queue.broker_name!r} at the moment")
        return broker

    async def _awaited_route(self, topic: str, attempts: Attempts) -> TopicRoute | None:
        """The route; None when the topic had no master until the time was over."""
        try:
            route = await self._find_route(topic, attempts.left_s)
        except NoMaster as error:
            attempts.found_no_master(error)
            return None
        attempts.look_at_clock()
        return route

    async def _find_route(self, topic: str, left_s: float) -> TopicRoute:
        routes = self._session.routes
        try:
            async with asyncio.timeout(left_s):
                return await routes.await_writable(topic, self._options.topic_queue_count)
        except TimeoutError as error:
            if (missing := routes.why_not_writable(topic)) is not None:
                raise missing from error
            servers = ";".join(self._session.name_server.addresses)
            raise RouteNotFound(f"no route to topic {topic!r} within {left_s:g} s from {servers}") from error

    def _next_queue(self, route: TopicRoute, avoid: str | None) -> MessageQueue:
        turns = self._turns.get(route.topic)
        if turns is None:
            # Producers that start together should not all begin with the first queue.
            turns = self._turns[route.topic] = QueuesInTurn(self._chance.randrange(1 << 16))
        if self._health is not None:
            return turns.choose_healthy(route.writable, self._health, avoid)
        return turns.choose(route.writable, avoid)

    async def ask_master(self, queue: MessageQueue, ask: Callable[[RemoteBroker], Awaitable[T]], timeout_s: float) -> T:
        """What the master of a queue answers; who leads no more is asked again where another one leads, for some time."""
        until = self._time() + timeout_s
        while True:
            address = ""
            try:
                broker = self.master_of(queue)
                address = broker.address
                return await ask(broker)
            except (TransportError, BrokerError) as error:
                self._doubt(queue, address, error)
                left_s = until - self._time()
                if not stored_nothing(error) or left_s <= 0:
                    raise
            if address == _address(self._session.master_of(queue.broker_name)):
                await self._session.routes.changed_within(queue.topic, min(left_s, LONGEST_PAUSE_S))

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


def _address(broker: RemoteBroker | None) -> str:
    return broker.address if broker is not None else ""


def _selected(selector: Selector, route: TopicRoute) -> MessageQueue:
    queue = selector(route.writable)
    if not isinstance(queue, MessageQueue):
        raise InvalidMessage(f"the queue selector for topic {route.topic!r} returned {queue!r}, not one of its queues")
    return queue
