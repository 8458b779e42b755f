"""The API: described by itself, and asked at random by its own description. Nothing fails with 500."""

from __future__ import annotations

import random
import re
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from tests.support.asgi import AsgiClient
from tests.unit.console.conftest import Console

from rocketline.console.access import Role
from rocketline.console.endpoints import ENDPOINTS, Download
from rocketline.console.openapi import description
from rocketline.console.problems import ProblemView

WORDS = [
    "orders", "billing", "mailer", "broker-a", "default", "-1", "0", "3", "true", "", "<script>", "%00", "名", "a" * 300,
    "\ud800", "x\udfff", "time", "end", "offset", "2026-11-18T00:00:00", "-10m", "x = 'y'", "(((", "9" * 30, "1e400",
    "../../etc/passwd",
]  # fmt: skip
ENDLESS = {"tail"}
"""Its answer goes on: what it does with any parameters is asked through its events."""
PASSES = 3


def test_every_endpoint_is_described() -> None:
    described = {
        operation["operationId"] for methods in description()["paths"].values() for operation in methods.values()
    }
    assert described == {item.name for item in ENDPOINTS.values() if item.in_api}


def test_all_references_lead_somewhere() -> None:
    names = set(re.findall(r"#/components/schemas/(\w+)", repr(description())))
    assert names <= description()["components"]["schemas"].keys()


def test_parameters_of_paths_are_described() -> None:
    for path, methods in description()["paths"].items():
        for operation in methods.values():
            given = {item["name"] for item in operation["parameters"] if item["in"] == "path"}
            assert given == set(re.findall(r"\{(\w+)\}", path))


def _value(chance: random.Random, schema: dict[str, Any]) -> Any:
    kind = schema.get("type")
    options = schema.get("enum") or [item for part in schema.get("anyOf", []) for item in part.get("enum", [])]
    if options and chance.random() < 0.8:
        return chance.choice(options)
    if chance.random() < 0.15:
        return chance.choice([None, [], {}, -1, 10**30, 1.5, True, "x", [None]])
    if kind == "integer":
        return chance.choice([0, 1, 7, 2**31, 2**63 - 1])
    if kind == "boolean":
        return chance.random() < 0.5
    if kind == "array":
        return [chance.choice(WORDS) for _ in range(chance.randrange(4))]
    return chance.choice(WORDS)


@pytest.mark.parametrize("seed", range(PASSES))
async def test_random_requests_never_fail_here(console: Console, seed: int) -> None:
    chance = random.Random(seed)
    client = console.as_role(Role.ADMIN, f"fuzz{seed}")
    problems: list[str] = []
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            if operation["operationId"] in ENDLESS:
                continue
            schemas = {item["name"]: item["schema"] for item in operation["parameters"]}
            place = re.sub(r"\{(\w+)\}", lambda found: _part(chance, found[1]), path)
            query = [(name, str(_value(chance, schema))) for name, schema in schemas.items() if chance.random() < 0.5]
            answer = await _ask(
                client, chance, method.upper(), f"{place}?{urlencode(query, errors='replace')}", operation
            )
            if not _is_described(answer, operation["operationId"]):
                problems.append(f"{method} {place} {query}: {answer.status} {answer.text[:200]}")
    assert problems == []


@pytest.mark.parametrize("seed", range(PASSES))
async def test_random_tails_never_fail_here(console: Console, seed: int) -> None:
    """They follow, or say what is wrong with the question."""
    chance = random.Random(seed)
    path, operation = next(
        (path, methods["get"])
        for path, methods in description()["paths"].items()
        if methods.get("get", {}).get("operationId") == "tail"
    )
    client = console.as_role(Role.READER, f"tail{seed}")
    schemas = {item["name"]: item["schema"] for item in operation["parameters"] if item["in"] == "query"}
    followed = 0
    for _ in range(20):
        place = re.sub(r"\{(\w+)\}", lambda found: _part(chance, found[1]), path)
        query = [(name, str(_value(chance, schema))) for name, schema in schemas.items() if chance.random() < 0.5]
        status, kind, event = await client.first_event(f"{place}?{urlencode(query, errors='replace')}")
        assert status in (200, 403, 404, 422, 502), (place, query)
        assert kind == ("text/event-stream" if status == 200 else "application/problem+json"), (place, query)
        assert status != 200 or event in ("batch", "quiet", "problem"), (place, query)
        followed += event in ("batch", "quiet")
    assert followed


def _is_described(answer: Any, name: str) -> bool:
    """Whether the description promises such an answer: a file, a struct, or a problem that is no failure of ours."""
    kind, gives = answer.header("content-type"), ENDPOINTS[name].gives
    if answer.status == 200 and gives is Download:
        return kind == "application/octet-stream"
    if answer.status == 200:
        return kind == "application/json" and bool(msgspec.json.decode(answer.text, type=gives))
    problem = msgspec.json.decode(answer.text, type=ProblemView)
    is_ours = answer.status >= 500 and answer.status not in (502, 504)
    return (
        kind == "application/problem+json" and problem.status == answer.status and bool(problem.title) and not is_ours
    )


def _part(chance: random.Random, name: str) -> str:
    known = {"cluster": "default", "topic": "orders", "group": "mailer", "broker": "broker-a"}
    if name in known and chance.random() < 0.7:
        return known[name]
    return quote(chance.choice(WORDS) or "x", safe="", errors="surrogatepass")


async def _ask(client: AsgiClient, chance: random.Random, method: str, url: str, operation: dict[str, Any]) -> Any:
    if method == "GET":
        return await client.get(url)
    fields = operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
    body = {name: _value(chance, schema) for name, schema in fields.items() if chance.random() < 0.8}
    body.pop("confirm", None)  # what others need is not deleted
    return await client.call(method, url, body)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'"x"', b"[" * 5000], ids=lambda body: str(body[:4]))
async def test_broken_json_is_refused(admin_client: AsgiClient, body: bytes) -> None:
    answer = await admin_client._ask("POST", "/api/v1/c/default/topics", body, {"x-csrf-token": admin_client.token})
    assert answer.status == 422
    assert answer.header("content-type") == "application/problem+json"


async def test_problems_name_field_role_and_place(admin_client: AsgiClient, console: Console) -> None:
    field = (await admin_client.get("/api/v1/c/default/topics?page=0")).json
    assert (field["status"], field["fields"][0]["field"]) == (422, "page")
    role = (await console.as_role(Role.VIEWER).get("/api/v1/c/default/topics/orders/messages")).json
    assert (role["status"], role["role"]) == (403, "reader")
    lost = (await admin_client.get("/api/v1/c/default/groups/nobody")).json
    assert lost["status"] == 404
    listed = (await admin_client.get("/api/v1/c/default/groups?all=true&q=nobody")).json
    assert listed["total"] == 0  # reading created nothing


@pytest.mark.parametrize(
    "path",
    ["topics/orders/messages?where=amount+%3E+AND", "topics/orders/messages?queue=99", "topics/%3Cb%3E/messages"],
)
async def test_problems_speak_the_language_of_who_asks(admin_client: AsgiClient, path: str) -> None:
    chinese = re.compile("[一-鿿]")
    asked = f"/api/v1/c/default/{path}"
    english = (await admin_client.get(asked, accept_language="en")).json
    assert not chinese.search(english["title"] + english["detail"])
    problem = (await admin_client.get(asked, accept_language="zh-CN")).json
    for text in (problem["title"], problem["detail"], *(item["problem"] for item in problem.get("fields", []))):
        assert chinese.search(text), problem
