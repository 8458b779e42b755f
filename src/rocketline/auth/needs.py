"""What every request asks of its sender: one table for brokers, one for name servers.

A code without a row is refused, so a new handler needs a row here first. Rules for all rows:

* `%RETRY%x` belongs to group x: it asks for the right on the group, and for Sub where a topic would ask for Pub.
* A name that was not sent is a name that nobody has: only who may use all topics (groups) may leave it out.
* Several actions mean that any one is enough. Several names are asked for in order.

Some requests name a message and not its topic (33, 36, 37, 309, 323). Their rows ask for what the request says, and the
handler, who has the message, asks for the right on the message's own topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from rocketline.auth.model import Action, Level, Need, Needs, Resource, ResourceKind
from rocketline.message import RETRY_PREFIX
from rocketline.protocol.bodies import (
    BatchAckMessageRequestBody,
    Body,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfigList,
    decode_body,
)
from rocketline.protocol.bodies.filters import CheckClientBody
from rocketline.protocol.command import Command
from rocketline.protocol.pop_info import RETRY_V1, RETRY_V2, pop_retry_topic
from rocketline.protocol.replies import reply_topic

PUB, SUB, GET = (Action.PUB,), (Action.SUB,), (Action.GET,)
CREATE, UPDATE, DELETE = (Action.CREATE,), (Action.UPDATE,), (Action.DELETE,)
SUB_OR_GET, SUB_OR_UPDATE = (Action.SUB, Action.GET), (Action.SUB, Action.UPDATE)

NOT_SENT = ""
"""The name of a resource that a request should have named. No entry but one for all names fits it."""


class Server(NamedTuple):
    """What rows need to know of the server that is asked."""

    cluster: str = ""
    trace_topic: str = ""
    """Every account may publish there: traces of its own messages."""
    has_group: Callable[[str], bool] = lambda name: False


T = TypeVar("T", bound=Body)
Actions = tuple[Action, ...]
Rule = Callable[[Command, Server], Needs]
Source = Callable[[Command, Server], Iterable[Resource]]
"""Finds resources in a request; ProtocolError when its body cannot be read."""


def topic_resource(name: str) -> Resource:
    """What stands for a topic: its group when it is a retry topic.

    >>> str(topic_resource("orders")), str(topic_resource("%RETRY%billing"))
    ('Topic:orders', 'Group:billing')
    """
    if name.startswith(RETRY_PREFIX):
        return Resource(ResourceKind.GROUP, name[len(RETRY_PREFIX) :])
    return Resource(ResourceKind.TOPIC, name)


def topic_need(name: str, actions: Actions) -> Need:
    """The right to do one of these on a topic."""
    return _need(topic_resource(name), actions)


def _need(resource: Resource, actions: Actions) -> Need:
    if actions == PUB and resource.kind is ResourceKind.GROUP:
        return Need(resource, SUB)
    return Need(resource, actions)


def _group(name: str) -> Resource:
    return Resource(ResourceKind.GROUP, name)


# Where the names are.


def topic(field: str = "topic", *, is_optional: bool = False) -> Source:
    def find(request: Command, server: Server) -> Iterator[Resource]:
        name = _field(request, field)
        if name or not is_optional:
            yield topic_resource(name)

    return find


def group(field: str = "consumerGroup", *, is_optional: bool = False) -> Source:
    def find(request: Command, server: Server) -> Iterator[Resource]:
        name = _field(request, field)
        if name or not is_optional:
            yield _group(name)

    return find


def own_cluster(request: Command, server: Server) -> Iterator[Resource]:
    yield Resource(ResourceKind.CLUSTER, server.cluster)


def listed_topics(request: Command, server: Server) -> Iterator[Resource]:
    """208: one topic, or a list; neither means all topics of the group."""
    names = [name for name in _field(request, "topicList").split(";") if name]
    if one := _field(request, "topic"):
        names.append(one)
    return map(topic_resource, names or [NOT_SENT])


def listed_groups(request: Command, server: Server) -> Iterator[Resource]:
    """308: groups to leave out."""
    return map(_group, filter(None, _field(request, "filterGroups").split(",")))


def popped(request: Command, server: Server) -> Iterator[Resource]:
    """The group, and the topic that was popped. A message that is delivered again is on a retry topic for both."""
    name, topic_name = _field(request, "consumerGroup"), _field(request, "topic")
    for flag in (RETRY_V1, RETRY_V2):
        prefix = pop_retry_topic(name, "", flag)
        if name and topic_name.startswith(prefix):
            topic_name = topic_name[len(prefix) :]
    yield _group(name)
    yield topic_resource(topic_name)


def body(kind: type[T], find: Callable[[T], Iterable[Resource]]) -> Source:
    return lambda request, server: find(decode_body(kind, request.body))


def _heartbeat(beat: HeartbeatData) -> Iterator[Resource]:
    for consumer in beat.consumer_data_set:
        yield _group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield topic_resource(subscription.topic)


def _checked_client(check: CheckClientBody) -> Iterator[Resource]:
    return iter((_group(check.group), topic_resource(check.subscription_data.topic)))


def _locks(lock: LockBatchRequestBody) -> Iterator[Resource]:
    yield _group(lock.consumer_group)
    for item in lock.mq_set:
        yield topic_resource(item.queue.topic)


def _acks(batch: BatchAckMessageRequestBody) -> Iterator[Resource]:
    for ack in batch.acks:
        yield _group(ack.consumer_group)
        yield topic_resource(ack.topic)


def _assignment(asked: QueryAssignmentRequestBody) -> Iterator[Resource]:
    return iter((_group(asked.consumer_group), topic_resource(asked.topic)))


def _mode(asked: SetMessageRequestModeRequestBody) -> Iterator[Resource]:
    return iter((_group(asked.consumer_group),))


def _topics(wanted: TopicConfigList) -> Iterator[Resource]:
    return (topic_resource(item.topic_name) for item in wanted.topic_config_list)


def _field(request: Command, name: str) -> str:
    # Some handlers do not mind spaces around a topic; no name has any.
    return (request.ext or {}).get(name, NOT_SENT).strip()


# What is asked for.


def needs(actions: Actions, *sources: Source) -> Rule:
    """One of these actions on each resource."""

    def ask(request: Command, server: Server) -> Needs:
        found = (_need(resource, actions) for source in sources for resource in source(request, server))
        return tuple(dict.fromkeys(found)) or Level.ACCOUNT

    return ask


def is_for_every_account(need: Need, server: Server) -> bool:
    """Whether a need is met without any entry: traces are published, and the first one creates their topic."""
    is_about_traces = bool(server.trace_topic) and need.resource == topic_resource(server.trace_topic)
    return is_about_traces and any(action in need.actions for action in (*PUB, *CREATE))


def traces(name: str, server: Server) -> bool:
    return is_for_every_account(topic_need(name, PUB), server)


def replies(name: str, server: Server) -> bool:
    return name == reply_topic(server.cluster)


def sends(field: str, is_open: Callable[[str, Server], bool] = traces) -> Rule:
    """Pub on the topic of a message; every account may send to the open one."""
    usual = needs(PUB, topic(field))

    def ask(request: Command, server: Server) -> Needs:
        return Level.ACCOUNT if is_open(_field(request, field), server) else usual(request, server)

    return ask


def sets_groups(kind: type[T], find: Callable[[T], Iterable[SubscriptionGroupConfig]]) -> Rule:
    """Create for a new group, Update for one that exists."""

    def ask(request: Command, server: Server) -> Needs:
        names = [item.group_name for item in find(decode_body(kind, request.body))]
        return tuple(Need(_group(name), UPDATE if server.has_group(name) else CREATE) for name in names)

    return ask


def level(wanted: Level) -> Rule:
    return lambda request, server: wanted


ACCOUNT, SUPER = level(Level.ACCOUNT), level(Level.SUPER)
CLUSTER_GET, CLUSTER_UPDATE = needs(GET, own_cluster), needs(UPDATE, own_cluster)

Table = Mapping[int, Rule]


def _table(*rows: tuple[tuple[int, ...], Rule]) -> Table:
    table: dict[int, Rule] = {}
    for codes, rule in rows:
        for code in codes:
            if code in table:
                raise ValueError(f"request code {code} has two rows")
            table[code] = rule
    return table


BROKER = _table(
    # Messages in
    ((10,), sends("topic")),
    ((310, 320), sends("b")),
    ((370,), needs(PUB, topic())),
    ((37,), ACCOUNT),  # the handler asks for Pub on the topic of the half message
    ((324,), sends("topic", replies)),  # a reply reaches only the client that asked, but is stored where it says
    ((325,), sends("b", replies)),
    ((36,), needs(SUB, group("group"))),  # the handler asks for Sub on the topic of the message
    # Messages out
    ((11, 361), needs(SUB, topic(), group())),
    ((200050, 200054), needs(SUB, group(), topic())),
    ((200052,), needs(SUB, topic(), group())),
    ((200051, 200053), needs(SUB, popped)),
    ((200151,), needs(SUB, body(BatchAckMessageRequestBody, _acks))),
    ((12,), needs(SUB_OR_GET, topic())),
    ((33,), needs(SUB_OR_GET, topic(is_optional=True))),  # the handler asks for the topic of the message
    # Members of groups, and their progress
    ((34,), needs(SUB, body(HeartbeatData, _heartbeat))),
    ((35,), needs(SUB, group(is_optional=True))),  # producers leave without naming a consumer group
    ((46,), needs(SUB, body(CheckClientBody, _checked_client))),
    ((41, 42), needs(SUB, body(LockBatchRequestBody, _locks))),
    ((400,), needs(SUB, body(QueryAssignmentRequestBody, _assignment))),
    ((38,), needs(SUB_OR_GET, group())),
    ((14,), needs(SUB_OR_GET, topic(), group())),
    ((15,), needs(SUB_OR_UPDATE, topic(), group())),
    ((29, 30, 31), needs(SUB_OR_GET, topic())),
    # Operators: topics
    ((17, 513), needs(CREATE, topic())),
    ((18,), needs(CREATE, body(TopicConfigList, _topics))),
    ((215,), needs(DELETE, topic())),
    ((323,), needs(UPDATE, topic(is_optional=True))),  # the handler asks for the topic of the half message
    ((32, 202, 300, 351, 354), needs(GET, topic())),
    ((39,), needs(PUB, topic())),
    ((105,), needs((Action.PUB, Action.SUB, Action.GET), topic())),
    # Operators: groups
    ((200,), sets_groups(SubscriptionGroupConfig, lambda one: (one,))),
    ((225,), sets_groups(SubscriptionGroupList, lambda several: several.group_config_list)),
    ((207,), needs(DELETE, group("groupName"))),
    ((401,), needs(UPDATE, body(SetMessageRequestModeRequestBody, _mode))),
    ((203, 307), needs(GET, group())),
    ((343, 352), needs(GET, group("group"))),
    ((40,), needs(SUB, group())),
    # Operators: groups and topics
    ((208,), needs(GET, group(), listed_topics)),
    ((308,), needs(GET, listed_groups, group("compareGroup"), topic())),
    ((345,), needs(GET, group("group"), topic())),
    ((200055,), needs(GET, group(), topic())),
    ((223, 303), needs(GET, topic(), group("group"))),
    ((321,), needs(GET, topic(), group())),
    ((222, 353), needs(UPDATE, group("group"), topic())),
    ((314,), needs(UPDATE, group("destGroup"), topic())),
    ((309,), needs(SUB, group(), topic(is_optional=True))),  # the handler asks for the topic of the message
    ((326,), needs(SUB, group("producerGroup"), topic())),
    # Operators: the broker
    ((21, 26, 28, 43, 45, 60, 61, 101, 201, 204, 219, 305, 315, 317, 322, 328, 355, 402, 901, 907), CLUSTER_GET),
    ((1004, 1005, 1006, 1007, 1012, 2003, 3004, 3005, 3009, 3010), CLUSTER_GET),
    ((100, 102, 103, 104, 205, 216, 217, 306, 316, 327, 329, 902, 903, 904, 905), CLUSTER_UPDATE),
    ((1001, 1002, 1003, 1008, 1011, 1013, 2001, 2002, 2004, 5001, 200056), CLUSTER_UPDATE),
    ((3001, 3002, 3003, 3006, 3007, 3008), CLUSTER_UPDATE),
    ((25,), SUPER),
    ((906, 908), SUPER),  # between the brokers of a group: who gets a ticket copies the whole log
    # Not for brokers
    ((13, 22, 23, 27, 47, 50, 51, 52, 53, 54, 106, 206, 209, 210, 211, 212, 213, 214, 220, 221, 224), SUPER),
    ((301, 302, 304, 311, 312, 313, 318, 319, 1009, 1010, *range(200070, 200080)), SUPER),
)

NAME_SERVER = _table(
    # Routes
    ((105, 106, 206, 224, 304, 311, 312, 313, 901), ACCOUNT),
    # Brokers that register
    ((103, 104, 217, 322, 904), SUPER),
    # Operators; key-value settings may hold secrets
    ((100, 101, 102, 205, 216, 219, 318, 319, 327), SUPER),
    ((3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010), SUPER),
)

ACCOUNT_CODES = frozenset(range(3001, 3011))
"""Requests about accounts and rights."""
