"""One call of RocketMQ's service: who calls, and the channel with which brokers are asked."""

from __future__ import annotations

from dataclasses import dataclass

from rocketline.grpc.calls import Call
from rocketline.proxy.clients import Client
from rocketline.proxy.links import FrontChannel


@dataclass(slots=True)
class Context:
    call: Call
    channel: FrontChannel
    client_id: str
    client: Client | None
    """What is known of the client, with its settings or without; None: nothing."""
