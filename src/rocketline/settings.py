"""Settings: frozen dataclasses whose fields carry their RocketMQ key, unit and one sentence of meaning.

    @dataclass(frozen=True)
    class FlushConfig:
        interval_ms: int = setting(500, "flushIntervalCommitLog", "Pause between two flushes of the commit log.")

An unmodified `broker.conf` loads into them, and the reference pages are written from them. Sections nest: a field whose type
is itself such a dataclass is filled from the same keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar, get_type_hints

from rocketline.errors import ConfigError

T = TypeVar("T")

HIDDEN = "******"
_PRIVATE = re.compile("auth|password|secret|credential", re.IGNORECASE)


def setting(default: Any, key: str | None, doc: str, *, is_secret: bool = False) -> Any:
    """A dataclass field with its RocketMQ key (`rocketline.name` for one that RocketMQ does not have) and its meaning. The
    value of a secret is never logged and never in an answer."""
    return field(default=default, repr=not is_secret, metadata={"key": key, "doc": doc, "is_secret": is_secret})


def section(kind: type[Any]) -> Any:
    """A nested group of settings."""
    return field(default_factory=kind)


@dataclass(frozen=True)
class Described:
    """One setting as the documentation shows it."""

    key: str | None
    name: str
    default: Any
    doc: str


def describe(kind: type[Any]) -> Iterator[Described]:
    """Every setting of a section and of the sections inside it."""
    hints = _hints_of(kind)
    for item in fields(kind):
        if is_dataclass(hints[item.name]):
            yield from describe(hints[item.name])
        else:
            yield Described(item.metadata.get("key"), item.name, _default_of(item), item.metadata.get("doc", ""))


def ignored_keys(kind: type[Any]) -> Mapping[str, str]:
    """Keys of RocketMQ that are accepted for a section and have no effect, each with the reason: its `IGNORED`."""
    ignored: Mapping[str, str] = getattr(kind, "IGNORED", {})
    return ignored


_known_hints: dict[type[Any], dict[str, Any]] = {}


def _hints_of(kind: type[Any]) -> dict[str, Any]:
    """The types of the fields, kept: a server asks for them several times at its start, and evaluating annotations is
    slow."""
    found = _known_hints.get(kind)
    if found is None:
        found = _known_hints[kind] = get_type_hints(kind)
    return found


def _default_of(item: Field[Any]) -> Any:
    if item.default is not MISSING:
        return item.default
    return item.default_factory() if item.default_factory is not MISSING else None


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format, as far as RocketMQ's files use it: `key=value`, `key: value`, `#` and `!` comments.

    >>> parse_properties("# a comment\\nbrokerName = a\\nlistenPort:10911")
    {'brokerName': 'a', 'listenPort': '10911'}
    """
    result = {}
    for line in _logical_lines(text):
        for position, char in enumerate(line):
            if char in "=:" and (position == 0 or line[position - 1] != "\\"):
                result[line[:position].strip()] = line[position + 1 :].strip().replace("\\\\", "\\")
                break
        else:
            result[line.strip()] = ""
    return result


def parse_json(text: str) -> dict[str, str]:
    """The settings of a JSON object, each as it would stand in a properties file; ValueError when it is none.

    >>> parse_json('{"namesrvAddr": "localhost:9876", "grpcServerPort": 8081, "aclEnable": false}')
    {'namesrvAddr': 'localhost:9876', 'grpcServerPort': '8081', 'aclEnable': 'false'}
    """
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if pending.endswith("\\") and not pending.endswith("\\\\"):
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def load(kind: type[T], values: Mapping[str, str], where: str = "settings") -> tuple[T, list[str]]:
    """(section with these values by RocketMQ key, unknown keys); ConfigError names key and value of a wrong one."""
    used: set[str] = set()
    result = _load(kind, values, used, where)
    return result, sorted(set(values) - used - ignored_keys(kind).keys())


def _load(kind: type[T], values: Mapping[str, str], used: set[str], where: str) -> T:
    hints = _hints_of(kind)
    arguments: dict[str, Any] = {}
    for item in fields(kind):  # type: ignore[arg-type]
        hint = hints[item.name]
        if is_dataclass(hint):
            arguments[item.name] = _load(hint, values, used, where)  # type: ignore[arg-type]
            continue
        key = item.metadata.get("key")
        if key and key in values:
            used.add(key)
            arguments[item.name] = _convert(values[key], hint, f"{where}: {key}")
    return kind(**arguments)


def values_of(config: Any) -> dict[str, str]:
    """Every setting that has a RocketMQ key, as text, including those of nested sections."""
    values: dict[str, str] = {}
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            values |= values_of(value)
        elif key := item.metadata.get("key"):
            values[key] = _text(value)
    return values


def as_properties(config: Any) -> str:
    """The settings as sorted properties text, which `parse_properties` can read, for anybody who asks a server.

    Secrets are shown as stars. Whatever is about accounts and passwords is left out."""
    hidden = dict.fromkeys(_secrets_of(config), HIDDEN)
    shown = values_of(config) | hidden
    values = {key: value for key, value in shown.items() if not _PRIVATE.search(key)}
    escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in values.items()}
    return "".join(f"{key}={value}\n" for key, value in sorted(escaped.items()))


def _secrets_of(config: Any) -> Iterator[str]:
    """Keys of the secrets that are set."""
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            yield from _secrets_of(value)
        elif value and item.metadata.get("is_secret"):
            yield item.metadata["key"]


def with_values(config: T, values: Mapping[str, str], where: str = "change") -> T:
    """The settings with these values; all others, also those without a RocketMQ key, stay as they are."""
    hints = _hints_of(type(config))
    changes: dict[str, Any] = {}
    for item in fields(config):  # type: ignore[arg-type]
        current, key = getattr(config, item.name), item.metadata.get("key")
        if is_dataclass(current):
            changed = with_values(current, values, where)
            if changed is not current:
                changes[item.name] = changed
        elif key and key in values:
            changes[item.name] = _convert(values[key], hints[item.name], f"{where}: {key}")
    return replace(config, **changes) if changes else config  # type: ignore[type-var]


def _text(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return str(value).lower() if isinstance(value, bool) else str(value)


_BOOLEANS = {"true": True, "false": False}


def _convert(text: str, hint: Any, where: str) -> Any:
    try:
        if hint is bool:
            return _BOOLEANS[text.lower()]
        if hint is int:
            return int(text)
        if hint is float:
            return float(text)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return hint(text)
        return text
    except (KeyError, ValueError) as error:
        name = getattr(hint, "__name__", str(hint))
        raise ConfigError(f"{where}={text!r} is not a valid {name}") from error
