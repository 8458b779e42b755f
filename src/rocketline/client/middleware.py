"""A user's function around every request that a client sends: to sign, trace, measure or refuse it.

    async def measured(address, request, proceed):
        started = time.monotonic()
        try:
            return await proceed(request)
        finally:
            print(request.code, address, time.monotonic() - started)

    Producer("127.0.0.1:9876", group="shop", options=ClientOptions(middleware=measured))

It sees requests to name servers and brokers, one-way ones too (`proceed` then returns None), may change or replace the
request, call `proceed` more than once or not at all, and must return the answer. What it raises reaches the caller.
To use several functions, write one that calls the others. Requests that brokers send to clients do not pass through it. The
credentials of the client sign the request after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rocketline.errors import ClientError, RocketlineError
from rocketline.protocol.command import Command
from rocketline.transport import RemotingClient, Router
from rocketline.transport.access import OPEN, Access

Proceed = Callable[[Command], Awaitable[Command | None]]
Middleware = Callable[[str, Command, Proceed], Awaitable[Command | None]]


class MiddlewareClient(RemotingClient):
    """Calls by address, each through a middleware; clients without one use a plain RemotingClient."""

    def __init__(self, router: Router, middleware: Middleware, access: Access = OPEN) -> None:
        if not callable(middleware):
            raise TypeError(f"a middleware must be an async function, not {middleware!r}")
        super().__init__(router, access=access)
        self._middleware = middleware

    async def call(self, address: str, command: Command, timeout: float) -> Command:
        send = super().call
        answer = await self._through(address, command, lambda request: send(address, request, timeout))
        if not isinstance(answer, Command):
            raise ClientError(f"middleware {self._middleware!r} returned {answer!r} instead of the answer of {address}")
        return answer

    async def send_oneway(self, address: str, command: Command, timeout: float = 3.0) -> None:
        send = super().send_oneway
        await self._through(address, command, lambda request: send(address, request, timeout))

    async def _through(self, address: str, command: Command, proceed: Proceed) -> Command | None:
        try:
            return await self._middleware(address, command, proceed)
        except RocketlineError:
            raise
        except Exception as error:
            raise ClientError(
                f"middleware {self._middleware!r} failed at request {command.code} to {address}: {error!r}"
            ) from error
