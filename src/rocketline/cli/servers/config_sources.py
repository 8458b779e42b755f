"""The sources of a server's settings: flags win over the environment, the environment over the file, the file over defaults.

Every RocketMQ key has an environment variable: `flushDiskType` is `ROCKETLINE_FLUSH_DISK_TYPE`. `NAMESRV_ADDR`, which
RocketMQ's own tools read, works too. Each source is checked by itself, so that an error names the source.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketline.errors import ConfigError
from rocketline.settings import describe, ignored_keys, load, parse_json, parse_properties

log = logging.getLogger(__name__)

NAMESRV_VARIABLE = "NAMESRV_ADDR"
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def variable_of(key: str) -> str:
    """The environment variable of a RocketMQ key.

    >>> variable_of("brokerIP1"), variable_of("rocketline.slowRequestMs")
    ('ROCKETLINE_BROKER_IP1', 'ROCKETLINE_ROCKETLINE_SLOW_REQUEST_MS')
    """
    return "ROCKETLINE_" + _WORD_START.sub("_", key).upper().replace(".", "_")


def file_values(path: Path | None) -> dict[str, str]:
    """The settings of a file: properties, or a JSON object as RocketMQ's proxy has it."""
    if path is None:
        return {}
    try:
        text = path.read_text("utf-8")
        return parse_json(text) if text.lstrip().startswith("{") else parse_properties(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the settings file {path}: {reason}") from error


def environment_values(kind: type[Any], environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of the environment."""
    keys = [item.key for item in describe(kind) if item.key]
    values = {key: environ[variable_of(key)] for key in keys if variable_of(key) in environ}
    if "namesrvAddr" in keys and environ.get(NAMESRV_VARIABLE):
        values.setdefault("namesrvAddr", environ[NAMESRV_VARIABLE])
    return values


def merged_values(
    kind: type[Any], file: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]
) -> dict[str, str]:
    """The settings in force, by RocketMQ key; those without an effect are warned about and left out."""
    from_file = file_values(file)
    from_environment = environment_values(kind, environ)
    _, unknown = load(kind, from_file, str(file))
    load(kind, from_environment, "environment")
    load(kind, dict(flags), "flags")
    if unknown:
        log.warning("%s: rocketline does not know these keys and ignores them: %s", file, ", ".join(unknown))
    ignored = ignored_keys(kind)
    for where, values in ((file, from_file), ("flags", flags)):
        for key in sorted(values.keys() & ignored.keys()):
            log.warning("%s: %s has no effect: %s", where, key, ignored[key])
    merged = {**from_file, **from_environment, **flags}
    return {key: value for key, value in merged.items() if key not in unknown and key not in ignored}
