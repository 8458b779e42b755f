"""Files that options name, on the machine that needs them: where they say, or shipped along with the job.

`spark-submit --files ca.pem`, `--conf spark.files=ca.pem`, `SparkContext.addFile` and, over Connect,
`spark.addArtifacts("ca.pem", file=True)` put a copy on every executor, in a folder that only `SparkFiles` knows. So a path
is taken as it is where it leads to something, and otherwise by its last part among the shipped files. This is done where a
connection is made, not where options are read: what is right on the driver need not be so on an executor.
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
    """With the paths its files have here; ConfigError when one is nowhere."""
    tls = access.tls
    if not isinstance(tls, Tls):
        return access
    ca_file, certificate = _found("ca_file", tls.ca_file), _found("certificate", tls.certificate)
    here = replace(tls, ca_file=ca_file, certificate=certificate, key=_found("key", tls.key))
    return replace(access, tls=here)


def _found(name: str, given: str | os.PathLike[str] | None) -> str | None:
    # Unlike Path.exists this is also False where a folder must not be looked into.
    if given is None or os.path.exists(given):
        return None if given is None else str(given)
    path = Path(given)
    shipped = _shipped(path.name)
    if shipped is None or not shipped.exists():
        raise ConfigError(
            f"TLS: {name} {path} is not to be seen on {platform.node()}, and no {path.name} was shipped with the job: "
            f"have it under this path everywhere, or ship it with `--files {path}` or `--conf spark.files={path}`"
        )
    return str(shipped)


def _shipped(name: str) -> Path | None:
    """Where a file of this name would be if it was shipped; None where there is no Spark, or only its Connect client."""
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
