"""Declaring the verbs of `rocketline admin`: names, flags, and the function that runs a verb.

A verb has Apache's name and flags (`topicStatus -t orders`) and plainer ones (`topic-status --topic orders`). Case and
dashes in the name of a verb do not matter. Verbs import what they need when they run, so that all can be listed
quickly.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketline.cli.access import NAMESRV_HELP, add_account_flags
from rocketline.cli.tables import OUTPUT_HELP, Output, Table
from rocketline.cli.usage import CONTEXT_FLAG, CONTEXT_HELP, Parser

if TYPE_CHECKING:
    from rocketline.admin import Admin

Args = argparse.Namespace
Run = Callable[["Admin", Args], AsyncIterator[Table]]


@dataclass(frozen=True)
class Flag:
    """A flag with Apache's letter and long name; `kind` parses its value, and bool takes the words true and false."""

    letter: str
    name: str
    help: str
    kind: Any = str
    required: bool = False
    switch: bool = False
    """Takes no value."""
    default: Any = None

    @property
    def attribute(self) -> str:
        return _kebab(self.name).replace("-", "_")

    def _value(self, text: str) -> Any:
        if self.letter == "o" and text in list(Output):
            raise argparse.ArgumentTypeError(f"{self.help} The format of the result is --output {text}")
        try:
            return parse_bool(text) if self.kind is bool else self.kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"invalid {self.kind.__name__} value: {text!r}") from None

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        names = [f"-{self.letter}"] if self.letter else []
        names += dict.fromkeys([f"--{self.name}", f"--{_kebab(self.name)}"])
        if self.switch:
            parser.add_argument(*names, dest=self.attribute, action="store_true", help=self.help)
            return
        parser.add_argument(
            *names,
            dest=self.attribute,
            type=self._value,
            required=self.required,
            default=self.default,
            help=self.help,
            metavar="VALUE",
        )


@dataclass(frozen=True)
class Verb:
    name: str
    aliases: tuple[str, ...]
    help: str
    flags: tuple[Flag, ...]
    run: Run
    is_check: bool = False
    """It looks for problems: exit code 1 when it shows any row."""

    @property
    def kebab(self) -> str:
        return _kebab(self.name)


VERBS: dict[str, Verb] = {}
"""All verbs by Apache's name."""


def verb(
    name: str, help: str, *flags: Flag, aliases: tuple[str, ...] = (), is_check: bool = False
) -> Callable[[Run], Run]:
    """Decorator that declares a verb."""

    def declare(run: Run) -> Run:
        VERBS[name] = Verb(name, aliases, help, flags, run, is_check)
        return run

    return declare


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def find_verb(name: str) -> Verb | None:
    """
    >>> find_verb("nothing") is None
    True
    """
    wanted = _plain(name)
    for item in VERBS.values():
        if wanted in (_plain(item.name), *map(_plain, item.aliases)):
            return item
    return None


def parse_bool(text: str) -> bool:
    """
    >>> parse_bool("TRUE")
    True
    """
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _kebab(name: str) -> str:
    """
    >>> _kebab("brokerAddr"), _kebab("topicList"), _kebab("cleanExpiredCQ")
    ('broker-addr', 'topic-list', 'clean-expired-cq')
    """
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", name).lower()


def parser_of(item: Verb) -> Parser:
    names = ", ".join(dict.fromkeys((item.kebab, *item.aliases)))
    parser = Parser(
        prog=f"rocketline admin {item.name}",
        description=item.help,
        epilog=f"Also called: {names}." if names != item.name else None,
        allow_abbrev=False,
    )
    for flag in item.flags:
        flag.add_to(parser)
    common = parser.add_argument_group("all verbs")
    common.add_argument("-n", "--namesrvAddr", "--namesrv", dest="namesrv", metavar="HOST:PORT", help=NAMESRV_HELP)
    common.add_argument(CONTEXT_FLAG, metavar="NAME", help=CONTEXT_HELP)
    # In some verbs of mqadmin -o means something else.
    short = [] if any(flag.letter == "o" for flag in item.flags) else ["-o"]
    common.add_argument(*short, "--output", choices=list(map(str, Output)), default="table", help=OUTPUT_HELP)
    common.add_argument("--watch", type=float, metavar="SECONDS", help="Repeat after this many seconds.")
    add_account_flags(common)
    common.add_argument(
        "--timeout", type=float, default=5.0, metavar="SECONDS", help="Time limit for each request; default 5."
    )
    return parser
