"""Case 15: a large or hostile message never harms the page."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest
from tests.support.history_parts import listed, make_topic, send_all

from rocketline.admin import Admin
from rocketline.message import Message
from rocketline.protocol.bodies import HeartbeatData, ProducerData

from .conftest import OpenPage
from .history import HOSTILE
from .watched import Served

pytestmark = pytest.mark.asyncio(loop_scope="package")

TOPIC = "hostile"
MIB = 1 << 20
BODIES = {
    "large": b'{"text": "' + b"x" * (4 * MIB - 200) + b'"}',
    "binary": bytes(range(256)) * 4,
    "invalid": b"\xff\xfe\xc3\x28 text \xf0\x28\x8c\x28",
    "script": HOSTILE.encode(),
    "deep": b"[" * 5000 + b"]" * 5000,
}


async def sent(served: Served) -> dict[str, str]:
    """The ids of the hostile messages, by what each is."""
    async with Admin(served.namesrv) as admin:
        await make_topic(admin, TOPIC, 2)
        messages = [
            Message(TOPIC, body, tag=HOSTILE, keys=[HOSTILE.replace(" ", "")], properties={"note": HOSTILE})
            for body in BODIES.values()
        ]
        receipts = await send_all(served.namesrv, messages)
        await listed(admin, TOPIC, len(messages))
    return {name: receipt.message_id for name, receipt in zip(BODIES, receipts)}


async def test_hostile_messages_are_text(open_page: OpenPage, either: Served) -> None:
    ids = await sent(either)
    async with open_page(either, f"/topics/{TOPIC}/messages") as (page, _):
        assert await page.locator("tbody tr").count() == len(BODIES)
        assert HOSTILE in await page.locator("tbody").inner_text()
        for name, message_id in ids.items():
            for view in ("tree", "text", "hex"):
                answer = await page.goto(either.at(f"/messages/{message_id}?topic={TOPIC}&view={view}"))
                assert answer is not None
                assert answer.status == 200
                assert HOSTILE in await page.locator("main").inner_text(), name
                assert await page.title() != "owned"
                assert await page.locator("main script, main img").count() == 0
                cut = await page.locator(".note.warn").count()
                assert bool(cut) == (name == "large"), name
        answer = await page.context.request.get(either.at(f"/messages/{ids['large']}/body?topic={TOPIC}"))
        assert hashlib.sha256(await answer.body()).digest() == hashlib.sha256(BODIES["large"]).digest()
        assert answer.headers["content-type"] == "application/octet-stream"
        assert "attachment" in answer.headers["content-disposition"]
        await page.goto(either.at(f"/messages/{ids['binary']}?topic={TOPIC}&view=hex"))
        assert "00 01 02 03" in await page.locator("main").inner_text()


async def test_hostile_clients_and_parameters_are_text(open_page: OpenPage, ours: Served) -> None:
    # Clients of others check nothing: this one's id is hostile.
    data = HeartbeatData(HOSTILE, producer_data_set=[ProducerData("hostile_shop")])
    async with Admin(ours.namesrv) as admin:
        for broker in await admin.brokers():
            await broker.heartbeat(data)
        async with open_page(ours, "/producers") as (page, watch):
            watch.allowed |= {400, 404, 422}
            assert HOSTILE in await page.locator("main").inner_text()
            assert await page.locator("main img").count() == 0
            for path in (
                "/topics?q=<script>alert(1)</script>",
                "/topics/<script>alert(1)</script>",
                "/topics/orders/messages?where=<script>alert(1)</script>",
                "/topics/orders/messages?cursor=AAAA",
                "/messages?id=../../etc/passwd",
                "/traces/%00%ff",
                "/topics?page=99999999999999999999",
                "/groups/..%2f..%2fx",
            ):
                answer = await page.goto(ours.at(path))
                assert answer is not None
                assert answer.status < 500, path
                assert await page.locator("main script, main img").count() == 0


async def test_no_id_makes_the_console_connect_elsewhere(open_page: OpenPage, ours: Served) -> None:
    came = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        foreign = f"7F000001{port:08X}{0:016X}"
        async with open_page(ours, None) as (page, watch):
            watch.allowed |= {404, 502}
            for path in (f"/messages/{foreign}?topic=orders", f"/messages?id={foreign}&topic=orders"):
                answer = await page.goto(ours.at(path))
                assert answer is not None
                assert answer.status in (200, 404)
        assert not came.is_set()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await came.wait()  # it would have been noticed
        writer.close()


async def test_an_export_runs_no_formula(open_page: OpenPage, ours: Served) -> None:
    body = f"=cmd|' /C calc'!A0{os.getpid()}"
    async with Admin(ours.namesrv) as admin:
        await make_topic(admin, "formulas", 1)
        await send_all(ours.namesrv, [Message("formulas", body.encode(), tag="@SUM(1)", keys=["+1"])])
        await listed(admin, "formulas", 1)
    async with open_page(ours, None) as (page, _):
        answer = await page.context.request.get(ours.at("/topics/formulas/export?form=csv"))
        cells = (await answer.text()).splitlines()[1].replace('"', "").split(",")
    assert not [cell for cell in cells if cell[:1] in "=+-@" and cell]
