"""All pages of the console, with things to show on each."""

from __future__ import annotations

from .history import BILLING, DOOMED, FAILING, ORDERS, PAID
from .watched import Served

SHOP = "shop"
SECURE_PLACES = [
    "/access",
    "/access?q=nobody",
    f"/access/users/new?name={SHOP}",
    f"/access/users/{SHOP}/delete",
    "/access/rules/new",
    "/brokers/broker-a?tab=settings",
    "/doctor",
]
"""Pages of a cluster that has accounts."""
OF_CONSOLE = ["/settings", "/api/docs"]
"""Pages that belong to no cluster."""


def places(served: Served) -> list[str]:
    """The paths of all pages below a cluster."""
    traced = served.history.traced_id
    return [
        "/",
        "/brokers",
        "/brokers/broker-a",
        "/brokers/broker-a?tab=settings",
        "/brokers/broker-a?tab=timers",
        "/brokers/broker-a?tab=replication",
        "/brokers/broker-a/settings?name=fileReservedTime",
        "/brokers/broker-a/writing",
        "/topics",
        "/topics?all=true",
        "/topics/new",
        f"/topics/{ORDERS}",
        f"/topics/{ORDERS}?tab=groups",
        f"/topics/{ORDERS}?tab=producers",
        f"/topics/{ORDERS}?tab=settings",
        f"/topics/{ORDERS}/edit",
        f"/topics/{DOOMED}/delete",
        f"/topics/{ORDERS}/messages",
        f"/topics/{ORDERS}/live",
        f"/topics/{PAID}/send",
        "/messages",
        f"/messages?id={traced}&topic={ORDERS}",
        f"/messages?id={'A1' * 16}",
        f"/messages/{traced}?topic={ORDERS}",
        f"/messages/{traced}?topic={ORDERS}&view=hex",
        f"/messages/{traced}/hand-over?topic={ORDERS}",
        "/groups",
        "/groups/new",
        f"/groups/{BILLING}",
        f"/groups/{BILLING}?tab=members",
        f"/groups/{BILLING}?tab=settings",
        f"/groups/{BILLING}/edit",
        f"/groups/{BILLING}/delete",
        f"/groups/{BILLING}/reset?topic={ORDERS}&to=oldest",
        "/dead-letters",
        f"/dead-letters/{FAILING}",
        "/traces",
        f"/traces/{traced}",
        "/delayed",
        "/transactions",
        "/producers",
        "/access",
        "/access/users/new",
        "/access/rules/new",
        "/doctor",
        "/charts",
        "/audit",
    ]


def wrong_places(served: Served) -> dict[str, int]:
    """Pages that say what is wrong, with the status of each."""
    return {
        "/topics/there-is-none": 404,
        "/groups/there-is-none": 404,
        "/brokers/there-is-none": 404,
        f"/messages/{'AB' * 16}?topic={ORDERS}": 404,
        f"/topics/{ORDERS}/messages?where=amount+%3E+AND": 422,
        f"/topics/{ORDERS}/messages?begin=yesterday": 422,
        f"/topics/{ORDERS}/messages?most=1000": 422,
        "/nothing": 404,
    }
