"""`rocketline admin VERB`: operating a cluster, Apache's or ours, from the command line.

Verbs and flags are those of Apache's `mqadmin`, and each also has a longer, plainer name. Exit codes: 0 done; 1 it
failed or, for a check, a problem was found; 2 the command line is wrong. Arguments are read with argparse and not with
typer: a verb then starts in a fraction of the time, and Apache's way of writing flags is understood.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketline.cli.access import ClusterAccess, cluster_access
from rocketline.cli.explain import diagnosed
from rocketline.cli.tables import Table, show
from rocketline.cli.usage import UsageProblem
from rocketline.cli.verb import VERBS, Args, Verb, find_verb, parser_of
from rocketline.errors import ConfigError

if TYPE_CHECKING:
    from rocketline.admin import Admin

GROUPS = {
    "brokers": "brokers and clusters",
    "nameservers": "name servers",
    "topics": "topics",
    "groups": "consumer groups",
    "offsets": "progress of groups",
    "clients": "who is connected",
    "messages": "messages",
    "searching": "looking for messages",
    "waiting": "messages that wait",
    "sending": "sending",
    "dead_letters": "dead letters",
    "summaries": "summaries and settings",
    "accounts": "accounts and rights",
    "elections": "groups that elect their master",
    "doctor": "health and exports",
}


def admin_main(arguments: Sequence[str]) -> int:
    """Run `rocketline admin ARGUMENTS` and return the exit code. Failures are raised."""
    from rocketline.cli import verbs  # noqa: F401 (declares them)

    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    name, *rest = arguments
    if name == "help":
        name, rest = (rest[0] if rest else "", ["--help"])
    found = find_verb(name)
    if found is None:
        raise UsageProblem(f"there is no verb {name!r}{_suggestion(name)}; see `rocketline admin --help`")
    try:
        args = parser_of(found).parse_args(rest)
    except SystemExit:  # --help was printed
        return 0
    return _run(found, args)


def _run(found: Verb, args: Args) -> int:
    import asyncio

    cluster = cluster_access(
        args.namesrv, args.access_key, args.secret_key_file, tls=args.tls, ca_file=args.ca_file, insecure=args.insecure
    )
    watch_s = args.watch if args.watch is not None else getattr(args, "interval", None)
    if watch_s is None:
        tables = asyncio.run(diagnosed(cluster, _ask(found, args, cluster), _broker_of(args)))
        show(tables, args.output)
        return 1 if any(table.is_bad or (found.is_check and table.rows) for table in tables) else 0
    asyncio.run(_watch(found, args, cluster, watch_s))
    return 0


def _broker_of(args: Args) -> str | None:
    """The address of a broker among the flags."""
    return getattr(args, "broker_addr", None) or getattr(args, "broker", None)


def _admin(args: Args, cluster: ClusterAccess) -> Admin:
    from rocketline.admin import Admin

    try:
        return Admin(cluster.namesrv, timeout=args.timeout, **cluster.access)
    except ConfigError as error:
        raise UsageProblem(str(error)) from error


async def _ask(found: Verb, args: Args, cluster: ClusterAccess) -> list[Table]:
    async with _admin(args, cluster) as admin:
        tables = [table async for table in found.run(admin, args)]
        _warn(admin)
        return tables


def _warn(admin: Admin) -> None:
    """Name the brokers whose part is missing, so that a result without them does not look complete."""
    for broker, reason in admin.unreachable.items():
        print(f"warning: without {broker}: {reason}", file=sys.stderr)


async def _watch(found: Verb, args: Args, cluster: ClusterAccess, every_s: float) -> None:
    import asyncio

    from rocketline.errors import RocketlineError

    async with _admin(args, cluster) as admin:
        while True:
            admin.forget()
            try:
                tables = [table async for table in found.run(admin, args)]
            except RocketlineError as error:
                # A broker that restarts must not end the watch.
                print(f"error: {error}", file=sys.stderr)
            else:
                if sys.stdout.isatty() and args.output == "table":
                    print("\x1b[2J\x1b[H", end="")
                show(tables, args.output)
                sys.stdout.flush()
                _warn(admin)
            await asyncio.sleep(max(0.1, every_s))


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    known = [item for found in VERBS.values() for item in (found.name, found.kebab, *found.aliases)]
    close = get_close_matches(name, known, 1)
    return f", did you mean {close[0]!r}?" if close else ""


def _overview() -> str:
    lines = ["usage: rocketline admin VERB [flags]", "", "Flags of a verb: rocketline admin VERB --help", ""]
    for module, title in GROUPS.items():
        lines.append(f"{title}:")
        for found in VERBS.values():
            if found.run.__module__.rpartition(".")[2] == module:
                lines.append(f"  {found.name:<26} {found.help}")
        lines.append("")
    return "\n".join(lines).rstrip()
