"""Brokers as the front sees them: requests and answers of remoting, whether the broker is in this process or elsewhere.

In this process a request goes straight to the broker's router, with a `FrontChannel` as the connection it came on. So
registries, rights, pops and transactions are the broker's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rocketline.errors import ConnectionLost
from rocketline.grpc.steps import answered
from rocketline.protocol.command import Command
from rocketline.protocol.message_ids import encode_host
from rocketline.transport import Channel, Limits, Reply, Router
from rocketline.transport.router import failure

if TYPE_CHECKING:
    from rocketline.broker import Broker

_NO_ROUTER = Router()
_LIMITS = Limits()

Asked = Callable[[Command], Reply]
"""Serves a request that a broker sends to a client."""


class FrontChannel(Channel):
    """A gRPC client as a broker sees it: a connection with no socket of its own."""

    __slots__ = ("_asked", "_certificate", "_is_encrypted", "_is_over")

    def __init__(
        self,
        remote: str,
        ip: str,
        port: int,
        *,
        identity: str = "",
        is_encrypted: bool = False,
        certificate: str = "",
    ) -> None:
        super().__init__(_NO_ROUTER, _LIMITS)
        self.remote = remote
        self.remote_ip = ip
        if ip:
            self.remote_host = encode_host(ip, port)
        self.identity = identity
        self._certificate = certificate
        self._is_encrypted = is_encrypted
        self._is_over = False
        self._asked: Asked | None = None

    def listen(self, asked: Asked) -> None:
        """Have somebody serve what brokers ask this client."""
        self._asked = asked

    @property
    def is_open(self) -> bool:
        return not self._is_over

    @property
    def certificate(self) -> str:
        """`identity` is the account that signed a call, not always that of the certificate."""
        return self._certificate

    @property
    def is_encrypted(self) -> bool:
        return self._is_encrypted

    def call(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        return asyncio.ensure_future(self._called(command, timeout))

    async def _called(self, command: Command, timeout: float) -> Command:
        answer = await asyncio.wait_for(answered(self.ask(command)), timeout)
        if answer is None:
            raise ConnectionLost(f"{self.remote} does not answer request {command.code}")
        return answer

    def send_oneway(self, command: Command) -> None:
        reply = self.ask(command)
        if asyncio.iscoroutine(reply):
            reply.close()

    def ask(self, command: Command) -> Reply:
        """Pass a broker's request on to the client."""
        if self._asked is None or self._is_over:
            raise ConnectionLost(f"{self.remote} takes no requests")
        return self._asked(command)

    def close(self) -> None:
        """Tell whoever watches that this client is gone."""
        if not self._is_over:
            self._is_over = True
            for callback in self.on_close:
                callback(self)

    def abort(self) -> None:
        self.close()


Late = Callable[[Command], None]


class BrokerLink(Protocol):
    """The way to one broker."""

    name: str

    @property
    def is_available(self) -> bool:
        """Whether there is no reason to prefer another broker."""

    async def call(self, channel: Channel, command: Command, timeout_s: float, late: Late | None = None) -> Command:
        """The answer to a request on behalf of a client. Only futures are awaited: see `grpc/steps.py`. With `late` the
        request goes on when nobody waits for it any more, and that is told of an answer."""

    async def is_there(self, log_offset: int, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether the message at a place in the log is that of a queue; True where the broker finds out by itself that
        a client must not have it."""


class LocalLink:
    """A broker in this process."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.name = broker.name

    @property
    def is_available(self) -> bool:
        return True

    async def is_there(self, log_offset: int, topic: str, queue_id: int, queue_offset: int) -> bool:
        return True

    async def call(self, channel: Channel, command: Command, timeout_s: float, late: Late | None = None) -> Command:
        """`late` is not needed: a pop that is cancelled in time pops nothing, and one that is not has its answer."""
        broker = self.broker
        reply = broker.serve(channel, command)
        if isinstance(reply, Command):
            return reply
        try:
            answer = await answered(reply)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            answer = failure(channel, command, error)
        answer = broker.late_answer(channel, command, answer)
        if answer is None:
            raise ConnectionLost(f"broker {self.name} does not answer request {command.code}")
        return answer
