"""Language, theme, density and zone are chosen in place: who chooses stays where it is."""

from __future__ import annotations

import html
import re

import pytest
from tests.support.asgi import AsgiClient

BACK = re.compile(r'name="back" value="([^"]*)"')


@pytest.mark.parametrize(
    "path",
    [
        "/c/default/topics?q=ord&sort=-lag",
        "/c/default/topics/orders/messages?where=body.region+%3D+%27a%2F%2Fb%27&most=10",
        "/c/default/groups/billing?tab=members",
        "/settings",
        "/api/docs",
    ],
)
async def test_who_chooses_stays_where_it_is(admin_client: AsgiClient, path: str) -> None:
    page = await admin_client.get(path)
    for back in BACK.findall(page.text):
        chosen = await admin_client.post("/settings", {"language": "zh", "back": html.unescape(back)})
        assert (chosen.status, chosen.header("location")) == (303, path)
    assert BACK.search(page.text)


@pytest.mark.parametrize(
    "back", ["//evil.example/", "/c/default//evil.example", "/\\evil.example", "https://evil.example/c/"]
)
async def test_a_choice_leads_to_no_other_site(admin_client: AsgiClient, back: str) -> None:
    await admin_client.get("/settings")
    assert (await admin_client.post("/settings", {"back": back})).header("location") == "/c/default/"
