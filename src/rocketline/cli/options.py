"""Options that several commands share, each spelled and explained once; those of the servers are in `server_flags.py`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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

DEFAULT_NAMESRV = "127.0.0.1:9876"


class Output(StrEnum):
    text = "text"
    json = "json"
