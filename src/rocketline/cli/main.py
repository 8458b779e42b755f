"""All commands of `rocketline`, and how their failures are shown.

Commands import what they need when they run, so that this module loads quickly. A failure is one line, `error: ` and the
cause, with exit code 2 when the command line itself is wrong and 1 otherwise; `--debug` shows the traceback instead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.core import TyperGroup

from rocketline.cli.auth_commands import auth_app
from rocketline.cli.bench.commands import bench_app
from rocketline.cli.certs import certs
from rocketline.cli.console_commands import console_app
from rocketline.cli.context_commands import context_app
from rocketline.cli.demo.command import demo
from rocketline.cli.entry import SERVERS, run_admin, run_server
from rocketline.cli.examples import examples_app
from rocketline.cli.failures import DEBUG_FLAG, one_line, take_debug
from rocketline.cli.jobs import table_jobs  # noqa: F401 - adds its verbs to `pipeline`
from rocketline.cli.jobs.pipeline import pipeline_app
from rocketline.cli.jobs.store import store_app
from rocketline.cli.messages.consume import consume
from rocketline.cli.messages.produce import produce
from rocketline.cli.options import OutputOption
from rocketline.cli.servers.flags import HELP
from rocketline.cli.tables import Output, facts, show
from rocketline.cli.usage import CONTEXT_FLAG, CONTEXT_HELP, UsageProblem
from rocketline.cli.version import version_facts, version_line

app = typer.Typer(
    name="rocketline",
    no_args_is_help=True,
    add_completion=False,  # `rocketline completion` knows the verbs and their flags too
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(version_line())
        raise typer.Exit


@app.callback()
def _rocketline(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    context: Annotated[
        str | None, typer.Option(CONTEXT_FLAG, metavar="NAME", show_default=False, help=CONTEXT_HELP)
    ] = None,
    debug: Annotated[
        bool, typer.Option(DEBUG_FLAG, help="Show the traceback of a failure; may come anywhere.")
    ] = False,
) -> None:
    """RocketMQ in Python: name server, broker and clients on RocketMQ's own protocol and files."""


def version(output: OutputOption = Output.table) -> None:
    """Print the version, whether compiled code runs, the Python and the system."""
    if output is Output.table:
        print(version_line())
    else:
        show([facts(version_facts().items())], output)


def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a script that completes commands, verbs and flags; source it when the shell starts."""
    from rocketline.cli.completion import SHELLS, script

    if shell not in SHELLS:
        raise typer.BadParameter(f"{shell!r}: {', '.join(SHELLS)} are known")
    print(script(shell), end="")


READ_ELSEWHERE = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""Settings of a command whose arguments are read with argparse."""


@app.command(context_settings=READ_ELSEWHERE, add_help_option=False)
def admin(
    context: typer.Context,
    verb: Annotated[str, typer.Argument(metavar="VERB", help="What to do.")] = "--help",
) -> int:
    """Operate a cluster: Apache's mqadmin verbs and more."""
    return run_admin([verb, *context.args], debug=False)


def _server(context: typer.Context) -> int:
    assert context.info_name is not None
    return run_server(context.info_name, context.args, debug=False)


for server in SERVERS:
    app.command(server, help=HELP[server], context_settings=READ_ELSEWHERE, add_help_option=False)(_server)
for command in (produce, consume, demo, certs, completion, version):
    app.command()(command)
app.add_typer(store_app, name="store")
app.add_typer(pipeline_app, name="pipeline")
app.add_typer(context_app, name="context")
app.add_typer(auth_app, name="auth")
app.add_typer(bench_app, name="bench")
app.add_typer(examples_app, name="examples")
app.add_typer(console_app, name="console")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug, given = take_debug(given)
    try:
        result = app(given, prog_name="rocketline", standalone_mode=False)
    except typer.Exit as ended:
        return ended.exit_code
    except typer.TyperException as error:
        return _usage_failed(error, _command_of(given))
    except UsageProblem as problem:
        print(f"error: {one_line(problem)}; see `{_command_of(given)} --help`", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        if debug:
            raise
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 1
    return result if isinstance(result, int) else 0


def _command_of(given: Sequence[str]) -> str:
    """The command of a command line, without its arguments."""
    words, found = ["rocketline"], typer.main.get_command(app)
    for word in given:
        if isinstance(found, TyperGroup) and word in found.commands:
            words.append(word)
            found = found.commands[word]
    return " ".join(words)


def _usage_failed(error: typer.TyperException, command: str) -> int:
    message = " ".join(error.format_message().split()).rstrip(".")
    if message:
        print(f"error: {message}; see `{command} --help`", file=sys.stderr)
    return error.exit_code
