"""Messages as structs, and bodies as text, a tree or hex: never as anything that a browser would run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rocketline.admin.search import Page
from rocketline.console.endpoints import View
from rocketline.message import MessageView

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

SHOWN_BYTES = 64 << 10
PREVIEW_BYTES = 240
LISTED_BYTES = 1024
"""So much of a body is kept for a list."""
HEX_BYTES = 4096
MAX_TREE_NODES = 2000
MAX_TREE_DEPTH = 24


class MessageRow(View, kw_only=True):
    id: str
    offset_id: str
    topic: str
    broker: str
    queue: int
    offset: int
    stored_ms: int
    born_ms: int
    tag: str
    keys: list[str]
    retries: int
    size: int
    """Bytes of the whole body."""
    preview: str
    is_text: bool
    properties: dict[str, str]


def message_row(
    visit: Visit, message: MessageView, preview_bytes: int = PREVIEW_BYTES, body_bytes: int | None = None
) -> MessageRow:
    """One message in a list; what is masked is hidden first. `body_bytes` is the size of a body that was cut."""
    size = len(message.body) if body_bytes is None else body_bytes
    visit.desk.masks.apply(message)
    text, is_text = body_text(message.body[:preview_bytes], is_cut=size > preview_bytes)
    return MessageRow(
        id=message.message_id, offset_id=message.offset_id, topic=message.topic, broker=message.broker_name,
        queue=message.queue_id, offset=message.queue_offset, stored_ms=message.store_ms, born_ms=message.born_ms,
        tag=message.tag or "", keys=list(message.keys), retries=message.reconsume_times, size=size,
        preview=text, is_text=is_text, properties=dict(message.properties),
    )  # fmt: skip


def found_row(visit: Visit, page: Page, message: MessageView) -> MessageRow:
    """A message of a search, which may have only the beginning of its body."""
    return message_row(visit, message, body_bytes=page.cut.get(message.offset_id))


def body_text(body: bytes, *, is_cut: bool = False) -> tuple[str, bool]:
    """(the text, True), or (hex, False) for bytes that are no text."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        # The cut may have gone through a character.
        if not is_cut or error.start < len(body) - 3:
            return body[:64].hex(" "), False
        text = body[: error.start].decode()
    if any(ord(char) < 32 and char not in "\t\r\n" for char in text):
        return body[:64].hex(" "), False
    return text, True


def hex_lines(body: bytes) -> list[str]:
    """
    >>> hex_lines(b"hello\\x00")
    ['00000000  68 65 6c 6c 6f 00                                |hello.|']
    """
    lines = []
    for start in range(0, min(len(body), HEX_BYTES), 16):
        part = body[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  |{text}|")
    return lines


class TreeNode(View, kw_only=True):
    """One line of a JSON body: objects and lists have further lines under them."""

    depth: int
    name: str
    kind: str
    text: str
    size: int = 0


def json_tree(body: bytes) -> list[TreeNode]:
    """The body as a tree; empty when it is no JSON object or list."""
    if len(body) > SHOWN_BYTES or body[:1] not in (b"{", b"["):
        return []
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return []
    nodes: list[TreeNode] = []
    _add(nodes, "", content, 0)
    return nodes


def _add(nodes: list[TreeNode], name: str, content: Any, depth: int) -> None:
    if len(nodes) >= MAX_TREE_NODES or depth > MAX_TREE_DEPTH:
        return
    name = _writable(name)
    if isinstance(content, dict | list):
        kind = "object" if isinstance(content, dict) else "list"
        nodes.append(TreeNode(depth=depth, name=name, kind=kind, text="", size=len(content)))
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in pairs:
            _add(nodes, str(key), value, depth + 1)
        return
    kind = "text" if isinstance(content, str) else "number" if isinstance(content, int | float) else "word"
    if isinstance(content, bool):
        kind = "word"
    text = _writable(json.dumps(content, ensure_ascii=False))
    nodes.append(TreeNode(depth=depth, name=name, kind=kind, text=text))


def _writable(text: str) -> str:
    r"""JSON may name half a character, which no encoding has.

    >>> _writable("\ud800")
    '\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode()
