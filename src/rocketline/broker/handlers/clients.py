"""Membership of clients: heartbeat (34), unregister (35), members of a group (38), check of a subscription (46)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from rocketline.broker.registries import ClientInfo, ConsumerRegistry, ProducerRegistry
from rocketline.broker.selection import Selections
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.protocol.bodies import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    decode_body,
    encode_body,
)
from rocketline.protocol.bodies.filters import CheckClientBody
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetConsumerListHeader, HeartbeatResponseHeader, UnregisterClientHeader
from rocketline.protocol.names import retry_topic
from rocketline.transport import Channel, Handler, Reply

MAX_GROUPS = 4096
"""Groups that one heartbeat may name: each may create a group and a topic."""


CONFLICTS = 3
"""Conflicts named in one answer."""


@wired
class ClientHandlers:
    topics: Topics
    groups: Groups
    consumers: ConsumerRegistry
    producers: ProducerRegistry
    clock: Clock
    selections: Selections
    account_of: Callable[[Channel, Command], str] = lambda channel, request: ""
    """The account that sent a request; "" where there is none."""

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: self.check,
        }

    def heartbeat(self, channel: Channel, request: Command) -> Reply:
        beat = decode_body(HeartbeatData, request.body)
        if len(beat.consumer_data_set) + len(beat.producer_data_set) > MAX_GROUPS:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"a client may be in at most {MAX_GROUPS} groups")
        client = ClientInfo(
            beat.client_id,
            request.language,
            request.version,
            self.clock.monotonic(),
            self.account_of(channel, request),
        )
        self._note_when_closed(channel)
        channel.version, channel.language = request.version, request.language
        groups = self.groups.get_all([consumer.group_name for consumer in beat.consumer_data_set])
        retry_queues = {retry_topic(name): group.retry_queue_nums for name, group in groups.items()}
        self.topics.require_all_derived(
            {name: count for name, count in retry_queues.items() if count > 0},
            {retry_topic(consumer.group_name) for consumer in beat.consumer_data_set if consumer.unit_mode},
        )
        members = [consumer for consumer in beat.consumer_data_set if consumer.group_name in groups]
        for producer in beat.producer_data_set:
            self.producers.heartbeat(channel, client, producer.group_name)
        changed = self._members(channel, client, beat, members)
        conflicts = filter(None, [self.consumers.conflict(channel, consumer.group_name) for consumer in members])
        answer = HeartbeatResponseHeader(supports_v2=True, subscription_changed=changed)
        # Java's clients do not look at the remark of a success; ours warn with it.
        return request.reply(
            ResponseCode.SUCCESS, answer.encode(), remark="; ".join(islice(conflicts, CONFLICTS)) or None
        )

    def _members(self, channel: Channel, client: ClientInfo, beat: HeartbeatData, members: list[ConsumerData]) -> bool:
        """Note a member; returns whether it should send its subscriptions next time. The long form always does."""
        fingerprint = beat.heartbeat_fingerprint
        short = fingerprint != 0 and beat.without_sub
        changed = fingerprint == 0
        for consumer in members:
            self.consumers.heartbeat(channel, client, consumer, keeps_subscriptions=short)
            changed |= self.consumers.wants_subscriptions(consumer.group_name, fingerprint)
        return changed

    def _note_when_closed(self, channel: Channel) -> None:
        for callback in (self.consumers.channel_closed, self.producers.channel_closed):
            if callback not in channel.on_close:
                channel.on_close.append(callback)

    def unregister(self, channel: Channel, request: Command) -> Reply:
        header = UnregisterClientHeader.decode(request)
        if header.producer_group:
            self.producers.leave(channel, header.producer_group)
        if header.consumer_group:
            self.consumers.leave(channel, header.consumer_group, header.client_id)
        return request.reply(ResponseCode.SUCCESS)

    def consumer_list(self, channel: Channel, request: Command) -> Reply:
        header = GetConsumerListHeader.decode(request)
        group = self.consumers.get(header.consumer_group)
        if group is None or not group.members:
            # An empty list would make a Java client's allocation fail: no member is an error.
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        return request.reply(ResponseCode.SUCCESS, body=encode_body(ConsumerIdList(group.client_ids)))

    def check(self, channel: Channel, request: Command) -> Reply:
        """46: whether pulls with this subscription would be served."""
        self.selections.check(decode_body(CheckClientBody, request.body).subscription_data)
        return request.reply(ResponseCode.SUCCESS)
