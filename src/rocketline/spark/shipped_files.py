"""Finds files that options name: at their path, or among the files shipped with the job.

`spark-submit --files ca.pem`, `--conf spark.files=ca.pem`, `SparkContext.addFile` and, over Connect,
`spark.addArtifacts("ca.pem", file=True)` put a copy on every executor, in a folder that only `SparkFiles` knows. A path
that exists is used as it is; otherwise a shipped file with the same name is used. This is done when a connection is
made and not when options are read, because the result may differ between the driver and an executor.
"""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path

from rocketline.errors import ConfigError
from rocketline.transport.access import Access
from rocketline.transport.tls import Tls


def on_this_machine(access: Access) -> Access:
    """The access with the paths of its files on this machine; ConfigError when one is missing."""
    tls = access.tls
    if not isinstance(tls, Tls):
        return access
    ca_file, certificate = _found("ca_file", tls.ca_file), _found("certificate", tls.certificate)
    here = replace(tls, ca_file=ca_file, certificate=certificate, key=_found("key", tls.key))
    return replace(access, tls=here)


def _found(name: str, given: str | os.PathLike[str] | None) -> str | None:
    # Unlike Path.exists this is False, and no error, for a folder without permission.
    if given is None or os.path.exists(given):
        return None if given is None else str(given)
    path = Path(given)
    shipped = _shipped(path.name)
    if shipped is None or not shipped.exists():
        raise ConfigError(
            f"TLS: {name} {path} does not exist on {platform.node()}, and no {path.name} was shipped with the job: "
            f"put it under this path on all machines, or ship it with `--files {path}` or `--conf spark.files={path}`"
        )
    return str(shipped)


def _shipped(name: str) -> Path | None:
    """The path of a shipped file with this name, if it was shipped; None without Spark, or with its Connect client only."""
    try:
        from pyspark import SparkFiles

        return Path(SparkFiles.get(name))
    except (
        ImportError,
        AssertionError,
        AttributeError,
        TypeError,
    ):  # SparkFiles knows its folder in a session or a task
        return None
