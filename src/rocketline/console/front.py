"""What is there before anybody is let in: login, logout, the one-time link, health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import wraps

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from rocketline.console.access import Person, Role
from rocketline.console.audit import audit_line
from rocketline.console.desk import Desk
from rocketline.console.dispatch import Dispatch
from rocketline.console.guard import Guard, form_fields, read_body
from rocketline.console.look import DENSITIES, THEMES, zone_names
from rocketline.console.problems import Problem, problem_of
from rocketline.console.render import Page
from rocketline.console.responses import respond
from rocketline.console.texts import LANGUAGES
from rocketline.console.visit import Visit

MAX_FORM_BYTES = 8192
LET_IN, REFUSED, TOLD_TO_WAIT = "let in", "refused", "told to wait"
YEAR_S = 365 * 86400
OF_NO_CLUSTER = ("/settings", "/api/docs")
"""Pages that belong to no cluster."""
CHOICES: dict[str, Callable[[], Collection[str]]] = {
    "language": lambda: LANGUAGES,
    "theme": lambda: THEMES,
    "density": lambda: DENSITIES,
    "zone": zone_names,
}


Answer = Callable[["Front", Request], Awaitable[Response]]


def _with_problem_page(handle: Answer) -> Answer:
    """What cannot be answered ends in a page that says why."""

    @wraps(handle)
    async def answer(self: Front, request: Request) -> Response:
        try:
            return await handle(self, request)
        except Exception as error:
            return self.problem_page(request, error)

    return answer


class Front:
    def __init__(self, desk: Desk, guard: Guard, dispatch: Dispatch, show_link: Callable[[str], None]) -> None:
        self._desk = desk
        self._guard = guard
        self._dispatch = dispatch
        self._show_link = show_link

    def problem_page(self, request: Request, error: Exception) -> Response:
        return self._dispatch.problem_page(request, None, problem_of(error))

    @_with_problem_page
    async def home(self, request: Request) -> Response:
        self._guard.check_host(request)
        person, _ = self._guard.who(request)
        root = self._desk.config.root_path
        return RedirectResponse(f"{root}{self._desk.home_of(person)}" if person else f"{root}/login", 303)

    @_with_problem_page
    async def login_page(self, request: Request) -> Response:
        """The form; with the token of a link, the login itself."""
        self._guard.check_host(request)
        token = request.query_params.get("token", "")
        person, _ = self._guard.who(request)
        if token and self._desk.logins.link is not None and person is None:
            entering = self._desk.logins.link.take(token[:200])
            self._note(request, "local", LET_IN if entering is not None else REFUSED)
            if entering is None:
                return self._form(request, 403, "login.link_used")
            return self._let_in(request, entering, "")
        if person is not None:
            return RedirectResponse(self._target(request.query_params.get("next", ""), person), 303)
        return self._form(request, 200, "")

    @_with_problem_page
    async def login(self, request: Request) -> Response:
        self._guard.check_host(request)
        self._guard.check_change(request, None, "")
        fields = dict(form_fields(await read_body(request, MAX_FORM_BYTES)))
        if not self._desk.config.has_people:
            return self._form(request, 403, "")
        name, password = fields.get("name", "")[:64], fields.get("password", "")[:1024]
        try:
            person = await self._desk.logins.checked(name, password, self._guard.address(request))
        except Problem as problem:
            waits = problem.view.status == 429
            self._note(request, name, TOLD_TO_WAIT if waits else str(problem))
            if not waits:
                raise
            wait_s = problem.view.retry_after_s or 1
            return self._form(request, 429, "login.wait", {"retry-after": str(wait_s)}, seconds=wait_s)
        self._note(request, name, LET_IN if person is not None else REFUSED)
        if person is None:
            return self._form(request, 403, "login.wrong")
        return self._let_in(request, person, fields.get("next", ""))

    @_with_problem_page
    async def new_link(self, request: Request) -> Response:
        """Print another link where the console was started; whoever asks gets nothing else."""
        self._guard.check_host(request)
        self._guard.check_change(request, None, "")
        link = self._desk.logins.link
        if link is not None and link.renew():
            self._show_link(link.token)
        return self._form(request, 200, "login.link_printed" if link is not None else "")

    @_with_problem_page
    async def logout(self, request: Request) -> Response:
        await self._own_form(request)
        self._desk.sessions.end(request.cookies.get(self._desk.config.cookie, ""))
        response = RedirectResponse(f"{self._desk.config.root_path}/login", 303)
        response.delete_cookie(self._desk.config.cookie, path="/", secure=self._desk.config.is_secure, httponly=True)
        return response

    @_with_problem_page
    async def choose(self, request: Request) -> Response:
        """Keep what a visitor chose in cookies, and go back to where it was chosen."""
        visit, fields = await self._own_form(request)
        response = RedirectResponse(self._target(fields.get("back", ""), visit.person), 303)
        for name, known in CHOICES.items():
            if fields.get(name, "") in known():
                response.set_cookie(
                    f"rl_{name}",
                    fields[name],
                    max_age=YEAR_S,
                    path="/",
                    secure=self._desk.config.is_secure,
                    samesite="lax",
                )
        return response

    async def healthy(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    def _let_in(self, request: Request, person: Person, next_url: str) -> Response:
        """A new session, whatever cookie came: an id that somebody else chose is worth nothing."""
        session_id = self._desk.sessions.begin(person)
        response = RedirectResponse(self._target(next_url, person), 303)
        response.set_cookie(
            self._desk.config.cookie,
            session_id,
            path="/",
            secure=self._desk.config.is_secure,
            httponly=True,
            samesite="lax",
        )
        return response

    def _target(self, next_url: str, person: Person) -> str:
        """Where to go on: a page of ours, never another site."""
        path = next_url.partition("?")[0]
        is_page = path in OF_NO_CLUSTER or (path.startswith("/c/") and "//" not in path)
        is_ours = is_page and "\\" not in next_url and next_url.isprintable()
        return self._desk.config.root_path + (next_url if is_ours else self._desk.home_of(person))

    def _form(
        self, request: Request, status: int, note: str, headers: dict[str, str] | None = None, **values: object
    ) -> Response:
        nobody = Visit(self._desk, Person("", Role.VIEWER, "nobody"), self._guard.look(request))
        nobody.cluster = next(iter(self._desk.places))
        view = {
            "note": nobody.look.t(note, **values) if note else "",
            "by_name": self._desk.config.has_people,
            "by_broker": self._desk.config.broker_login,
            "next": request.query_params.get("next", ""),
        }
        html = Page(nobody, "/login", []).html("login.html", view)
        return respond(request, html.encode(), "text/html; charset=utf-8", status, headers)

    async def _own_form(self, request: Request) -> tuple[Visit, dict[str, str]]:
        """Who sent a form of a page of ours, and its fields."""
        visit = self._guard.enter(request, Role.VIEWER, is_page=False)
        fields = dict(form_fields(await read_body(request, MAX_FORM_BYTES)))
        self._guard.check_change(request, visit.session, fields.get("csrf", ""))
        return visit, fields

    def _note(self, request: Request, name: str, outcome: str) -> None:
        address = self._guard.address(request)
        self._desk.audit.write(audit_line("login", name, "", address, ok=outcome == LET_IN, outcome=outcome))
