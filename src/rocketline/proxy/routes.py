"""QueryRoute and QueryAssignment: which queues there are, and where clients reach them.

Clients dial the endpoints that a route names, so these must be addresses of this front: those that are configured, or the
ones that the client uses already.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from rocketline.grpc.channel import GrpcChannel
from rocketline.protocol.bodies import PERM_READ, PERM_WRITE
from rocketline.proxy.access import Access, consumes, route_needs
from rocketline.proxy.backend import Backend, BrokerQueues, Topic
from rocketline.proxy.context import Context
from rocketline.proxy.problems import OK, Problem
from rocketline.proxy.proto import AddressScheme, Code, MessageType, Permission, pb
from rocketline.proxy.validation import check_endpoints, checked_group, checked_resource

ANY_QUEUE = -1
MIXED = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")


class Endpoints:
    """The address of this front, as clients are told."""

    def __init__(self, advertised: tuple[str, int] | None, own: Callable[[], tuple[str, int]]) -> None:
        self._advertised = advertised
        self._own = own
        """Host and port that this front listens on."""

    def for_client(self, asked: Any, connection: GrpcChannel) -> Any:
        """What a client is told that came by these endpoints."""
        if self._advertised is not None:
            return endpoints_of(*self._advertised)
        if asked.addresses:
            return asked
        return endpoints_of(*(connection.local if connection.local[0] else self._own()))


def endpoints_of(host: str, port: int) -> Any:
    try:
        version = ip_address(host).version
        scheme = AddressScheme.IPv4 if version == 4 else AddressScheme.IPv6
    except ValueError:
        scheme = AddressScheme.DOMAIN_NAME
    return pb.Endpoints(scheme=scheme, addresses=[pb.Address(host=host, port=port)])


def accepted_types(topic: Topic) -> list[int]:
    """The message types that a topic takes."""
    names = MIXED if topic.message_type == "MIXED" else (topic.message_type,)
    return [getattr(MessageType, name, MessageType.MESSAGE_TYPE_UNSPECIFIED) for name in names]


class Routes:
    def __init__(self, backend: Backend, access: Access, endpoints: Endpoints) -> None:
        self._backend = backend
        self._access = access
        self._endpoints = endpoints

    async def query_route(self, context: Context, request: Any) -> Any:
        name = checked_resource(request.topic)
        check_endpoints(request.endpoints)
        self._access.require(context.call, context.channel, route_needs(name))
        topic = await found_topic(self._backend, name)
        endpoints = self._endpoints.for_client(request.endpoints, context.call.channel)
        answer = pb.QueryRouteResponse(status=OK)
        types = accepted_types(topic)
        for queues in topic.brokers:
            broker = pb.Broker(name=queues.link.name, id=0, endpoints=endpoints)
            for queue_id, permission in enumerate(_permissions(queues)):
                answer.message_queues.add(
                    topic=request.topic, id=queue_id, permission=permission, broker=broker, accept_message_types=types
                )
        return answer

    async def query_assignment(self, context: Context, request: Any) -> Any:
        name, group = checked_resource(request.topic), checked_group(request.group.name)
        check_endpoints(request.endpoints)
        self._access.require(context.call, context.channel, consumes(group, name))
        topic = await found_topic(self._backend, name)
        config = await self._backend.group(group)
        is_orderly = config is not None and config.consume_message_orderly
        endpoints = self._endpoints.for_client(request.endpoints, context.call.channel)
        answer = pb.QueryAssignmentResponse(status=OK)
        for queues in topic.brokers:
            if not queues.readable_count:
                continue
            broker = pb.Broker(name=queues.link.name, id=0, endpoints=endpoints)
            permission = next(iter(_permissions(queues)))
            for queue_id in range(queues.readable_count) if is_orderly else (ANY_QUEUE,):
                queue = answer.assignments.add().message_queue
                queue.topic.CopyFrom(request.topic)
                queue.id = queue_id
                queue.permission = permission
                queue.broker.CopyFrom(broker)
        return answer


def _permissions(queues: BrokerQueues) -> list[int]:
    """What may be done with each queue: those that can only be read come first, then those that can only be written."""
    perm = queues.perm
    if perm & PERM_READ and perm & PERM_WRITE:
        both = min(queues.read_count, queues.write_count)
        return (
            [Permission.READ] * (queues.read_count - both)
            + [Permission.WRITE] * (queues.write_count - both)
            + [Permission.READ_WRITE] * both
        )
    if perm & PERM_READ:
        return [Permission.READ] * queues.read_count
    if perm & PERM_WRITE:
        return [Permission.WRITE] * queues.write_count
    return [Permission.NONE]


async def found_topic(backend: Backend, name: str) -> Topic:
    """A topic that exists; Problem otherwise."""
    topic = backend.known_topic(name) or await backend.topic(name)
    if topic is None:
        raise Problem(Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {name}")
    return topic
