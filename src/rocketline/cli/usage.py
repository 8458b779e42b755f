"""Mistakes on a command line, and the parser of the commands that do without typer because they must start at once."""

from __future__ import annotations

import argparse
from typing import NoReturn

from rocketline.errors import ConfigError


class UsageProblem(ConfigError):
    """The command line asks for something that cannot be; exit code 2."""


class Parser(argparse.ArgumentParser):
    """Mistakes become UsageProblem: whoever runs the command says them in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageProblem(f"{message}; see `{self.prog} --help`")
