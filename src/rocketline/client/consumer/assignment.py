"""Which queues of a topic a member of a consumer group gets.

Pure functions of (group, own client id, all queues, all client ids). Every member computes its own share from the same
sorted lists, so nobody has to talk to anybody; a Java member and ours must therefore come to the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketline.message import MessageQueue

Strategy = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def allocate_averagely(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """RocketMQ's AVG: neighbouring queues, the first members one more when it does not divide evenly.

    >>> queues = [MessageQueue("T", "b", n) for n in range(5)]
    >>> [queue.queue_id for queue in allocate_averagely("g", "c1", queues, ["c1", "c2"])]
    [0, 1, 2]
    """
    check_arguments(group, client_id, queues, client_ids)
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    share, extra = divmod(len(queues), len(client_ids))
    size = share + (1 if index < extra else 0)
    start = index * size + (0 if index < extra else extra)
    return list(queues[start : start + size])


def check_arguments(group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> None:
    """Every strategy refuses to decide about nothing."""
    if not client_id or not queues or not client_ids:
        raise ValueError(
            f"group {group!r}: an own client id, queues and client ids are needed, "
            f"got {client_id!r}, {len(queues)} queues and {len(client_ids)} ids"
        )
