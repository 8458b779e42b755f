"""Calls of the front over a connection: sending, receiving, settling, transactions, and who is connected."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.grpc_wire import METHODS, GrpcWire
from tests.support.patience import PATIENCE_S
from tests.unit.proxy.conftest import create_group, create_topics

from rocketline.admin import Admin
from rocketline.protocol.bodies import SubscriptionGroupConfig
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.versions import version_name
from rocketline.proxy.proto import ClientType, Code, Encoding, Language, MessageType, Permission, Resolution, Source, pb
from rocketline.testing import LocalCluster

_ids = iter(range(1, 1 << 30))


def message(topic: str, body: bytes = b"hello", kind: str = "NORMAL", **system: Any) -> Any:
    made = pb.Message(body=body)
    made.topic.name = topic
    made.system_properties.message_id = f"01{next(_ids):032X}"
    made.system_properties.message_type = getattr(MessageType, kind)
    made.system_properties.body_encoding = Encoding.IDENTITY
    made.system_properties.born_timestamp.GetCurrentTime()
    for name, value in system.items():
        setattr(made.system_properties, name, value)
    return made


async def send(wire: GrpcWire, *messages: Any) -> Any:
    return await wire.call("SendMessage", pb.SendMessageRequest(messages=messages))


def receive_request(topic: str, group: str, tag: str = "*", **fields: Any) -> Any:
    request = pb.ReceiveMessageRequest(batch_size=10, **fields)
    request.filter_expression.type, request.filter_expression.expression = 1, tag
    request.group.name = group
    request.message_queue.topic.name = topic
    if not fields.get("auto_renew"):
        request.invisible_duration.seconds = 15
    return request


async def receive(wire: GrpcWire, topic: str, group: str, **fields: Any) -> list[Any]:
    """The messages of a receive, polled until there are some."""
    frames = await wire.call("ReceiveMessage", receive_request(topic, group, **fields))
    assert frames[0].status.code == Code.OK, frames[0]
    assert frames[-1].HasField("delivery_timestamp")
    return [frame.message for frame in frames[1:-1]]


async def subscribe(
    wire: GrpcWire, group: str, *topics: str, kind: int = ClientType.SIMPLE_CONSUMER
) -> tuple[int, Any]:
    """Open a telemetry stream as a consumer; (the stream, the settings that hold)."""
    stream = wire.start(METHODS["Telemetry"].path)
    command = pb.TelemetryCommand()
    command.settings.client_type = kind
    command.settings.subscription.group.name = group
    for topic in topics:
        command.settings.subscription.subscriptions.add().topic.name = topic
    wire.send(stream, command)
    return stream, (await commands(wire, stream, 1))[0].settings


async def publish(wire: GrpcWire, *topics: str) -> int:
    stream = wire.start(METHODS["Telemetry"].path)
    command = pb.TelemetryCommand()
    command.settings.client_type = ClientType.PRODUCER
    command.settings.publishing.SetInParent()
    for topic in topics:
        command.settings.publishing.topics.add().name = topic
    wire.send(stream, command)
    await commands(wire, stream, 1)
    return stream


async def commands(wire: GrpcWire, stream: int, count: int) -> list[Any]:
    """The first commands that came on a stream."""
    answer = wire.answer(stream)
    await wire.until(lambda: len(answer.messages(pb.TelemetryCommand)) >= count or answer.is_ended)
    return answer.messages(pb.TelemetryCommand)[:count]


def ack_request(topic: str, group: str, *handles: str) -> Any:
    request = pb.AckMessageRequest()
    request.group.name, request.topic.name = group, topic
    for handle in handles:
        request.entries.add(receipt_handle=handle)
    return request


async def test_a_route_echoes_the_address_the_client_uses(wire: GrpcWire) -> None:
    request = pb.QueryRouteRequest()
    request.topic.name = "TFIFO"
    request.endpoints.addresses.add(host="10.1.2.3", port=999)
    answer = await wire.call("QueryRoute", request)
    assert [queue.id for queue in answer.message_queues] == [0, 1, 2, 3]
    queue = answer.message_queues[0]
    assert (queue.broker.name, queue.permission) == ("broker-a", Permission.READ_WRITE)
    assert list(queue.accept_message_types) == [MessageType.FIFO]
    assert queue.broker.endpoints.addresses[0].host == "10.1.2.3"


async def test_what_is_sent_is_received_and_settled(wire: GrpcWire) -> None:
    sent = message("TNORMAL", b"body", tag="blue")
    sent.system_properties.keys.extend(["k1", "k2"])
    sent.user_properties["colour"] = "red"
    answer = await send(wire, sent)
    entry = answer.entries[0]
    assert (answer.status.code, entry.status.code) == (Code.OK, Code.OK)
    assert entry.message_id == entry.transaction_id == sent.system_properties.message_id
    (got,) = await receive(wire, "TNORMAL", "calls-1", tag="blue")
    system = got.system_properties
    assert (got.body, got.topic.name, got.user_properties["colour"]) == (b"body", "TNORMAL", "red")
    assert (system.tag, list(system.keys), system.delivery_attempt) == ("blue", ["k1", "k2"], 1)
    assert system.message_id == sent.system_properties.message_id
    assert len(system.receipt_handle.split(" ")) == 9
    acked = await wire.call("AckMessage", ack_request("TNORMAL", "calls-1", system.receipt_handle))
    assert acked.status.code == Code.OK


async def test_several_messages_have_an_entry_each(wire: GrpcWire) -> None:
    several = [message("TNORMAL") for _ in range(3)]
    answer = await send(wire, *several)
    assert [entry.message_id for entry in answer.entries] == [one.system_properties.message_id for one in several]


async def test_one_group_of_messages_keeps_its_queue(wire: GrpcWire) -> None:
    for _ in range(6):
        await send(wire, message("TFIFO", kind="FIFO", message_group="g-1"))
    got = await receive(wire, "TFIFO", "calls-fifo")
    assert len({one.system_properties.queue_id for one in got}) == 1
    assert len(got) == 6


async def test_priorities_choose_the_queue(wire: GrpcWire) -> None:
    await send(wire, message("TPRIORITY", priority=2))
    (got,) = await receive(wire, "TPRIORITY", "calls-priority")
    assert (got.system_properties.queue_id, got.system_properties.priority) == (2, 2)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "TFIFO"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"topic": "Nowhere"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"topic": "a/b"}, Code.ILLEGAL_TOPIC),
        ({"topic": "TBW102"}, Code.ILLEGAL_TOPIC),
        ({"body": b""}, Code.MESSAGE_BODY_EMPTY),
        ({"body": bytes(4 * 1024 * 1024 + 1)}, Code.MESSAGE_BODY_TOO_LARGE),
        ({"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
        ({"message_id": "a\x01UNIQ"}, Code.ILLEGAL_MESSAGE_ID),
        ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        ({"message_group": "x" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"trace_context": "a\x02b"}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"message_id": "x" * 40_000}, Code.ILLEGAL_MESSAGE_ID),
        ({"trace_context": "x" * 40_000}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"born_host": "x" * 40_000}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"priority": -2}, Code.BAD_REQUEST),
        ({"delivery_attempt": -5}, Code.BAD_REQUEST),
    ],
)
async def test_sends_that_are_refused(wire: GrpcWire, change: dict[str, Any], code: int) -> None:
    given = {"topic": "TNORMAL", **change}
    answer = await send(wire, message(given.pop("topic"), **given))
    assert answer.status.code == code, answer.status
    assert not answer.entries


async def test_properties_that_are_refused(wire: GrpcWire) -> None:
    for properties, code in (
        ({"KEYS": "x"}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"a": "b\x01c"}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({str(number): "x" for number in range(129)}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"a": "x" * 17_000}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ):
        bad = message("TNORMAL")
        bad.user_properties.update(properties)
        assert (await send(wire, bad)).status.code == code


async def test_all_that_is_as_long_as_it_may_be(wire: GrpcWire) -> None:
    """Together it still fits into what a broker stores."""
    long = message(
        "TNORMAL", message_id=f"{next(_ids):x>1024}", born_host="h" * 1024, trace_context="t" * 8192, tag="longest"
    )
    long.user_properties.update({f"{number:03}": "v" * 124 for number in range(128)})
    long.user_properties["000"] = "v" * (124 - len("longest"))
    answer = await send(wire, long)
    assert answer.status.code == Code.OK, answer
    many = message("TNORMAL")
    many.system_properties.keys.extend([""] * 20_000)
    assert (await send(wire, many)).status.code == Code.MESSAGE_PROPERTIES_TOO_LARGE


async def test_a_born_host_cannot_smuggle_properties(wire: GrpcWire) -> None:
    await send(wire, message("TNORMAL", born_host="x\x02TAGS\x01smuggled", tag="born"))
    got = await receive(wire, "TNORMAL", "calls-born", tag="born")
    assert got[-1].system_properties.tag == "born"
    assert "\x02" not in got[-1].system_properties.born_host


async def test_handles_that_are_none(wire: GrpcWire) -> None:
    bad = [
        "",
        "garbage",
        "1 2 3 4 5 6 7 8",
        "0 1 1 0 0 broker-a 0 0 0",
        "0 99999999999999 1 0 0 nobody 0 0 0",
        "9" * 5000,
    ]
    answer = await wire.call("AckMessage", ack_request("TNORMAL", "calls-bad", *bad))
    assert {entry.status.code for entry in answer.entries} == {Code.INVALID_RECEIPT_HANDLE}
    for handle in bad:
        change = pb.ChangeInvisibleDurationRequest(receipt_handle=handle)
        change.group.name, change.topic.name = "calls-bad", "TNORMAL"
        change.invisible_duration.seconds = 10
        assert (await wire.call("ChangeInvisibleDuration", change)).status.code == Code.INVALID_RECEIPT_HANDLE


async def test_many_acks_in_one_call(wire: GrpcWire) -> None:
    """Also where one of them is not valid, and where one was settled before."""
    await send(wire, *(message("TNORMAL", b"%d" % number, tag="many") for number in range(6)))
    got = await receive(wire, "TNORMAL", "calls-many", tag="many")
    handles = [one.system_properties.receipt_handle for one in got]
    assert len(handles) == 6
    answer = await wire.call("AckMessage", ack_request("TNORMAL", "calls-many", *handles[:4], "garbage"))
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in answer.entries] == [Code.OK] * 4 + [Code.INVALID_RECEIPT_HANDLE]
    forged = " ".join(["0", *handles[0].split(" ")[1:7], str(1 << 60), "0"])
    answer = await wire.call("AckMessage", ack_request("TNORMAL", "calls-many", forged, handles[4]))
    assert [entry.status.code for entry in answer.entries] == [Code.INVALID_RECEIPT_HANDLE, Code.OK]
    again = await wire.call("AckMessage", ack_request("TNORMAL", "calls-many", *handles))
    assert {entry.status.code for entry in again.entries} == {Code.OK}


async def test_a_changed_handle_still_finds_its_message(wire: GrpcWire) -> None:
    """RocketMQ's proxy loses the place in the log, and sends another message to the dead letters."""
    await send(wire, message("TNORMAL", b"to the dead letters", tag="dead"))
    (got,) = await receive(wire, "TNORMAL", "calls-dead", tag="dead")
    change = pb.ChangeInvisibleDurationRequest(receipt_handle=got.system_properties.receipt_handle)
    change.group.name, change.topic.name = "calls-dead", "TNORMAL"
    change.invisible_duration.seconds = 30
    changed = await wire.call("ChangeInvisibleDuration", change)
    forward = pb.ForwardMessageToDeadLetterQueueRequest(receipt_handle=changed.receipt_handle)
    forward.group.name, forward.topic.name = "calls-dead", "TNORMAL"
    assert (await wire.call("ForwardMessageToDeadLetterQueue", forward)).status.code == Code.OK
    (dead,) = await receive(wire, "%DLQ%calls-dead", "calls-undertaker")
    assert dead.body == b"to the dead letters"


async def test_settings_that_hold(cluster: LocalCluster, wire: GrpcWire) -> None:
    create_group(cluster, SubscriptionGroupConfig("calls-ordered", consume_message_orderly=True, retry_max_times=1))
    _, settings = await subscribe(wire, "calls-ordered", "TFIFO", kind=ClientType.PUSH_CONSUMER)
    assert settings.subscription.fifo
    assert settings.backoff_policy.max_attempts == 2
    assert len(settings.backoff_policy.customized_backoff.next) == 18
    assert settings.subscription.receive_batch_size == 32


async def test_heartbeat_wants_settings_first(wire: GrpcWire) -> None:
    wire.metadata["x-mq-client-id"] = "calls-beat"
    assert (await wire.call("Heartbeat", pb.HeartbeatRequest())).status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    await publish(wire, "TNORMAL")
    assert (await wire.call("Heartbeat", pb.HeartbeatRequest())).status.code == Code.OK
    ended = await wire.call("NotifyClientTermination", pb.NotifyClientTerminationRequest())
    assert ended.status.code == Code.OK
    assert (await wire.call("Heartbeat", pb.HeartbeatRequest())).status.code == Code.UNRECOGNIZED_CLIENT_TYPE


async def test_what_a_client_gets_after_its_goodbye_is_given_to_others(cluster: LocalCluster, wire: GrpcWire) -> None:
    """A poll goes on while its client says goodbye; nobody would settle what it brings."""
    wire.metadata["x-mq-client-id"] = "calls-leaves"
    await subscribe(wire, "calls-left", "TNORMAL", kind=ClientType.PUSH_CONSUMER)
    polling = wire.start(METHODS["ReceiveMessage"].path)
    wire.send(polling, receive_request("TNORMAL", "calls-left", "left", auto_renew=True), ends=True)
    await wire.call("NotifyClientTermination", pb.NotifyClientTerminationRequest())
    async with GrpcWire(cluster.grpc_address) as other:
        other.metadata["x-mq-client-id"] = "calls-stays"
        await send(other, message("TNORMAL", b"for whoever stays", tag="left"))
        told = (await wire.ended(polling)).messages(pb.ReceiveMessageResponse)
        assert [frame.status.code for frame in told if frame.HasField("status")] == [Code.UNRECOGNIZED_CLIENT_TYPE]
        (got,) = await receive(other, "TNORMAL", "calls-left", tag="left")
    assert (got.body, got.system_properties.delivery_attempt) == (b"for whoever stays", 2)


async def test_a_goodbye_without_settings_gives_back_what_the_client_holds(wire: GrpcWire) -> None:
    """It told them to a front that was there before this one."""
    wire.metadata["x-mq-client-id"] = "calls-unknown"
    await send(wire, message("TNORMAL", b"held", tag="unknown"))
    assert len(await receive(wire, "TNORMAL", "calls-unknown", tag="unknown", auto_renew=True)) == 1
    told = await wire.call("NotifyClientTermination", pb.NotifyClientTerminationRequest())
    assert told.status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    (again,) = await receive(wire, "TNORMAL", "calls-unknown", tag="unknown")
    assert again.system_properties.delivery_attempt == 2


async def test_calls_without_a_client_id(wire: GrpcWire) -> None:
    del wire.metadata["x-mq-client-id"]
    assert (await wire.call("Heartbeat", pb.HeartbeatRequest())).status.code == Code.CLIENT_ID_REQUIRED
    frames = await wire.call("ReceiveMessage", receive_request("TNORMAL", "g"))
    assert [frame.status.code for frame in frames] == [Code.CLIENT_ID_REQUIRED]


async def test_settings_without_use_end_the_stream(wire: GrpcWire) -> None:
    stream = wire.start(METHODS["Telemetry"].path)
    wire.send(stream, pb.TelemetryCommand(settings=pb.Settings(client_type=1)))
    assert (await wire.ended(stream)).grpc_status == 3


async def test_a_transaction_ends_once(wire: GrpcWire) -> None:
    half = message("TTRANSACTION", b"paid", "TRANSACTION", tag="once")
    sent = await send(wire, half)
    end = pb.EndTransactionRequest(
        message_id=half.system_properties.message_id,
        transaction_id=sent.entries[0].transaction_id,
        resolution=Resolution.COMMIT,
        source=Source.SOURCE_CLIENT,
    )
    end.topic.name = "TTRANSACTION"
    for _ in range(2):
        assert (await wire.call("EndTransaction", end)).status.code == Code.OK
    assert len(await receive(wire, "TTRANSACTION", "calls-tx", tag="once")) == 1
    end.transaction_id = "unknown"
    assert (await wire.call("EndTransaction", end)).status.code == Code.INVALID_TRANSACTION_ID


async def test_a_producer_is_asked_about_a_transaction(wire: GrpcWire) -> None:
    wire.metadata["x-mq-client-id"] = "calls-checked"
    stream = await publish(wire, "TTRANSACTION")
    half = message("TTRANSACTION", b"unsure", "TRANSACTION", tag="checked")
    await send(wire, half)
    _, asked = await commands(wire, stream, 2)
    recover = asked.recover_orphaned_transaction_command
    assert recover.transaction_id == half.system_properties.message_id
    assert recover.message.body == b"unsure"
    end = pb.EndTransactionRequest(
        transaction_id=recover.transaction_id, resolution=Resolution.COMMIT, source=Source.SOURCE_SERVER_CHECK
    )
    end.topic.name = "TTRANSACTION"
    assert (await wire.call("EndTransaction", end)).status.code == Code.OK
    (got,) = await receive(wire, "TTRANSACTION", "calls-checked", tag="checked")
    assert got.body == b"unsure"


async def test_operators_see_who_is_connected(cluster: LocalCluster, wire: GrpcWire) -> None:
    wire.metadata |= {"x-mq-client-id": "calls-seen", "x-mq-language": "RUST", "x-mq-client-version": "5.1.2"}
    await subscribe(wire, "calls-seen-group", "TNORMAL", kind=ClientType.PUSH_CONSUMER)
    async with Admin(cluster.namesrv) as admin:
        connection = await (await admin.brokers())[0].consumers("calls-seen-group")
    (member,) = connection.connection_set
    assert (member.client_id, member.language) == ("calls-seen", "RUST")
    assert version_name(member.version) == "v5_1_2"
    assert connection.consume_type == "CONSUME_PASSIVELY"


@pytest.mark.parametrize(
    ("agent", "language", "version"),
    [
        ({"language": Language.NODE_JS, "version": "1.0.8"}, "NODE_JS", "unknown"),
        ({"language": Language.GOLANG, "version": "5.1.12"}, "GO", "unknown"),
        ({"language": Language.DOT_NET, "version": "5.3.1"}, "DOTNET", "v5_3_1"),
        ({"language": Language.DART}, "OTHER", "v5_0_7"),
        ({}, "HTTP", "v5_0_7"),
    ],
)
async def test_operators_see_what_a_client_says_it_is(
    cluster: LocalCluster, wire: GrpcWire, agent: dict[str, Any], language: str, version: str
) -> None:
    """Node's client says HTTP in its header, which is no language, and has releases that have no number of RocketMQ's."""
    wire.metadata |= {"x-mq-client-id": "calls-agent", "x-mq-language": "HTTP", "x-mq-client-version": "5.0.7"}
    settings = pb.Settings(client_type=ClientType.SIMPLE_CONSUMER, user_agent=pb.UA(**agent))
    settings.subscription.group.name = f"calls-agent-{language}"
    stream = wire.start(METHODS["Telemetry"].path)
    wire.send(stream, pb.TelemetryCommand(settings=settings))
    await commands(wire, stream, 1)
    async with Admin(cluster.namesrv) as admin:
        broker = (await admin.brokers())[0]
        (member,) = (await broker.consumers(f"calls-agent-{language}")).connection_set
        header = {"consumerGroup": f"calls-agent-{language}", "clientId": "calls-agent"}
        request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        info = json.loads((await broker._remoting.call(broker.address, request, PATIENCE_S)).body)
    assert (member.language, version_name(member.version)) == (language, version)
    shown = agent.get("version", "") if version == "unknown" else version.upper()
    assert info["properties"]["PROP_CLIENT_VERSION"] == shown


async def test_an_operator_sees_what_the_threads_of_a_client_do(cluster: LocalCluster, wire: GrpcWire) -> None:
    wire.metadata["x-mq-client-id"] = "calls-stack"
    stream, _ = await subscribe(wire, "calls-stack-group", "TNORMAL", kind=ClientType.PUSH_CONSUMER)
    async with Admin(cluster.namesrv) as admin:
        broker = (await admin.brokers())[0]
        header = {"consumerGroup": "calls-stack-group", "clientId": "calls-stack", "jstackEnable": "true"}
        request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        asking = asyncio.create_task(broker._remoting.call(broker.address, request, PATIENCE_S))
        _, asked = await commands(wire, stream, 2)
        answer = pb.TelemetryCommand()
        answer.thread_stack_trace.nonce = asked.print_thread_stack_trace_command.nonce
        answer.thread_stack_trace.thread_stack_trace = "main waits"
        wire.send(stream, answer)
        info = json.loads((await asking).body)
    assert info["jstack"] == "main waits"
    assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"


async def test_a_front_that_is_told_its_address_names_it() -> None:
    with LocalCluster(grpc=True, config={"rocketline.grpcAdvertised": "mq.example.com:4711"}) as cluster:
        create_topics(cluster)
        front = cluster._running._front
        assert front is not None
        assert front.address == "mq.example.com:4711"
        async with GrpcWire(f"127.0.0.1:{front.port}") as wire:
            request = pb.QueryRouteRequest()
            request.topic.name = "TNORMAL"
            request.endpoints.addresses.add(host="10.1.2.3", port=999)
            route = await wire.call("QueryRoute", request)
        (address,) = route.message_queues[0].broker.endpoints.addresses
        assert (address.host, address.port) == ("mq.example.com", 4711)


@pytest.mark.parametrize(
    ("code", "result", "remark"),
    [
        (Code.OK, "CR_SUCCESS", "from gRPC client"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER", "from gRPC client: FAILED_TO_CONSUME_MESSAGE not now"),
        (Code.NOT_IMPLEMENTED, "CR_THROW_EXCEPTION", "from gRPC client: NOT_IMPLEMENTED not now"),
    ],
)
async def test_an_operator_gives_a_message_to_a_client(
    cluster: LocalCluster, wire: GrpcWire, code: int, result: str, remark: str
) -> None:
    wire.metadata["x-mq-client-id"] = "calls-verify"
    stream, _ = await subscribe(wire, "calls-verify-group", "TNORMAL", kind=ClientType.PUSH_CONSUMER)
    sent = message("TNORMAL", b"verify me")
    await send(wire, sent)
    async with Admin(cluster.namesrv) as admin:
        broker = (await admin.brokers())[0]
        unique_id = sent.system_properties.message_id
        (found,) = await broker.find("TNORMAL", unique_id, 1, 0, 1 << 62, unique=True)
        asking = asyncio.create_task(broker.consume_directly("calls-verify-group", "calls-verify", found.offset_id))
        _, asked = await commands(wire, stream, 2)
        assert asked.verify_message_command.message.body == b"verify me"
        answer = pb.TelemetryCommand()
        answer.status.code, answer.status.message = code, "not now"
        answer.verify_message_result.nonce = asked.verify_message_command.nonce
        wire.send(stream, answer)
        told = await asking
    assert (told.consume_result, told.remark) == (result, remark)
