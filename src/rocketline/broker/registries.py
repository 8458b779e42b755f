"""Who is connected: the members of each consumer group with what they subscribe to, and the producers of each group.

A member is identified by its channel. It joins by heartbeat, and leaves by unregistering, by closing its connection, or by
not sending heartbeats for two minutes. Whenever the members or the topics of a group change, all its members are told,
so that they assign the queues again. A client that is connected twice, as after a connection that broke unnoticed, is
one member: listed twice, it would be assigned queues twice, and nobody would read those of the second entry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rocketline.broker.disagreements import Disagreements
from rocketline.broker.tables.filters import ConsumerFilters
from rocketline.clock import Clock
from rocketline.errors import TransportError
from rocketline.protocol.bodies import ConsumerData, SubscriptionData
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel

log = logging.getLogger(__name__)

BROADCASTING = "BROADCASTING"
MAX_CLIENT_IDS = 100_000
"""Of producers, for which replies may come."""


@dataclass(slots=True)
class ClientInfo:
    """One client behind a channel."""

    client_id: str
    language: str
    version: int
    seen: float
    """Monotonic time of its last heartbeat."""
    account: str = ""
    """Whose heartbeat that was; "" where no accounts are asked for."""


@dataclass(slots=True)
class ConsumerGroup:
    """The live side of a consumer group."""

    name: str
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[Channel, ClientInfo] = field(default_factory=dict)
    fingerprint: int | None = None
    """Digest of the last heartbeat of any member; 0 for the long form."""
    disagreements: Disagreements = field(init=False)

    def __post_init__(self) -> None:
        self.disagreements = Disagreements(self.name)

    @property
    def client_ids(self) -> list[str]:
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def join(self, channel: Channel, client: ClientInfo) -> bool:
        """Add a member; returns whether it is new."""
        known = self.members.get(channel)
        is_new = known is None or known.client_id != client.client_id
        if is_new and client.client_id in self.client_ids:
            log.warning("client %s of group %s is connected twice, now from %s; two processes with one client id would "
                        "read the same queues", client.client_id, self.name, channel.remote)  # fmt: skip
        self.members[channel] = client
        return is_new

    def subscribe(self, wanted: list[SubscriptionData]) -> bool:
        """Replace the subscriptions by those of a heartbeat; returns whether the set of topics changed."""
        before = set(self.subscriptions)
        topics = {subscription.topic for subscription in wanted}
        for subscription in wanted:
            known = self.subscriptions.get(subscription.topic)
            if known is None or subscription.sub_version > known.sub_version:
                self.subscriptions[subscription.topic] = subscription
        for topic in before - topics:
            del self.subscriptions[topic]
        return before != topics


class ConsumerRegistry:
    """All live consumer groups by name."""

    def __init__(
        self,
        clock: Clock,
        expiry_s: float,
        may_notify: Callable[[str], bool] = lambda group: True,
        filters: ConsumerFilters | None = None,
    ) -> None:
        """`filters` are told what each heartbeat subscribes to, and of groups whose last member left."""
        self._clock = clock
        self._expiry_s = expiry_s
        self._may_notify = may_notify
        self._filters = filters
        self._groups: dict[str, ConsumerGroup] = {}

    def get(self, group: str) -> ConsumerGroup | None:
        return self._groups.get(group)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._groups.values()))

    def heartbeat(
        self, channel: Channel, client: ClientInfo, data: ConsumerData, *, keeps_subscriptions: bool = False
    ) -> bool:
        """Handle a client's heartbeat for one of its groups; returns whether anything changed for the other members. A short
        heartbeat `keeps_subscriptions` as they are."""
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data.group_name)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        changed = group.join(channel, client)
        if not keeps_subscriptions:
            changed |= group.subscribe(data.subscription_data_set)
            group.disagreements.note(channel, client.client_id, data)
            if self._filters is not None:
                self._filters.register(group.name, data.subscription_data_set)
        if changed:
            self._tell_members(group)
        return changed

    def wants_subscriptions(self, group_name: str, fingerprint: int) -> bool:
        """Note the digest of a heartbeat; returns whether the subscriptions that it stands for are not known."""
        group = self._groups[group_name]
        # Java says no here when it has just started and knows no digest, and then refuses the group's pulls.
        wants = group.fingerprint != fingerprint if group.fingerprint is not None else not group.subscriptions
        group.fingerprint = fingerprint
        return wants

    def conflict(self, channel: Channel, group_name: str) -> str | None:
        """How another member of the group contradicts this one, as text; logged once."""
        disagreements = self._groups[group_name].disagreements
        text = disagreements.about(channel)
        if text is not None and disagreements.is_news(channel, text):
            log.warning("%s (heartbeat from %s)", text, channel.remote)
        return text

    def leave(self, channel: Channel, group_name: str, client_id: str | None = None) -> None:
        group = self._groups.get(group_name)
        if group is None or channel not in group.members:
            return
        if client_id is not None and group.members[channel].client_id != client_id:
            return
        del group.members[channel]
        group.disagreements.forget(channel)
        if group.members:
            self._tell_members(group)
        else:
            del self._groups[group_name]
            if self._filters is not None:
                self._filters.unregister(group_name)

    def channel_closed(self, channel: Channel) -> None:
        for group in self:
            self.leave(channel, group.name)

    def drop_expired(self) -> None:
        oldest = self._clock.monotonic() - self._expiry_s
        for group in self:
            for channel, member in list(group.members.items()):
                if member.seen < oldest:
                    log.warning(
                        "%s of group %s sent no heartbeat for %g s", member.client_id, group.name, self._expiry_s
                    )
                    channel.close()
                    self.leave(channel, group.name)

    def _tell_members(self, group: ConsumerGroup) -> None:
        if group.message_model == BROADCASTING or not self._may_notify(group.name):
            return
        for channel in group.members:
            if not channel.is_open:
                continue
            notice = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group.name})
            try:
                channel.send_oneway(notice)
            except TransportError as error:
                log.info("could not tell %s of a change in group %s: %s", channel.remote, group.name, error)


@dataclass(slots=True)
class _Holder:
    """Who has a client id, as a producer."""

    account: str
    channel: Channel | None
    """None: its connection ended. The id stays with the account for a while."""
    seen: float


class ProducerRegistry:
    """All live producers by group."""

    def __init__(self, clock: Clock, expiry_s: float) -> None:
        self._clock = clock
        self._expiry_s = expiry_s
        self._groups: dict[str, dict[Channel, ClientInfo]] = {}
        self._holders: dict[str, _Holder] = {}
        self._turn = 0

    def find(self, client_id: str) -> Channel | None:
        """The open connection of a client that sent a heartbeat as a producer."""
        holder = self._holders.get(client_id)
        if holder is None or holder.channel is None or not holder.channel.is_open:
            return None
        return holder.channel

    def pick(
        self, group: str, may: Callable[[Channel, ClientInfo], bool] = lambda channel, client: True
    ) -> Channel | None:
        """A connection to some producer of a group who `may` be asked, another one each time; congested ones only when there
        are no others."""
        members = self._groups.get(group, {})
        channels = [channel for channel, client in members.items() if channel.is_open and may(channel, client)]
        channels = [channel for channel in channels if not channel.is_congested] or channels
        if not channels:
            return None
        self._turn += 1
        return channels[self._turn % len(channels)]

    def names(self) -> list[str]:
        return list(self._groups)

    def members(self, group: str) -> dict[Channel, ClientInfo]:
        return dict(self._groups.get(group, {}))

    def heartbeat(self, channel: Channel, client: ClientInfo, group: str) -> None:
        self._groups.setdefault(group, {})[channel] = client
        self._hold(channel, client)

    def _hold(self, channel: Channel, client: ClientInfo) -> None:
        """Replies to a client id go to this connection from now on, unless another account has the id."""
        holder = self._holders.get(client.client_id)
        if holder is not None and holder.account != client.account and client.seen - holder.seen < self._expiry_s:
            log.warning("client id %s belongs to account %s: replies for it do not go to %s, of account %s",
                        client.client_id, holder.account, channel.remote, client.account)  # fmt: skip
            return
        if holder is None and len(self._holders) >= MAX_CLIENT_IDS:
            del self._holders[next(iter(self._holders))]
        self._holders[client.client_id] = _Holder(client.account, channel, client.seen)

    def leave(self, channel: Channel, group: str) -> None:
        members = self._groups.get(group)
        client = members.pop(channel, None) if members is not None else None
        if client is None:
            return
        if not members:
            del self._groups[group]
        is_last = not any(channel in others for others in self._groups.values())
        holder = self._holders.get(client.client_id)
        if is_last and holder is not None and holder.channel is channel:
            if holder.account:
                holder.channel = None
            else:
                del self._holders[client.client_id]

    def channel_closed(self, channel: Channel) -> None:
        for group in list(self._groups):
            self.leave(channel, group)

    def drop_expired(self) -> None:
        oldest = self._clock.monotonic() - self._expiry_s
        for group, members in list(self._groups.items()):
            for channel, member in list(members.items()):
                if member.seen < oldest:
                    log.warning("producer %s of group %s sent no heartbeat", member.client_id, group)
                    self.leave(channel, group)
        for client_id, holder in list(self._holders.items()):
            if holder.seen < oldest:
                del self._holders[client_id]
