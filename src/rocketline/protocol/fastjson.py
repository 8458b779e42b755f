"""Reader for the JSON that Java's fastjson writes and accepts (written separately)."""

from __future__ import annotations

from typing import Any

import msgspec


class FastJsonError(ValueError):
    """Text that even the tolerant reader cannot take."""


def parse(text: bytes | str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FastJsonError(str(error)) from error
