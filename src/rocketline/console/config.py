"""What a console is started with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketline.errors import ConfigError
from rocketline.system.sockets import is_loopback

DEFAULT_PORT = 8090
"""8080 to 8083, 5557, 9876 and 1091x belong to other parts of RocketMQ."""
DEFAULT_CLUSTER = "default"
ADD_USER = "rocketline console users add NAME --role admin --file FILE"


@dataclass(frozen=True)
class ClusterPlace:
    """A cluster by the name that its URLs have, and how to reach it."""

    name: str
    namesrv: str
    access: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The keyword arguments `credentials` and `tls` of `Admin`."""


@dataclass(frozen=True)
class ConsoleConfig:
    clusters: tuple[ClusterPlace, ...]
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    users: Path | None = None
    broker_login: bool = False
    """People log in with an account of the cluster, which signs all their requests."""
    read_only: bool = False
    root_path: str = ""
    behind_proxy: bool = False
    allowed_hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    store: Path | None = None
    runs: Path | None = None
    audit: Path | None = None
    masks: tuple[str, ...] = ()
    """`body.a.b` or `property:NAME`: what nobody sees."""

    def __post_init__(self) -> None:
        if not self.clusters:
            raise ConfigError("a console needs at least one cluster")
        if self.users is not None and self.broker_login:
            raise ConfigError("--users and --login broker are two ways to log in: leave one out")
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ConfigError(f"--root-path {self.root_path}: a path such as /mq is expected")
        if (self.key is None) != (self.certificate is None):
            raise ConfigError("--cert and --key belong together")

    @property
    def has_people(self) -> bool:
        """Whether people log in by name; otherwise a link with a token lets one person in."""
        return self.users is not None or self.broker_login

    @property
    def cookie(self) -> str:
        """The session's cookie. Browsers share cookies among the ports of a host, so each console has a name of its own."""
        place = re.sub(r"[^A-Za-z0-9]+", "-", f"{self.port}{self.root_path}")
        return f"__Host-rocketline-{place}" if self.is_secure else f"rocketline-{place}"

    @property
    def is_secure(self) -> bool:
        """Whether browsers come through TLS, so far as the flags say."""
        return self.certificate is not None or self.behind_proxy

    @property
    def open_problem(self) -> str | None:
        """Why it must not listen on its address."""
        if is_loopback(self.host) or self.has_people:
            return None
        return (
            f"--host {self.host} lets other machines in, and there are no users: make one with `{ADD_USER}` and start with "
            "--users FILE, or with --login broker"
        )
