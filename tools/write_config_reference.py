"""Write docs/reference/config.md from the settings, so that the page always matches them.

    python tools/write_config_reference.py

Needs rocketline to be importable, as it is in `.venv`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from textwrap import fill
from typing import Any, get_type_hints

from rocketline.broker.config import BrokerConfig
from rocketline.cli.servers.config_sources import variable_of
from rocketline.nameserver.config import RUNTIME_KEYS, NameServerConfig
from rocketline.proxy.config import PORT, ProxyConfig
from rocketline.settings import Described, describe, ignored_keys

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "config.md"

INTRODUCTION = f"""# Settings

Written by `python tools/write_config_reference.py`; change the settings, not this page.

Names and defaults are RocketMQ's, so an unmodified `broker.conf` or `namesrv.conf` loads; keys that mean nothing here are
named in a warning and ignored. A flag wins over the environment, that over the file (`--config FILE`), that over the
default:

| where | how `flushDiskType` is set |
| --- | --- |
| flag of `rocketline up`, `broker`, `nameserver` | `--set flushDiskType=SYNC_FLUSH` |
| environment | `{variable_of("flushDiskType")}=SYNC_FLUSH` |
| file | `flushDiskType=SYNC_FLUSH` |
| `LocalCluster` | `config={{"flushDiskType": "SYNC_FLUSH"}}` |

A setting in parentheses is not one of RocketMQ's and has no name in files: it is a field of the settings object, for
programs that make one. Where a default is not Apache's, [compat.md](../compat.md) says why. The commands listen on
loopback by default.
"""

LINE = 120
IGNORED = """### Broker: accepted without an effect

These are in many files of Apache's brokers. They are taken, and a warning says why they change nothing.

| setting | why |
| --- | --- |
"""

PROXY = """## Proxy

`rocketline proxy` has these, and the settings of a broker under grpc, auth, metrics, connections and tls. Without
`grpcServerPort` it listens on {port}.

{rows}

These of them change nothing there:

{ignored}
"""

UNITS = {"_ms": "ms", "_s": "s", "_bytes": "bytes"}


def page() -> str:
    """The whole page."""
    broker = "\n".join(_section(BrokerConfig, "Broker", 2))
    name_server = "\n".join(_section(NameServerConfig, "Name server", 2))
    ignored = "\n".join(f"| `{key}` | {reason} |" for key, reason in sorted(ignored_keys(BrokerConfig).items()))
    runtime = ", ".join(f"`{key}`" for key in sorted(RUNTIME_KEYS))
    may_change = fill(f"Operators may change these while it runs: {runtime}.", LINE, break_on_hyphens=False)
    named = "\n".join(f"- `{key}`: {reason}" for key, reason in sorted(ignored_keys(NameServerConfig).items()))
    return (
        f"{INTRODUCTION}\n{broker}\n{IGNORED}{ignored}\n\n{name_server}\n{may_change}\n\n"
        f"These are taken and change nothing:\n\n{named}\n\n{_proxy()}"
    )


def _proxy() -> str:
    """What `rocketline proxy` has that is not in the tables."""
    hints = get_type_hints(ProxyConfig)
    own = [item for item in fields(ProxyConfig) if not is_dataclass(hints[item.name])]
    rows = "\n".join(f"- `{item.metadata['key']}` ({item.default!r}): {item.metadata['doc']}" for item in own)
    ignored = "\n".join(f"- `{key}`: {reason}" for key, reason in sorted(ProxyConfig.IGNORED.items()))
    return PROXY.format(rows=rows, ignored=ignored, port=PORT)


def _section(kind: type[Any], title: str, level: int) -> Iterator[str]:
    """A heading with the settings of one section, then the sections inside it."""
    hints = get_type_hints(kind)
    inner = {item.name: hints[item.name] for item in fields(kind) if is_dataclass(hints[item.name])}
    elsewhere = [setting for section in inner.values() for setting in describe(section)]
    yield f"{'#' * level} {title}\n"
    yield "| setting | default | meaning |\n| --- | --- | --- |"
    yield from (_row(setting) for setting in describe(kind) if setting not in elsewhere)
    yield ""
    for name, section in inner.items():
        yield from _section(section, f"{title}: {name}", level + 1)


def _row(setting: Described) -> str:
    name = f"`{setting.key}`" if setting.key else f"(`{setting.name}`)"
    meaning = setting.doc.replace("|", "\\|")
    return f"| {name} | {_default(setting)} | {meaning} |"


def _default(setting: Described) -> str:
    value = setting.default
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value == "":
        return "empty"
    unit = next((unit for suffix, unit in UNITS.items() if setting.name.endswith(suffix)), "")
    return f"`{value}` {unit}".rstrip()


def main() -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
