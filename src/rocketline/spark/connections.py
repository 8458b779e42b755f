"""How sources and sinks connect to a cluster, and readers that are reused from task to task.

Spark uses a worker process for many tasks, one after the other. A reader is borrowed for one task. After a task that
succeeds it is kept with its connections and routes; after one that fails it is closed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rocketline.client.bulk.reader import BulkReader
from rocketline.client.identity import parse_name_servers
from rocketline.errors import ConfigError
from rocketline.protocol.names import group_problem
from rocketline.spark.access_options import access_arguments, parse_access
from rocketline.spark.options import Options
from rocketline.transport.access import OPEN, Access

NAMESRV_ALIASES = ("nameServer", "rocketmq.namesrv.addr")
MAX_IDLE = 8
"""Most idle readers kept in a process; a worker seldom reads from more than one cluster."""


@dataclass(frozen=True)
class Endpoint:
    """Name servers, group, time limit, batch size and access of a client; can be pickled."""

    name_servers: tuple[str, ...]
    group: str
    timeout_s: float = 30.0
    batch: int = 2048
    access: Access = OPEN

    @staticmethod
    def parse(options: Options, default_group: str, timeout: str) -> Endpoint:
        """`timeout` is the name of the option that limits waits."""
        address = options.required("namesrv", "host:port of a name server, several between ';'", NAMESRV_ALIASES)
        try:
            servers = parse_name_servers(address)
        except ConfigError as error:
            raise options.wrong(f"option 'namesrv': {error}") from None
        group = options.text("group", default_group) or default_group
        if problem := group_problem(group):
            raise options.wrong(f"option 'group': {problem}")
        timeout_ms = options.number(timeout, minimum=1, maximum=3_600_000)
        access = parse_access(options, NAMESRV_ALIASES)
        return Endpoint(servers, group, 30.0 if timeout_ms is None else timeout_ms / 1000, access=access)

    def reader(self) -> BulkReader:
        return BulkReader(
            self.name_servers, group=self.group, batch=self.batch, timeout=self.timeout_s, **self.client_options
        )

    @property
    def client_options(self) -> dict[str, Any]:
        """Keyword arguments for a client on this machine."""
        return access_arguments(self.access)


_idle: dict[tuple[int, Endpoint], BulkReader] = {}


@contextmanager
def borrowed_reader(endpoint: Endpoint) -> Iterator[BulkReader]:
    """A reader for the time of a task."""
    key = (os.getpid(), endpoint)  # a forked process must not use the sockets of its parent
    reader = _idle.pop(key, None) or endpoint.reader()
    try:
        yield reader
    except BaseException:  # also when Spark stopped reading: answers to pulls may still arrive
        reader.close()
        raise
    if len(_idle) >= MAX_IDLE or key in _idle:
        reader.close()
    else:
        _idle[key] = reader
