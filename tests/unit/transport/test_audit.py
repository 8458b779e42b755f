"""One line for every change of an operator."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from tests.support.request_table import KINDS, Kind

from rocketline.errors import RequestRejected
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.signing import Credentials
from rocketline.transport import Reply, Router
from rocketline.transport.audit import CHANGES, audited

CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC


class Peer:
    remote = "192.0.2.7:5000"
    identity = certificate = ""


def serve(request: Command, reply: Any) -> Reply:
    """Have a handler that returns or raises something serve a request."""

    def handler(channel: object, request: Command) -> Reply:
        if isinstance(reply, BaseException):
            raise reply
        return reply(request)  # type: ignore[no-any-return]

    router = audited(Router({request.code: handler}))
    return router.serve(Peer(), request)  # type: ignore[arg-type]


def done(request: Command) -> Command:
    return request.reply(ResponseCode.SUCCESS)


@pytest.fixture(autouse=True)
def listening(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rocketline.audit")


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.name == "rocketline.audit"]


def test_every_change_is_audited() -> None:
    """And a topic that a broker registers: it may be an operator who says so."""
    assert set(KINDS[Kind.CHANGE]) == CHANGES - {RequestCode.REGISTER_TOPIC_IN_NAMESRV}


async def test_a_change_is_told(caplog: pytest.LogCaptureFixture) -> None:
    serve(Command(CREATE, {"topic": "orders", "readQueueNums": "8", "AccessKey": "amy", "Signature": "c2VjcmV0"}), done)
    assert caplog.messages == [
        'who="192.0.2.7:5000" access_key="amy" what="UPDATE_AND_CREATE_TOPIC" '
        'object={"topic": "orders", "readQueueNums": "8"} result="SUCCESS"'
    ]


async def test_the_account_of_a_certificate_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Peer, "identity", "amy")
    monkeypatch.setattr(Peer, "certificate", "amy")
    serve(Command(CREATE, {"topic": "orders"}), done)
    (line,) = told(caplog)
    assert (line["access_key"], line["certificate"]) == ("amy", "amy")


async def test_what_a_signature_needs_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    request = Command(CREATE, {"topic": "orders"})
    Credentials("amy", "hush", security_token="token", replay_protection=True).sign(request)
    serve(request, done)
    assert told(caplog)[0]["object"] == {"topic": "orders"}


async def test_a_refusal_is_told_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    reply = serve(Command(CREATE, {"topic": "x/y"}), RequestRejected(ResponseCode.INVALID_PARAMETER, "no such name"))
    assert isinstance(reply, Command)
    assert reply.code == ResponseCode.INVALID_PARAMETER
    (line,) = told(caplog)
    assert (line["access_key"], line["result"], line["why"]) == ("-", "INVALID_PARAMETER", "no such name")


async def test_a_failure_is_told_and_still_answered(caplog: pytest.LogCaptureFixture) -> None:
    reply = serve(Command(CREATE, {}), ValueError("a mistake"))
    assert isinstance(reply, Command)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    (line,) = told(caplog)
    assert (line["result"], line["why"]) == ("SYSTEM_ERROR", "ValueError: a mistake")


async def test_what_takes_a_while_is_told_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()

    async def later(request: Command) -> Command:
        await gate.wait()
        return request.reply(ResponseCode.CONSUMER_NOT_ONLINE, remark="nobody is there")

    request = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "billing"})
    reply = serve(request, later)
    assert told(caplog) == []
    gate.set()
    assert isinstance(reply, asyncio.Future)
    await reply
    await asyncio.sleep(0)
    (line,) = told(caplog)
    assert (line["object"], line["result"], line["why"]) == (
        {"consumerGroup": "billing"}, "CONSUMER_NOT_ONLINE", "nobody is there",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "body", "names"),
    [
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"billing"}', ["billing"]),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b'{"topicConfigList":[{"topicName":"a"},{"topicName":"b"}]}', ["a", "b"]),
        (RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=48\nsecretKey=hush", ["fileReservedTime", "secretKey"]),
    ],
)  # fmt: skip
async def test_of_a_body_names_are_told(
    caplog: pytest.LogCaptureFixture, code: RequestCode, body: bytes, names: list[str]
) -> None:
    serve(Command(code, {}, body), done)
    assert told(caplog)[0]["object"] == {"names": names}
    assert "hush" not in caplog.text


async def test_values_of_key_value_settings_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    serve(Command(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "password", "value": "hush"}), done)
    assert told(caplog)[0]["object"] == {"namespace": "n", "key": "password"}
    assert "hush" not in caplog.text


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[1,2", b"[]", b'{"groupName": 7}', b'"x"'])
async def test_a_body_that_makes_no_sense_is_no_trouble(caplog: pytest.LogCaptureFixture, body: bytes) -> None:
    serve(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body), done)
    assert told(caplog)[0]["object"] == {}


async def test_nobody_writes_lines_of_his_own(caplog: pytest.LogCaptureFixture) -> None:
    name = 'x" result="SUCCESS"\n2026-01-01 INFO rocketline.audit: who="root"'
    serve(Command(CREATE, {"topic": name, "more": "y" * 10_000, **{str(number): "" for number in range(99)}}), done)
    (line,) = caplog.messages
    assert "\n" not in line
    assert len(line) < 1500
    _, _, rest = line.partition(" object=")
    assert json.JSONDecoder().raw_decode(rest)[0]["topic"] == name


async def test_questions_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    serve(Command(RequestCode.GET_MAX_OFFSET, {"topic": "orders"}), done)
    assert told(caplog) == []


def test_every_request_that_creates_updates_or_deletes_is_a_change() -> None:
    """A new code with such a name is either told of, or is here because clients and brokers send it all day."""
    words = {"CREATE", "UPDATE", "DELETE", "CLEAN", "RESET", "PUT", "WIPE", "ADD", "SET", "CLONE", "RESUME"}
    words |= {"ELECT", "CHANGED"}
    everyday = {
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    }
    named = {code for code in RequestCode if words & set(code.name.split("_"))}
    assert named - CHANGES - everyday == set()
