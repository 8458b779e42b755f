"""From a request to an endpoint and back: as a page, as a form, as JSON, and as cells that change in place."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rocketline.clock import SYSTEM_CLOCK
from rocketline.console.access import Role
from rocketline.console.audit import audit_line
from rocketline.console.desk import Desk
from rocketline.console.endpoints import ENDPOINTS, Change, Download, Endpoint, Stream, path_names, read_input
from rocketline.console.guard import MAX_FIELDS, Guard, NotLoggedIn, form_fields, read_body
from rocketline.console.limits import Heavy
from rocketline.console.problems import FieldProblem, Problem, ProblemView, field_problem, problem_of
from rocketline.console.render import Page
from rocketline.console.responses import Going, Streaming, download, event_stream, respond
from rocketline.console.said import said
from rocketline.console.visit import Visit

Handler = Callable[[Request], Awaitable[Response]]

CELLS_EVERY_S = 2.0
CELLS_SHARE = 0.015
"""Of the time, at most so much is spent on asking for the numbers of one open page."""
STREAM_LIFE_S = 30 * 60.0
NO_TEMPLATE = "-"
"""Instead of a template: the answer is a file or a stream."""
ENCODER = msgspec.json.Encoder(order=None)


class Dispatch:
    """Makes a handler for each way to reach an endpoint."""

    def __init__(self, desk: Desk, guard: Guard) -> None:
        self._desk = desk
        self._guard = guard

    # Pages

    def page(self, endpoint: Endpoint) -> Handler:
        async def handle(request: Request) -> Response:
            visit: Visit | None = None
            try:
                visit = self._enter(request, endpoint, is_page=True)
                view = await self._read(visit, endpoint, request)
                if isinstance(view, Streaming):
                    return view
                assert endpoint.page is not None
                return self._html(request, _page(visit, request).html(endpoint.page, view))
            except NotLoggedIn as nobody:
                return self._to_login(nobody)
            except Exception as error:
                problem = problem_of(error)
                if visit is not None and problem.view.fields:
                    shown = await self._form_again(request, visit, endpoint, endpoint.path, _query(request), problem)
                    if shown is not None:
                        return shown
                return self.problem_page(request, visit, problem)

        return handle

    def form(self, endpoint: Endpoint) -> Handler:
        """A change from a browser's form. What cannot be used is shown again, with the reason at its field."""

        async def handle(request: Request) -> Response:
            visit: Visit | None = None
            fields: list[tuple[str, str]] = []
            try:
                visit = self._enter(request, endpoint, is_page=True)
                fields = form_fields(await read_body(request, endpoint.max_bytes))
                self._guard.check_change(request, visit.session, dict(fields).get("csrf", ""))
                view = await self._change(visit, endpoint, read_input(endpoint.takes, fields, _path(request)))
                return self._html(request, _page(visit, request).html("result.html", view))
            except Exception as error:
                problem = problem_of(_readable(error))
                if visit is not None and problem.view.status in (409, 422):
                    shown = await self._form_again(request, visit, endpoint, endpoint.form, fields, problem)
                    if shown is not None:
                        return shown
                return self.problem_page(request, visit, problem)

        return handle

    async def _form_again(
        self,
        request: Request,
        visit: Visit,
        endpoint: Endpoint,
        path: str | None,
        fields: list[tuple[str, str]],
        problem: Problem,
    ) -> Response | None:
        """The page that has the form, with what was given and what is wrong with it."""
        form = next((item for item in ENDPOINTS.values() if item.path == path and item.page), None)
        if form is None or form.page in (None, NO_TEMPLATE):
            return None
        known = {item.encode_name for item in msgspec.structs.fields(form.takes)}
        query = [pair for pair in fields if pair[0] in known and form is not endpoint]
        try:
            view = await form.run(visit, read_input(form.takes, query, _path(request)))
        except Exception:
            return None
        assert form.page is not None
        html = _page(visit, request).html(form.page, view, given=dict(fields), problem=self._worded(visit, problem))
        return self._html(request, html, problem.view.status)

    def cells(self, endpoint: Endpoint) -> Handler:
        """The texts of a page's numbers, again and again; only those that changed are sent."""

        async def handle(request: Request) -> Response:
            try:
                visit = self._enter(request, endpoint, is_page=False)
                wanted = read_input(endpoint.takes, _query(request), _path(request))
                visit.is_refresh = True
                work = self._hold(Heavy.CELLS, visit)
            except Exception as error:
                return self.problem_json(request, None, problem_of(_readable(error)))
            return event_stream(self._cell_events(visit, endpoint, wanted, request), _going(visit, work))

        return handle

    async def _cell_events(
        self, visit: Visit, endpoint: Endpoint, wanted: Any, request: Request
    ) -> AsyncIterator[bytes]:
        assert endpoint.page is not None
        before: dict[str, str] | None = None
        ends_s = SYSTEM_CLOCK.monotonic() + STREAM_LIFE_S
        yield b"retry: 3000\n\n"
        while SYSTEM_CLOCK.monotonic() < ends_s:
            began_s = SYSTEM_CLOCK.monotonic()
            try:
                page = _page(visit, request)
                page.html(endpoint.page, await endpoint.run(visit, wanted))
            except Exception as error:
                yield _event("problem", problem_of(error).view)
            else:
                texts = page.cells.texts
                if before is not None and texts.keys() != before.keys():
                    yield _event("rows", {})
                changed = {key: text for key, text in texts.items() if before is None or before.get(key) != text}
                yield _event("cells", changed)
                before = texts
            spent_s = SYSTEM_CLOCK.monotonic() - began_s
            await asyncio.sleep(max(CELLS_EVERY_S, spent_s / CELLS_SHARE))
        yield _event("end", {})

    # API

    def api(self, endpoint: Endpoint) -> Handler:
        async def handle(request: Request) -> Response:
            visit: Visit | None = None
            try:
                visit = self._enter(request, endpoint, is_page=False)
                if endpoint.changes:
                    self._guard.check_change(request, visit.session, "")
                    view = await self._change(visit, endpoint, await _json_input(request, endpoint))
                else:
                    view = await self._read(visit, endpoint, request)
                if isinstance(view, Streaming):
                    return view
                return respond(request, ENCODER.encode(view), "application/json")
            except Exception as error:
                return self.problem_json(request, visit, problem_of(_readable(error)))

        return handle

    # What all have in common

    def _enter(self, request: Request, endpoint: Endpoint, *, is_page: bool) -> Visit:
        cluster = request.path_params.get("cluster", "") if endpoint.in_cluster else ""
        visit = self._guard.enter(
            request, endpoint.role, is_page=is_page, cluster=cluster, of_console=endpoint.of_console
        )
        if not visit.cluster:
            visit.cluster = next(iter(self._desk.places))
        return visit

    def _hold(self, kind: Heavy | None, visit: Visit) -> ExitStack:
        """A part of what may be done at once, held until it is closed; Problem 429 when too much is."""
        work = ExitStack()
        if kind is not None:
            work.enter_context(self._desk.limits.hold(kind, visit.person.key))
        return work

    async def _read(self, visit: Visit, endpoint: Endpoint, request: Request) -> Any:
        """The answer; of a file or stream the response, which holds its part of the limits until it ends."""
        try:
            wanted = read_input(endpoint.takes, _query(request), _path(request))
        except msgspec.ValidationError as error:
            raise _readable(error) from error
        with self._hold(endpoint.heavy, visit) as work:
            view = await endpoint.run(visit, wanted)
            if endpoint.audited:
                self._note(visit, endpoint, wanted, ok=True, outcome="read")
            if isinstance(view, Download):
                return download(view.chunks, view.name, view.kind, _going(visit, work.pop_all()))
            if isinstance(view, Stream):
                return event_stream(view.events, _going(visit, work.pop_all()))
            return view

    async def _change(self, visit: Visit, endpoint: Endpoint, wanted: Any) -> Any:
        async def make() -> Any:
            try:
                view = await endpoint.run(visit, wanted)
            except Exception as error:
                self._note(visit, endpoint, wanted, ok=False, outcome=str(error) or type(error).__name__)
                raise
            outcome = "; ".join(f"{item.where} {item.problem or 'ok'}".strip() for item in getattr(view, "items", []))
            self._note(visit, endpoint, wanted, ok=getattr(view, "ok", True), outcome=outcome or "ok")
            return view

        if not isinstance(wanted, Change) or not wanted.idempotency_key:
            return await make()
        words = hashlib.sha256(ENCODER.encode(wanted)).hexdigest()
        return await self._desk.once((visit.person.key, visit.cluster, endpoint.name, words), make)

    def _note(self, visit: Visit, endpoint: Endpoint, wanted: Any, *, ok: bool, outcome: str) -> None:
        given = msgspec.to_builtins(wanted)
        if not endpoint.changes:  # of a change all is written down, of a question only what was asked for
            usual = {item.encode_name: item.default for item in msgspec.structs.fields(type(wanted))}
            given = {name: value for name, value in given.items() if value != usual[name]}
        about = " ".join(str(given.pop(name, "")) for name in path_names(endpoint.path))
        self._desk.audit.write(
            audit_line(
                endpoint.name,
                visit.person.name,
                visit.person.role.word,
                visit.address,
                visit.cluster,
                about=about,
                parameters=given,
                ok=ok,
                outcome=outcome,
            )
        )

    # Failures

    def problem_page(self, request: Request, visit: Visit | None, problem: Problem) -> Response:
        visit = visit or self._stranger(request)
        view = self._worded(visit, problem)
        return self._html(request, _page(visit, request).html("problem.html", view), view.status, _retry_header(view))

    def problem_json(self, request: Request, visit: Visit | None, problem: Problem) -> Response:
        view = self._worded(visit or self._stranger(request), problem)
        return respond(request, ENCODER.encode(view), "application/problem+json", view.status, _retry_header(view))

    def _worded(self, visit: Visit, problem: Problem) -> ProblemView:
        """The problem in the visitor's language; what nobody knows there, such as words of brokers, stays as it came."""
        view, language = problem.view, visit.look.language
        fields = [
            msgspec.structs.replace(item, problem=said(item.problem, language) or item.problem) for item in view.fields
        ]
        title, detail = visit.look.t(f"problems.{problem.title_key}"), said(view.detail, language) or view.detail
        return msgspec.structs.replace(view, title=title, detail=detail, fields=fields)

    def _stranger(self, request: Request) -> Visit:
        """For a failure before anybody was let in."""
        from rocketline.console.access import Person

        person, session = self._guard.who(request)
        visit = Visit(
            self._desk, person or Person("", Role.VIEWER, "nobody"), self._guard.look(request), session=session
        )
        visit.cluster = next(iter(self._desk.places))
        return visit

    def _html(self, request: Request, html: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
        return respond(request, html.encode("utf-8", "backslashreplace"), "text/html; charset=utf-8", status, headers)

    def _to_login(self, nobody: NotLoggedIn) -> Response:
        return RedirectResponse(f"{self._desk.config.root_path}/login?next={nobody.next}", 303)


def _going(visit: Visit, work: ExitStack) -> Going:
    return Going(lambda: visit.stays, work)


def _page(visit: Visit, request: Request) -> Page:
    return Page(visit, request.scope["path"], _query(request))


def _path(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.path_params.items() if name != "cluster"}


def _query(request: Request) -> list[tuple[str, str]]:
    try:
        return parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise Problem(422, "invalid", str(error)) from None


async def _json_input(request: Request, endpoint: Endpoint) -> Any:
    body = await read_body(request, endpoint.max_bytes)
    try:
        content = msgspec.json.decode(body or b"{}")
    except RecursionError:
        raise Problem(422, "invalid", "nested too deeply") from None
    if not isinstance(content, dict):
        raise msgspec.ValidationError("Expected `object`")
    if key := request.headers.get("idempotency-key", ""):
        content.setdefault("idempotencyKey", key)
    path = _path(request)
    for name in (name for name in path if content.get(name, path[name]) != path[name]):
        raise field_problem(name, f"the path says {path[name]}")
    return msgspec.convert({**content, **path}, endpoint.takes)


def _readable(error: Exception) -> Exception:
    """What msgspec refuses, as a problem with the field's name."""
    if not isinstance(error, msgspec.MsgspecError):
        return error
    text, _, place = str(error).partition(" - at `")
    name = place.removeprefix("$").lstrip(".").rstrip("`").partition("[")[0]
    if unknown := re.search(r"unknown field `(.*)`", text):
        name = unknown[1]
    fields = [FieldProblem(name, text)] if name else []
    return Problem(422, "invalid", f"{name}: {text}" if name else text, fields=fields)


def _retry_header(view: ProblemView) -> dict[str, str]:
    return {"retry-after": str(view.retry_after_s)} if view.retry_after_s else {}


def _event(name: str, content: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + ENCODER.encode(content) + b"\n\n"
