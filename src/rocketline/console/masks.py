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

    def apply(self, message: MessageView) -> bool:
        """Hide what is masked, before anything else sees the message; whether there was anything to hide."""
        properties, body = message.properties, message.body
        if self._properties.intersection(properties):
            message.properties = {
                name: MASK if name in self._properties else value for name, value in properties.items()
            }
        if self._paths:
            message.body = self.body(body)
        return message.properties is not properties or message.body is not body

    def body(self, body: bytes) -> bytes:
        """The body without what is masked: of an object, or of lines with one each. Where objects may be that cannot be
        looked into (the body was cut, is no strict JSON, or names a field twice), all of it is hidden."""
        if b"{" not in body:
            return body
        try:
            return self._of_json(body)
        except (ValueError, RecursionError):
            pass
        try:
            return b"".join(self._of_json(line) if line.strip() else line for line in body.splitlines(keepends=True))
        except (ValueError, RecursionError):
            return MASK.encode()

    def _of_json(self, text: bytes) -> bytes:
        content = json.loads(text, object_pairs_hook=_object)
        hidden = [_hide(content, path) for path in self._paths]
        if not any(hidden):
            return text
        # Half a character, which JSON may name, stays an escape.
        shown = json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")
        return shown + text[len(text.rstrip()) :]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; ValueError when it names a field twice, because readers do not agree on which of them counts."""
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a field is named twice")
    return content


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
