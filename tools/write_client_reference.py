"""Write docs/reference/clients.md from signatures and docstrings, so that the page always matches them.

    python tools/write_client_reference.py

Needs rocketline to be importable, as it is in `.venv`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import rocketline
from rocketline import client, errors

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "clients.md"

INTRODUCTION = """# Clients

Written by `python tools/write_client_reference.py` from the docstrings; change those, not this page. Recipes:
[produce](../howto/produce.md), [consume](../howto/consume.md). `rocketline.client.blocking` has the same producers and
consumers for threads: without `await`, and with `with` instead of `async with`.
"""
KOMBU = """Kombu, and so Celery, needs no class: `import rocketline.adapters.kombu` makes URLs with `rocketmq://` known
([how-to](../howto/adapters.md)).
"""
SECTIONS = {
    "Messages": ("Message", "MessageView", "MessageQueue", "decode"),
    "Producing": (
        "Producer", "TransactionalProducer", "SendReceipt", "SendStatus", "SendCallback", "TransactionReceipt",
        "Transaction", "Retries", "AutoBatch", "SlowBrokers", "LATENCY_STEPS", "Compression", "split_batch", "QueueSelector",
        "by_hash", "at_random", "in_machine_rooms",
    ),
    "Consuming": (
        "PushConsumer", "PullConsumer", "PopConsumer", "ConsumeFrom", "SeekTo", "MessageModel", "Sql", "RetryLater",
        "SuspendQueue", "OrderedResult", "Rollback", "Ordering", "PullSettings", "PopSettings", "ByBrokers",
    ),
    "Who reads which queue": (
        "allocate_averagely", "allocate_by_circle", "by_config", "by_machine_room", "machine_room_nearby", "consistent_hash",
    ),
    "All clients": (
        "ClientOptions", "ClientTiming", "Credentials", "CredentialsFile", "Tls", "ConnectionEvent", "Middleware",
    ),
    "Hooks": ("SendContext", "ConsumeContext", "ConsumeOutcome"),
    "Many messages from a plain thread": (
        "rocketline.client.bulk.reader.BulkReader", "rocketline.client.bulk.reader.Bounds",
        "rocketline.client.bulk.range.BulkReply", "rocketline.client.bulk.writer.BulkWriter",
        "rocketline.client.bulk.writer.WriteCounts",
    ),
    "Operating a cluster": (
        "rocketline.admin.Admin", "rocketline.admin.AdminBroker", "rocketline.admin.AdminNameServer",
    ),
    "Testing": (
        "rocketline.testing.LocalCluster", "rocketline.testing.SimWorld", "rocketline.testing.ManualClock",
        "rocketline.testing.MemoryDisk", "rocketline.testing.FaultyDisk",
    ),
    "Adapters": (
        "rocketline.adapters.faststream.RocketBroker", "rocketline.adapters.faststream.RocketRouter",
        "rocketline.adapters.faststream.RocketResponse", "rocketline.adapters.faststream.TestRocketBroker",
        "rocketline.adapters.opentelemetry.MessageSpans",
    ),
}  # fmt: skip
DOCUMENTED = {name.rpartition(".")[2] for names in SECTIONS.values() for name in names}
WITH_ALL_CALLS = frozenset({"Admin", "AdminBroker", "AdminNameServer"})
"""So many calls that each is a line, also those whose name says everything."""
WIDTH = 100


def page() -> str:
    """The whole page."""
    lines = (line for title, names in SECTIONS.items() for line in section(title, names))
    return "\n".join([INTRODUCTION, *lines, *exceptions()])


def section(title: str, names: tuple[str, ...]) -> Iterator[str]:
    yield f"## {title}\n"
    if title == "Adapters":
        yield KOMBU
    for name in names:
        home, _, short = name.rpartition(".")
        home = home or (rocketline if name in rocketline.__all__ else client).__name__
        yield from thing(f"{home}.{short}", getattr(import_module(home), short))


def exceptions() -> Iterator[str]:
    """Every exception with the one it is a kind of."""
    yield "## Errors\n"
    yield "All are in `rocketline.errors`, and all are a `RocketlineError`.\n"
    yield "| error | a kind of | |\n| --- | --- | --- |"
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.RocketlineError) and kind.__module__ == errors.__name__:
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
            yield f"| `{name}` | {bases} | {' '.join(str(inspect.getdoc(kind)).split())} |"
    yield ""


def thing(full_name: str, found: Any) -> Iterator[str]:
    name = full_name.rpartition(".")[2]
    yield f"### {name}\n"
    yield f"`from {full_name.rpartition('.')[0]} import {name}`\n"
    if not inspect.isclass(found):
        yield from described(name, found) if inspect.isfunction(found) else constant(name, found)
        return
    members = enum_members(found)
    if not members:
        yield from signature_block(name, found)
    yield from paragraphs(found.__doc__)
    yield from paragraphs(own_doc(found.__init__))
    if members:
        yield f"Values: {', '.join(f'`{value}`' for value in members)}.\n"
        return
    properties = [(key, item) for key, item in public(found) if isinstance(item, property) and item.__doc__]
    if properties:
        yield "| attribute | |\n| --- | --- |"
        yield from (f"| `{key}` | {' '.join(inspect.getdoc(item).split())} |" for key, item in properties)
        yield ""
    calls = {key: item for key, item in public(found) if inspect.isfunction(item)}
    if name in WITH_ALL_CALLS:
        yield from listed(calls)
        return
    for key, item in calls.items():
        if item.__doc__:
            yield from described(key, item, "#### ")


def constant(name: str, value: Any) -> Iterator[str]:
    """A value, or the name of a type."""
    yield f"```text\n{name} = {tidy(str(value))}\n```\n"


def listed(calls: dict[str, Any]) -> Iterator[str]:
    yield "| call | |\n| --- | --- |"
    for key, item in calls.items():
        text = " ".join((inspect.getdoc(item) or "").split())
        call = written(key, item).replace("|", "\\|")
        yield f"| `{call}` | {text} |"
    yield ""


def described(name: str, function: Any, heading: str = "") -> Iterator[str]:
    if heading:
        yield f"{heading}{name}\n"
    yield from signature_block(name, function)
    yield from paragraphs(function.__doc__)


def public(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Members of a class and of bases that have no section here, in the order they were written."""
    seen = set()
    for base in kind.__mro__:
        if base.__module__.startswith("rocketline.") and (base is kind or base.__name__ not in DOCUMENTED):
            for key, item in vars(base).items():
                if not key.startswith("_") and key not in seen:
                    seen.add(key)
                    yield key, item


def enum_members(kind: type[Any]) -> list[str]:
    return list(getattr(kind, "__members__", {}))


def own_doc(function: Any) -> str | None:
    return function.__doc__ if inspect.isfunction(function) else None


def signature_block(name: str, found: Any) -> Iterator[str]:
    try:
        line = written(name, found)
        if len(line) > WIDTH:
            line = written(name, found, "\n    ")
    except ValueError:
        return
    yield f"```text\n{line}\n```\n"


def written(name: str, found: Any, before_each: str = "") -> str:
    """A call as it is written, on one line, or with `before_each` parameter a line of its own."""
    signature = inspect.signature(found)
    parts = with_marks([part for part in signature.parameters.values() if part.name != "self"])
    prefix = "await " if inspect.iscoroutinefunction(found) or is_coroutine(signature) else ""
    result = "" if inspect.isclass(found) else returned(signature)
    inside = "".join(f"{before_each}{part}," for part in parts) + "\n" if before_each else ", ".join(parts)
    return f"{prefix}{name}({inside}){result}"


def with_marks(parameters: list[inspect.Parameter]) -> list[str]:
    """Parameters as they are written, with the `*` before those that need their name."""
    written: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in written):
            written.append("*")
        written.append(tidy(str(parameter)))
    return written


def tidy(text: str) -> str:
    """Without quotes around types, module names, and addresses in memory."""
    text = re.sub(r"^(\*{0,2}\w+: )'([^']*)'", r"\1\2", text).replace("<factory>", "...")
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    text = re.sub(r"<(?:[\w.]*\.)?(\w+)[^<>]*>", r"\1", text)
    text = re.sub(r"= ([A-Z]\w+)\(.*\)$", r"= \1()", text).replace("~", "")
    return re.sub(r"\b[a-z_]+(?:\.[a-z_]+)*\.(?=[A-Z])", "", text)


def is_coroutine(signature: inspect.Signature) -> bool:
    return str(signature.return_annotation).startswith("Coroutine")


def returned(signature: inspect.Signature) -> str:
    kind = signature.return_annotation
    if kind is inspect.Signature.empty:
        return ""
    found = re.fullmatch(r"Coroutine\[Any, Any, (.*)\]", str(kind))
    return " -> " + tidy(found[1] if found else str(kind)).strip("'")


def paragraphs(text: str | None) -> Iterator[str]:
    if text and text.strip() and not text.startswith("Initialize self"):
        examples = re.sub(r"^(?=>>>|\.\.\. )", "    ", inspect.cleandoc(text), flags=re.MULTILINE)
        yield re.sub(r"(?<=\n)(    >>> .*\n)(?=\S)", r"\1    ", examples) + "\n"


def main() -> None:
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
