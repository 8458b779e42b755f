"""All routes of the console, each with the role it needs, as an ASGI application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

import rocketline.console.pages.all  # noqa: F401 (declares the endpoints)
from rocketline.console.access import Role
from rocketline.console.desk import Desk
from rocketline.console.dispatch import Dispatch, Handler
from rocketline.console.endpoints import ENDPOINTS, Endpoint
from rocketline.console.front import Front
from rocketline.console.guard import Guard
from rocketline.console.problems import Problem
from rocketline.console.responses import SafeHeaders
from rocketline.console.static_files import static_response

API = "/api/v1"
CLUSTER = "/c/{cluster}"
PUBLIC = "public"
"""Of routes that need nobody to be logged in."""


@dataclass(frozen=True)
class RouteRow:
    method: str
    path: str
    role: Role | str
    handler: Handler


def route_table(desk: Desk, show_link: Callable[[str], None]) -> list[RouteRow]:
    guard = Guard(desk)
    dispatch = Dispatch(desk, guard)
    front = Front(desk, guard, dispatch, show_link)
    rows = [
        RouteRow("GET", "/", PUBLIC, front.home),
        RouteRow("GET", "/login", PUBLIC, front.login_page),
        RouteRow("POST", "/login", PUBLIC, front.login),
        RouteRow("POST", "/login/link", PUBLIC, front.new_link),
        RouteRow("POST", "/logout", Role.VIEWER, front.logout),
        RouteRow("POST", "/settings", Role.VIEWER, front.choose),
        RouteRow("GET", "/healthz", PUBLIC, front.healthy),
        RouteRow("GET", "/static/{hash}/{name}", PUBLIC, _static),
    ]
    for endpoint in ENDPOINTS.values():
        if not (desk.config.read_only and endpoint.in_cluster and _is_for_changes(endpoint)):
            rows += _rows_of(endpoint, dispatch)
    return rows


def _is_for_changes(endpoint: Endpoint) -> bool:
    """Whether it makes a change, or is a form for one: a page that only those may open who may make its change."""
    if endpoint.changes:
        return True
    return any(item.form == endpoint.path and item.role == endpoint.role for item in ENDPOINTS.values())


def _rows_of(endpoint: Endpoint, dispatch: Dispatch) -> list[RouteRow]:
    place = CLUSTER if endpoint.in_cluster else ""
    rows = []
    if endpoint.page is not None:
        rows.append(RouteRow("GET", place + endpoint.path, endpoint.role, dispatch.page(endpoint)))
    if endpoint.live:
        rows.append(
            RouteRow("GET", f"{(place + endpoint.path).rstrip('/')}/cells", endpoint.role, dispatch.cells(endpoint))
        )
    if endpoint.form is not None:
        rows.append(RouteRow("POST", place + endpoint.form, endpoint.role, dispatch.form(endpoint)))
    if endpoint.in_api:
        rows.append(RouteRow(endpoint.method, API + place + endpoint.api_path, endpoint.role, dispatch.api(endpoint)))
    return rows


async def _static(request: Request) -> Response:
    return static_response(request)


def make_app(desk: Desk, show_link: Callable[[str], None] = lambda token: None) -> ASGIApp:
    """The console. A route without a role is a mistake of ours, and none is served then."""
    rows = route_table(desk, show_link)
    unguarded = [row.path for row in rows if not isinstance(row.role, Role) and row.role != PUBLIC]
    if unguarded:
        raise RuntimeError(f"routes without a role: {', '.join(unguarded)}")
    guard = Guard(desk)
    dispatch = Dispatch(desk, guard)

    async def failed(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        problem = Problem(status, {404: "no_page", 405: "no_method"}.get(status, "failed"))
        shown = dispatch.problem_json if request.scope["path"].startswith(API) else dispatch.problem_page
        return shown(request, None, problem)

    # Fixed paths come first: `/topics/new` is no topic.
    ordered = sorted(rows, key=lambda row: [part.startswith("{") for part in row.path.split("/")])
    routes = [Route(row.path, row.handler, methods=[row.method]) for row in ordered]
    app = Starlette(routes=routes, exception_handlers={HTTPException: failed, 404: failed, 405: failed})
    app.router.redirect_slashes = False  # `plain_path` does it
    return SafeHeaders(app, desk.config.root_path, uses_tls=desk.config.certificate is not None)
