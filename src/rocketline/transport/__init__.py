"""Remoting on asyncio, around the protocol without I/O: channels, a server and a client."""

from rocketline.transport.channel import Channel
from rocketline.transport.client import RemotingClient, without_next_attempt
from rocketline.transport.fast_path import FastPath
from rocketline.transport.limits import DEFAULT_LIMITS, Limits
from rocketline.transport.router import AtReadEnd, Handler, Reply, Router
from rocketline.transport.server import RemotingServer

__all__ = [
    "DEFAULT_LIMITS",
    "AtReadEnd",
    "Channel",
    "FastPath",
    "Handler",
    "Limits",
    "RemotingClient",
    "RemotingServer",
    "Reply",
    "Router",
    "without_next_attempt",
]
