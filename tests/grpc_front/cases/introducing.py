"""Routes, settings, heartbeats: what a client does before it sends or receives."""

from __future__ import annotations

import grpc
from tests.grpc_front.cases import case
from tests.support.grpc_client import (
    calls,
    consumer_settings,
    defs,
    message,
    producer_settings,
    resource,
)
from tests.support.grpc_front import Front

Code = defs.Code
UNKNOWN = "nobody_made_this_group"
BACKOFF_S = [1, 5, 10, 30, *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120))]


@case
async def c01_a_route_has_all_queues_and_an_address_that_can_be_reached(front: Front) -> None:
    for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION"):
        topic = await front.topic(kind, queues=3)
        async with front.client() as client:
            answer = await client.route(topic)
        assert answer.status.code == Code.OK
        assert sorted(queue.id for queue in answer.message_queues) == [0, 1, 2]
        for queue in answer.message_queues:
            assert queue.topic.name == topic
            assert queue.permission == defs.Permission.READ_WRITE
            assert list(queue.accept_message_types) == [defs.MessageType.Value(kind)]
            assert (queue.broker.name, queue.broker.id) == ("broker-a", 0)
            assert queue.broker.endpoints.scheme == defs.AddressScheme.IPv4
            (address,) = queue.broker.endpoints.addresses
            assert f"{address.host}:{address.port}" == front.address.grpc


@case
async def c01_assignments_are_the_broker_or_the_queues_of_an_orderly_group(front: Front) -> None:
    topic, plain, orderly = await front.topic(queues=3), await front.group(), await front.group(orderly=True)
    async with front.client() as client:
        for group, ids in ((plain, [-1]), (UNKNOWN, [-1]), (orderly, [0, 1, 2])):
            answer = await client.assignment(topic, group)
            assert answer.status.code == Code.OK
            assert sorted(item.message_queue.id for item in answer.assignments) == ids
            assert {item.message_queue.broker.name for item in answer.assignments} == {"broker-a"}


@case
async def c02_routes_of_unknown_illegal_and_system_topics_are_refused(front: Front) -> None:
    async with front.client() as client:
        assert (await client.route("nobody_made_this_topic")).status.code == Code.TOPIC_NOT_FOUND
        for topic in ("bad*topic", "t" * 128, "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer"):
            assert (await client.route(topic)).status.code == Code.ILLEGAL_TOPIC, topic
        for blank in ("", " "):  # Apache's looks for rights first
            code = (await client.route(blank)).status.code
            assert code == (Code.ILLEGAL_TOPIC if front.is_ours else Code.UNAUTHORIZED)


@case
async def c03_no_call_is_served_without_a_client_id(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    named = {"topic": resource(topic), "group": resource(group)}
    requests = {
        "QueryRoute": calls.QueryRouteRequest(topic=named["topic"]),
        "QueryAssignment": calls.QueryAssignmentRequest(**named),
        "Heartbeat": calls.HeartbeatRequest(client_type=defs.ClientType.PRODUCER),
        "NotifyClientTermination": calls.NotifyClientTerminationRequest(),
        "SendMessage": calls.SendMessageRequest(messages=[message(topic)]),
        "AckMessage": calls.AckMessageRequest(**named),
        "ChangeInvisibleDuration": calls.ChangeInvisibleDurationRequest(**named),
        "ForwardMessageToDeadLetterQueue": calls.ForwardMessageToDeadLetterQueueRequest(**named),
        "EndTransaction": calls.EndTransactionRequest(topic=named["topic"]),
        "RecallMessage": calls.RecallMessageRequest(topic=named["topic"]),
    }
    for missing in (None, " "):
        async with front.client(headers={"x-mq-client-id": missing}) as client:
            for method, request in requests.items():
                assert (await client.call(method, request)).status.code == Code.CLIENT_ID_REQUIRED, method
            assert (await client.receive(group, topic)).code == Code.CLIENT_ID_REQUIRED
            stream = client.telemetry()
            assert (await stream.tell(producer_settings())).status.code == Code.CLIENT_ID_REQUIRED
            assert await stream.read() is None
            assert await stream.code() == grpc.StatusCode.OK


@case
async def c04_a_producer_is_told_its_settings(front: Front) -> None:
    topic = await front.topic()
    for topics in ((topic,), ()):
        async with front.client() as client:
            answer = await client.introduce(producer_settings(*topics))
        assert answer.status.code == Code.OK
        settings = answer.settings
        assert settings.client_type == defs.ClientType.PRODUCER
        assert [item.name for item in settings.publishing.topics] == list(topics)
        assert settings.publishing.max_body_size == 4 << 20
        assert settings.publishing.validate_message_type
        assert settings.backoff_policy.max_attempts == 3
        backoff = settings.backoff_policy.exponential_backoff
        assert (backoff.initial.ToMilliseconds(), backoff.max.ToMilliseconds(), backoff.multiplier) == (10, 1000, 2)
        assert not settings.metric.on
        assert settings.user_agent.version == "5.1.2"


@case
async def c05_a_consumer_is_told_its_settings_by_its_group(front: Front) -> None:
    topic = await front.topic()
    groups = {
        UNKNOWN: (17, False),
        await front.group(): (17, False),
        await front.group(orderly=True): (17, True),
        await front.group(retry_max_times=1): (2, False),
    }
    for group, (attempts, fifo) in groups.items():
        for kind in ("SIMPLE_CONSUMER", "PUSH_CONSUMER"):
            async with front.client() as client:
                answer = await client.introduce(consumer_settings(group, topic, kind=kind))
            assert answer.status.code == Code.OK
            settings = answer.settings
            assert settings.backoff_policy.max_attempts == attempts
            assert [item.seconds for item in settings.backoff_policy.customized_backoff.next] == BACKOFF_S
            assert settings.subscription.fifo == fifo
            assert settings.subscription.receive_batch_size == 32
            if group != UNKNOWN:
                assert settings.subscription.long_polling_timeout.seconds == 20
            assert settings.subscription.group.name == group
            assert [item.topic.name for item in settings.subscription.subscriptions] == [topic]


@case
async def c06_settings_that_say_nothing_or_name_what_is_illegal_end_the_stream(front: Front) -> None:
    illegal = [
        producer_settings("bad*topic"),
        consumer_settings("bad*group", await front.topic()),
    ]
    for settings in illegal:
        async with front.client() as client:
            stream = client.telemetry()
            await stream.write(calls.TelemetryCommand(settings=settings))
            assert await stream.ended() == grpc.StatusCode.INVALID_ARGUMENT, settings
    async with front.client() as client:
        stream = client.telemetry()
        await stream.write(calls.TelemetryCommand(settings=defs.Settings(client_type=defs.ClientType.PRODUCER)))
        if front.is_ours:
            assert await stream.ended() == grpc.StatusCode.INVALID_ARGUMENT
        else:  # it looks for rights first; without accounts it ends the stream as ours does
            assert (await stream.read()).status.code == Code.INTERNAL_SERVER_ERROR


@case
async def c06_a_language_nobody_knows_is_no_reason_to_refuse_a_client(front: Front) -> None:
    """Apache's proxy ends such a stream with INTERNAL."""
    topic = await front.topic()
    for language in (None, "GOLANG", "KLINGON"):
        async with front.client(headers={"x-mq-language": language}) as client:
            stream = client.telemetry()
            await stream.write(calls.TelemetryCommand(settings=producer_settings(topic)))
            if front.is_ours:
                assert (await stream.read()).status.code == Code.OK
            else:
                assert await stream.ended() == grpc.StatusCode.INTERNAL


@case
async def c07_settings_are_answered_each_time_and_an_empty_command_never(front: Front) -> None:
    topic, other = await front.topic(), await front.topic()
    async with front.client() as client:
        stream = client.telemetry()
        for topics in ((topic,), (topic, other)):
            await stream.write(calls.TelemetryCommand())
            answer = await stream.tell(producer_settings(*topics))
            assert answer.status.code == Code.OK
            assert [item.name for item in answer.settings.publishing.topics] == list(topics)


@case
async def c08_a_heartbeat_needs_settings_first(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.client() as producer:
        assert (await producer.heartbeat()).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
        await producer.introduce(producer_settings(topic))
        assert (await producer.heartbeat()).status.code == Code.OK
    async with front.consumer(group, topic) as consumer:
        assert (await consumer.heartbeat(group, "SIMPLE_CONSUMER")).status.code == Code.OK


@case
async def c09_a_client_that_left_is_unknown(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic) as consumer:
        assert (await consumer.terminate(group)).status.code == Code.OK
        assert (await consumer.heartbeat(group, "SIMPLE_CONSUMER")).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    async with front.client() as stranger:
        assert (await stranger.terminate(group)).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
