"""`rocketline certs`: certificates for development, from an authority that is made once for a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from rocketline.cli.usage import UsageProblem

AUTHORITY_DAYS = 3650
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
) -> None:
    """Make certificates for development: an authority, a server for this machine, clients.

    The authority of the folder is kept; the others are made anew.
    """
    from rocketline.transport.certificates import LOCAL_NAMES, Authority

    for name in client or ():
        if not _FILE_NAME.fullmatch(name) or name in ("ca", "server"):
            raise UsageProblem(f"--client {name}: letters, digits, '.', '_' and '-' are expected, and not ca or server")
    folder.mkdir(parents=True, exist_ok=True)
    ca_files = folder / "ca.pem", folder / "ca.key"
    if any(path.exists() for path in ca_files):
        authority = Authority.load(*ca_files)
        print(f"{ca_files[0]}: the authority, as it was")
    else:
        authority = Authority.make("rocketline development", AUTHORITY_DAYS)
        authority.pair.save(*ca_files)
        print(f"{ca_files[0]}: a new authority; whoever has {ca_files[1]} can sign for it")
    names = (*LOCAL_NAMES, *(host or ()))
    authority.server(names, days).save(folder / "server.pem", folder / "server.key")
    print(f"{folder / 'server.pem'}: a server's certificate for {', '.join(names)}, {days} days")
    for name in client or ():
        authority.client(name, days).save(folder / f"{name}.pem", folder / f"{name}.key")
        print(f"{folder / f'{name}.pem'}: a certificate for the client {name}, {days} days")
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
