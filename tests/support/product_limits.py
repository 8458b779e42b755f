"""Time limits of the product that a busy machine would reach, raised for every test.

Users want to hear after three seconds that a broker does not answer; a test wants its answer. A test of a time limit names
the limit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rocketline.admin import Admin
from rocketline.broker import registration
from rocketline.broker.replication import source
from rocketline.cli.demo import journey
from rocketline.cli.servers import child
from rocketline.client import ClientOptions, ClientTiming, Producer, PushConsumer, blocking
from rocketline.client.producer import direct
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.remote_nameserver import RemoteNameServer
from rocketline.proxy import clients, receiving, remote, sending, settling, transactions
from rocketline.testing import local_cluster
from rocketline.transport import RemotingClient, accepting

from .patience import PATIENCE_MS, PATIENCE_S

TIMING = ("call_s", "send_back_s", "trace_send_s", "lock_call_s")
LIMITS: tuple[tuple[Callable[..., Any], tuple[str, ...]], ...] = (
    (ClientTiming.__init__, TIMING),
    (Producer.__init__, ("timeout",)),
    (Producer.request, ("timeout",)),
    (PushConsumer.reply, ("timeout",)),
    (blocking.Producer.request, ("timeout",)),
    (blocking.PushConsumer.reply, ("timeout",)),
    (Admin.__init__, ("timeout",)),
    (RemoteBroker.__init__, ("timeout_s",)),
    (RemoteNameServer.__init__, ("timeout_s",)),
    (RemotingClient.__init__, ("connect_timeout_s",)),
)
CONSTANTS: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
    (accepting, ("FIRST_FRAME_S", "HANDSHAKE_S")),
    (source, ("HELLO_S",)),
    (child, ("START_LIMIT_S", "STOP_LIMIT_S")),
    (direct, ("CONNECT_S",)),
    (journey, ("OPEN_LIMIT_S", "READ_LIMIT_S")),
    (local_cluster, ("CALL_LIMIT_S",)),
    (registration, ("FIRST_ANSWER_S",)),
    (clients, ("CALL_S",)),
    (receiving, ("EXTRA_S",)),
    (remote, ("ASK_S",)),
    (sending, ("SEND_S",)),
    (settling, ("CALL_S",)),
    (transactions, ("END_S",)),
)


def lengthen_limits() -> None:
    """Once, before any test."""
    for function, names in LIMITS:
        _set_defaults(function, names)
    for name in TIMING:
        object.__setattr__(ClientOptions.timing, name, PATIENCE_S)  # the one object that is the default everywhere
    for module, names in CONSTANTS:
        for name in names:
            assert hasattr(module, name), f"{module} has no {name}"
            setattr(module, name, PATIENCE_S)
    # A send that waited for the loop or for the disk is refused, or answered as not flushed.
    local_cluster.SMALL_FILES.update(waitTimeMillsInSendQueue=str(PATIENCE_MS), syncFlushTimeout=str(PATIENCE_MS))


def _set_defaults(function: Any, names: tuple[str, ...]) -> None:
    """Change default values of parameters."""
    values = {item.name: item.default for item in inspect.signature(function).parameters.values()}
    values = {name: value for name, value in values.items() if value is not inspect.Parameter.empty}
    assert values.keys() >= set(names), f"{function} has no defaults of all of {names}"
    values.update(dict.fromkeys(names, PATIENCE_S))
    only_named = function.__kwdefaults__ or {}
    only_named.update({name: values.pop(name) for name in only_named})
    function.__defaults__ = tuple(values.values())
