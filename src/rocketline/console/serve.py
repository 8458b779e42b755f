"""Running a console: a socket, an HTTP server, and the link that lets the first person in."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

import uvicorn

from rocketline.console.app import make_app
from rocketline.console.config import ConsoleConfig
from rocketline.console.desk import Desk
from rocketline.errors import ConfigError
from rocketline.system.sockets import is_loopback
from rocketline.transport.server_config import TlsConfig, TlsMode
from rocketline.transport.server_tls import ServerTls

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000
STOP_S = 2
RELOAD_S = 5.0
"""Pause between two looks for changed certificate files."""


class _Server(uvicorn.Server):
    """Leaves the signals of the process to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Console:
    """A console that serves; an async context manager."""

    def __init__(self, config: ConsoleConfig) -> None:
        if config.open_problem:
            raise ConfigError(config.open_problem)
        if not (config.is_secure or is_loopback(config.host)):
            log.warning(
                "passwords and sessions come to %s in plain text: give the console --cert and --key, or put a proxy with "
                "TLS in front and say --behind-proxy",
                config.host,
            )
        self._config = config
        self._desk = Desk(config)
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        assert self._socket is not None
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """Where browsers find it, so far as we know."""
        host = self._config.host if self._config.host not in ("0.0.0.0", "::") else socket.gethostname()  # noqa: S104
        scheme = "https" if self._config.certificate is not None else "http"
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}:{self.port}{self._config.root_path}"

    @property
    def ready_line(self) -> str:
        """The line that people and scripts wait for; the link in it works once."""
        return f"ready console={self.url}{self._entrance()}"

    def _entrance(self) -> str:
        link = self._desk.logins.link
        return f"/login?token={link.token}" if link is not None else "/"

    async def __aenter__(self) -> Self:
        if self._desk.logins.users is not None:
            _ = self._desk.logins.users.users  # a file that cannot be read is an error now, not at the first login
        await self._desk.logins.check_start()
        tls = _tls(self._config)
        self._socket = _listen(self._config.host, self._config.port)
        self._desk.config = dataclasses.replace(self._config, port=self.port)
        await self._desk.__aenter__()
        app = make_app(self._desk, lambda token: print(self.ready_line, flush=True))
        options = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, lifespan="off", proxy_headers=False, ws="none",
            limit_concurrency=MAX_CONNECTIONS, timeout_graceful_shutdown=STOP_S,
        )  # fmt: skip
        options.load()
        if tls is not None:
            options.ssl = tls.for_page()
            self._watch = asyncio.create_task(tls.watch())
        self._server = _Server(options)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started and not self._task.done():  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.01)
        if self._task.done():
            await self._task
            raise ConfigError("the console could not start")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._task is not None
        if self._watch is not None:
            self._watch.cancel()
        self._server.should_exit = True
        with suppress(asyncio.CancelledError):
            await self._task
        await self._desk.__aexit__()

    async def until_stopped(self) -> None:
        assert self._task is not None
        await asyncio.shield(self._task)


def _tls(config: ConsoleConfig) -> ServerTls | None:
    """With the certificate of the flags; ConfigError when it cannot be used."""
    if config.certificate is None:
        return None
    files = TlsConfig(cert_path=str(config.certificate), key_path=str(config.key), reload_s=RELOAD_S)
    try:
        return ServerTls(files, TlsMode.ENFORCING)
    except ConfigError as error:
        raise ConfigError(f"--cert and --key: {error}") from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return listening
