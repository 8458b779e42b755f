"""Time limits of the product that a busy machine would reach, raised for every test.

Users want to hear after three seconds that a broker does not answer; a test wants its answer. What tests give themselves
is not touched: a test of a time limit names the limit. Tests in virtual time name them too, as nothing is slow there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rocketline.admin import Admin
from rocketline.cli import child
from rocketline.client import ClientTiming, Producer, PushConsumer, blocking
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.remote_nameserver import RemoteNameServer
from rocketline.testing import local_cluster
from rocketline.transport import RemotingClient

from .patience import PATIENCE_MS, PATIENCE_S

LIMITS: tuple[tuple[Callable[..., Any], tuple[str, ...]], ...] = (
    (ClientTiming.__init__, ("call_s", "send_back_s", "trace_send_s", "lock_call_s")),
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


def lengthen_limits() -> None:
    """Once, before any test."""
    for function, names in LIMITS:
        _set_defaults(function, names)
    child.START_LIMIT_S = child.STOP_LIMIT_S = local_cluster.CALL_LIMIT_S = PATIENCE_S
    # A send that waited for the loop or for the disk is refused, or answered as not flushed.
    local_cluster.SMALL_FILES.update(waitTimeMillsInSendQueue=str(PATIENCE_MS), syncFlushTimeout=str(PATIENCE_MS))


def _set_defaults(function: Any, names: tuple[str, ...]) -> None:
    parameters = inspect.signature(function).parameters
    for name in names:
        assert parameters[name].default is not inspect.Parameter.empty, f"{function} has no default of {name}"
        if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY:
            function.__kwdefaults__[name] = PATIENCE_S
        else:
            with_default = [each for each in parameters.values() if each.default is not inspect.Parameter.empty]
            position = [each.name for each in with_default if each.kind is not inspect.Parameter.KEYWORD_ONLY].index(
                name
            )
            values = list(function.__defaults__)
            values[position] = PATIENCE_S
            function.__defaults__ = tuple(values)
