"""Sending: what was asked for arrives, byte for byte, or is refused."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from tests.support.asgi import AsgiClient
from tests.unit.console.conftest import Console, Prepared, start

from rocketline.admin import Admin
from rocketline.admin.messages import by_offset_id
from rocketline.client import Producer
from rocketline.console.access import Role
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.message import SHARDING_KEY, Message, MessageView

SEND = "/c/default/topics/paid/send"
API = "/api/v1/c/default/topics/paid/messages"
BINARY = bytes(range(256))


async def stored(namesrv: str, offset_id: str) -> MessageView:
    async with Admin(namesrv) as admin:
        return await by_offset_id(admin, offset_id)


async def original(namesrv: str, body: bytes, **content: Any) -> str:
    """The offset id of a message to copy."""
    async with Producer(namesrv, group="tests") as producer:
        return (await producer.send(Message("paid", body, **content))).offset_id


async def copied(client: AsgiClient, offset_id: str, **edited: str) -> str:
    """Copy a message as a person does: open the form, send it; the offset id of the copy."""
    page = await client.get(f"{SEND}?copyOf={offset_id}")
    assert page.status == 200
    texts = re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>\n?(.*?)</textarea>', page.text, re.DOTALL)
    inputs = re.findall(r'<input[^>]*\sname="(\w+)"[^>]*\svalue="([^"]*)"', page.text)
    form = {name: html.unescape(value) for name, value in inputs if name not in ("csrf", "back", "id")}
    # A browser makes one kind of line break of all, and sends it as two bytes.
    form |= {name: re.sub("\r\n|\r|\n", "\r\n", html.unescape(value)) for name, value in texts}
    done = await client.post(SEND, form | edited)
    assert 'data-result="ok"' in done.text, done.shown
    found = re.search(r'data-offset-id="(\w+)"', done.text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        ("topics/paid/messages", {"body": "x", "orderingKey": "a"}, "orderingKey"),
        ("topics/paid/messages", {"body": "x", "delay": 10}, "delay"),
        ("topics", {"name": "unknown_fields", "perms": "R"}, "perms"),
        ("topics/paid/messages", {"body": "x", "topic": "orders"}, "topic"),
    ],
)
async def test_a_change_that_is_not_understood_is_not_made(
    admin_client: AsgiClient, path: str, change: dict[str, object], field: str
) -> None:
    answer = await admin_client.call("POST", f"/api/v1/c/default/{path}", change)
    assert (answer.status, [item["field"] for item in answer.json.get("fields", [])]) == (422, [field])


@pytest.mark.parametrize("body", ["a\r\nb", "\na\rb\n", "名\r\n"])
async def test_a_program_sends_the_bytes_that_it_gives(prepared: Prepared, admin_client: AsgiClient, body: str) -> None:
    sent = await admin_client.call("POST", API, {"body": body, "properties": {"note": "two\r\nlines", "a=b": " c "}})
    message = await stored(prepared.namesrv, sent.json["receipt"]["offsetId"])
    assert message.body == body.encode()
    assert (message.properties["note"], message.properties["a=b"]) == ("two\r\nlines", " c ")


async def test_a_program_sends_any_bytes_as_hex(prepared: Prepared, admin_client: AsgiClient) -> None:
    sent = await admin_client.call("POST", API, {"bodyHex": BINARY.hex()})
    message = await stored(prepared.namesrv, sent.json["receipt"]["offsetId"])
    assert message.body == BINARY
    for wrong in ({"bodyHex": "0"}, {"bodyHex": "zz"}, {"bodyHex": "00", "body": "x"}):
        assert (await admin_client.call("POST", API, wrong)).status == 422


async def test_a_receipt_has_fields(prepared: Prepared, admin_client: AsgiClient) -> None:
    receipt = (await admin_client.call("POST", API, {"body": "x"})).json["receipt"]
    message = await stored(prepared.namesrv, receipt["offsetId"])
    assert receipt == {
        "id": message.message_id, "offsetId": message.offset_id, "broker": "broker-a", "queue": message.queue_id,
        "offset": message.queue_offset,
    }  # fmt: skip


@pytest.mark.parametrize(
    "body", [BINARY, b"a\r\nb\rc\n", b"\n\nfirst lines", "名\u2028\x85".encode()], ids=lambda body: str(body[:6])
)
async def test_a_copy_has_the_same_bytes(prepared: Prepared, admin_client: AsgiClient, body: bytes) -> None:
    properties = {"lines": "1\r\n2", "a=b": " c ", "plain": "x", "separator": "a\u2028b"}
    first = await original(
        prepared.namesrv, body, tag="t", keys=["k1", "k2"], properties=properties, sharding_key="s", flag=7
    )
    copy = await stored(prepared.namesrv, await copied(admin_client, first))
    assert copy.body == body
    assert (copy.tag, list(copy.keys), copy.flag) == ("t", ["k1", "k2"], 7)
    assert {name: copy.properties.get(name) for name in properties} == properties
    assert copy.properties[SHARDING_KEY] == "s"


async def test_what_is_edited_in_a_copy_is_sent(prepared: Prepared, admin_client: AsgiClient) -> None:
    first = await original(prepared.namesrv, b"a\r\nb", tag="t", properties={"lines": "1\n2", "plain": "x"})
    copy = await stored(
        prepared.namesrv, await copied(admin_client, first, body="c\r\nd", properties="plain=y", tag="")
    )
    assert (copy.body, copy.tag, copy.properties["plain"]) == (b"c\nd", None, "y")
    assert copy.properties["lines"] == "1\n2"  # a line of the form cannot hold it


async def test_a_program_copies_by_id(prepared: Prepared, admin_client: AsgiClient) -> None:
    first = await original(prepared.namesrv, BINARY, tag="t", keys=["k"], properties={"plain": "x"})
    sent = await admin_client.call("POST", API, {"copyOf": first})
    copy = await stored(prepared.namesrv, sent.json["receipt"]["offsetId"])
    assert (copy.topic, copy.body, copy.tag, list(copy.keys), copy.properties["plain"]) == (
        "paid",
        BINARY,
        "t",
        ["k"],
        "x",
    )
    other = await admin_client.call("POST", API, {"copyOf": first, "body": "other"})
    assert (await stored(prepared.namesrv, other.json["receipt"]["offsetId"])).body == b"other"


async def test_a_form_says_what_it_cannot_show(prepared: Prepared, admin_client: AsgiClient) -> None:
    first = await original(prepared.namesrv, BINARY, properties={"lines": "1\n2"})
    page = await admin_client.get(f"{SEND}?copyOf={first}")
    assert "256 B" in page.shown
    assert "lines" in page.shown


async def test_a_masked_message_is_not_copied(prepared: Prepared) -> None:
    first = await original(prepared.namesrv, b'{"card": 1}')
    free = await original(prepared.namesrv, b'{"amount": 1}')
    config = ConsoleConfig((ClusterPlace("default", prepared.namesrv),), masks=("body.card",))
    async with start(config) as console:
        client = console.as_role(Role.OPERATOR)
        page = await client.get(f"{SEND}?copyOf={first}")
        assert page.status == 422
        assert "mask" in page.shown
        assert (await client.call("POST", API, {"copyOf": first})).status == 422
        assert (await client.get(f"{SEND}?copyOf={free}")).status == 200


async def test_the_audit_has_no_bodies(console: Console, admin_client: AsgiClient) -> None:
    await admin_client.call("POST", API, {"bodyHex": b"hunter2".hex()})
    assert b"hunter2".hex() not in str(list(console.desk.audit.lines))
