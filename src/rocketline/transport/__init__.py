"""Remoting on asyncio, around the protocol without I/O: channels, a server and a client."""

from rocketline.transport.channel import DEFAULT_LIMITS, Channel, Limits
from rocketline.transport.client import RemotingClient
from rocketline.transport.lane import Lane, Read, Served
from rocketline.transport.router import AtReadEnd, Handler, QuickReads, Reply, Router
from rocketline.transport.server import RemotingServer

__all__ = [
    "DEFAULT_LIMITS",
    "AtReadEnd",
    "Channel",
    "Handler",
    "Lane",
    "Limits",
    "QuickReads",
    "Read",
    "RemotingClient",
    "RemotingServer",
    "Reply",
    "Router",
    "Served",
]
