"""Connections: the consumers (203) and producers (204) of a group, and all producers (328)."""

from __future__ import annotations

from collections.abc import Mapping

from rocketline.broker.registries import ClientInfo, ConsumerRegistry, ProducerRegistry
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.protocol.bodies import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetConsumerConnectionsHeader, GetProducerConnectionsHeader
from rocketline.transport import Channel, Handler, Reply


@wired
class ConnectionHandlers:
    consumers: ConsumerRegistry
    producers: ProducerRegistry
    clock: Clock

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.of_consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.of_producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def of_consumers(self, channel: Channel, request: Command) -> Reply:
        name = GetConsumerConnectionsHeader.decode(request).consumer_group
        group = self.consumers.get(name)
        if group is None:
            raise RequestRejected(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        answer = ConsumerConnection(
            _connections(group.members),
            group.consume_type,
            group.message_model,
            group.consume_from_where,
            dict(group.subscriptions),
        )
        return request.reply(ResponseCode.SUCCESS, body=encode_body(answer))

    def of_producers(self, channel: Channel, request: Command) -> Reply:
        name = GetProducerConnectionsHeader.decode(request).producer_group
        members = self.producers.members(name)
        if not members:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return request.reply(ResponseCode.SUCCESS, body=encode_body(ProducerConnection(_connections(members))))

    def all_producers(self, channel: Channel, request: Command) -> Reply:
        table = ProducerTable(
            {
                name: [self._producer(member, client) for member, client in self.producers.members(name).items()]
                for name in self.producers.names()
            }
        )
        return request.reply(ResponseCode.SUCCESS, body=encode_body(table))

    def _producer(self, channel: Channel, client: ClientInfo) -> ProducerInfo:
        seen_ms = self.clock.now_ms() - round((self.clock.monotonic() - client.seen) * 1000)
        # With the slash of Java's SocketAddress: that is what its tools expect to see here.
        return ProducerInfo(client.client_id, f"/{channel.remote}", client.language, client.version, seen_ms)


def _connections(members: Mapping[Channel, ClientInfo]) -> list[ClientConnection]:
    return [
        ClientConnection(client.client_id, channel.remote, client.language, client.version)
        for channel, client in members.items()
    ]
