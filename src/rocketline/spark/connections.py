"""How sources and sinks connect to a cluster, and readers and writers that are reused from task to task.

Spark uses a worker process for many tasks, one after the other. A reader or writer is borrowed for one task. After a task
that succeeds it is kept with its connections, a reader with its routes too; after one that fails it is closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from rocketline.client.bulk.reader import BulkReader
from rocketline.client.bulk.writer import BulkWriter
from rocketline.client.identity import parse_name_servers
from rocketline.errors import ConfigError
from rocketline.protocol.names import group_problem
from rocketline.spark.access_options import access_arguments, parse_access
from rocketline.spark.options import Options
from rocketline.transport.access import OPEN, Access

NAMESRV_ALIASES = ("nameServer", "rocketmq.namesrv.addr")
MAX_IDLE = 8
"""Most idle readers and writers kept in a process; a worker seldom uses more than one cluster."""


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

    def writer(self, batch_bytes: int, in_flight: int) -> BulkWriter:
        return BulkWriter(
            self.name_servers,
            group=self.group,
            batch_bytes=batch_bytes,
            in_flight=in_flight,
            timeout=self.timeout_s,
            **self.client_options,
        )

    @property
    def client_options(self) -> dict[str, Any]:
        """Keyword arguments for a client on this machine."""
        return access_arguments(self.access)


_idle: dict[tuple[object, ...], BulkReader | BulkWriter] = {}
Client = TypeVar("Client", BulkReader, BulkWriter)


@contextmanager
def borrowed_reader(endpoint: Endpoint) -> Iterator[BulkReader]:
    """A reader for the time of a task."""
    with _borrowed(("reader", endpoint), endpoint.reader, BulkReader) as reader:
        yield reader


@contextmanager
def borrowed_writer(endpoint: Endpoint, batch_bytes: int, in_flight: int, first_queue: int) -> Iterator[BulkWriter]:
    """A writer for the time of a task, which ends with a `flush`; it knows nothing of earlier tasks but connections."""
    make = partial(endpoint.writer, batch_bytes, in_flight)
    with _borrowed(("writer", endpoint, batch_bytes, in_flight), make, BulkWriter) as writer:
        writer.begin_anew(first_queue)
        yield writer


@contextmanager
def _borrowed(what: tuple[object, ...], make: Callable[[], Client], kind: type[Client]) -> Iterator[Client]:
    key = (os.getpid(), *what)  # a forked process must not use the sockets of its parent
    idle = _idle.pop(key, None)
    client = idle if isinstance(idle, kind) else make()
    try:
        yield client
    except BaseException:  # also when Spark stopped a task: answers to requests may still arrive
        client.close()
        raise
    if len(_idle) >= MAX_IDLE or key in _idle:
        client.close()
    else:
        _idle[key] = client
