"""`rocketline up --processes`: the name server in this process, every broker in a process of its own, so that each has
a core.

A broker that ends unexpectedly is started again on the same port, after a pause that grows; after `CLEAN_SLATE_S` seconds of
service its restarts are counted from zero again. When a broker ends too often, all servers stop and the command fails.
`broker_process.py` describes what a broker is sent and what it answers.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import msgspec

from rocketline.broker.config import BrokerConfig
from rocketline.cli.logs import LoggingOptions
from rocketline.cli.servers.broker_process import StartOrder, StartReport
from rocketline.cli.servers.child import cli_environment
from rocketline.cli.servers.election import all_led
from rocketline.cli.servers.fronts import remote_front
from rocketline.cli.servers.plan import ClusterPlan
from rocketline.errors import ProcessFailed
from rocketline.nameserver import NameServer
from rocketline.settings import values_of

if TYPE_CHECKING:
    from rocketline.proxy.server import Proxy

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "rocketline.cli.servers.broker_process")
RESTART_PAUSES_S = (0.2, 1.0, 2.0, 5.0, 10.0)
"""Pauses before each restart of a broker; there are no more restarts than pauses."""
CLEAN_SLATE_S = 60.0
"""After this long in service, a broker's restarts are counted from zero again."""
STOP_LIMIT_S = 30.0
"""How long a broker may take to stop before it is killed."""


class BrokerProcess:
    """One broker, and its current process."""

    def __init__(self, config: BrokerConfig, logs: LoggingOptions, command: Sequence[str] = COMMAND) -> None:
        self._config = config
        self._logs = logs
        self._command = command
        self._process: Process | None = None
        self.address = ""
        self.metrics_address = ""

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def pid(self) -> int | None:
        """Its process id; None when it does not run."""
        return self._process.pid if self._process else None

    async def start(self, namesrv: str) -> None:
        """Return when the broker serves; ProcessFailed, with the broker's own error text, when it cannot."""
        registration = replace(self._config.registration, namesrv=namesrv)
        settings = values_of(replace(self._config, registration=registration))
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, env=cli_environment()
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(StartOrder(self.name, settings, self._logs)) + b"\n")
        answer = _read_report(await process.stdout.readline())
        if not answer.address:
            how = await self.ended()
            raise ProcessFailed(answer.error or f"broker {self.name} {how} before it served")
        self.address, self.metrics_address = answer.address, answer.metrics_address
        self._keep_ports(answer.port)

    def _keep_ports(self, port: int) -> None:
        """Keep the ports for restarts: clients and scrapers know them."""
        metrics = self._config.metrics
        if self.metrics_address:
            metrics = replace(metrics, port=_port_of(self.metrics_address))
        self._config = replace(self._config, port=port, metrics=metrics)

    async def ended(self) -> str:
        """Wait for the end of the process; returns a description of how it ended."""
        process = self._process
        assert process is not None
        await process.wait()
        self._process = None
        return await _ending(process)

    async def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        """Stop the broker cleanly, if it runs; ProcessFailed when it did not stop in time or failed."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(limit_s):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise ProcessFailed(
                f"broker {self.name} did not stop within {limit_s:g} s and was killed; its next start repairs the store"
            ) from None
        finally:
            self._process = None
        if process.returncode:
            raise ProcessFailed(f"broker {self.name} {await _ending(process)} when it was to stop")


class ProcessCluster:
    """The running servers of a plan, brokers in processes; an async context manager."""

    def __init__(
        self,
        plan: ClusterPlan,
        logs: LoggingOptions,
        *,
        command: Sequence[str] = COMMAND,
        pauses_s: Sequence[float] = RESTART_PAUSES_S,
    ) -> None:
        self._name_server = NameServer(plan.name_server)
        self._pauses_s = pauses_s
        self._front_config = plan.brokers[0]
        self._front: Proxy | None = None
        self._configs = plan.brokers
        self.brokers = [BrokerProcess(config, logs, command) for config in plan.brokers]

    @property
    def namesrv(self) -> str:
        """Address of the name server, as clients take it."""
        return self._name_server.address

    @property
    def grpc_address(self) -> str:
        """`host:port` for gRPC clients; "" when they are not served."""
        return self._front.address if self._front is not None else ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start all servers, brokers at the same time, and return when there are masters; when one cannot start, the others
        are stopped again."""
        await self._name_server.start()
        try:
            async with asyncio.TaskGroup() as group:
                for broker in self.brokers:
                    group.create_task(broker.start(self.namesrv))
            await all_led(self._name_server, self._configs)
            front = remote_front(self._front_config, self.namesrv)
            self._front = None if front is None else await front.__aenter__()
        except BaseException:
            # The reason why it cannot start is more useful than failures of the others to stop.
            with suppress(ProcessFailed):
                await self.close()
            raise

    async def close(self) -> None:
        """Stop the brokers before the name server, so that they can still unregister."""
        front, self._front = self._front, None
        if front is not None:
            await front.__aexit__(None, None, None)
        results = await asyncio.gather(*(broker.stop() for broker in self.brokers), return_exceptions=True)
        await self._name_server.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def watch(self) -> None:
        """Restart brokers that end; an exception group with ProcessFailed when one ends too often."""
        async with asyncio.TaskGroup() as group:
            for broker in self.brokers:
                group.create_task(self._keep_running(broker))

    async def _keep_running(self, broker: BrokerProcess) -> None:
        now = asyncio.get_running_loop().time
        restarts = 0
        while True:
            served_from = now()
            how = f"{await broker.ended()} at {broker.address}"
            if now() - served_from >= CLEAN_SLATE_S:
                restarts = 0
            restarts = await self._restart(broker, restarts, how)

    async def _restart(self, broker: BrokerProcess, restarts: int, how: str) -> int:
        """Restart a broker until it serves again; returns how many of its restarts are used up."""
        for used, pause_s in enumerate(self._pauses_s[restarts:], restarts + 1):
            log.error("broker %s %s; it is started again in %g s", broker.name, how, pause_s)
            await asyncio.sleep(pause_s)
            try:
                await broker.start(self.namesrv)
            except ProcessFailed as error:
                how = f"could not be started again: {error}"
                continue
            log.warning("broker %s serves again at %s, process %d", broker.name, broker.address, broker.pid)
            return used
        raise ProcessFailed(
            f"broker {broker.name} {how}; {len(self._pauses_s)} restarts did not help: all servers stop"
        )


def _port_of(address: str) -> int:
    """
    >>> _port_of("127.0.0.1:10911")
    10911
    """
    return int(address.rpartition(":")[2])


def _read_report(line: bytes) -> StartReport:
    """
    >>> _read_report(b'{"address":"127.0.0.1:10911"}\\n').address
    '127.0.0.1:10911'
    """
    try:
        return msgspec.json.decode(line or b"{}", type=StartReport)
    except msgspec.MsgspecError:
        return StartReport(error=f"not a start report: {line[:200]!r}")


async def _ending(process: Process) -> str:
    """How a process ended, with its last error text."""
    code = process.returncode
    assert code is not None
    assert process.stdout is not None
    if code < 0:
        return f"was ended by signal {-code} ({signal.strsignal(-code)})"
    words = _read_report((await process.stdout.read()).strip()).error
    return f"ended with exit code {code}" + (f": {words}" if words else "")
