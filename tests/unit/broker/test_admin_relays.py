"""Questions that a broker passes on to a client: with its answer, without one, and for clients that are not there."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.parts import BROKER, Parts, Peer, fill, heartbeat

from rocketline.broker.handlers.admin.relays import RelayHandlers
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import ConsumerStatus, decode_body, encode_body, queue_key
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import RESPONSE, Command
from rocketline.protocol.connection import frame_bytes
from rocketline.protocol.records import decode_message

HOW_ARE_YOU = {"consumerGroup": "readers", "clientId": "client-1", "jstackEnable": "false"}


def online(parts: Parts, client_id: str = "client-1", version: int = 493) -> Peer:
    consumer = parts.peer()
    beat = heartbeat(client_id)
    beat.version = version
    consumer.ask(beat)
    consumer.received()
    return consumer


def reply(client: Peer, question: Command, body: bytes = b"", code: int = 0, remark: str | None = None) -> None:
    answer = Command(code, {}, body, question.opaque, RESPONSE, remark)
    client.channel.data_received(frame_bytes(answer))


async def test_running_info_is_the_clients_own(parts: Parts) -> None:
    client, operator = online(parts), parts.peer()
    operator.send(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, dict(HOW_ARE_YOU)))
    question = await client.next()
    assert (question.code, question.ext) == (RequestCode.GET_CONSUMER_RUNNING_INFO, HOW_ARE_YOU)
    reply(client, question, b'{"its":"words"}', remark="fine")
    answer = await operator.next()
    assert (answer.code, answer.body, answer.remark) == (0, b'{"its":"words"}', "fine")


async def test_others_are_served_while_a_client_thinks(parts: Parts) -> None:
    client, operator = online(parts), parts.peer()
    operator.send(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, dict(HOW_ARE_YOU)))
    question = await client.next()
    assert operator.ask(Command(RequestCode.GET_ALL_TOPIC_CONFIG)).code == ResponseCode.SUCCESS
    reply(client, question, code=1, remark="no")
    answer = await operator.next()
    assert (answer.code, answer.remark) == (1, "no")


@pytest.mark.parametrize("code", [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY])
async def test_a_client_that_is_not_there(parts: Parts, code: int) -> None:
    online(parts)
    for group, client in (("readers", "nobody"), ("others", "client-1")):
        answer = parts.peer().ask(Command(code, {"consumerGroup": group, "clientId": client, "msgId": "x"}))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{group}> <{client}> not online",
        )


async def test_a_client_too_old_to_answer(parts: Parts) -> None:
    online(parts, version=61)
    answer = parts.peer().ask(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, dict(HOW_ARE_YOU)))
    assert (answer.code, "too low" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)


def impatient(parts: Parts) -> RelayHandlers:
    return RelayHandlers(
        parts.store, parts.topics, parts.groups, parts.consumers, BROKER, call_timeout_s=0.01, status_timeout_s=0.01
    )


async def test_a_client_that_does_not_answer(parts: Parts) -> None:
    online(parts)
    parts.router.add(RequestCode.GET_CONSUMER_RUNNING_INFO, impatient(parts).running_info)
    operator = parts.peer()
    operator.send(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, dict(HOW_ARE_YOU)))
    answer = await operator.next()
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert answer.remark.startswith("consumer <readers> <client-1> Timeout: ")


async def test_a_client_that_goes_instead_of_answering(parts: Parts) -> None:
    client, operator = online(parts), parts.peer()
    operator.send(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, dict(HOW_ARE_YOU)))
    await client.next()
    await client.close()
    answer = await operator.next()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.startswith("invoke consumer <readers> <client-1> Exception: ")


async def test_a_stored_message_is_consumed_directly(parts: Parts) -> None:
    fill(parts, 1)
    (message,) = parts.messages("orders")
    client, operator = online(parts), parts.peer()
    fields = {
        "consumerGroup": "readers", "clientId": "client-1", "msgId": message.offset_id, "topic": "orders",
    }  # fmt: skip
    operator.send(Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, dict(fields)))
    question = await client.next()
    assert question.ext == {**fields, "brokerName": BROKER, "topicSysFlag": "0", "groupSysFlag": "0"}
    assert decode_message(question.body, 0, len(question.body)).body == message.body
    reply(client, question, b'{"consumeResult":"CR_SUCCESS"}')
    assert (await operator.next()).body == b'{"consumeResult":"CR_SUCCESS"}'


@pytest.mark.parametrize(("message_id", "said"), [("xyz", "not an offset message id"), ("00" * 15 + "07", "7")])
async def test_a_message_that_is_not_there(parts: Parts, message_id: str, said: str) -> None:
    client = online(parts)
    fields = {"consumerGroup": "readers", "clientId": "client-1", "msgId": message_id}
    answer = parts.peer().ask(Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields))
    assert (answer.code, said in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert client.received() == []


# 223


def status(client: str = "") -> Command:
    ext = {"topic": "orders", "group": "readers", "clientAddr": client}
    return Command(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext)


def position(offset: int) -> bytes:
    queue = queue_key(MessageQueue("orders", BROKER, 0))
    return encode_body(ConsumerStatus(message_queue_table={queue: offset}))


async def answer_with(client: Peer, body: bytes) -> None:
    while (question := await client.next()).code != RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
        pass
    assert question.ext == {"topic": "orders", "group": "readers"}
    reply(client, question, body)


async def test_all_members_say_where_they_are(parts: Parts) -> None:
    first, second, operator = online(parts), online(parts, "client-2"), parts.peer()
    operator.send(status())
    await asyncio.gather(answer_with(first, position(3)), answer_with(second, position(5)))
    table = decode_body(ConsumerStatus, (await operator.next()).body).consumer_table
    assert {client: list(queues.values()) for client, queues in table.items()} == {"client-1": [3], "client-2": [5]}


async def test_one_member_may_be_chosen(parts: Parts) -> None:
    first, second, operator = online(parts), online(parts, "client-2"), parts.peer()
    first.received()
    operator.send(status("client-2"))
    await answer_with(second, position(5))
    table = decode_body(ConsumerStatus, (await operator.next()).body).consumer_table
    assert (list(table), first.received()) == (["client-2"], [])


@pytest.mark.parametrize("nonsense", [b"not json", b""])
async def test_a_member_without_a_usable_answer_is_left_out(parts: Parts, nonsense: bytes) -> None:
    first, second, operator = online(parts), online(parts, "client-2"), parts.peer()
    operator.send(status())
    await asyncio.gather(answer_with(first, nonsense), answer_with(second, position(5)))
    answer = await operator.next()
    assert answer.code == ResponseCode.SUCCESS
    assert list(decode_body(ConsumerStatus, answer.body).consumer_table) == ["client-2"]


async def test_a_silent_member_is_left_out(parts: Parts) -> None:
    online(parts)
    parts.router.add(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, impatient(parts).positions)
    operator = parts.peer()
    operator.send(status())
    answer = await operator.next()
    assert (answer.code, decode_body(ConsumerStatus, answer.body).consumer_table) == (ResponseCode.SUCCESS, {})


async def test_a_group_nobody_is_in(parts: Parts) -> None:
    answer = parts.peer().ask(status())
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "No Any Consumer online in the consumer group: [readers]",
    )


async def test_members_from_3_0_7_on_can_say_where_they_are(parts: Parts) -> None:
    member, operator = online(parts, version=28), parts.peer()
    operator.send(status())
    await answer_with(member, position(3))
    assert list(decode_body(ConsumerStatus, (await operator.next()).body).consumer_table) == ["client-1"]
    online(parts, "client-2", version=27)
    assert "does not support" in operator.ask(status()).remark
