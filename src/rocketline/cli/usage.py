"""Mistakes on a command line, and the parser of the commands that avoid typer to start quickly."""

from __future__ import annotations

import argparse
from typing import NoReturn

from rocketline.errors import ConfigError

CONTEXT_FLAG = "--context"
CONTEXT_HELP = "Work with this context, whichever is in use (`rocketline context`); may come anywhere."


class UsageProblem(ConfigError):
    """A mistake on the command line; exit code 2."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageProblem for a mistake."""

    def error(self, message: str) -> NoReturn:
        raise UsageProblem(f"{message}; see `{self.prog} --help`")


def take_context(arguments: list[str]) -> tuple[str | None, list[str]]:
    """(the NAME of `--context NAME`, the arguments without it): it may come before or after the command.

    >>> take_context(["admin", "topicList", "--context", "prod"]), take_context(["produce", "--context=prod", "T"])
    (('prod', ['admin', 'topicList']), ('prod', ['produce', 'T']))
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    name, kept, rest = None, [], iter(arguments[:end])
    for item in rest:
        if item == CONTEXT_FLAG:
            name = next(rest, "")
        elif item.startswith(f"{CONTEXT_FLAG}="):
            name = item.partition("=")[2]
        else:
            kept.append(item)
            continue
        if not name:
            raise UsageProblem(f"{CONTEXT_FLAG} needs the name of a context; `rocketline context list` shows them")
    return name, kept + arguments[end:]
