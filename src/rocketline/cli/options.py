"""Options that several commands share; those of the servers are in `servers/flags.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from rocketline.cli.access import (
    ACCESS_KEY_HELP,
    CA_FILE_HELP,
    INSECURE_HELP,
    NAMESRV_HELP,
    SECRET_KEY_HELP,
    TLS_HELP,
    ClusterAccess,
    cluster_access,
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


@dataclass(frozen=True)
class ClusterFlags:
    """The options of a command that works with a cluster."""

    namesrv: NameServers = None
    access_key: AccessKey = None
    secret_key_file: SecretKeyFile = None
    tls: TlsSwitch = False
    ca_file: CaFile = None
    insecure: Insecure = False

    def access(self) -> ClusterAccess:
        return cluster_access(
            self.namesrv,
            self.access_key,
            self.secret_key_file,
            tls=self.tls,
            ca_file=self.ca_file,
            insecure=self.insecure,
        )


def takes_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a cluster, behind its own; its argument `flags` is what they say."""

    def run(**given: Any) -> None:
        flags = ClusterFlags(**{item.name: given.pop(item.name) for item in fields(ClusterFlags)})
        command(**given, flags=flags)

    hints = get_type_hints(command, include_extras=True)
    own = [
        item.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
        for name, item in signature(command).parameters.items()
        if name != "flags"
    ]
    hints = get_type_hints(ClusterFlags, include_extras=True)
    more = [
        Parameter(item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=hints[item.name])
        for item in fields(ClusterFlags)
    ]
    run.__signature__ = Signature([*own, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {item.name: item.annotation for item in (*own, *more)}
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    return run
