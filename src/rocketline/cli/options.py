"""Options that several commands share; those of the servers are in `servers/flags.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rocketline.cli.access import (
    ACCESS_KEY_HELP,
    CA_FILE_HELP,
    INSECURE_HELP,
    NAMESRV_HELP,
    SECRET_KEY_HELP,
    TLS_HELP,
)
from rocketline.cli.tables import OUTPUT_HELP, Output

Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, show_default=False, help="Log what happens; -vv: everything.")
]
NameServers = Annotated[
    str | None,
    typer.Option("--namesrv", "-n", metavar="HOST:PORT", show_default=False, help=NAMESRV_HELP),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Settings file; an unmodified one of RocketMQ works."),
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
OutputOption = Annotated[Output, typer.Option("--output", "-o", help=OUTPUT_HELP)]
