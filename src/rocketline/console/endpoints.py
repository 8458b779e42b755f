"""Declaring what the console can be asked: once for a page and for the JSON API.

An endpoint is a function that takes a visit and a struct of parameters, and returns a struct. The page draws that struct
with a template, the API sends it as JSON, and the description of the API is made from both structs. Every endpoint names
the role that it needs; there is no default.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import msgspec

from rocketline.console.access import Role
from rocketline.console.limits import MAX_REQUEST_BYTES, Heavy

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
"""Of a topic, group, broker or account."""
Text = Annotated[str, msgspec.Meta(max_length=2000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
TimeMs = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class Input(msgspec.Struct, rename="camel", kw_only=True):
    """Parameters of an endpoint: from path, query, form or JSON."""


class Change(Input, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a change. One that is not known is refused: without it another change would be made."""

    confirm: str = ""
    """The name of what is changed, typed once more; needed where something is lost."""
    idempotency_key: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The same key twice: the change is made once, and both answers are the same."""


class View(msgspec.Struct, rename="camel", kw_only=True):
    """An answer."""


class Silent(View, kw_only=True):
    """A broker whose part is missing in an answer."""

    broker: str
    address: str
    problem: str
    code: int | None = None


class PartialView(View, kw_only=True):
    """An answer that is put together from several brokers."""

    partial: list[Silent] = []
    complete: bool = True
    """Whether nothing is missing."""

    def __post_init__(self) -> None:
        self.complete = self.complete and not self.partial


class Download(msgspec.Struct):
    """An answer that is a file. `chunks` are sent as they come."""

    name: str
    chunks: AsyncIterator[bytes]
    kind: str = "application/octet-stream"


class Stream(msgspec.Struct):
    """An answer that goes on: server-sent events."""

    events: AsyncIterator[bytes]


Run = Callable[["Visit", Any], Awaitable[Any]]


@dataclass(frozen=True)
class Endpoint:
    name: str
    method: str
    path: str
    """Below the cluster, or below the console's root if it is not `in_cluster`."""
    role: Role
    run: Run
    takes: type[Input]
    gives: Any
    page: str | None = None
    """Template of the page; None: no page."""
    form: str | None = None
    """Of a change: path of the page whose form makes it."""
    api: str = ""
    """Its path in the API, where that is another than the page's."""
    in_cluster: bool = True
    in_api: bool = True
    of_console: bool = False
    """What it shows is the console's own, so that no broker guards it."""
    live: bool = False
    """Numbers on the page change while it is open."""
    heavy: Heavy | None = None
    audited: bool = False
    max_bytes: int = MAX_REQUEST_BYTES
    help: str = ""

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def api_path(self) -> str:
        """The overview is `/` as a page, and a word in the API."""
        return self.api or ("/overview" if self.path == "/" else self.path)


ENDPOINTS: dict[str, Endpoint] = {}
"""All endpoints by name."""


def reads(path: str, role: Role, page: str | None = None, **more: Any) -> Callable[[Run], Run]:
    """Decorator of a function that answers a question."""
    return _declare("GET", path, role, page=page, **more)


def changes(method: str, path: str, role: Role, form: str | None = None, **more: Any) -> Callable[[Run], Run]:
    """Decorator of a function that changes something; `form` is the path of the page that has its form."""
    return _declare(method, path, role, form=form, audited=True, **more)


def _declare(method: str, path: str, role: Role, **more: Any) -> Callable[[Run], Run]:
    def declare(run: Run) -> Run:
        hints = get_type_hints(run, _names(run), include_extras=True)
        name = getattr(run, "__name__", "")
        takes = next(kind for key, kind in hints.items() if key not in ("visit", "return"))
        help_text = " ".join((run.__doc__ or "").split())
        ENDPOINTS[name] = Endpoint(name, method, path, role, run, takes, hints["return"], help=help_text, **more)
        return run

    return declare


def _names(run: Run) -> dict[str, Any]:
    """What annotations may name; `Visit` is known only to type checkers, because it needs this module."""
    return {**getattr(run, "__globals__", {}), "Visit": object}


def path_names(path: str) -> list[str]:
    """
    >>> path_names("/topics/{topic}/messages")
    ['topic']
    """
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def read_input(kind: type[Input], given: list[tuple[str, str]], path: dict[str, str]) -> Input:
    """Parameters from text. A field that is empty counts as not given; msgspec.ValidationError says what is wrong."""
    fields = {item.encode_name: item for item in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, text in given:
        item = fields.get(name)
        if item is None or text == "":
            continue
        if _is_list(item.type):
            values.setdefault(name, []).append(text)
        else:
            values[name] = text
    return msgspec.convert({**values, **path}, kind, strict=False)


def _is_list(kind: Any) -> bool:
    return any(getattr(part, "__origin__", part) is list for part in (kind, *get_args(kind)))
