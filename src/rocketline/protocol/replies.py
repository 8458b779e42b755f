"""Request and reply: the properties that route a reply to the client that sent the request."""

from __future__ import annotations

CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
"""How long the requester waits, in milliseconds."""
MSG_TYPE = "MSG_TYPE"
REPLY = "reply"
CLUSTER = "CLUSTER"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
ARRIVE_TIME = "ARRIVE_TIME"


def reply_topic(cluster: str) -> str:
    """The topic of replies in a cluster.

    >>> reply_topic("DefaultCluster")
    'DefaultCluster_REPLY_TOPIC'
    """
    return f"{cluster}_REPLY_TOPIC"
