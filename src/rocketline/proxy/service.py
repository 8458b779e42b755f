"""RocketMQ's service: each method with what serves it, and what a problem becomes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from rocketline.auth.guard import Refused
from rocketline.grpc.calls import Call, Served
from rocketline.proxy.access import Access, group_need
from rocketline.proxy.clients import Clients
from rocketline.proxy.context import Context
from rocketline.proxy.problems import OK, Problem, problem_from, status
from rocketline.proxy.proto import SERVICE, Code, pb, schema
from rocketline.proxy.receiving import Receiving
from rocketline.proxy.routes import Routes
from rocketline.proxy.sending import Sending
from rocketline.proxy.settling import Settling
from rocketline.proxy.telemetry import Telemetry, checked_client_id
from rocketline.proxy.transactions import Transactions
from rocketline.proxy.validation import checked_group

Work = Callable[[Context, Any], Coroutine[Any, Any, Any]]


class MessagingService:
    """Puts the methods together."""

    def __init__(self, access: Access, clients: Clients) -> None:
        self._access = access
        self._clients = clients
        self.answered: dict[tuple[str, int], int] = {}
        """How many calls were answered, by method and code."""

    def methods(
        self,
        routes: Routes,
        sending: Sending,
        receiving: Receiving,
        settling: Settling,
        transactions: Transactions,
        telemetry: Telemetry,
    ) -> dict[bytes, Served]:
        """What serves each path. Methods that RocketMQ 5.4 does not serve are left out."""
        works: dict[str, Work] = {
            "QueryRoute": routes.query_route,
            "QueryAssignment": routes.query_assignment,
            "Heartbeat": self.heartbeat,
            "NotifyClientTermination": self.terminate,
            "SendMessage": sending.send,
            "RecallMessage": sending.recall,
            "AckMessage": settling.ack,
            "ChangeInvisibleDuration": settling.change,
            "ForwardMessageToDeadLetterQueue": settling.forward,
            "EndTransaction": transactions.end,
        }
        known = schema.methods(SERVICE)
        reads = {"SendMessage": sending.read}
        found = [Served(known[name], self._unary(name, work), read=reads.get(name)) for name, work in works.items()]
        found.append(Served(known["ReceiveMessage"], server_stream=self._receive(receiving)))
        found.append(Served(known["Telemetry"], bidirectional=telemetry.open))
        return {served.method.path.encode(): served for served in found}

    def _unary(self, name: str, work: Work) -> Callable[[Call, Any], Coroutine[Any, Any, Any]]:
        answer = schema.methods(SERVICE)[name].response

        async def serve(call: Call, request: Any) -> Any:
            try:
                found = await work(self._context(call), request)
            except Exception as error:
                found = answer(status=await self._told(call, error))
            self._count(name, found.status.code)
            return found

        return serve

    def _receive(self, receiving: Receiving) -> Callable[[Call, Any], Coroutine[Any, Any, Sequence[Any]]]:
        async def serve(call: Call, request: Any) -> Sequence[Any]:
            try:
                frames = await receiving.receive(self._context(call), request)
            except Exception as error:
                frames = [pb.ReceiveMessageResponse(status=await self._told(call, error))]
            self._count("ReceiveMessage", frames[0].status.code)
            return frames

        return serve

    def _count(self, name: str, code: int) -> None:
        key = name, code
        self.answered[key] = self.answered.get(key, 0) + 1

    def _context(self, call: Call) -> Context:
        channel = self._access.channel(call)
        client_id = checked_client_id(call)
        return Context(call, channel, client_id, self._clients.seen(client_id, channel.identity, call.channel))

    async def _told(self, call: Call, error: Exception) -> Any:
        """The status that a failure is told with."""
        if isinstance(error, Refused):
            problem = await self._access.refused(call, error)
        else:
            problem = problem_from(error)
        return status(problem.code, problem.text)

    async def heartbeat(self, context: Context, request: Any) -> Any:
        client = context.client
        if client is None or client.settings is None:
            raise Problem(Code.UNRECOGNIZED_CLIENT_TYPE, "there is no settings of this client; open a Telemetry stream")
        if client.group:
            self._access.require(context.call, context.channel, (group_need(client.group),))
        await self._clients.register(client)
        return pb.HeartbeatResponse(status=OK)

    async def terminate(self, context: Context, request: Any) -> Any:
        client = context.client
        if client is not None:
            if request.HasField("group") and request.group.name:
                self._access.require(context.call, context.channel, (group_need(checked_group(request.group.name)),))
            await self._clients.remove(client)  # one without settings may hold messages
        if client is None or client.settings is None:
            raise Problem(Code.UNRECOGNIZED_CLIENT_TYPE, "there is no settings of this client")
        return pb.NotifyClientTerminationResponse(status=OK)
