"""The people that a console lets in, the tokens of programs, and what they did; the console itself is a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rocketline.cli.options import OutputOption
from rocketline.cli.passwords import ASK, PASSWORD_VARIABLE, new_password
from rocketline.cli.tables import Output, Table, show
from rocketline.cli.usage import UsageProblem

console_app = typer.Typer(help="A web console for a cluster, ours or Apache's.")
users_app = typer.Typer(no_args_is_help=True, help="People who may log in, in a users file.")
tokens_app = typer.Typer(no_args_is_help=True, help="Tokens for programs that use the API, in a users file.")
console_app.add_typer(users_app, name="users")
console_app.add_typer(tokens_app, name="tokens")

UsersFileOption = Annotated[Path, typer.Option("--file", metavar="FILE", help="The users file; made if it is missing.")]
RoleOption = Annotated[str, typer.Option("--role", help="viewer, reader, operator or admin.")]


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
