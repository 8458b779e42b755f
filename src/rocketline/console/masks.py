"""Parts of messages that nobody may see: properties by name, and values in JSON bodies by path."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rocketline.errors import ConfigError
from rocketline.message import MessageView

MASK = "•••"
PROPERTY, BODY = "property:", "body."


class Masks:
    """
    >>> Masks(["body.card.number"]).body(b'{"card": {"number": "4111"}}')
    b'{"card": {"number": "\\xe2\\x80\\xa2\\xe2\\x80\\xa2\\xe2\\x80\\xa2"}}'
    """

    def __init__(self, masks: Iterable[str]) -> None:
        given = list(masks)
        for mask in given:
            if not mask.startswith((PROPERTY, BODY)):
                raise ConfigError(f"--mask {mask}: body.a.b or property:NAME is expected")
        self._properties = {mask.removeprefix(PROPERTY) for mask in given if mask.startswith(PROPERTY)}
        self._paths = [mask.removeprefix(BODY).split(".") for mask in given if mask.startswith(BODY)]

    def __bool__(self) -> bool:
        return bool(self._properties or self._paths)

    def apply(self, message: MessageView, *, is_cut: bool = False) -> None:
        """Hide what is masked, before anything else sees the message. What a body hides that was cut, nobody can tell."""
        if self._properties:
            message.properties = {
                name: MASK if name in self._properties else value for name, value in message.properties.items()
            }
        if self._paths:
            hides_all = is_cut and message.body.lstrip()[:1] in (b"{", b"[")
            message.body = MASK.encode() if hides_all else self.body(message.body)

    def body(self, body: bytes) -> bytes:
        try:
            content = json.loads(body)
        except ValueError:
            return body
        except RecursionError:  # it is JSON, nested too deeply to look into
            return MASK.encode()
        hidden = [_hide(content, path) for path in self._paths]
        # Half a character, which JSON may name, stays an escape.
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace") if any(hidden) else body


def _hide(content: Any, path: list[str]) -> bool:
    """Replace the values at a path; lists on the way are gone through."""
    if isinstance(content, list):
        return sum(_hide(item, path) for item in content) > 0
    if not isinstance(content, dict) or path[0] not in content:
        return False
    if len(path) == 1:
        content[path[0]] = MASK
        return True
    return _hide(content[path[0]], path[1:])
