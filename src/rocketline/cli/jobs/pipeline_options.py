"""Options that several commands of `rocketline pipeline` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rocketline.cli.access import ACCESS_KEY_VARIABLE, NAMESRV_HELP, SECRET_KEY_VARIABLE

Master = Annotated[
    str | None,
    typer.Option(help="Spark's master: local[N], spark://..., yarn, k8s://..., or sc://... of Spark Connect.",
                 show_default="local[*]"),
]  # fmt: skip
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting for Spark; repeatable.")]
Namesrv = Annotated[str | None, typer.Option("--namesrv", "-n", metavar="HOST:PORT", help=NAMESRV_HELP)]
StorePath = Annotated[str | None, typer.Option("--path", metavar="DIR", help="Read a store's files instead.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="A topic to read; repeatable.")]
ToNamesrv = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Cluster to send to.", show_default="--namesrv")
]
ToTopic = Annotated[str | None, typer.Option(help="Topic to send to.", show_default="the one a message is in")]
Where = Annotated[str | None, typer.Option(metavar="SQL", help="Only messages that this condition selects.")]
Rate = Annotated[float | None, typer.Option(help="At most this many messages per second.", show_default="unlimited")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Stored at or after; ISO 8601 or ms.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Stored before.")]
Access = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE",
                 help="rocketmq.tls=true and other options of a connection; repeatable. The account: "
                 f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}."),
]  # fmt: skip
Store = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder given to `up --data`, a store root, or a commit log.")
]
AsOf = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION|TIME", help="The table as it was: a version (Delta), a snapshot (Iceberg), or a time."
    ),
]
TableFormat = Annotated[str, typer.Option("--format", help="parquet, delta (Spark 4.2) or iceberg (PyIceberg).")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for tables and plots.")]
