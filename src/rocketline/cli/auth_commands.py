"""`rocketline auth`: accounts of a whole cluster from a file, and what has to be done when nobody gets in any more."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketline.cli.access import ClusterAccess
from rocketline.cli.options import ClusterFlags, OutputOption, takes_cluster
from rocketline.cli.passwords import PASSWORD_VARIABLE, new_password
from rocketline.cli.tables import Output, Table, show
from rocketline.cli.usage import UsageProblem

if TYPE_CHECKING:
    from rocketline.admin import Admin
    from rocketline.admin.accounts import RemoteAccounts
    from rocketline.auth.files import Change
    from rocketline.auth.model import AccountTable

auth_app = typer.Typer(no_args_is_help=True, help="Accounts and rights of a cluster, from a file and to a file.")

ClusterName = Annotated[str | None, typer.Option("--cluster", "-c", metavar="NAME", help="Default: all clusters.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
KeepOld = Annotated[
    int | None,
    typer.Option(metavar="SECONDS", help="A changed password: the former one is valid so long (our servers)."),
]


@auth_app.command()
@takes_cluster
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Accounts and rights, YAML.")],
    dry_run: DryRun = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete accounts that the file does not name, but never the one used here.")
    ] = False,
    set_passwords: Annotated[
        bool, typer.Option("--set-passwords", help="Send all passwords; else only those of new accounts.")
    ] = False,
    keep_old: KeepOld = None,
    cluster: ClusterName = None,
    *,
    flags: ClusterFlags,
) -> None:
    """Make the accounts of all servers as a file says; shows every change."""
    from rocketline.auth.files import read_users

    access = flags.access()
    work = _Work(read_users(file), set_passwords=set_passwords, prune=prune, keep_old_s=keep_old, is_dry=dry_run)
    _run(access, work.on_cluster(access, cluster))


@auth_app.command(name="import-v1")
@takes_cluster
def import_v1(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="plain_acl.yml of RocketMQ 4, or its folder `conf`.")],
    dry_run: DryRun = False,
    cluster: ClusterName = None,
    *,
    flags: ClusterFlags,
) -> None:
    """Take over the accounts of RocketMQ 4; says what cannot be taken over."""
    from rocketline.auth.import_v1 import read_v1, v1_files
    from rocketline.auth.model import AccountTable

    access = flags.access()
    paths = v1_files(source) if source.is_dir() else [source]
    if not paths:
        raise UsageProblem(f"{source}: there is no plain_acl.yml and no folder `acl` in it")
    found = read_v1(paths)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    work = _Work(AccountTable(found.users, found.acls), is_dry=dry_run)
    _run(access, work.on_cluster(access, cluster))


@auth_app.command()
@takes_cluster
def export(
    cluster: ClusterName = None,
    output: OutputOption = Output.table,
    *,
    flags: ClusterFlags,
) -> None:
    """Print the accounts and rights of a cluster as a file for `auth apply`, without passwords; with `-o json` as JSON."""
    access = flags.access()
    _run(access, _export(access, cluster, output))


@auth_app.command(name="reset-admin")
def reset_admin(
    store: Annotated[Path, typer.Option(metavar="DIR", help="Folder of a broker's store, or the one of users.json.")],
    user: Annotated[str, typer.Option(metavar="NAME", help="Account that becomes a super user.")] = "admin",
    password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"New password, one line; also {PASSWORD_VARIABLE}, or asked for."),
    ] = None,
) -> None:
    """Let somebody in again who has the files: make an account a super user with a new password."""
    from rocketline.auth.opening import reset_admin as reset

    folder = store if (store / "users.json").exists() else store / "config"
    if not folder.is_dir():
        raise UsageProblem(f"--store {store}: there is neither users.json nor a folder `config` in it")
    password = new_password(user, None, password_file, needed=True)
    assert password is not None
    reset(folder, user, password)
    print(
        f"{folder / 'users.json'}: {user} is a super user with the new password; a running server reads it in a moment"
    )


class _Work:
    """Makes servers as a table says."""

    def __init__(
        self,
        wanted: AccountTable,
        *,
        set_passwords: bool = False,
        prune: bool = False,
        keep_old_s: int | None = None,
        is_dry: bool = False,
    ) -> None:
        self._wanted = wanted
        self._set_passwords = set_passwords
        self._prune = prune
        self._keep_old_s = keep_old_s
        self._is_dry = is_dry

    async def on_cluster(self, access: ClusterAccess, cluster: str | None) -> None:
        from rocketline.auth.files import apply, count_lines, fetch, plan

        async with _admin(access) as admin:
            plans: list[tuple[RemoteAccounts, list[Change]]] = []
            for server in await _servers(admin, cluster):  # all are read before the first is changed
                current = await fetch(server)
                wanted = self._with_own(current, access) if self._prune else self._wanted
                changes = plan(current, wanted, set_passwords=self._set_passwords, prune=self._prune)
                plans.append((server, changes))
            for server, changes in plans:
                print(f"# {server.address}: {count_lines(changes) or 'no'} changes")
                for change in changes:
                    print(change)
                if not self._is_dry:
                    await apply(server, changes, self._keep_old_s)
        if self._is_dry:
            print("nothing was changed: --dry-run")

    def _with_own(self, current: AccountTable, access: ClusterAccess) -> AccountTable:
        """What is wanted, and the account that asks for it: without it nobody could take the next step."""
        from dataclasses import replace

        from rocketline.auth.model import NO_RIGHTS

        account = access.access["credentials"]
        own = None if account is None else current.users.get(account.access_key)
        if own is None or own.name in self._wanted.users:
            return self._wanted
        acls = {**self._wanted.acls, own.name: current.acls.get(own.name, NO_RIGHTS)}
        return replace(self._wanted, users={**self._wanted.users, own.name: own}, acls=acls)


async def _export(access: ClusterAccess, cluster: str | None, output: Output) -> None:
    from rocketline.auth.files import differing, fetch, plain_users, write_users

    async with _admin(access) as admin:
        # Of a broker, if there is one: a name server needs to know those only who ask it.
        servers = sorted(await _servers(admin, cluster), key=lambda server: not server.broker)
        first, *others = [await fetch(server) for server in servers]
    if output is Output.table:
        print(write_users(first), end="")
    else:
        names = ("name", "type", "status", "rights", "default_rights")
        show([Table(names, [(name, *map(user.get, names[1:])) for name, user in plain_users(first).items()])], output)
    for server, other in zip(servers[1:], others):
        if found := differing(first, other):
            print(
                f"warning: {server.where} differs from {servers[0].where}, which is shown: {' '.join(found)} (- it lacks, "
                "+ it has besides, ~ others' rights or state). `auth apply` makes it like the file, and --prune deletes "
                "what it has besides",
                file=sys.stderr,
            )


async def _servers(admin: Admin, cluster: str | None) -> list[RemoteAccounts]:
    """All brokers, and the name servers that have accounts of their own."""
    from rocketline.admin.accounts import account_servers

    return await account_servers(admin, await admin.brokers(cluster, slaves=True))


def _admin(access: ClusterAccess) -> Admin:
    from rocketline.admin import Admin

    return Admin(access.namesrv, **access.access)


def _run(access: ClusterAccess, work: Coroutine[Any, Any, None]) -> None:
    import asyncio

    from rocketline.cli.explain import diagnosed

    asyncio.run(diagnosed(access, work))
