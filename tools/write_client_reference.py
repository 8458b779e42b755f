"""Write docs/reference/clients.md from signatures and docstrings, so that the page always matches them.

    python tools/write_client_reference.py

Needs rocketline to be importable, as it is in `.venv`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rocketline
from rocketline import client

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "clients.md"

INTRODUCTION = """# Clients

Written by `python tools/write_client_reference.py` from the docstrings; change those, not this page. Recipes:
[produce](../howto/produce.md), [consume](../howto/consume.md). `rocketline.client.blocking` has the same producers and
consumers for threads: without `await`, and with `with` instead of `async with`.
"""
SECTIONS = {
    "Messages": ("Message", "MessageView", "MessageQueue"),
    "Producing": (
        "Producer", "TransactionalProducer", "SendReceipt", "SendStatus", "TransactionReceipt", "Transaction",
        "Retries", "AutoBatch", "SlowBrokers", "Compression", "split_batch", "by_hash", "at_random", "in_machine_rooms",
    ),
    "Consuming": (
        "PushConsumer", "PullConsumer", "PopConsumer", "ConsumeFrom", "SeekTo", "MessageModel", "Sql", "RetryLater",
        "SuspendQueue", "Ordering", "PullSettings", "PopSettings",
    ),
    "All clients": ("ClientOptions", "ClientTiming", "Credentials", "Tls"),
}  # fmt: skip
DOCUMENTED = {name for names in SECTIONS.values() for name in names}
WIDTH = 100


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(line for title, names in SECTIONS.items() for line in section(title, names))])


def section(title: str, names: tuple[str, ...]) -> Iterator[str]:
    yield f"## {title}\n"
    for name in names:
        home = rocketline if name in rocketline.__all__ else client
        yield from thing(f"{home.__name__}.{name}", getattr(home, name))


def thing(full_name: str, found: Any) -> Iterator[str]:
    name = full_name.rpartition(".")[2]
    yield f"### {name}\n"
    yield f"`from {full_name.rpartition('.')[0]} import {name}`\n"
    if not inspect.isclass(found):
        yield from described(name, found)
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
    for key, item in public(found):
        if inspect.isfunction(item) and item.__doc__:
            yield from described(key, item, "#### ")


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
        signature = inspect.signature(found)
    except ValueError:
        return
    parts = with_marks([part for part in signature.parameters.values() if part.name != "self"])
    prefix = "await " if inspect.iscoroutinefunction(found) or is_coroutine(signature) else ""
    result = "" if inspect.isclass(found) else returned(signature)
    line = f"{prefix}{name}({', '.join(parts)}){result}"
    if len(line) > WIDTH:
        inside = "".join(f"    {part},\n" for part in parts)
        line = f"{prefix}{name}(\n{inside}){result}"
    yield f"```text\n{line}\n```\n"


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
    text = re.sub(r"<(?:[\w.]*\.)?(\w+)[^<>]*>", r"\1", text)
    text = re.sub(r"= ([A-Z]\w+)\(.*\)$", r"= \1()", text)
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
