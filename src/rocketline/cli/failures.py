"""Failures of a command: one line with the cause, or the traceback if asked for."""

from __future__ import annotations

import os
import sys

from rocketline.errors import RocketlineError

DEBUG_FLAG = "--debug"


def take_debug(arguments: list[str]) -> tuple[bool, list[str]]:
    """(whether `--debug` is among the arguments, the arguments without it): it may come before or after the command."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [item for item in arguments[:end] if item != DEBUG_FLAG]
    return len(kept) < end, kept + arguments[end:]


def discard_output() -> None:
    """Send the rest of standard output nowhere, after whoever read it has left (`| head`).

    Python flushes standard output once more at its end, and that must not fail again.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    if isinstance(error, RocketlineError):
        return text
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return f"unexpected {type(error).__name__}: {text}; run again with {DEBUG_FLAG} and report what it shows"
