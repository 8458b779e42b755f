"""One broker of `rocketline up --processes`, alone in its process: `python -m rocketline.cli.servers.broker_process`.

The parent writes one line to its standard input, a `StartOrder`, and reads one line from its standard output, a
`StartReport`: where the broker serves, or why it cannot. Standard input then stays open for as long as the broker is to run.
When it ends, because the parent closed it or was killed, the broker stops cleanly; so no broker outlives its cluster.
Settings come this way, and not as flags or in the environment, because they may be secret.
"""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from rocketline.cli.logs import LoggingOptions, log_to_stderr

if TYPE_CHECKING:
    from rocketline.broker.broker import Broker

STDIN = 0


class StartOrder(msgspec.Struct, frozen=True):
    """The broker to start: its name, and its settings by RocketMQ key."""

    name: str
    settings: dict[str, str]
    logs: LoggingOptions


class StartReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The addresses of a broker that serves, or the reason why it cannot."""

    address: str = ""
    metrics_address: str = ""
    port: int = 0
    """Where it listens, which may differ from the port that clients are told."""
    error: str = ""


def main() -> int:
    """Run the broker of the order on standard input; returns the exit code."""
    gc.disable()  # until the work begins, in `serving.run`
    line = sys.stdin.buffer.readline()
    if not line:
        return 0  # The parent is gone already.
    order = msgspec.json.decode(line, type=StartOrder)
    log_to_stderr(order.logs, broker=order.name)
    try:
        _serve(order)
    except Exception as error:
        return _failed(error)
    return 0


def _serve(order: StartOrder) -> None:
    from rocketline.broker.broker import Broker
    from rocketline.broker.config import BrokerConfig
    from rocketline.cli.servers.serving import run, serve
    from rocketline.settings import load

    broker = Broker(load(BrokerConfig, order.settings)[0])
    run(serve(broker, lambda running: _text(_report(running))), lifeline=STDIN)


def _report(broker: Broker) -> StartReport:
    return StartReport(broker.address, broker.metrics_address, broker.port)


def _failed(error: Exception) -> int:
    from logging import getLogger

    from rocketline.cli.failures import one_line

    getLogger(__name__).debug("the broker failed", exc_info=error)
    # Without a parent nobody reads this.
    with suppress(OSError):
        print(_text(StartReport(error=one_line(error))), flush=True)
    return 1


def _text(answer: StartReport) -> str:
    return msgspec.json.encode(answer).decode()


if __name__ == "__main__":
    sys.exit(main())
