"""The one guard of all routes: host, session, role, origin of changes, size of requests."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.requests import Request

from rocketline.admin.cursors import MAX_CHARS as MAX_CURSOR_CHARS
from rocketline.console.access import Person, Role
from rocketline.console.desk import Desk
from rocketline.console.look import Look
from rocketline.console.problems import Problem
from rocketline.console.sessions import Session
from rocketline.console.visit import Visit
from rocketline.system.sockets import is_loopback

FOREIGN_SITES = frozenset({"cross-site", "same-site"})
MAX_FIELDS = 5000


class NotLoggedIn(Exception):
    """A page was asked for by nobody we know; `next` is where to go after the login."""

    def __init__(self, next_url: str) -> None:
        self.next = next_url


class Guard:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._allowed = {"localhost", *(host.lower() for host in desk.config.allowed_hosts), desk.config.host.lower()}
        if desk.config.has_people:
            self._allowed |= own_names()

    def check_host(self, request: Request) -> None:
        """A name that somebody else's DNS points to this machine is refused; an address is no such name.

        Without people only loopback is served. Behind a proxy any name is possible.
        """
        config = self._desk.config
        host = host_of(request.headers.get("host", ""))
        if config.behind_proxy or host in self._allowed or (host and is_loopback(host)):
            return
        if config.has_people and is_address(host):
            return
        raise Problem(421, "wrong_host", host[:100], hint=f"--allow-host {host[:100]}" if host else "")

    def enter(
        self, request: Request, role: Role, *, is_page: bool, cluster: str = "", of_console: bool = False
    ) -> Visit:
        """The visit of somebody who may do this; NotLoggedIn or Problem otherwise."""
        self.check_host(request)
        person, session = self.who(request)
        if person is None:
            if is_page and request.method == "GET":
                raise NotLoggedIn(self._next(request))
            raise Problem(401, "not_logged_in")
        if not person.may(role):
            raise Problem(403, "not_allowed", role=role.word)
        if of_console and not person.sees_console:
            raise Problem(403, "not_super")
        if cluster and cluster not in self._desk.places:
            raise Problem(404, "no_cluster", cluster[:100])
        if cluster and not person.may_enter(cluster):
            raise Problem(403, "no_account_there", cluster[:100])
        return Visit(
            self._desk, person, self.look(request), self.address(request), cluster, session,
            _whole(request.headers.get("last-event-id", "")), is_page,
        )  # fmt: skip

    def who(self, request: Request) -> tuple[Person | None, Session | None]:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        users = self._desk.logins.users
        if kind.lower() == "bearer" and users is not None:
            return users.token_owner(token.strip()[:200]), None
        session_id = request.cookies.get(self._desk.config.cookie, "")[:200]
        session = self._desk.sessions.find(session_id)
        if session is None:
            return None, None
        if not self._desk.logins.stays(session.person):
            self._desk.sessions.end(session_id)
            return None, None
        return session.person, session

    def look(self, request: Request) -> Look:
        return Look.of(request.cookies, request.headers.get("accept-language", ""))

    def address(self, request: Request) -> str:
        forwarded = request.headers.get("x-forwarded-for", "") if self._desk.config.behind_proxy else ""
        # The last address is the one that the proxy itself saw; those before it may be made up.
        return forwarded.rpartition(",")[2].strip()[:64] or (request.client.host if request.client else "")

    def check_change(self, request: Request, session: Session | None, form_token: str) -> None:
        """A change must come from a page of ours, or from a program with a token of its own."""
        if request.headers.get("sec-fetch-site", "") in FOREIGN_SITES:
            raise Problem(403, "foreign_site")
        if session is None:
            return
        if not session.accepts(request.headers.get("x-csrf-token", "") or form_token):
            raise Problem(403, "no_form_token")

    def _next(self, request: Request) -> str:
        query = f"?{request.url.query}" if request.url.query else ""
        return quote(request.scope["path"] + query, safe="/?=&%")


def _whole(cursor: str) -> str:
    """A part of a cursor is worth nothing."""
    return cursor if len(cursor) <= MAX_CURSOR_CHARS else ""


def host_of(header: str) -> str:
    """The host of a Host header; empty for one that cannot be read.

    >>> host_of("Shop.example:8090"), host_of("[::1]:8090"), host_of("[x")
    ('shop.example', '::1', '')
    """
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_address(host: str) -> bool:
    """
    >>> is_address("10.0.0.5"), is_address("fe80::1"), is_address("10.0.0.5.example")
    (True, True, False)
    """
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def own_names() -> set[str]:
    """What this machine calls itself; no DNS is asked."""
    name = socket.gethostname().lower()
    return {name, name.partition(".")[0]} - {""}


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request; Problem 413 when it is larger than `limit` bytes."""
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > limit:
        raise Problem(413, "too_large", str(limit))
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise Problem(413, "too_large", str(limit))
    return bytes(body)


def form_fields(body: bytes) -> list[tuple[str, str]]:
    """The fields of a browser's form; Problem 422 for one that cannot be read."""
    try:
        return parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except (ValueError, UnicodeDecodeError) as error:
        raise Problem(422, "invalid", f"the form cannot be read: {error}") from None
