"""Options of source and sink for credentials and TLS, all named `rocketmq.*`.

| option | default | meaning |
| --- | --- | --- |
| rocketmq.accessKey, rocketmq.secretKey | none | the account that signs every request |
| rocketmq.securityToken | none | of a temporary account |
| rocketmq.tls | false | whether connections to name servers and brokers use TLS |
| rocketmq.tls.caFile | the system's | authorities to trust, a PEM file |
| rocketmq.tls.certificate, rocketmq.tls.key, rocketmq.tls.keyPassword | none | the client's own certificate |
| rocketmq.tls.checkHost, rocketmq.tls.verify | true | whether a server's certificate must name its address, and be trusted |

Files are under the same path on the driver and on every executor, or are shipped with the job and found by name
(`shipped_files`). Secrets are sent to the executors inside the pickled options and are never shown: neither in plans, where
Spark hides options with such names, nor in errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from rocketline.errors import ConfigError
from rocketline.protocol.signing import Credentials
from rocketline.spark.options import Options
from rocketline.spark.shipped_files import on_this_machine
from rocketline.transport.access import Access
from rocketline.transport.tls import Tls

PREFIX = "rocketmq."
_ACCOUNT = ("accessKey", "secretKey", "securityToken")
_TLS_TEXTS = {"caFile": "ca_file", "certificate": "certificate", "key": "key", "keyPassword": "key_password"}
_TLS_FLAGS = {"checkHost": "check_host", "verify": "verify"}
_NAMES = (*_ACCOUNT, "tls", *(f"tls.{name}" for name in (*_TLS_TEXTS, *_TLS_FLAGS)))


def parse_access(options: Options, also_known: tuple[str, ...]) -> Access:
    """ConfigError for options that are incomplete, contradictory or unknown; `also_known` are names read elsewhere."""
    access = Access(_credentials(options), _tls(options))
    known = {f"{PREFIX}{name}".lower() for name in _NAMES} | {name.lower() for name in also_known}
    for name in sorted(options.with_prefix(PREFIX)):
        if PREFIX + name not in known:
            raise options.wrong(f"unknown option {PREFIX + name!r}{_suggestion(name)}")
    return access


def client_options(given: Mapping[str, str]) -> dict[str, Any]:
    """`credentials` and `tls` for a client outside of Spark, from options with these names."""
    return access_arguments(parse_access(Options("rocketmq", given), ()))


def access_arguments(access: Access) -> dict[str, Any]:
    """`credentials` and `tls` for a client; the files are looked for on this machine."""
    here = on_this_machine(access)
    return {"credentials": here.credentials, "tls": here.tls or False}


def _suggestion(name: str) -> str:
    by_lower = {item.lower(): item for item in _NAMES}
    meant = get_close_matches(name, by_lower, n=1, cutoff=0.6)
    if meant:
        return f", did you mean {PREFIX + by_lower[meant[0]]!r}?"
    return f"; of {PREFIX}* there are {', '.join(_NAMES)}: credentials and TLS"


def _credentials(options: Options) -> Credentials | None:
    access_key, secret_key, token = (options.text(PREFIX + name) for name in _ACCOUNT)
    if access_key is None and secret_key is None and token is None:
        return None
    if access_key is None or secret_key is None:
        missing = "accessKey" if access_key is None else "secretKey"
        raise options.wrong(f"option '{PREFIX}{missing}' is missing: an account is an accessKey and its secretKey")
    return Credentials(access_key, secret_key, token)


def _tls(options: Options) -> Tls | None:
    texts: dict[str, Any] = {_TLS_TEXTS[name]: options.text(f"{PREFIX}tls.{name}") for name in _TLS_TEXTS}
    flags: dict[str, Any] = {_TLS_FLAGS[name]: options.flag(f"{PREFIX}tls.{name}", True) for name in _TLS_FLAGS}
    if not options.flag(f"{PREFIX}tls", False):
        if given := options.given(*(f"{PREFIX}tls.{name}" for name in (*_TLS_TEXTS, *_TLS_FLAGS))):
            raise options.wrong(f"{given[0]} has no effect without {PREFIX}tls=true")
        return None
    try:
        return Tls(**texts, **flags)
    except ConfigError as error:
        raise options.wrong(f"{PREFIX}tls: {error}") from None
