"""Write docs/reference/console.md from the flags and the endpoints of the console, so that the page always matches them.

    python tools/write_console_reference.py

Needs rocketline to be importable with the extra `console`, as it is in `.venv`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

import rocketline.console.pages.all  # noqa: F401 (declares the endpoints)
from rocketline.cli.console_commands import console_app
from rocketline.cli.servers.console_server import console_parser
from rocketline.console.endpoints import ENDPOINTS
from rocketline.console.openapi import API

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "console.md"

INTRODUCTION = """# Console

Written by `python tools/write_console_reference.py`; change the flags and endpoints, not this page. How to use it is
[in its own page](../howto/console.md).
"""
API_INTRODUCTION = f"""## API

Paths are below `{API}/c/CLUSTER`, or below `{API}` where the cluster does not matter (marked *all*). Parameters and
answers are described at `{API}/openapi.json`. A list has `items`, and `complete`: whether nothing is missing. `partial`
names brokers whose part is missing, `next` is the `cursor` to go on with, `scanned` how many messages were looked at.

A problem has `status`, `title`, `detail`, and where they are known `code` (RocketMQ's), `address`, `role`, `fields` and
`hint`, which says what helps. 401: nobody is logged in; 403: `role` is needed; 404: not there; 409: it exists, or
changed meanwhile; 422: `fields` say what cannot be used; 429: come again after `retryAfterS`; 502: a broker refused;
504: a broker is silent.

| method | path | role | |
| --- | --- | --- | --- |
"""
OF_TYPER = ("help", "install_completion", "show_completion")


def page() -> str:
    root = typer.main.get_command(console_app)
    parts = [INTRODUCTION, *_server()]
    for title, command in _below("rocketline console", root):
        parts += _command(title, command)
    return "\n".join(parts) + "\n" + API_INTRODUCTION + "\n".join(_endpoints()) + "\n"


def _server() -> Iterator[str]:
    parser = console_parser()
    yield f"## rocketline console\n\n{parser.description}\n"
    actions = [item for item in parser._actions if item.help != argparse.SUPPRESS and item.dest != "help"]
    yield _table(_cells(item.option_strings, item.metavar or "", item.default, item.help or "") for item in actions)


def _cells(names: Sequence[str], takes: str, default: object, help_text: str) -> str:
    shown = f"`{default}`" if takes and default not in ("", None) else ""
    cells = (", ".join(f"`{name} {takes}`" if takes else f"`{name}`" for name in names), shown, help_text)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _table(rows: Iterable[str]) -> str:
    return "| flag | default | meaning |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"


def _below(title: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _below(f"{title} {name}", command)
        else:
            yield f"{title} {name}", command


def _command(title: str, command: Any) -> Iterator[str]:
    yield f"## {title}\n\n{' '.join((command.help or '').split())}\n"
    rows = [row for parameter in command.params if (row := _row(parameter))]
    if rows:
        yield _table(rows)


def _row(parameter: Any) -> str:
    """Of a flag; arguments have no help, and are in the command's name."""
    if not hasattr(parameter, "is_flag") or parameter.hidden or parameter.name in OF_TYPER:
        return ""
    takes = "" if parameter.is_flag or parameter.count else parameter.metavar or parameter.name.upper()
    default = parameter.default if isinstance(parameter.default, str | int) else None
    return _cells(parameter.opts, takes, default, parameter.help or "")


def _endpoints() -> Iterator[str]:
    for item in sorted(ENDPOINTS.values(), key=lambda item: (not item.in_cluster, item.api_path, item.method)):
        if item.in_api:
            place = f"`{item.api_path}`" if item.in_cluster else f"`{item.api_path}` (*all*)"
            yield f"| {item.method} | {place} | {item.role.word} | {item.help} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
