"""The broker: stores messages, hands them out, and knows who produces and consumes.

Names are imported on first use: whoever needs only the settings does not load the whole broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketline.broker.broker import Broker
    from rocketline.broker.config import BrokerConfig, load_broker_config

__all__ = ["Broker", "BrokerConfig", "load_broker_config"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rocketline.broker' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("rocketline.broker.broker" if name == "Broker" else "rocketline.broker.config"), name)
