"""The entry point of the `rocketline` command.

`admin` verbs and servers are run from here, without importing typer: verbs are called by scripts all day and servers must be
ready at once, and that import would take most of their start-up time. So they also work without the extra `cli`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence

from rocketline.cli.failures import discard_output, one_line, take_debug

SERVERS = ("up", "nameserver", "broker", "proxy")
EXTRA_PACKAGES = ("typer", "rich")
"""What the extra `cli` installs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code."""
    from rocketline.cli.usage import CONTEXT_FLAG, take_context

    given = list(sys.argv[1:] if arguments is None else arguments)
    if not any(item.startswith(CONTEXT_FLAG) for item in given):
        return _run(given)

    def run() -> int:
        from rocketline.cli.contexts import naming_context

        name, rest = take_context(given)
        with naming_context(name):
            return _run(rest)

    return _exit_code(run, debug=False)


def _run(given: list[str]) -> int:
    debug, rest = take_debug(given)
    if rest[:1] == ["admin"]:
        return run_admin(rest[1:], debug)
    if rest and rest[0] in SERVERS:
        return run_server(rest[0], rest[1:], debug)
    if rest[:1] == ["console"] and (len(rest) == 1 or rest[1].startswith("-")):
        return run_console_server(rest[1:], debug)
    if rest in (["version"], ["--version"]):
        from rocketline.cli.version import version_line

        print(version_line())
        return 0
    return _run_with_typer(given)


def _run_with_typer(arguments: Sequence[str]) -> int:
    try:
        from rocketline.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_PACKAGES:
            raise
        needed = (
            f"this command needs the package {error.name}, which the extra `cli` brings: pip install 'rocketline[cli]'"
        )
        print(f"error: {needed}; {', '.join(SERVERS)}, console, admin and version work without it", file=sys.stderr)
        return 1
    return run(arguments)


def run_admin(arguments: Sequence[str], debug: bool) -> int:
    from rocketline.cli.admin import admin_main

    return _exit_code(lambda: admin_main(arguments), debug)


def run_server(name: str, arguments: Sequence[str], debug: bool) -> int:
    from rocketline.cli.servers.flags import parser_of, read_flags
    from rocketline.cli.usage import UsageProblem

    def serve() -> int:
        parser = parser_of(name)
        common, own = read_flags(parser, arguments)
        # Until `serving.run` enables it: loading modules makes no garbage, and looking for some takes time.
        gc.disable()
        try:
            _server(name)(common, **own)
        except UsageProblem as problem:
            parser.error(str(problem))
        finally:
            gc.enable()
        return 0

    return _exit_code(serve, debug)


def run_console_server(arguments: Sequence[str], debug: bool) -> int:
    from rocketline.cli.servers.console_server import run_console

    def serve() -> int:
        run_console(arguments)
        return 0

    return _exit_code(serve, debug)


def _server(name: str) -> Callable[..., None]:
    if name == "up":
        from rocketline.cli.servers.up import up

        return up
    from rocketline.cli.servers import commands as servers

    found: dict[str, Callable[..., None]] = {
        "broker": servers.broker,
        "nameserver": servers.nameserver,
        "proxy": servers.proxy,
    }
    return found[name]


def _exit_code(work: Callable[[], int], debug: bool) -> int:
    """The exit code of a command; a failure is one line on standard error."""
    from rocketline.cli.usage import UsageProblem

    try:
        return work()
    except SystemExit as ended:  # argparse has shown the help
        return ended.code if isinstance(ended.code, int) else 0
    except UsageProblem as problem:
        print(f"error: {one_line(problem)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard_output()
        return 0
    except Exception as error:
        if debug:
            raise
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 1
