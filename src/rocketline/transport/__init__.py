"""asyncio around the sans-IO protocol: channels, a server and a client."""

from rocketline.transport.channel import Channel, Limits
from rocketline.transport.client import RemotingClient
from rocketline.transport.router import AtReadEnd, Handler, Lane, QuickReads, Reply, Router
from rocketline.transport.server import RemotingServer

__all__ = [
    "AtReadEnd",
    "Channel",
    "Handler",
    "Lane",
    "Limits",
    "QuickReads",
    "RemotingClient",
    "RemotingServer",
    "Reply",
    "Router",
]
