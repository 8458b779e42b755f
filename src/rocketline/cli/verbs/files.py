"""Reading lists of topics or groups from JSON files."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from rocketline.errors import ConfigError

T = TypeVar("T")


def read_list(filename: str, kind: type[T]) -> list[T]:
    """The items of a JSON file; ConfigError when it cannot be read or holds something else."""
    try:
        return msgspec.json.decode(Path(filename).read_bytes(), type=list[kind])  # type: ignore[valid-type]
    except OSError as error:
        raise ConfigError(f"{filename}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{filename} is not a list of {kind.__name__}: {error}") from error
