"""Options that several commands share, each spelled and explained once."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketline.cli.access import ACCESS_KEY_HELP, CA_FILE_HELP, INSECURE_HELP, SECRET_KEY_HELP, TLS_HELP, client_access
from rocketline.cli.logs import LogFormat, LogLevel
from rocketline.errors import ConfigError
from rocketline.settings import describe

Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, show_default=False, help="Log what happens; twice: everything.")
]
NameServers = Annotated[
    str,
    typer.Option("--namesrv", "-n", envvar="NAMESRV_ADDR", metavar="HOST:PORT", help="Name servers, separated by `;`."),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="Settings, an unmodified RocketMQ file.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting by its RocketMQ name; wins over the file."),
]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")]
MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", min=0, max=65535, help="Serve metrics for Prometheus there; 0: any free port."),
]
LogLevelOption = Annotated[
    LogLevel | None, typer.Option("--log-level", help="What to log at least.", show_default="warning")
]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="Lines for people, or JSON.")]
AccessKey = Annotated[str | None, typer.Option(metavar="NAME", show_default=False, help=ACCESS_KEY_HELP)]
SecretKeyFile = Annotated[Path | None, typer.Option(metavar="FILE", show_default=False, help=SECRET_KEY_HELP)]
TlsSwitch = Annotated[bool, typer.Option("--tls", help=TLS_HELP)]
CaFile = Annotated[Path | None, typer.Option(metavar="FILE", show_default=False, help=CA_FILE_HELP)]
Insecure = Annotated[bool, typer.Option("--insecure", help=INSECURE_HELP)]

DEFAULT_NAMESRV = "127.0.0.1:9876"


class Output(StrEnum):
    text = "text"
    json = "json"


class Flush(StrEnum):
    """When a send is answered."""

    asynchronous = "async"
    sync = "sync"

    @property
    def disk_type(self) -> str:
        return "SYNC_FLUSH" if self is Flush.sync else "ASYNC_FLUSH"


def metrics_settings(port: int | None) -> dict[str, str]:
    """What `--metrics-port` stands for."""
    return {} if port is None else {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}


class UsageError(typer.TyperException):
    """The command line asks for something that cannot be."""

    exit_code = 2


def given_access(
    access_key: str | None, secret_key_file: Path | None, tls: bool, ca_file: Path | None, insecure: bool
) -> dict[str, Any]:
    """`credentials` and `tls` of a client."""
    try:
        return client_access(access_key, secret_key_file, tls=tls, ca_file=ca_file, insecure=insecure)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def given_settings(kind: type[Any], given: Iterable[str] | None) -> dict[str, str]:
    """The `--set` flags; unlike in a file, which may be Apache's own, an unknown key is a mistake here."""
    known = {item.key for item in describe(kind)}
    values = {}
    for item in given or ():
        key, separator, value = item.partition("=")
        if not separator:
            raise UsageError(f"--set {item}: KEY=VALUE is expected")
        if key not in known:
            raise UsageError(f"--set {item}: there is no setting {key!r}; names are RocketMQ's, case included")
        values[key] = value
    return values
