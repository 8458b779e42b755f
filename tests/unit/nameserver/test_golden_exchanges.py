"""Recorded requests of Apache's brokers, clients and tools to Apache's name server: ours gives equivalent answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.nameserver.brokers import body, header
from tests.unit.nameserver.conftest import Visitor

from rocketline.nameserver import NameServer
from rocketline.protocol.bodies import DataVersion
from rocketline.protocol.command import Command
from rocketline.protocol.connection import Connection
from rocketline.protocol.fastjson import parse

EXCHANGES = Path(__file__).parents[2] / "golden" / "nameserver" / "exchanges.jsonl"
ADDRESS = "127.0.0.1:20911"


def _exchanges(encoding: str) -> Iterator[tuple[Command, Command]]:
    """Requests and answers; the registration comes first, the farewell last."""
    for line in EXCHANGES.read_text().splitlines():
        entry = json.loads(line)
        if entry["encoding"] == encoding:
            (request,) = Connection().receive(bytes.fromhex(entry["request"]))
            (response,) = Connection().receive(bytes.fromhex(entry["response"]))
            yield request, response


def _meaning(code: int, response: Command) -> dict[str, Any]:
    """An answer without what depends on the moment, on Java, or on the order of a hash table."""
    ext = dict(response.ext or {})
    for count in ("wipeTopicCount", "addTopicCount"):
        if count in ext:
            ext[count] = "some"
    told = parse(response.body) if response.body else None
    if isinstance(told, dict) and "topicList" in told:
        told["topicList"].sort()
    if code == 322:
        told = sorted(told)
    remark = None if response.remark == "not set any response code" else (response.remark or "").strip()
    return {"code": response.code, "remark": remark or None, "ext": ext, "body": told}


@pytest.mark.parametrize("encoding", ["json", "rmqboth"])
async def test_answers_mean_what_apaches_mean(server: NameServer, encoding: str):
    broker = Visitor(server)

    async def compare(request: Command, response: Command) -> None:
        expected = _meaning(request.code, response)
        answer = await broker.client.call(server.address, request, PATIENCE_S)
        assert _meaning(request.code, answer) == expected, request
        assert answer.encoding == request.encoding

    registration, *others = _exchanges(encoding)
    await compare(*registration)
    assert len(server.routes.all_topics().topic_list) > 10
    for topic, queues, perm in ((f"GT_basic_{encoding}", 2, 6), ("TBW102", 8, 7)):
        alone = body({topic: queues}, perm=perm, version=DataVersion(queues, 0, 1794733157838))
        await broker.register(header("broker-g", ADDRESS, cluster="GoldenCluster"), alone)
    for request, response in others:
        await compare(request, response)
    assert others[-1][0].code == 104
    assert server.routes.all_topics().topic_list == []
    await broker.leave()


@pytest.mark.parametrize("encoding", ["json", "rmqboth"])
async def test_old_clients_get_bare_keys_as_from_apache(server: NameServer, encoding: str):
    broker = Visitor(server)
    await broker.register(
        header("broker-g", ADDRESS, cluster="GoldenCluster"), body({f"GT_basic_{encoding}": 2, "TBW102": 8})
    )
    old = [
        (request, response)
        for request, response in _exchanges(encoding)
        if request.code == 105 and request.version < 401 and response.code == 0
    ]
    assert len(old) == 2
    for request, response in old:
        answer = await broker.client.call(server.address, request, PATIENCE_S)
        pieces = (b'"brokerAddrs":{0:"127.0.0.1:20911"}', b'"filterServerTable":{}')
        assert all(piece in response.body and piece in answer.body for piece in pieces)
    await broker.leave()
