"""Mistakes on a command line, and the parser of the commands that avoid typer to start quickly."""

from __future__ import annotations

import argparse
from typing import NoReturn

from rocketline.errors import ConfigError


class UsageProblem(ConfigError):
    """A mistake on the command line; exit code 2."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageProblem for a mistake."""

    def error(self, message: str) -> NoReturn:
        raise UsageProblem(f"{message}; see `{self.prog} --help`")
