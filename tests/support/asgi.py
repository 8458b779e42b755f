"""A browser without a browser: requests to an ASGI application in the same process, with cookies and forms."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from starlette.types import ASGIApp, Message
from tests.support.patience import PATIENCE_S

TOKEN = re.compile(r'name="csrf" (?:content|value)="([0-9a-f]+)"')


@dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    @property
    def text(self) -> str:
        body = gzip.decompress(self.body) if self.header("content-encoding") == "gzip" else self.body
        return body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def shown(self) -> str:
        """The text of the page's main part, without tags."""
        main = self.text[self.text.find("<main") : self.text.find("</main>")]
        return " ".join(re.sub(r"<[^>]+>", " ", main).split())


@dataclass
class AsgiClient:
    """Cookies are kept as a browser keeps them."""

    app: ASGIApp
    host: str = "127.0.0.1"
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    token: str = ""

    async def get(self, path: str, **headers: str) -> Answer:
        answer = await self._ask("GET", path, b"", headers)
        if found := TOKEN.search(answer.text if answer.header("content-type").startswith("text/html") else ""):
            self.token = found[1]
        return answer

    async def post(self, path: str, form: dict[str, Any] | None = None, **headers: str) -> Answer:
        """A form with its token."""
        body = urlencode({"csrf": self.token, **(form or {})}, doseq=True).encode()
        return await self._ask("POST", path, body, {"content-type": "application/x-www-form-urlencoded", **headers})

    async def call(self, method: str, path: str, content: Any = None, **headers: str) -> Answer:
        """A request of a program."""
        body = b"" if content is None else json.dumps(content).encode()
        return await self._ask(method, path, body, {"x-csrf-token": self.token, **headers})

    async def events(self, path: str, count: int, *, with_quiet: bool = False, **headers: str) -> list[tuple[str, Any]]:
        """The first events of a stream, usually without quiet ones; then the viewer leaves."""
        found: list[tuple[str, Any]] = []
        leaving = asyncio.Event()
        text = ""

        async def send(message: Message) -> None:
            nonlocal text
            text += message.get("body", b"").decode()
            *whole, text = text.split("\n\n")
            for event in whole:
                lines = dict(line.split(": ", 1) for line in event.splitlines() if ": " in line)
                if "event" in lines and (with_quiet or lines["event"] != "quiet"):
                    found.append((lines["event"], json.loads(lines["data"])))
            if len(found) >= count:
                leaving.set()

        async with asyncio.timeout(PATIENCE_S):
            await self._run("GET", path, b"", headers, send, leaving)
        return found

    async def first_event(self, path: str, **headers: str) -> tuple[int, str, str]:
        """(status, content type, name of the first event) of what may be a stream; then the viewer leaves."""
        start: dict[str, Any] = {}
        leaving = asyncio.Event()
        text = ""

        async def send(message: Message) -> None:
            nonlocal text
            if message["type"] == "http.response.start":
                start.update(message)
            text += message.get("body", b"").decode("utf-8", "replace")
            if "event: " in text.rpartition("\n")[0] or not message.get("more_body", True):
                leaving.set()

        async with asyncio.timeout(PATIENCE_S):
            await self._run("GET", path, b"", headers, send, leaving)
        kind = next(value.decode() for name, value in start["headers"] if name == b"content-type")
        event = re.search(r"event: (\w+)", text)
        return start["status"], kind.partition(";")[0], event[1] if event else ""

    async def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        start: dict[str, Any] = {}
        parts: list[bytes] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                parts.append(message.get("body", b""))

        await self._run(method, path, body, headers, send, asyncio.Event())
        given = [(name.decode().lower(), value.decode("latin-1")) for name, value in start["headers"]]
        for name, value in given:
            if name == "set-cookie":
                for key, morsel in SimpleCookie(value).items():
                    if morsel["max-age"] == "0":
                        self.cookies.pop(key, None)
                    else:
                        self.cookies[key] = morsel.value
        return Answer(start["status"], given, b"".join(parts))

    async def _run(
        self, method: str, path: str, body: bytes, headers: dict[str, str], send: Any, leaving: asyncio.Event
    ) -> None:
        url = urlsplit(path)
        all_headers = {"host": self.host, "accept-encoding": "gzip", **self.headers, **_dashed(headers)}
        if self.cookies:
            all_headers["cookie"] = "; ".join(f"{key}={value}" for key, value in self.cookies.items())
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(url.path), "raw_path": url.path.encode(), "query_string": url.query.encode(), "root_path": "",
            "headers": [(key.encode(), value.encode("latin-1")) for key, value in all_headers.items()],
            "client": ("127.0.0.1", 50000), "server": ("127.0.0.1", 8090), "state": {},
        }  # fmt: skip
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            await leaving.wait()
            return {"type": "http.disconnect"}

        await self.app(scope, receive, send)


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
