"""The flags of the servers `up`, `nameserver`, `broker` and `proxy`.

They are read with argparse. Importing typer and its dependencies would take a third of the time until such a command serves,
and they would stay in its memory for as long as it runs.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from rocketline.cli.logs import LogFormat, LoggingOptions, LogLevel
from rocketline.cli.usage import Parser, UsageProblem
from rocketline.settings import describe, ignored_keys
from rocketline.transport.server_config import ClientAuth

Choice = TypeVar("Choice", bound=StrEnum)

LOOPBACK = "127.0.0.1"
NAMESRV_PORT = 9876
BROKER_PORT = 10911
CONSOLE_PORT = 8090
MAX_PORT = 65535
MAX_REPLICAS = 9
MAX_BROKERS = 26
"""Brokers are called broker-a to broker-z."""

HELP = {
    "up": "Run a name server and brokers in one process, or with --processes in one each.",
    "nameserver": "Run a name server until Ctrl-C or SIGTERM.",
    "broker": "Run a broker until Ctrl-C or SIGTERM.",
    "proxy": "Serve RocketMQ 5.x clients (gRPC) before a cluster, until Ctrl-C or SIGTERM.",
}
MORE_HELP = {
    "up": "Prints one line, `ready namesrv=HOST:PORT brokers=NAME@HOST:PORT` (and `grpc=HOST:PORT`, `metrics=HOST:PORT`), "
    "when they serve. Ctrl-C or SIGTERM stops them.",
    "nameserver": "",
    "broker": "Flags win over the environment (ROCKETLINE_FLUSH_DISK_TYPE for flushDiskType, and so on; NAMESRV_ADDR), the "
    "environment over the file.",
    "proxy": "Finds brokers through name servers, ours or Apache's; several may run side by side. Prints "
    "`ready grpc=HOST:PORT` when it serves.",
}


class FlushMode(StrEnum):
    """When a send is acknowledged: once the operating system has it, or once the disk has it."""

    asynchronous = "async"
    sync = "sync"

    @property
    def disk_type(self) -> str:
        return "SYNC_FLUSH" if self is FlushMode.sync else "ASYNC_FLUSH"


@dataclass(frozen=True)
class ServerFlags:
    """The flags that all servers have."""

    host: str | None
    config: Path | None
    settings: list[str] | None
    metrics_port: int | None
    insecure: bool
    tls: dict[str, str]
    """The settings that the flags of TLS stand for."""
    logs: LoggingOptions


def read_flags(parser: Parser, arguments: Sequence[str]) -> tuple[ServerFlags, dict[str, Any]]:
    """(the flags that all servers have, the others as keyword arguments of the function that runs this server)."""
    flags = vars(parser.parse_args(arguments))
    logs = LoggingOptions(flags.pop("verbose"), flags.pop("log_level"), flags.pop("log_format"))
    common = {name: flags.pop(name) for name in ("host", "config", "settings", "metrics_port", "insecure")}
    tls = _tls_settings(*(flags.pop(name) for name in ("tls_cert", "tls_key", "tls_ca", "tls_client_auth")))
    return ServerFlags(**common, tls=tls, logs=logs), flags


def parser_of(server: str) -> Parser:
    """The parser of a server's command line."""
    parser = Parser(prog=f"rocketline {server}", description=f"{HELP[server]} {MORE_HELP[server]}", allow_abbrev=False)
    {"up": _add_up, "nameserver": _add_nameserver, "broker": _add_broker, "proxy": _add_proxy}[server](parser)
    _add_common(parser)
    return parser


def _add_up(parser: Parser) -> None:
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="Folder of the messages. Default: a temporary one.")
    add(
        "--namesrv-port", type=port_number, default=NAMESRV_PORT, metavar="PORT",
        help=f"0: any free port. Default {NAMESRV_PORT}.",
    )  # fmt: skip
    add(
        "--broker-port", type=port_number, metavar="PORT",
        help=f"Port of the first broker, 0: any free ones. Default {BROKER_PORT}.",
    )  # fmt: skip
    add("--brokers", type=_count, default=1, metavar="NUMBER", help="How many brokers. Default 1.")
    _add_grpc_port(parser)
    add(
        "--replicas", type=_replicas, default=0, metavar="NUMBER",
        help="Replicas of each broker, which copy its log. Default 0. Nothing decides by itself who leads, unless "
        "rocketline.coordination is set.",
    )  # fmt: skip
    add(
        "--secure",
        action="store_true",
        help="Only accounts and TLS; makes both, and shows how to get in.",
    )
    add(
        "--console",
        action="store_true",
        help="Serve a web console too; prints a link that works once. Needs the extra.",
    )
    add(
        "--console-port", type=port_number, default=CONSOLE_PORT, metavar="PORT",
        help=f"Port of the console, 0: any free one. Default {CONSOLE_PORT}.",
    )  # fmt: skip
    add("--processes", action="store_true", help="Run every broker in a process of its own, to use more cores.")
    add(
        "--flush", type=_one_of(FlushMode), metavar="async|sync",
        help="sync: a send is acknowledged when the disk has it. Default async.",
    )  # fmt: skip


def _replicas(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_REPLICAS:
        raise ArgumentTypeError(f"{text!r}: a number from 0 to {MAX_REPLICAS} is expected")
    return int(text)


def _add_nameserver(parser: Parser) -> None:
    _add_port(parser)


def _add_broker(parser: Parser) -> None:
    add = parser.add_argument
    add("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, separated by `;`.")
    add("--data", type=Path, metavar="DIR", help="Folder of the messages.")
    add("--name", help="Name of the broker. Default broker-a.")
    _add_port(parser)
    _add_grpc_port(parser)


def _add_proxy(parser: Parser) -> None:
    parser.add_argument("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, separated by `;`.")
    _add_grpc_port(parser)


def _add_grpc_port(parser: Parser) -> None:
    parser.add_argument(
        "--grpc-port",
        type=port_number,
        metavar="PORT",
        help="Serve RocketMQ 5.x clients (gRPC) there; 0: any free port.",
    )


def _add_port(parser: Parser) -> None:
    parser.add_argument("--port", type=port_number, help="Port to listen on; 0: any free one.")


def _add_common(parser: Parser) -> None:
    add = parser.add_argument
    add("--host", help=f"Address to listen on; 0.0.0.0: all. Default {LOOPBACK}.")
    add(
        "--insecure", action="store_true",
        help="Serve other machines (--host) without asking for accounts. Only for networks that keep strangers out. (Of a "
        "client it means: trust any certificate.)",
    )  # fmt: skip
    add("--config", "-c", type=Path, metavar="FILE", help="Settings file; an unmodified one of RocketMQ works.")
    add(
        "--set", dest="settings", action="append", metavar="KEY=VALUE",
        help="One setting by its RocketMQ name; wins over the file.",
    )  # fmt: skip
    add(
        "--metrics-port", type=port_number, metavar="PORT", help="Serve metrics for Prometheus there; 0: any free port."
    )
    add("--tls-cert", type=Path, metavar="FILE", help="Certificate of the server (PEM); switches TLS on.")
    add("--tls-key", type=Path, metavar="FILE", help="Its private key. Default: in the file of the certificate.")
    add("--tls-ca", type=Path, metavar="FILE", help="Authorities of clients and of other servers (PEM).")
    add(
        "--tls-client-auth", type=_one_of(ClientAuth), metavar="|".join(ClientAuth),
        help="Certificates of clients: not asked for, checked if there is one, or demanded. Default none.",
    )  # fmt: skip
    add(
        "--log-level", type=_one_of(LogLevel), metavar="|".join(LogLevel),
        help="Least important level to log. Default warning.",
    )  # fmt: skip
    add(
        "--log-format", type=_one_of(LogFormat), default=LogFormat.text, metavar="|".join(LogFormat),
        help="Lines for people, or JSON.",
    )  # fmt: skip
    add("--verbose", "-v", action="count", default=0, help="Log what happens; -vv: everything.")


def _number(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
    return int(text)


def port_number(text: str) -> int:
    return _number(text, 0, MAX_PORT)


def _count(text: str) -> int:
    return _number(text, 1, MAX_BROKERS)


def _one_of(kind: type[Choice]) -> Callable[[str], Choice]:
    def read(text: str) -> Choice:
        try:
            return kind(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is none of {', '.join(kind)}") from None

    return read


def common_settings(kind: type[Any], flags: ServerFlags) -> dict[str, str]:
    """The settings that the flags of all servers stand for, by key; `--host` is left to the server."""
    values = given_settings(kind, flags.settings)
    if flags.metrics_port is not None:
        values |= {"metricsExporterType": "PROM", "metricsPromExporterPort": str(flags.metrics_port)}
    if flags.insecure:
        values["rocketline.insecure"] = "true"
    return values | flags.tls


def _tls_settings(
    certificate: Path | None, key: Path | None, authorities: Path | None, client_auth: ClientAuth | None
) -> dict[str, str]:
    given = {
        "tls.server.certPath": certificate,
        "tls.server.keyPath": key,
        "tls.server.trustCertPath": authorities,
        "tls.client.trustCertPath": authorities,
        "tls.server.need.client.auth": client_auth,
        "tls.server.authClient": None if client_auth is None else "true",
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def given_settings(kind: type[Any], given: Iterable[str] | None) -> dict[str, str]:
    """The `--set` flags by key. An unknown key is refused here, unlike in a file, which may be Apache's own."""
    known = {item.key for item in describe(kind)} | ignored_keys(kind).keys()
    values = {}
    for item in given or ():
        key, separator, value = item.partition("=")
        if not separator:
            raise UsageProblem(f"--set {item}: KEY=VALUE is expected")
        if key not in known:
            raise UsageProblem(f"--set {item}: there is no setting {key!r}; names are RocketMQ's, case included")
        values[key] = value
    return values
