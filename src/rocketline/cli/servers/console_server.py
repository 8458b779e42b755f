"""`rocketline console`: its flags, read without typer as those of the other servers, and the console that they describe.

`console users`, `console tokens` and `console audit` are commands of their own, in `console_commands.py`.
"""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rocketline.cli.access import NAMESRV_HELP, ClusterAccess, add_account_flags, cluster_access
from rocketline.cli.logs import LoggingOptions, LogLevel, log_to_stderr
from rocketline.cli.servers.flags import CONSOLE_PORT, LOOPBACK, port_number
from rocketline.cli.usage import Parser, UsageProblem

if TYPE_CHECKING:
    from rocketline.console.config import ClusterPlace, ConsoleConfig

PACKAGES = ("starlette", "uvicorn", "jinja2", "markupsafe")
"""What the extra `console` installs."""
BROKER = "broker"


def console_parser() -> Parser:
    parser = Parser(
        prog="rocketline console",
        description="A web console for a cluster, ours or Apache's. Prints `ready console=URL` with a link that lets one "
        "person in, once.",
        epilog="Also: `console users`, `console tokens`, `console audit`.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--namesrv", "-n", metavar="HOST:PORT", help=NAMESRV_HELP)
    add(
        "--cluster", action="append", metavar="NAME=HOST:PORT",
        help="A cluster by the name its URLs get; may be repeated.",
    )  # fmt: skip
    add("--host", default=LOOPBACK, metavar="HOST", help="Address to listen on. Any but loopback needs users.")
    add(
        "--port", type=port_number, default=CONSOLE_PORT, metavar="PORT",
        help="Port to listen on; 0: any free one.",
    )  # fmt: skip
    add("--users", type=Path, metavar="FILE", help="People who may log in; see `console users`.")
    add(
        "--login", metavar=BROKER,
        help="People log in with an account of the cluster, which signs their requests.",
    )  # fmt: skip
    add("--read-only", action="store_true", help="Nothing can be changed.")
    add("--root-path", default="", metavar="PATH", help="Path under which a proxy serves it, such as /mq.")
    add(
        "--behind-proxy", action="store_true",
        help="A TLS proxy is in front: cookies are secure, X-Forwarded-For is used.",
    )  # fmt: skip
    add(
        "--allow-host", action="append", metavar="NAME",
        help="Another name of this machine that browsers use; its addresses and host name are known.",
    )  # fmt: skip
    add("--cert", type=Path, metavar="FILE", help="Certificate (PEM); serves HTTPS.")
    add("--key", type=Path, metavar="FILE", help="Its private key.")
    add("--store", type=Path, metavar="DIR", help="Show the files of this store.")
    add("--runs", type=Path, metavar="DIR", help="Show the runs of pipelines in this folder.")
    add("--audit", type=Path, metavar="FILE", help="Append a JSON line for each change and body read.")
    add("--mask", action="append", metavar="body.a.b|property:NAME", help="Part of messages that nobody sees.")
    add_account_flags(parser)
    add("--verbose", "-v", action="count", default=0, help="Log what happens; -vv: everything.")
    add("--lifeline", action="store_true", help=SUPPRESS)
    return parser


def run_console(arguments: Sequence[str]) -> None:
    """Serve a console until it is stopped; UsageProblem for flags that cannot be used."""
    given = console_parser().parse_args(arguments)
    if given.login not in (None, BROKER):
        raise UsageProblem(f"--login {given.login}: only `{BROKER}` is known")
    log_to_stderr(LoggingOptions(given.verbose, None if given.verbose else LogLevel.warning))
    access = cluster_access(
        given.namesrv, given.access_key, given.secret_key_file, tls=given.tls, ca_file=given.ca_file,
        insecure=given.insecure,
    )  # fmt: skip
    try:
        from rocketline.errors import ConfigError

        config = _config(given, access)
        if config.open_problem:
            raise UsageProblem(config.open_problem)
        _serve(config, lifeline=0 if given.lifeline else None)
    except ConfigError as error:
        raise UsageProblem(str(error)) from error
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        raise UsageProblem(
            f"the console needs the package {error.name}, which the extra `console` brings: "
            "pip install 'rocketline[console]'"
        ) from error


def _config(given: Namespace, access: ClusterAccess) -> ConsoleConfig:
    from rocketline.console.config import ConsoleConfig

    return ConsoleConfig(
        _places(access, given.cluster or [], with_default=bool(given.namesrv) or not given.cluster),
        given.host, given.port, given.users, given.login == BROKER, given.read_only, given.root_path, given.behind_proxy,
        tuple(given.allow_host or ()), given.cert, given.key, given.store, given.runs, given.audit, tuple(given.mask or ()),
    )  # fmt: skip


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
