"""Settings of a running broker, ours or Apache's: which differ from their defaults, and which may be changed.

An Apache broker lets a request change every setting, paths and commands included. Here the same settings can be changed on
every broker: those that ours takes, within the same bounds. Values of secret settings are not shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rocketline.admin.remote import AdminBroker
from rocketline.broker.changes import CHANGEABLE, checked
from rocketline.broker.config import BrokerConfig
from rocketline.errors import ClientError, ConfigError
from rocketline.settings import values_of

MASKED = "********"
_SECRET = re.compile(r"secret|password|token|accesskey|credential|privatekey", re.IGNORECASE)


@dataclass(frozen=True)
class Setting:
    name: str
    value: str
    default: str | None
    """None: not known, as those of Apache's brokers."""
    changeable: bool
    secret: bool

    @property
    def changed(self) -> bool | None:
        """Whether it differs from its default; None when that is not known."""
        return None if self.default is None or self.secret else self.value != self.default


def is_secret(name: str) -> bool:
    """
    >>> is_secret("tls.server.keyPassword"), is_secret("fileReservedTime")
    (True, False)
    """
    return _SECRET.search(name) is not None


async def settings_of(broker: AdminBroker) -> list[Setting]:
    values = await broker.config()
    defaults = values_of(BrokerConfig()) if _is_ours(values) else {}
    return [_setting(name, values[name], defaults.get(name)) for name in sorted(values)]


def _is_ours(values: dict[str, str]) -> bool:
    return any(name.startswith("rocketline.") for name in values)


def _setting(name: str, value: str, default: str | None) -> Setting:
    secret = is_secret(name)
    return Setting(name, MASKED if secret and value else value, default, name in CHANGEABLE, secret)


async def change_setting(broker: AdminBroker, name: str, value: str) -> tuple[str, str]:
    """Change one setting; (its former value, its value now). ClientError when it may not be changed, or not to that."""
    if "\n" in name or "\n" in value or "\r" in value:
        raise ClientError("a setting is one line")
    try:
        checked(f"{name}={value}\n")
    except ConfigError as error:
        raise ClientError(str(error)) from error
    before = (await broker.config()).get(name, "")
    await broker.update_config({name: value})
    return before, (await broker.config()).get(name, "")
