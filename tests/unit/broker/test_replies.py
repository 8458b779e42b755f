"""Replies: stored in the reply topic, handed to the client that waits, and what the replier is told."""

from __future__ import annotations

import pytest
from tests.golden.wire.load import frames
from tests.unit.broker.parts import CLUSTER, STORE_HOST, MakeParts, Parts, Peer, eventually, heartbeat, send_request
from tests.unit.broker.rights import accounts_of, grant

from rocketline.auth.model import Action
from rocketline.broker.handlers import replies
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.protocol.headers import PushReplyHeader
from rocketline.protocol.message_ids import decode_host, offset_id
from rocketline.protocol.properties import decode_properties

TOPIC = f"{CLUSTER}_REPLY_TOPIC"
PROPERTIES = {
    "MSG_TYPE": "reply",
    "REPLY_TO_CLIENT": "asker-1",
    "UNIQ_KEY": "U1",
    "TTL": "3000",
    "CORRELATION_ID": "c-1",
}
REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def reply_request(**changes: object) -> Command:
    settings = {"topic": TOPIC, "body": b"yes", "code": RequestCode.SEND_REPLY_MESSAGE_V2, "properties": PROPERTIES}
    return send_request(**{**settings, **changes})  # type: ignore[arg-type]


def asker(parts: Parts, client_id: str = "asker-1") -> Peer:
    peer = parts.peer(("192.0.2.9", 50000))
    peer.ask(heartbeat(client_id, None, producers=("askers",)))
    return peer


async def test_a_client_id_belongs_to_its_account(make_parts: MakeParts) -> None:
    """Whoever knows the id of a client cannot have its replies."""
    accounts = accounts_of("asker", "thief", "replier")
    parts = make_parts(accounts=accounts)

    def beat(account: str) -> Peer:
        peer = parts.peer(account=account)
        assert peer.ask(heartbeat("asker-1", None, producers=("askers",))).code == ResponseCode.SUCCESS
        return peer

    first, thief, replier = beat("asker"), beat("thief"), parts.peer(account="replier")
    replier.send(reply_request())
    assert ((await first.next()).code, thief.received()) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, [])
    await first.close()
    thief.ask(heartbeat("asker-1", None, producers=("askers",)))
    answer = parts.peer(account="replier").ask(reply_request())
    assert (answer.code, thief.received()) == (ResponseCode.SYSTEM_ERROR, [])
    again = beat("asker")  # on a new connection
    replier.send(reply_request())
    assert (await again.next()).code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    parts.clock.advance(parts.config.client_expiry_ms / 1000 + 1)
    parts.producers.drop_expired()
    thief.ask(heartbeat("asker-1", None, producers=("askers",)))
    replier.send(reply_request())
    assert (await thief.next()).code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
async def test_a_reply_makes_no_topic_without_the_right(make_parts: MakeParts, code: RequestCode) -> None:
    accounts = accounts_of("replier")
    grant(accounts, "replier", "new", Action.PUB)
    parts = make_parts(accounts=accounts)
    replier = parts.peer(account="replier")
    answer = replier.ask(reply_request(topic="new", code=code))
    assert (answer.code, "new" in parts.topics.table) == (ResponseCode.NO_PERMISSION, False)
    grant(accounts, "replier", "new", Action.PUB, Action.CREATE)
    replier.ask(reply_request(topic="new", code=code))
    assert "new" in parts.topics.table


async def test_a_reply_is_stored_and_handed_over(parts: Parts) -> None:
    waiting, replier = asker(parts), parts.peer()
    replier.send(reply_request(flag=5))
    pushed = await waiting.next()
    assert (pushed.code, pushed.is_response, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, False, b"yes")
    now = str(parts.clock.now_ms())
    properties = decode_properties(pushed.ext.pop("properties"))
    assert properties == {**PROPERTIES, **REGION, "PUSH_REPLY_TIME": now}
    assert pushed.ext == {
        "producerGroup": "producers",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1600000000123",
        "flag": "5",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "bornHost": "192.0.2.5:40001",
        "storeHost": decode_host(STORE_HOST),
        "storeTimestamp": now,
    }
    assert replier.received() == []
    waiting.channel.data_received(frame_bytes(pushed.reply(ResponseCode.SUCCESS)))
    answer = await replier.next()
    [stored] = parts.messages(TOPIC)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert answer.ext == {
        "msgId": offset_id(STORE_HOST, stored.log_offset), "queueId": "0", "queueOffset": "0", **REGION
    }  # fmt: skip
    assert (stored.body, stored.properties, stored.flag) == (b"yes", {**PROPERTIES, **REGION}, 5)


def test_the_recorded_push_has_the_fields_that_ours_has() -> None:
    recorded = [frame for frame in frames() if frame.request == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT]
    requests = [
        command for frame in recorded for command in Connection().receive(frame.data) if not command.is_response
    ]
    assert requests
    for command in requests:
        header = PushReplyHeader.decode(command)
        assert header.encode() == command.ext
        assert {"PUSH_REPLY_TIME", "CORRELATION_ID", "MSG_REGION", "TRACE_ON"} <= decode_properties(
            header.properties
        ).keys()


async def test_the_long_spelling_is_the_same(parts: Parts) -> None:
    waiting, replier = asker(parts), parts.peer()
    request = reply_request()
    spelled = send_request(TOPIC, b"yes", code=RequestCode.SEND_MESSAGE, properties=PROPERTIES)
    replier.send(Command(RequestCode.SEND_REPLY_MESSAGE, spelled.ext, request.body))
    pushed = await waiting.next()
    waiting.channel.data_received(frame_bytes(pushed.reply(ResponseCode.SUCCESS)))
    assert (await replier.next()).code == ResponseCode.SUCCESS


async def test_nobody_there_is_told_and_the_reply_is_kept(parts: Parts) -> None:
    replier = parts.peer()
    replier.send(reply_request())
    answer = await replier.next()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "push reply message fail, channel of <asker-1> not found."
    assert answer.ext["queueOffset"] == "0"
    assert len(parts.messages(TOPIC)) == 1


async def test_a_client_that_is_gone_is_not_found(parts: Parts) -> None:
    waiting, replier = asker(parts), parts.peer()
    await waiting.close()
    replier.send(reply_request())
    assert (await replier.next()).code == ResponseCode.SYSTEM_ERROR


async def test_a_client_that_refuses_is_told(parts: Parts) -> None:
    waiting, replier = asker(parts), parts.peer()
    replier.send(reply_request())
    pushed = await waiting.next()
    waiting.channel.data_received(frame_bytes(pushed.reply(ResponseCode.SYSTEM_ERROR, remark="broken")))
    answer = await replier.next()
    assert (answer.code, "broken" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_client_that_does_not_answer_is_waited_for_so_long(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "PUSH_TIMEOUT_S", 0.01)
    asker(parts)
    replier = parts.peer()
    replier.send(reply_request())
    answer = await replier.next()
    assert (answer.code, "did not answer" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_client_that_leaves_meanwhile_is_told(parts: Parts) -> None:
    waiting, replier = asker(parts), parts.peer()
    replier.send(reply_request())
    await waiting.next()
    await waiting.close()
    assert (await replier.next()).code == ResponseCode.SYSTEM_ERROR


async def test_a_reply_to_nobody_is_told(parts: Parts) -> None:
    replier = parts.peer()
    replier.send(reply_request(properties={"UNIQ_KEY": "U1"}))
    answer = await replier.next()
    assert (answer.code, "REPLY_TO_CLIENT" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)


async def test_replies_need_not_be_stored(make_parts: MakeParts) -> None:
    parts = make_parts(stores_replies=False)
    waiting, replier = asker(parts), parts.peer()
    replier.send(reply_request())
    pushed = await waiting.next()
    waiting.channel.data_received(frame_bytes(pushed.reply(ResponseCode.SUCCESS)))
    answer = await replier.next()
    assert answer.ext == {"msgId": "0", "queueId": "0", "queueOffset": "0", **REGION}
    assert parts.messages(TOPIC) == []


async def test_a_full_store_does_not_keep_a_reply_from_who_waits(parts: Parts) -> None:
    waiting, replier = asker(parts), parts.peer()
    parts.store._note_room("no room, as the test wants it")
    replier.send(reply_request())
    pushed = await waiting.next()
    waiting.channel.data_received(frame_bytes(pushed.reply(ResponseCode.SUCCESS)))
    assert (await replier.next()).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"topic": "../x"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "nowhere", "template": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 9}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_what_no_send_may_do_no_reply_may(parts: Parts, changes: dict[str, object], code: int) -> None:
    answer = parts.peer().ask(reply_request(**changes))
    assert (answer.code, answer.ext) == (code, REGION)


async def test_the_newest_connection_of_a_client_gets_its_replies(parts: Parts) -> None:
    old, new, replier = asker(parts), asker(parts), parts.peer()
    await old.close()
    replier.send(reply_request())
    pushed = await new.next()
    assert pushed.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    new.channel.data_received(frame_bytes(pushed.reply(ResponseCode.SUCCESS)))
    await replier.next()


async def test_a_client_in_two_groups_stays_until_it_has_left_both(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(heartbeat("asker-1", None, producers=("a", "b")))
    parts.producers.leave(peer.channel, "a")
    assert parts.producers.find("asker-1") is peer.channel
    parts.producers.leave(peer.channel, "b")
    assert parts.producers.find("asker-1") is None
    assert parts.producers._holders == {}


async def test_a_closed_connection_leaves_no_trace(parts: Parts) -> None:
    peer = asker(parts)
    await peer.close()
    await eventually(lambda: parts.producers._holders == {})
    assert parts.producers.pick("askers") is None
