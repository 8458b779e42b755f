"""Where commands take a new password from: a flag, a file, the environment, or a question on the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rocketline.cli.usage import UsageProblem

PASSWORD_VARIABLE = "ROCKETLINE_NEW_PASSWORD"  # noqa: S105
ASK = "-"
PASSWORD_HELP = (
    f"Password. Everybody on the machine can see arguments, so better `{ASK}`: it is asked for, or read from standard "
    f"input. Also --password-file, or {PASSWORD_VARIABLE}."
)
MAX_LINE_CHARS = 1024


def new_password(
    name: str, given: str | None, file: Path | None, *, needed: bool, environment: Mapping[str, str] = os.environ
) -> str | None:
    """The password for an account; None when there is none and none is `needed`."""
    if given is not None and file is not None:
        raise UsageProblem("-p and --password-file both give a password: leave one out")
    if file is not None:
        return _checked(_first_line(file), f"--password-file {file}")
    if given == ASK:
        return _asked(name)
    if given is not None:
        return _checked(given, "-p")
    if text := environment.get(PASSWORD_VARIABLE):
        return _checked(text, PASSWORD_VARIABLE)
    if not needed:
        return None
    if sys.stdin.isatty():
        return _asked(name)
    raise UsageProblem(f"a password for {name} is needed: -p {ASK}, --password-file FILE or {PASSWORD_VARIABLE}")


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip("\r\n")
    except OSError as error:
        raise UsageProblem(f"--password-file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageProblem(f"--password-file {path}: is not UTF-8 text") from error


def _asked(name: str) -> str:
    if not sys.stdin.isatty():
        return _checked(sys.stdin.readline(MAX_LINE_CHARS + 1).rstrip("\r\n"), "standard input")
    from getpass import getpass

    password = getpass(f"New password of {name}: ")
    if getpass("Once more: ") != password:
        raise UsageProblem("the two passwords differ: nothing was changed")
    return _checked(password, "the terminal")


def _checked(password: str, source: str) -> str:
    if not password.strip() or "\n" in password or len(password) > MAX_LINE_CHARS:
        raise UsageProblem(f"{source}: one line of at most {MAX_LINE_CHARS} characters, not blank, is expected")
    return password
