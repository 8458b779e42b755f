"""Large, wide and odd content: bytes are counted, cursors fit, and what is not whole says so."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import zlib
from urllib.parse import quote

import pytest
from tests.support.asgi import AsgiClient
from tests.unit.console.conftest import Console, Prepared, start

from rocketline.admin import Admin
from rocketline.admin.cursors import MAX_BYTES, MAX_QUEUES, BadCursor, Place, decode_cursor, encode_cursor
from rocketline.admin.delayed import waiting_by_level
from rocketline.admin.tail import Room, Tail
from rocketline.client import Producer
from rocketline.console.access import Role
from rocketline.console.bodies import json_tree
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.masks import MASK, Masks
from rocketline.console.pages.messages import EXPORT_BUDGET
from rocketline.errors import BrokerError
from rocketline.message import Message
from rocketline.protocol.bodies import TopicConfig
from rocketline.testing import LocalCluster

WIDE = 300
HALF = b'{"a": "\\ud800", "\\udfff": 1}'
"""JSON may name half a character, which no encoding has."""


async def make_topic(namesrv: str, name: str, queues: int) -> None:
    async with Admin(namesrv) as admin:
        for broker in await admin.brokers():
            await broker.put_topic(TopicConfig(name, queues, queues))


def _places(queues: int, brokers: int = 1) -> list[Place]:
    chance = random.Random(7)
    starts = [(f"broker-{n}", queue, chance.randrange(10**9)) for n in range(brokers) for queue in range(queues)]
    return [Place(name, queue, low, low + chance.randrange(10**6)) for name, queue, low in starts]


@pytest.mark.parametrize(("queues", "brokers", "most"), [(300, 1, 6_000), (64, 8, 8_000), (MAX_QUEUES, 1, 60_000)])
def test_cursors_of_wide_topics_fit(queues: int, brokers: int, most: int) -> None:
    places = _places(queues, brokers)
    assert decode_cursor(encode_cursor(places)) == places
    assert len(encode_cursor(places)) < most


def _packed(content: bytes) -> str:
    return base64.urlsafe_b64encode(zlib.compress(content)).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "x", "名", "AAAA", _packed(b"[]")[:-4], _packed(b" " * (MAX_BYTES + 5) + b"[]"), _packed(b'[["b",[0],[1],[]]]'),
        _packed(b'[["b",[0],[-1],[1]]]'), _packed(b"[" * 100_000), encode_cursor(_places(MAX_QUEUES + 1)),
    ],
)  # fmt: skip
def test_cursors_that_are_none_of_ours_are_refused(cursor: str) -> None:
    with pytest.raises(BadCursor):
        decode_cursor(cursor)


async def test_a_wide_topic_is_searched_and_followed(admin_client: AsgiClient, prepared: Prepared) -> None:
    await make_topic(prepared.namesrv, "wide", WIDE)
    async with Producer(prepared.namesrv, group="wide") as producer:
        await asyncio.gather(*(producer.send(Message("wide", b"x")) for _ in range(2 * WIDE)))
    seen, cursor = set[str](), ""
    for _ in range(2 * WIDE // 200):
        page = (await admin_client.get(f"/api/v1/c/default/topics/wide/messages?most=200&cursor={cursor}")).json
        seen |= {item["offsetId"] for item in page["items"]}
        cursor = page["next"]
    assert (len(seen), cursor) == (2 * WIDE, None)
    async with Admin(prepared.namesrv) as admin, Tail(admin, "wide") as tail:
        position = (await tail.next_batch(idle_s=0)).position
    async with Producer(prepared.namesrv, group="wide") as producer:
        await producer.send(Message("wide", b"later"))
    events = await admin_client.events("/c/default/topics/wide/tail", 1, last_event_id=position)
    assert [item["preview"] for item in events[0][1]["items"]] == ["later"]


async def test_a_tail_holds_bytes_not_only_messages(prepared: Prepared) -> None:
    await make_topic(prepared.namesrv, "heavy", 1)
    room = Room(messages=1000, bytes=100_000, body_bytes=20_000)
    async with Admin(prepared.namesrv) as admin, Tail(admin, "heavy", room=room) as tail:
        async with Producer(prepared.namesrv, group="heavy") as producer:
            for _ in range(20):
                await producer.send(Message("heavy", b"x" * 1_000_000))
        bodies, cut, dropped = list[bytes](), list[int](), 0
        while len(bodies) + dropped < 20:
            batch = await tail.next_batch()
            assert sum(len(message.body) for message in batch.messages) <= room.bytes
            bodies += [message.body for message in batch.messages]
            cut += batch.cut.values()
            dropped += batch.dropped
        assert {len(body) for body in bodies} == {20_000}
        assert cut == [1_000_000] * len(bodies)
        assert (tail._waiting_bytes, tail._cut) == (0, {})


async def test_lists_keep_the_beginning_of_bodies_and_exports_have_all(
    admin_client: AsgiClient, prepared: Prepared
) -> None:
    await make_topic(prepared.namesrv, "large", 1)
    body = random.Random(3).randbytes(400_000).hex().encode()
    assert EXPORT_BUDGET.body_bytes is not None
    assert len(body) > EXPORT_BUDGET.body_bytes
    async with Producer(prepared.namesrv, group="large") as producer:
        await producer.send(Message("large", body, keys=["k"]))
    (row,) = (await admin_client.get("/api/v1/c/default/topics/large/messages")).json["items"]
    assert (row["size"], len(row["preview"])) == (len(body), 240)
    (line,) = (await admin_client.get("/c/default/topics/large/export")).text.splitlines()
    content = json.loads(line)
    assert hashlib.sha256(content["body"].encode()).digest() == hashlib.sha256(body).digest()
    assert content["size"] == len(body)


def test_a_mask_hides_all_of_a_body_that_it_cannot_look_into() -> None:
    masks = Masks(["body.card"])
    assert masks.body(b'{"a":' * 100_000 + b"1" + b"}" * 100_000) == MASK.encode()
    assert masks.body(b'{"card": 1, "a": "\\ud800"}') == f'{{"card": "{MASK}", "a": "\\ud800"}}'.encode()


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"card": 4111}\n{"a": 1}\n', f'{{"card": "{MASK}"}}\n{{"a": 1}}\n'.encode()),
        (b'{"card": 4111} and more', MASK.encode()),
        (b'orders: {"card": 4111}', MASK.encode()),
        (b"{'card': 4111}", MASK.encode()),
        (b'{"card": 4111, "card": 1}', MASK.encode()),
        (b'{"card": {"number": 4111}, "card": 1}', MASK.encode()),
        (b'[{"card": 4111}]', f'[{{"card": "{MASK}"}}]'.encode()),
        ('{"card": 4111}'.encode("utf-16"), f'{{"card": "{MASK}"}}'.encode()),
        (b'{"a": 1}\n{"b": 2}', b'{"a": 1}\n{"b": 2}'),
        (b"plain text", b"plain text"),
    ],
    ids=lambda body: str(body[:24]),
)
def test_a_mask_holds_however_a_body_is_written(body: bytes, shown: bytes) -> None:
    assert Masks(["body.card", "body.card.number"]).body(body) == shown


async def test_a_masked_message_has_no_checksum(prepared: Prepared) -> None:
    for mask, is_known in (("body.secret", False), ("body.other", True)):
        config = ConsoleConfig((ClusterPlace("default", prepared.namesrv),), masks=(mask,))
        async with start(config) as console:
            client = console.as_role(Role.READER)
            shown = (await client.get(f"/api/v1/c/default/messages/{prepared.message_id}?topic=orders")).json
            assert (shown["crc"] is not None) == is_known


async def test_a_mask_hides_the_beginning_of_a_long_body(prepared: Prepared) -> None:
    await make_topic(prepared.namesrv, "cards", 1)
    body = json.dumps({"card": "4111-1111", "filler": "x" * 100_000}).encode()
    async with Producer(prepared.namesrv, group="cards") as producer:
        sent = await producer.send(Message("cards", body, keys=["k"]))
    config = ConsoleConfig((ClusterPlace("default", prepared.namesrv),), masks=("body.card",))
    async with start(config) as console:
        client = console.as_role(Role.ADMIN)
        for path in ("messages", "messages?key=k", "export", f"messages?id={sent.message_id}"):
            answer = await client.get(f"/api/v1/c/default/topics/cards/{path}")
            assert (answer.status, "4111" in answer.text, "•••" in answer.text) == (200, False, True), path


async def test_half_a_character_is_shown(admin_client: AsgiClient, prepared: Prepared) -> None:
    assert [(node.name, node.text) for node in json_tree(HALF)] == [("", ""), ("a", '"\\ud800"'), ("\\udfff", "1")]
    async with Producer(prepared.namesrv, group="half") as producer:
        sent = await producer.send(Message("paid", HALF))
    for place in ("/c/default", "/api/v1/c/default"):
        assert (await admin_client.get(f"{place}/messages/{sent.message_id}?topic=paid")).status == 200
    word = quote("x\ud800", errors="surrogatepass")
    assert (await admin_client.get(f"/c/default/topics?q={word}")).status == 200


async def test_what_waits_says_that_there_is_more(admin_client: AsgiClient, prepared: Prepared) -> None:
    async with Producer(prepared.namesrv, group="later") as producer:
        await asyncio.gather(*(producer.send(Message("paid", b"x", delay_level=18)) for _ in range(3)))
    async with Admin(prepared.namesrv) as admin:
        some, every = await waiting_by_level(admin, 18, 2), await waiting_by_level(admin, 18, 3)
    assert (len(some.value.messages), some.limited, some.complete) == (2, True, False)
    assert (len(every.value.messages), every.limited) == (3, False)
    shown = (await admin_client.get("/api/v1/c/default/delayed?level=18")).json
    assert (len(shown["items"]), shown["limited"], shown["complete"]) == (3, False, True)


async def test_an_export_without_a_silent_broker_says_so() -> None:
    async with LocalCluster(brokers=2) as cluster:
        await make_topic(cluster.namesrv, "both", 1)
        async with Producer(cluster.namesrv, group="both") as producer:
            await asyncio.gather(*(producer.send(Message("both", b"%d" % n)) for n in range(10)))
        async with start(ConsoleConfig((ClusterPlace("default", cluster.namesrv),))) as console:
            client = console.as_role(Role.READER)
            whole = (await client.get("/c/default/topics/both/export")).text.splitlines()
            assert sorted(json.loads(line)["body"] for line in whole) == [str(n) for n in range(10)]
            await client.get("/c/default/topics/both/messages")
            await cluster.stop_broker("broker-b")
            for form in ("jsonl", "csv"):
                lines = (await client.get(f"/c/default/topics/both/export?form={form}")).text.splitlines()
                assert "incomplete" in lines[-1]
                assert "broker-b" in lines[-1]
            last = [json.loads(line) for line in (await client.get("/c/default/topics/both/export")).text.splitlines()][
                -1
            ]
            assert last["incomplete"]


async def test_an_export_that_fails_on_its_way_says_so(
    console: Console, admin_client: AsgiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    import rocketline.console.pages.messages as page

    async def fails(*_: object) -> None:
        raise BrokerError(2, "busy")

    monkeypatch.setattr(page, "_whole", fails)
    lines = (await admin_client.get("/c/default/topics/orders/export")).text.splitlines()
    assert "busy" in json.loads(lines[-1])["incomplete"][0]
