"""Options that all clients share."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from rocketline.client.connection_events import ConnectionCallback
from rocketline.client.middleware import Middleware
from rocketline.client.timing import ClientTiming
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ConfigError
from rocketline.protocol.names import topic_problem
from rocketline.protocol.namespaces import TRACE_TOPIC
from rocketline.transport.access import Access, TlsOption
from rocketline.transport.credentials import CredentialsOption


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """What producers and consumers have in common, and few programs set.

        options = ClientOptions(credentials=Credentials("shop", "its secret"), tls=True)
        Producer("10.0.0.7:9876", group="shop", options=options)

    Clients of one process that have the same `instance_name` share one session: they must have the same credentials, TLS,
    middleware and `on_connection`, and the timing of the first one counts.
    """

    namespace: str | None = None
    """Put before topics and the group on the wire, and removed from what comes back."""
    credentials: CredentialsOption = None
    """The account that signs every request: Credentials, a CredentialsFile, or a function that returns Credentials."""
    tls: TlsOption = False
    """True, a Tls or an ssl.SSLContext; for connections to name servers and brokers."""
    instance_name: str | None = None
    """The middle part of the client id; unique for each client unless given."""
    client_ip: str | None = None
    """The first part of the client id; by default the address of the interface that leads out of this machine."""
    unit_name: str | None = None
    """The last part of the client id."""
    unit_mode: bool = False
    """Tell brokers that producers and push consumers belong to a unit."""
    trace: bool | str = False
    """Report each message sent or handled to the trace topic: True for RMQ_SYS_TRACE_TOPIC, or another topic. Producers
    and push consumers do this."""
    middleware: Middleware | None = None
    """An async function around every request; see client/middleware.py."""
    on_connection: ConnectionCallback | None = None
    """A function that is told of connections that were made and lost; see client/connection_events.py."""
    timing: ClientTiming = ClientTiming()
    """Intervals and time limits of what clients do by themselves."""
    clock: Clock = SYSTEM_CLOCK
    """Another clock, for simulations."""
    chance: random.Random | None = None
    """Another source of random numbers, for simulations."""
    access: Access = field(init=False, repr=False, compare=False)
    """`credentials` and `tls`, checked."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "access", Access.of(self.credentials, self.tls))
        problem = topic_problem(self.trace) if isinstance(self.trace, str) else None
        if problem:
            raise ConfigError(f"trace: {problem}")

    @property
    def trace_topic(self) -> str | None:
        """The topic that traces go to; None: no traces."""
        return self.trace if isinstance(self.trace, str) else TRACE_TOPIC if self.trace else None
