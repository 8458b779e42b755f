"""`rocketline certs`: certificates for development, from an authority that is made once for a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from rocketline.cli.options import OutputOption
from rocketline.cli.tables import Output, Table, show
from rocketline.cli.usage import UsageProblem

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def certs(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where the files are made.")] = Path("certs"),
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="Another name or address of the servers; may be repeated."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="NAME", help="Make a certificate for a client; may be repeated."),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How long certificates are valid.")] = 365,
    output: OutputOption = Output.table,
) -> None:
    """Make certificates for development: an authority, a server for this machine, clients.

    The authority of the folder is kept; the others are made anew.
    """
    from rocketline.transport.certificates import LOCAL_NAMES, CertificateFolder

    for name in client or ():
        if not _FILE_NAME.fullmatch(name) or name in ("ca", "server"):
            raise UsageProblem(f"--client {name}: letters, digits, '.', '_' and '-' are expected, and not ca or server")
    files = CertificateFolder(folder)
    made = [(str(files.ca_file), "the authority, as it was" if files.has_authority else "a new authority")]
    authority = files.authority()
    made.append((str(files.ca_key), "its key; whoever has it can sign"))
    files.make_server(host or (), days)
    names = ", ".join((*LOCAL_NAMES, *(host or ())))
    made.append((str(folder / "server.pem"), f"a server's certificate for {names}, {days} days"))
    for name in client or ():
        path = files.save(name, authority.client(name, days))
        made.append((str(path), f"a certificate for the client {name}, {days} days"))
    if output is not Output.table:
        show([Table(("file", "what"), list(made))], output)
        return
    for path_text, what in made:
        print(f"{path_text}: {what}")
    _show_use(folder, client or [])


def _show_use(folder: Path, clients: list[str]) -> None:
    ca_file = folder / "ca.pem"
    mutual = " --tls-client-auth require" if clients else ""
    print("\nTo use them:")
    print(
        f"rocketline up --tls-cert {folder / 'server.pem'} --tls-key {folder / 'server.key'} --tls-ca {ca_file}{mutual}"
    )
    for name in clients:
        print(f'Tls(ca_file="{ca_file}", certificate="{folder / name}.pem", key="{folder / name}.key")')
    if not clients:
        print(f"rocketline admin clusterList --ca-file {ca_file}")
