"""Options that several commands share, each spelled and explained once; those of the servers are in `server_flags.py`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketline.cli.access import ACCESS_KEY_HELP, CA_FILE_HELP, INSECURE_HELP, SECRET_KEY_HELP, TLS_HELP, client_access
from rocketline.cli.usage import UsageProblem
from rocketline.errors import ConfigError

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
AccessKey = Annotated[str | None, typer.Option(metavar="NAME", show_default=False, help=ACCESS_KEY_HELP)]
SecretKeyFile = Annotated[Path | None, typer.Option(metavar="FILE", show_default=False, help=SECRET_KEY_HELP)]
TlsSwitch = Annotated[bool, typer.Option("--tls", help=TLS_HELP)]
CaFile = Annotated[Path | None, typer.Option(metavar="FILE", show_default=False, help=CA_FILE_HELP)]
Insecure = Annotated[bool, typer.Option("--insecure", help=INSECURE_HELP)]

DEFAULT_NAMESRV = "127.0.0.1:9876"


class Output(StrEnum):
    text = "text"
    json = "json"


def given_access(
    access_key: str | None, secret_key_file: Path | None, tls: bool, ca_file: Path | None, insecure: bool
) -> dict[str, Any]:
    """`credentials` and `tls` of a client."""
    try:
        return client_access(access_key, secret_key_file, tls=tls, ca_file=ca_file, insecure=insecure)
    except ConfigError as error:
        raise UsageProblem(str(error)) from error
