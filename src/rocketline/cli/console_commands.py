"""`rocketline console`: the web console, and the people it lets in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketline.cli.access import ClusterAccess, cluster_access
from rocketline.cli.logs import LoggingOptions, LogLevel, log_to_stderr
from rocketline.cli.options import (
    AccessKey,
    CaFile,
    Insecure,
    NameServers,
    OutputOption,
    SecretKeyFile,
    TlsSwitch,
    Verbose,
)
from rocketline.cli.passwords import ASK, PASSWORD_VARIABLE, new_password
from rocketline.cli.tables import Output, Table, show
from rocketline.cli.usage import UsageProblem

if TYPE_CHECKING:
    from rocketline.console.config import ClusterPlace, ConsoleConfig

PACKAGES = ("starlette", "uvicorn", "jinja2", "markupsafe")
"""What the extra `console` installs."""
BROKER = "broker"

console_app = typer.Typer(no_args_is_help=False, help="A web console for a cluster, ours or Apache's.")
users_app = typer.Typer(no_args_is_help=True, help="People who may log in, in a users file.")
tokens_app = typer.Typer(no_args_is_help=True, help="Tokens for programs that use the API, in a users file.")
console_app.add_typer(users_app, name="users")
console_app.add_typer(tokens_app, name="tokens")

UsersFileOption = Annotated[Path, typer.Option("--file", metavar="FILE", help="The users file; made if it is missing.")]
RoleOption = Annotated[str, typer.Option("--role", help="viewer, reader, operator or admin.")]


@console_app.callback(invoke_without_command=True)
def console(
    context: typer.Context,
    namesrv: NameServers = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=HOST:PORT", help="A cluster by the name its URLs get; may be repeated."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on. Any but loopback needs users.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 8090,
    users: Annotated[
        Path | None, typer.Option(metavar="FILE", help="People who may log in; see `console users`.")
    ] = None,
    login: Annotated[
        str | None,
        typer.Option(metavar=BROKER, help="People log in with an account of the cluster, which signs their requests."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nothing can be changed.")] = False,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="Path under which a proxy serves it, such as /mq.")
    ] = "",
    behind_proxy: Annotated[
        bool,
        typer.Option("--behind-proxy", help="A TLS proxy is in front: cookies are secure, X-Forwarded-For is used."),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another name of this machine that browsers use; its addresses and host name are known.",
        ),
    ] = None,
    cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate (PEM); serves HTTPS.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")] = None,
    store: Annotated[Path | None, typer.Option(metavar="DIR", help="Show the files of this store.")] = None,
    runs: Annotated[Path | None, typer.Option(metavar="DIR", help="Show the runs of pipelines in this folder.")] = None,
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append a JSON line for each change and body read.")
    ] = None,
    mask: Annotated[
        list[str] | None, typer.Option(metavar="body.a.b|property:NAME", help="Part of messages that nobody sees.")
    ] = None,
    access_key: AccessKey = None,
    secret_key_file: SecretKeyFile = None,
    tls: TlsSwitch = False,
    ca_file: CaFile = None,
    insecure: Insecure = False,
    verbose: Verbose = 0,
    lifeline: Annotated[bool, typer.Option("--lifeline", hidden=True)] = False,
) -> None:
    """Serve a web console. Prints `ready console=URL` with a link that lets one person in, once."""
    if context.invoked_subcommand is not None:
        return
    if login not in (None, BROKER):
        raise UsageProblem(f"--login {login}: only `{BROKER}` is known")
    log_to_stderr(LoggingOptions(verbose, None if verbose else LogLevel.warning))
    access = cluster_access(namesrv, access_key, secret_key_file, tls=tls, ca_file=ca_file, insecure=insecure)
    try:
        from rocketline.console.config import ConsoleConfig
        from rocketline.errors import ConfigError

        config = ConsoleConfig(
            _places(access, cluster or [], with_default=bool(namesrv) or not cluster),
            host, port, users, login == BROKER, read_only, root_path, behind_proxy, tuple(allow_host or ()), cert, key,
            store, runs, audit, tuple(mask or ()),
        )  # fmt: skip
        if config.open_problem:
            raise UsageProblem(config.open_problem)
        _serve(config, lifeline=0 if lifeline else None)
    except ConfigError as error:
        raise UsageProblem(str(error)) from error
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        raise UsageProblem(
            f"the console needs the package {error.name}, which the extra `console` brings: "
            "pip install 'rocketline[console]'"
        ) from error


def _places(access: ClusterAccess, given: list[str], *, with_default: bool) -> tuple[ClusterPlace, ...]:
    from rocketline.console.config import DEFAULT_CLUSTER, ClusterPlace

    places = [ClusterPlace(DEFAULT_CLUSTER, access.namesrv, access.access)] if with_default else []
    for item in given:
        name, equals, address = item.partition("=")
        if not equals or not name.replace("-", "").replace("_", "").isalnum() or not address:
            raise UsageProblem(
                f"--cluster {item}: NAME=HOST:PORT is expected, with letters, digits, - and _ in the name"
            )
        places.append(ClusterPlace(name, address, access.access))
    return tuple(places)


def _serve(config: ConsoleConfig, lifeline: int | None) -> None:
    from rocketline.cli.servers.serving import run, serve
    from rocketline.console.serve import Console

    run(serve(Console(config), lambda console: console.ready_line, Console.until_stopped), lifeline)


@console_app.command(name="audit")
def show_audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `--audit` of the console writes.")],
    person: Annotated[str | None, typer.Option(help="Only what this person did.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this, such as delete_topic or login.")] = None,
    last: Annotated[int, typer.Option(min=1, help="Lines shown at most, the newest.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as they are in the file.")] = False,
) -> None:
    """Show what people changed and read through a console."""
    from rocketline.console.audit import read_audit
    from rocketline.errors import ConfigError

    try:
        for line, text in read_audit(file, person, action, last):
            print(text if as_json else line.summary)
    except ConfigError as error:
        raise UsageProblem(str(error)) from error


@users_app.command(name="add")
def add_user(
    name: str,
    file: UsersFileOption,
    role: RoleOption = "viewer",
    password_file: Annotated[Path | None, typer.Option(metavar="FILE", help="File with the password.")] = None,
) -> None:
    """Add a person, or change role and password of one, which ends all sessions. Asks for the password, or reads it from
    standard input."""
    from rocketline.console.users import UsersFile

    # No flag takes a password: everybody on the machine can see arguments.
    in_environment = PASSWORD_VARIABLE in os.environ
    given = new_password(name, None if password_file or in_environment else ASK, password_file, needed=True)
    assert given is not None
    UsersFile(file).put_user(name, role, given)
    print(f"{name} may log in as {role}")


@users_app.command(name="list")
def list_users(file: UsersFileOption, output: OutputOption = Output.table) -> None:
    """Show the people of a users file."""
    from rocketline.console.users import UsersFile

    rows = [(user.name, user.role, user.disabled) for user in UsersFile(file).users]
    show([Table(("name", "role", "disabled"), list(rows))], output)


@users_app.command(name="remove")
def remove_user(name: str, file: UsersFileOption) -> None:
    """Remove a person; sessions end at once."""
    from rocketline.console.users import UsersFile

    if not UsersFile(file).remove("users", name):
        raise UsageProblem(f"{file} has no user {name}")
    print(f"{name} is removed")


@users_app.command(name="disable")
def disable_user(
    name: str,
    file: UsersFileOption,
    undo: Annotated[bool, typer.Option("--undo", help="Let the person in again.")] = False,
) -> None:
    """Keep a person out for now."""
    from rocketline.console.users import UsersFile

    UsersFile(file).disable_user(name, not undo)
    print(f"{name} is {'enabled' if undo else 'disabled'}")


@tokens_app.command(name="add")
def add_token(name: str, file: UsersFileOption, role: RoleOption = "viewer") -> None:
    """Make a token; it is shown once."""
    from rocketline.console.users import UsersFile

    print(UsersFile(file).put_token(name, role))


@tokens_app.command(name="remove")
def remove_token(name: str, file: UsersFileOption) -> None:
    """Make a token useless."""
    from rocketline.console.users import UsersFile

    if not UsersFile(file).remove("tokens", name):
        raise UsageProblem(f"{file} has no token {name}")
    print(f"{name} is removed")
