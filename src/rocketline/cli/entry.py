"""Where the `rocketline` command begins: operators' verbs take a short way, as they are called by hand and by scripts all
day; importing what the other commands are built with would be most of their time."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rocketline.cli.failures import one_line, take_debug


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug, rest = take_debug(given)
    if rest[:1] == ["admin"]:
        return run_admin(rest[1:], debug)
    from rocketline.cli.main import main as run

    return run(given)


def run_admin(arguments: Sequence[str], debug: bool) -> int:
    from rocketline.cli.admin import admin_main
    from rocketline.cli.verb import UsageProblem

    try:
        return admin_main(arguments)
    except UsageProblem as problem:
        print(f"error: {one_line(problem)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return _reader_left()
    except Exception as error:
        if debug:
            raise
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 1


def _reader_left() -> int:
    """Whoever read our output has enough (`| head`), and that is no failure."""
    import os

    # Python flushes standard output once more at the end, which must not fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
