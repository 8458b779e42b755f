"""Bodies of heartbeats, with the subscriptions in them, and lists of connected clients."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.bodies.json_body import Body, Int32, Int64

TAG = "TAG"
SQL92 = "SQL92"
MATCH_ALL = "*"


class SubscriptionData(Body):
    """One topic of a consumer group: the expression, and for tags their text and Java hashes."""

    topic: str
    sub_string: str = MATCH_ALL
    tags_set: list[str] = field(default_factory=list)
    code_set: list[Int32] = field(default_factory=list)
    sub_version: Int64 = 0
    expression_type: str = TAG
    class_filter_mode: bool = False


class ConsumerData(Body):
    """One consumer group of a client."""

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class ProducerData(Body):
    """One producer group of a client."""

    group_name: str


class HeartbeatData(Body):
    """A client and all its groups. A fingerprint other than 0 marks the short form, where `without_sub` may leave
    subscriptions out that the broker already has."""

    client_id: str = field(name="clientID")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False


class ConsumerIdList(Body):
    """The members of a consumer group."""

    consumer_id_list: list[str] = field(default_factory=list)


class ClientConnection(Body):
    """A client that is connected to a broker."""

    client_id: str
    client_addr: str
    language: str = "JAVA"
    version: Int32 = 0


class ConsumerConnection(Body):
    """Who consumes in a group, and how."""

    connection_set: list[ClientConnection] = field(default_factory=list)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerConnection(Body):
    """Who produces in a group."""

    connection_set: list[ClientConnection] = field(default_factory=list)
