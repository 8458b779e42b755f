"""Structs that several pages show, and lists that are filtered, sorted and paged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec

from rocketline.admin import AdminBroker
from rocketline.admin.partial import Missing
from rocketline.console.endpoints import Input, PartialView, Silent, View
from rocketline.errors import RocketlineError

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

T = TypeVar("T")
C = TypeVar("C")

PAGE_ROWS = 50


def silent(missing: Iterable[Missing]) -> list[Silent]:
    return [Silent(broker=item.broker, address=item.address, problem=item.problem, code=item.code) for item in missing]


class ListInput(Input, kw_only=True):
    q: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """Only names that contain this."""
    sort: Annotated[str, msgspec.Meta(max_length=32)] = ""
    """Name of a column; with a minus in front: largest first."""
    page: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1


class ListView(PartialView, kw_only=True):
    total: int = 0
    """Rows that match."""
    page: int = 1
    pages: int = 1


def listed(
    rows: Sequence[T], wanted: ListInput, keys: dict[str, Callable[[T], Any]], default: str
) -> tuple[list[T], int, int]:
    """(the rows of the wanted page, how many rows there are, how many pages)."""
    name = wanted.sort.removeprefix("-") or default.removeprefix("-")
    key = keys.get(name) or keys[default.removeprefix("-")]
    largest_first = wanted.sort.startswith("-") if wanted.sort else default.startswith("-")
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    ordered = sorted(known, key=key, reverse=largest_first) + unknown  # what is not known comes last, whichever way
    pages = max(1, -(-len(ordered) // PAGE_ROWS))
    page = min(wanted.page, pages)
    return ordered[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], len(ordered), pages


def matches(name: str, q: str) -> bool:
    return q.lower() in name.lower()


class Item(View, kw_only=True):
    """What became of one part of a change."""

    where: str
    ok: bool
    problem: str = ""
    link: str = ""


class Result(View, kw_only=True):
    """What became of a change; `ok` only if every part went well."""

    title: str
    """Key of a text under `results`."""
    about: str
    items: list[Item]
    back: str = ""
    """Path of the page to go on with."""
    ok: bool = False

    def __post_init__(self) -> None:
        self.ok = bool(self.items) and all(item.ok for item in self.items)


class NameInput(Input, kw_only=True):
    name: Annotated[str, msgspec.Meta(max_length=255)] = ""


class NameView(View, kw_only=True):
    """The form of something that has a name."""

    name: str


class Difference(View, kw_only=True):
    """One line of a preview."""

    what: str
    before: str
    after: str


def differences(
    now: Iterable[tuple[AdminBroker, C]], compared: Callable[[C], Iterable[tuple[str, object, object]]]
) -> list[Difference]:
    """What a change would change on each broker; `compared` gives (what, before, after) of one."""
    return [
        Difference(what=f"{broker.name}: {what}", before=str(before), after=str(after))
        for broker, config in now
        for what, before, after in compared(config)
        if before != after
    ]


class Place(Protocol):
    """A server that takes changes."""

    @property
    def where(self) -> str: ...


P = TypeVar("P", bound=Place)


async def on_each(visit: Visit, servers: Sequence[P], do: Callable[[P], Awaitable[None]]) -> list[Item]:
    """Make a change on each server; what became of it there."""
    answers = await visit.admin.gather_or_errors(do(server) for server in servers)
    return [
        Item(
            where=server.where,
            ok=not isinstance(answer, RocketlineError),
            problem=str(answer) if isinstance(answer, RocketlineError) else "",
        )
        for server, answer in zip(servers, answers)
    ]
