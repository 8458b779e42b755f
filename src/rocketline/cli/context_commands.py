"""`rocketline context`: keeps how to reach clusters, so that commands need no `--namesrv` and no account."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rocketline.cli.contexts import Context, contexts_path, load_contexts, save_contexts
from rocketline.cli.options import AccessKey, CaFile, Insecure, OutputOption, SecretKeyFile, TlsSwitch
from rocketline.cli.tables import Output, Table, facts, show
from rocketline.cli.usage import UsageProblem

context_app = typer.Typer(no_args_is_help=True, help="Keep how to reach clusters, by name.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]


@context_app.command()
def add(
    name: Name,
    namesrv: Annotated[
        str, typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, separated by `;`.")
    ],
    access_key: AccessKey = None,
    secret_key_file: SecretKeyFile = None,
    credentials_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead of the two: a file with accessKey and secretKey.")
    ] = None,
    tls: TlsSwitch = False,
    ca_file: CaFile = None,
    cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate to show to servers (PEM).")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key; default: in the same file.")] = None,
    insecure: Insecure = False,
) -> None:
    """Add a context, or replace it; the first one is used at once."""
    from rocketline.client.identity import parse_name_servers

    parse_name_servers(namesrv)
    if (access_key is None) != (secret_key_file is None):
        raise UsageProblem("--access-key NAME and --secret-key-file FILE belong together")
    if access_key is not None and credentials_file is not None:
        raise UsageProblem("--access-key and --credentials-file both name an account: leave one out")
    if insecure and ca_file is not None:
        raise UsageProblem(f"--insecure trusts any certificate, so --ca-file {ca_file} has no effect: leave one out")
    if key is not None and cert is None:
        raise UsageProblem(f"--key {key} needs the certificate that belongs to it: --cert FILE")
    path = contexts_path()
    known = load_contexts(path)
    known.contexts[name] = Context(
        namesrv,
        access_key,
        _absolute(secret_key_file),
        _absolute(credentials_file),
        tls=tls,
        ca_file=_absolute(ca_file),
        certificate=_absolute(cert),
        key=_absolute(key),
        insecure=insecure,
    )
    known.current = known.current or name
    save_contexts(path, known)
    print(f"context {name} is in {path}" + (", and in use" if known.current == name else ""))


def _absolute(path: Path | None) -> str | None:
    """A path that works from every folder."""
    return None if path is None else str(path.expanduser().absolute())


@context_app.command()
def use(name: Name) -> None:
    """Use this context from now on."""
    path = contexts_path()
    known = load_contexts(path)
    known.require(name)
    known.current = name
    save_contexts(path, known)
    print(f"context {name} is in use")


@context_app.command(name="list")
def list_contexts(output: OutputOption = Output.table) -> None:
    """List the contexts."""
    known = load_contexts(contexts_path())
    rows = [
        (name, name == known.current, item.namesrv, item.access_key, item.uses_tls)
        for name, item in sorted(known.contexts.items())
    ]
    about = "" if rows else "there is no context; `rocketline context add NAME --namesrv HOST:PORT` makes one"
    show([Table(("name", "in use", "namesrv", "access key", "tls"), list(rows), about=about)], output)


@context_app.command(name="show")
def show_context(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Default: the one in use.")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show a context; a secret key is never shown, only where its file is."""
    known = load_contexts(contexts_path())
    wanted = name or known.current
    if wanted is None:
        raise UsageProblem("no context is in use: name one; `rocketline context list` shows them")
    item = known.require(wanted)
    pairs = [
        ("name", wanted),
        ("in use", wanted == known.current),
        ("namesrv", item.namesrv),
        ("access key", item.access_key),
        ("secret key file", item.secret_key_file),
        ("credentials file", item.credentials_file),
        ("tls", item.uses_tls),
        ("ca file", item.ca_file),
        ("certificate", item.certificate),
        ("insecure", item.insecure),
    ]
    show([facts(pairs)], output)


@context_app.command()
def remove(name: Name) -> None:
    """Remove a context."""
    path = contexts_path()
    known = load_contexts(path)
    known.require(name)
    del known.contexts[name]
    known.current = None if known.current == name else known.current
    save_contexts(path, known)
    print(f"context {name} is removed" + ("" if known.current else "; none is in use now"))
