"""Named clusters in a file of the user: `rocketline context add prod --namesrv ...`, and commands need no `--namesrv`.

The file is `rocketline/contexts.json` in the user's configuration folder (XDG_CONFIG_HOME, on Windows APPDATA), or the one
that ROCKETLINE_CONFIG names. Only its owner can read it. It has the path of a secret key's file, never the key itself.

A single command takes another context than the one in use by `--context NAME`, a shell by ROCKETLINE_CONTEXT.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import msgspec

from rocketline.errors import ConfigError
from rocketline.files import OWNER_ONLY, replace_file
from rocketline.system.files import configuration_folder

CONFIG_VARIABLE = "ROCKETLINE_CONFIG"
CONTEXT_VARIABLE = "ROCKETLINE_CONTEXT"

_named: ContextVar[str | None] = ContextVar("_named", default=None)
"""What `--context` of this command names."""


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to reach one cluster."""

    namesrv: str
    access_key: str | None = None
    secret_key_file: str | None = None
    credentials_file: str | None = None
    """Instead of the two: a file with both, see `CredentialsFile`."""
    tls: bool = False
    ca_file: str | None = None
    certificate: str | None = None
    """A client's own, for servers that ask for one."""
    key: str | None = None
    insecure: bool = False

    @property
    def uses_tls(self) -> bool:
        return any((self.tls, self.ca_file, self.certificate, self.insecure))


class Contexts(msgspec.Struct):
    """The content of the file; `current` is the name of the context in use."""

    current: str | None = None
    contexts: dict[str, Context] = {}

    def require(self, name: str) -> Context:
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise ConfigError(f"there is no context {name!r}; known: {known}; `rocketline context add` makes one")
        return self.contexts[name]


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The file with the contexts."""
    if given := environment.get(CONFIG_VARIABLE):
        return Path(given)
    return configuration_folder(environment) / "rocketline" / "contexts.json"


def load_contexts(path: Path) -> Contexts:
    """The contexts of a file, none when there is no file; ConfigError when it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is not a file of contexts: {error}; correct it or delete it") from error


def save_contexts(path: Path, contexts: Contexts) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, msgspec.json.format(msgspec.json.encode(contexts)) + b"\n", mode=OWNER_ONLY)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; {CONFIG_VARIABLE} names another file") from error


@contextmanager
def naming_context(name: str | None) -> Iterator[None]:
    """While a command runs to which `--context` was given."""
    before = _named.set(name)
    try:
        yield
    finally:
        _named.reset(before)


def named_context(environment: Mapping[str, str] = os.environ) -> Context | None:
    """The context that `--context` names; None when it was not given."""
    name = _named.get()
    return load_contexts(contexts_path(environment)).require(name) if name is not None else None


def current_context(environment: Mapping[str, str] = os.environ) -> Context | None:
    """The context that ROCKETLINE_CONTEXT names, else the one in use; None when there is none."""
    found = load_contexts(contexts_path(environment))
    name = environment.get(CONTEXT_VARIABLE) or found.current
    return found.require(name) if name is not None else None
