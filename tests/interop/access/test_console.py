"""People log in to the console with accounts of brokers, Apache's and ours, and see what those let them see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.interop.access.conftest import Sides
from tests.support.access.frames import Account
from tests.support.access.world import ORDERS, OTHER, ROOT, Side, allow
from tests.support.asgi import AsgiClient
from tests.unit.console.conftest import start

from rocketline.console.config import ClusterPlace, ConsoleConfig

READER = Account("page-reader", "secret of page-reader")
REFUSED = f"refused with 16: User:{READER.name} has no permission to access "
TOPIC, CLUSTER = f"{REFUSED}Topic:{OTHER}", f"{REFUSED}Cluster:"
NOT_ALL = "Nothing came, but the answer is not complete."


@pytest.fixture(scope="module", params=["theirs", "ours"])
def side(request: pytest.FixtureRequest, sides: Sides) -> Side:
    """With an account that may read one topic."""
    found: Side = getattr(sides, request.param)
    found.admit(READER, allow(f"Topic:{ORDERS}", "Get", "Sub"), allow("Group:TOOLS_CONSUMER", "Sub"))
    for topic in (ORDERS, OTHER):
        found.mark(topic)
        found.await_route(ROOT, topic)
    found.await_route(READER, ORDERS)
    return found


@asynccontextmanager
async def entered(side: Side, who: Account) -> AsyncIterator[AsgiClient]:
    """A browser of somebody who has logged in."""
    config = ConsoleConfig((ClusterPlace("default", side.namesrv),), broker_login=True)
    async with start(config) as console:
        client = AsgiClient(console.client.app)
        assert (await client.post("/login", {"name": who.name, "password": who.secret})).status == 303
        yield client


async def test_a_reader_of_one_topic_sees_that_topic_and_why_not_others(side: Side) -> None:
    async with entered(side, READER) as client:

        async def page(path: str) -> str:
            return (await client.get(f"/c/default{path}")).shown

        assert f"broker-a {side.broker} {CLUSTER}" in (one := await page(f"/topics/{ORDERS}"))
        assert "Messages –" not in one  # its queues are told
        found = await page(f"/topics/{ORDERS}/messages")
        assert "refused" not in found
        assert "broker-a:0@0 " in found
        for path in (f"/topics/{OTHER}", f"/topics/{OTHER}/messages"):
            shown = await page(path)
            assert f"broker-a {side.broker} {TOPIC}" in shown
            assert NOT_ALL in shown
        assert "Messages – " in await page(f"/topics/{OTHER}")
        for path in ("/", "/groups", "/access", "/producers", "/delayed", "/transactions", "/dead-letters"):
            shown = await page(path)
            assert REFUSED in shown, path
            assert "does not answer" not in shown, path
            assert "being examined" in shown or NOT_ALL in shown or "– –" in shown, path
        assert "Lag – groups:" in await page("/")
        assert REFUSED.partition("User")[2] in (doctor := await page("/doctor"))
        assert "brokerIP1" not in doctor
        assert doctor.count("the account of this client") + doctor.count("what the account may do") == 1


async def test_what_a_broker_refuses_to_do_is_a_problem_with_its_code(side: Side) -> None:
    async with entered(side, READER) as client:
        await client.get(f"/c/default/topics/{OTHER}/send")
        answer = await client.call("POST", f"/api/v1/c/default/topics/{OTHER}/messages", {"body": "x"})
    problem = answer.json
    assert (answer.status, problem["code"], problem["address"]) == (502, 16, side.broker)
    assert problem["hint"].startswith("check the credentials")
    assert "Hint" not in problem["detail"]
