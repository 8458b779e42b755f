"""The name servers as a client sees them: several addresses, one answer.

The one that answered last is asked first. When it fails, or stays silent for a moment, the next is asked as well and
the first answer wins, so an unreachable name server costs half a second once and never the whole time limit. "I do not
know this topic" is taken from one server only after the others said so too, as it may just have started; one that stays
silent is waited for a moment, or a single name server that hangs would keep everybody from making topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rocketline.client.address_server import ask_address_server, is_address_server
from rocketline.client.tasks import cancel_and_wait
from rocketline.errors import (
    BrokerError,
    ClientError,
    NoNameServer,
    NoPermission,
    RequestTimeout,
    RocketlineError,
    RouteNotFound,
    TlsFailed,
    TopicNotExist,
    TransportError,
)
from rocketline.protocol.bodies import ClusterInfo, TopicRouteData, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetRouteHeader
from rocketline.transport import RemotingClient, without_next_attempt

Answer = tuple[str, Command]

CONTRADICTION_S = 0.5
"""How long the others have to contradict a server that does not know a topic."""


class RemoteNameServer:
    """Calls to whichever name server answers."""

    def __init__(
        self, remoting: RemotingClient, addresses: Sequence[str], *, timeout_s: float = 3.0, next_server_s: float = 0.5
    ) -> None:
        self._remoting = remoting
        self._timeout_s = timeout_s
        self._next_server_s = next_server_s
        self.given = tuple(addresses)
        """The name servers, or the address server that knows them."""
        self.addresses = () if self.asks_for_addresses else self.given
        self._preferred = 0

    @property
    def asks_for_addresses(self) -> bool:
        return is_address_server(self.given[0])

    async def refresh_addresses(self) -> None:
        """Ask the address server; what was known stays when it does not answer."""
        self.addresses = await ask_address_server(self.given[0], self._timeout_s)
        self._preferred = 0

    async def route(self, topic: str, timeout_s: float | None = None) -> TopicRouteData:
        """The route of a topic; RouteNotFound with everybody's answer when nobody knows it."""
        header = GetRouteHeader(topic, accept_standard_json_only=True)

        def request() -> Command:
            return Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())

        failures: dict[str, RocketlineError] = {}
        answer = await self._first_success(request, f"route of {topic}", timeout_s or self._timeout_s, failures)
        if answer is not None:
            return decode_body(TopicRouteData, answer[1].body)
        raise route_not_found(topic, failures)

    async def cluster_info(self) -> ClusterInfo:
        """All brokers that are registered; NoPermission when a name server refuses to tell."""

        def request() -> Command:
            return Command(RequestCode.GET_BROKER_CLUSTER_INFO)

        failures: dict[str, RocketlineError] = {}
        answer = await self._first_success(request, "list of brokers", self._timeout_s, failures)
        if answer is None:
            if (refused := _refusal(failures)) is not None:
                raise refused
            raise ClientError(f"no name server says which brokers there are: {'; '.join(map(str, failures.values()))}")
        return decode_body(ClusterInfo, answer[1].body)

    async def _first_success(
        self, request: Callable[[], Command], doing: str, timeout_s: float, failures: dict[str, RocketlineError]
    ) -> Answer | None:
        """The first successful answer; None when every server failed, with the reasons left in `failures`."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        if not self.addresses:
            await self.refresh_addresses()
        calls: dict[asyncio.Task[Command], str] = {}
        waiting = list(self._in_order())
        try:
            while waiting or calls:
                if waiting:
                    address = waiting.pop(0)
                    left_s = max(0.001, deadline - asyncio.get_running_loop().time())
                    calls[asyncio.ensure_future(self._call(address, request(), doing, left_s))] = address
                absent = any(isinstance(error, TopicNotExist) for error in failures.values())
                pause_s = self._next_server_s if waiting else CONTRADICTION_S if absent else None
                done, _ = await asyncio.wait(calls, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                if not done and not waiting and absent:
                    silent = RequestTimeout(f"nothing for {CONTRADICTION_S:g} s")
                    failures.update(dict.fromkeys(calls.values(), silent))
                    return None
                for call in done:
                    address = calls.pop(call)
                    error = call.exception()
                    if error is None:
                        self._preferred = self.addresses.index(address) if address in self.addresses else 0
                        return address, call.result()
                    if not isinstance(error, RocketlineError):
                        raise error
                    failures[address] = error
            return None
        finally:
            await cancel_and_wait(*calls)

    async def _call(self, address: str, command: Command, doing: str, timeout_s: float) -> Command:
        answer = await self._remoting.call(address, command, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark, address, doing)
        return answer

    def _in_order(self) -> Sequence[str]:
        return self.addresses[self._preferred :] + self.addresses[: self._preferred]


def route_not_found(topic: str, failures: dict[str, RocketlineError]) -> RouteNotFound | NoPermission:
    """The error for a topic without route: who was asked, what each said, and what to look at.

    Its cause is a TopicNotExist when somebody knows that the topic does not exist, else the last failure. A name server
    that refuses to tell is not one that knows no route: its refusal is the error then.
    """
    if (refused := _refusal(failures)) is not None:
        return NoPermission(refused.code, refused.remark, refused.address, f"asking where topic {topic!r} is")
    said = "; ".join(f"{address} said: {_short(error)}" for address, error in failures.items())
    absent = next((error for error in failures.values() if isinstance(error, TopicNotExist)), None)
    kind = RouteNotFound
    if absent is not None:
        hint = (
            "the topic does not exist there: create it, let the brokers auto-create topics (autoCreateTopicEnable=true), "
            "or check that this is the name server the brokers register with"
        )
    elif any(isinstance(error, TlsFailed) for error in failures.values()):
        hint = "nothing is known of the topic before TLS works"
    elif all(isinstance(error, TransportError) for error in failures.values()):
        kind, hint = NoNameServer, "no name server could be reached: is the address right, and is it running?"
    else:
        hint = "no name server gave an answer that can be used"
    error = kind(f"no route to topic {topic!r}: {said or 'nobody was asked'}. Hint: {hint}")
    error.__cause__ = absent or next(reversed(failures.values()), None)
    return error


def _refusal(failures: dict[str, RocketlineError]) -> NoPermission | None:
    return next((error for error in failures.values() if isinstance(error, NoPermission)), None)


def _short(error: RocketlineError) -> str:
    if isinstance(error, BrokerError):
        return f"code {error.code}, {error.remark.splitlines()[0] if error.remark else 'no reason given'}"
    return without_next_attempt(str(error))
