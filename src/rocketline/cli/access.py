"""How the commands reach a cluster: name servers, account and TLS from flags, the environment, or a context.

Flags, `--context` among them, win over NAMESRV_ADDR, that over the context in use (see `contexts`). A context is used only
for the name servers that it names: with `--namesrv` or NAMESRV_ADDR its account goes nowhere. Without all of these, the
cluster of `rocketline up` on this machine is tried.

A secret key is never an argument, because everybody on the machine can see arguments and they stay in the shell's
history. It is read from a file, or from ROCKETLINE_SECRET_KEY. ROCKETLINE_CREDENTIALS_FILE names a file with account and
secret key together. The client is imported only if an account or TLS is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketline.cli.contexts import Context, current_context, named_context
from rocketline.cli.usage import CONTEXT_FLAG, UsageProblem
from rocketline.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from rocketline.client import Credentials, Tls

DEFAULT_NAMESRV = "127.0.0.1:9876"
NAMESRV_VARIABLE = "NAMESRV_ADDR"
ACCESS_KEY_VARIABLE = "ROCKETLINE_ACCESS_KEY"
SECRET_KEY_VARIABLE = "ROCKETLINE_SECRET_KEY"  # noqa: S105
TOKEN_VARIABLE = "ROCKETLINE_SECURITY_TOKEN"  # noqa: S105
CREDENTIALS_VARIABLE = "ROCKETLINE_CREDENTIALS_FILE"
CERTIFICATE_VARIABLE = "ROCKETLINE_TLS_CERT"
KEY_VARIABLE = "ROCKETLINE_TLS_KEY"

_SECRET_OPTIONS = {
    "rocketmq.secretkey": SECRET_KEY_VARIABLE,
    "rocketmq.securitytoken": TOKEN_VARIABLE,
    "rocketmq.tls.keypassword": "a key without a password, in a file that only you can read",
}

NAMESRV_HELP = f"Name servers, separated by `;`; also {NAMESRV_VARIABLE}, or `rocketline context`."
ACCESS_KEY_HELP = f"Account that signs the requests; also {ACCESS_KEY_VARIABLE}, or {CREDENTIALS_VARIABLE}."
SECRET_KEY_HELP = f"File with the account's secret key; also {SECRET_KEY_VARIABLE}."
TLS_HELP = f"Connect through TLS; {CERTIFICATE_VARIABLE} and {KEY_VARIABLE} may name a certificate to show."
CA_FILE_HELP = "Trust certificates of these authorities (PEM); means --tls."
INSECURE_HELP = "Trust any certificate; means --tls. (Of a server it means: serve strangers.)"


def add_account_flags(parser: argparse._ActionsContainer) -> None:
    """The flags that say how to get in, for a parser of argparse."""
    add = parser.add_argument
    add("--access-key", metavar="NAME", help=ACCESS_KEY_HELP)
    add("--secret-key-file", type=Path, metavar="FILE", help=SECRET_KEY_HELP)
    add("--tls", action="store_true", help=TLS_HELP)
    add("--ca-file", type=Path, metavar="FILE", help=CA_FILE_HELP)
    add("--insecure", action="store_true", help=INSECURE_HELP)


@dataclass(frozen=True)
class ClusterAccess:
    """A cluster, and how to reach it."""

    namesrv: str
    access: dict[str, Any]
    """The keyword arguments `credentials` and `tls` of a client."""
    is_default: bool = False
    """Whether nobody named a name server."""


def cluster_access(
    namesrv: str | None,
    access_key: str | None = None,
    secret_key_file: Path | None = None,
    *,
    tls: bool = False,
    ca_file: Path | None = None,
    insecure: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> ClusterAccess:
    """The cluster that a command works with; UsageProblem when the flags do not fit together."""
    given, context = name_servers_and_context(namesrv, environment)
    if context is not None:
        if not access_key and not _names_account(environment) and secret_key_file is None:
            access_key, secret_key_file = context.access_key, _path(context.secret_key_file)
            if context.credentials_file is not None:
                environment = {**environment, CREDENTIALS_VARIABLE: context.credentials_file}
        if not tls and ca_file is None and not insecure:
            tls, ca_file, insecure = context.uses_tls, _path(context.ca_file), context.insecure
            environment = {**_own_certificate(context), **environment}
    access = client_access(
        access_key, secret_key_file, tls=tls, ca_file=ca_file, insecure=insecure, environment=environment
    )
    return ClusterAccess(given or DEFAULT_NAMESRV, access, is_default=given is None)


def _own_certificate(context: Context) -> dict[str, str]:
    files = {CERTIFICATE_VARIABLE: context.certificate, KEY_VARIABLE: context.key}
    return {name: value for name, value in files.items() if value is not None}


def _names_account(environment: Mapping[str, str]) -> bool:
    return bool(environment.get(ACCESS_KEY_VARIABLE) or environment.get(CREDENTIALS_VARIABLE))


def name_servers_and_context(
    namesrv: str | None, environment: Mapping[str, str] = os.environ
) -> tuple[str | None, Context | None]:
    """(the name servers, the context if they come from it); None for both when there are none."""
    context = named_context(environment)
    if context is not None and namesrv:
        raise UsageProblem(f"--namesrv {namesrv} and {CONTEXT_FLAG} both name a cluster: leave one out")
    given = namesrv or environment.get(NAMESRV_VARIABLE)
    if context is None and given:
        return given, None
    context = context or current_context(environment)
    return (None, None) if context is None else (context.namesrv, context)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def client_access(
    access_key: str | None = None,
    secret_key_file: Path | None = None,
    *,
    tls: bool = False,
    ca_file: Path | None = None,
    insecure: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """The keyword arguments `credentials` and `tls` of a client; UsageProblem when the flags do not fit together."""
    return {
        "credentials": _credentials(access_key, secret_key_file, environment),
        "tls": _tls(ca_file, insecure, environment) if tls or ca_file is not None or insecure else False,
    }


def spark_access(
    given: Iterable[str], environment: Mapping[str, str] = os.environ, context: Context | None = None
) -> dict[str, str]:
    """Options for the source and sink of Spark: those `given` as `rocketmq.NAME=VALUE`, else the account of the environment,
    else what the context has."""
    options = _context_options(context) if context is not None else {}
    options |= {
        f"rocketmq.{name}": environment[variable]
        for name, variable in (
            ("accessKey", ACCESS_KEY_VARIABLE), ("secretKey", SECRET_KEY_VARIABLE), ("securityToken", TOKEN_VARIABLE),
        )
        if environment.get(variable)
    }  # fmt: skip
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name.startswith("rocketmq."):
            raise UsageProblem(f"--option {name}: an option like rocketmq.tls=true is expected")
        if name.lower() in _SECRET_OPTIONS:
            raise UsageProblem(
                f"--option {name}: arguments are seen by everybody on the machine; set {_SECRET_OPTIONS[name.lower()]}"
            )
        options[name] = value
    return options


def _context_options(context: Context) -> dict[str, str]:
    options: dict[str, str] = {}
    if context.access_key and context.secret_key_file:
        secret = _secret_in(Path(context.secret_key_file))
        options |= {"rocketmq.accessKey": context.access_key, "rocketmq.secretKey": secret}
    if context.credentials_file:
        account = _in_file(context.credentials_file)
        options |= {"rocketmq.accessKey": account.access_key, "rocketmq.secretKey": account.secret_key}
    if context.uses_tls:
        options["rocketmq.tls"] = "true"
    if context.ca_file:
        options["rocketmq.tls.caFile"] = context.ca_file
    if context.certificate:
        options["rocketmq.tls.certificate"] = context.certificate
    if context.key:
        options["rocketmq.tls.key"] = context.key
    if context.insecure:
        options["rocketmq.tls.verify"] = "false"
    return options


def _credentials(
    access_key: str | None, secret_key_file: Path | None, environment: Mapping[str, str]
) -> Credentials | None:
    file = environment.get(CREDENTIALS_VARIABLE)
    if file and not access_key and secret_key_file is None and not environment.get(ACCESS_KEY_VARIABLE):
        return _in_file(file)
    access_key = access_key or environment.get(ACCESS_KEY_VARIABLE)
    secret_key = _secret_in(secret_key_file) if secret_key_file is not None else environment.get(SECRET_KEY_VARIABLE)
    if not access_key and not secret_key:
        return None
    if not access_key:
        raise UsageProblem(f"a secret key without an access key: add --access-key NAME or set {ACCESS_KEY_VARIABLE}")
    if not secret_key:
        raise UsageProblem(
            f"access key {access_key} has no secret key: add --secret-key-file FILE or set {SECRET_KEY_VARIABLE}"
        )
    from rocketline.client import Credentials

    return Credentials(access_key, secret_key, environment.get(TOKEN_VARIABLE) or None)


def _in_file(path: str) -> Credentials:
    from rocketline.client import CredentialsFile

    try:
        return CredentialsFile(path)()
    except ConfigError as error:
        raise UsageProblem(str(error)) from error


def _secret_in(path: Path) -> str:
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageProblem(f"--secret-key-file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageProblem(f"--secret-key-file {path}: is not UTF-8 text") from error
    if not secret or "\n" in secret:
        raise UsageProblem(f"--secret-key-file {path}: one line with the secret key is expected")
    return secret


def _tls(ca_file: Path | None, insecure: bool, environment: Mapping[str, str]) -> Tls:
    from rocketline.client import Tls

    if insecure and ca_file is not None:
        raise UsageProblem(f"--insecure trusts any certificate, so --ca-file {ca_file} has no effect: leave one out")
    certificate, key = environment.get(CERTIFICATE_VARIABLE), environment.get(KEY_VARIABLE)
    return Tls(ca_file=ca_file, certificate=certificate or None, key=key or None, verify=not insecure)
