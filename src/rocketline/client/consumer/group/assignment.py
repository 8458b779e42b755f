"""Which queues of a topic a member of a consumer group gets.

Pure functions of (group, own client id, all queues, all client ids). Every member computes its own share from the same
sorted lists, so nobody has to talk to anybody; a Java member and ours must therefore come to the same result, and all
members of a group must use the same strategy: nothing notices when they do not.

AVG, AVG_BY_CIRCLE and CONSISTENT_HASH can be asked for by these names of RocketMQ's. CONFIG, MACHINE_ROOM and
MACHINE_ROOM_NEARBY need to be told something and are made by `by_config`, `by_machine_room` and `machine_room_nearby`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import md5
from typing import TypeVar

from rocketline.errors import ConfigError
from rocketline.message import MessageQueue

Strategy = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]

VIRTUAL_NODES = 10

T = TypeVar("T")


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


def allocate_by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """RocketMQ's AVG_BY_CIRCLE: dealt out like cards, which spreads the queues of every broker over the members.

    >>> queues = [MessageQueue("T", "b", n) for n in range(5)]
    >>> [queue.queue_id for queue in allocate_by_circle("g", "c1", queues, ["c1", "c2"])]
    [0, 2, 4]
    """
    check_arguments(group, client_id, queues, client_ids)
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES, hash_of: Callable[[str], int] | None = None) -> Strategy:
    """RocketMQ's CONSISTENT_HASH: a member that comes or goes moves only the queues it gets or had.

    Shares are less even than AVG's; more `virtual_nodes` make them more so. With 0 nobody gets anything, as in Java.
    """
    if virtual_nodes < 0:
        raise ConfigError(f"virtual_nodes={virtual_nodes} must not be negative")
    place = hash_of or ring_place

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        check_arguments(group, client_id, queues, client_ids)
        if client_id not in client_ids or not virtual_nodes:
            return []
        ring = _ring(client_ids, virtual_nodes, place)
        places = sorted(ring)
        return [queue for queue in queues if ring[_next_place(places, place(_java_text(queue)))] == client_id]

    return allocate


def ring_place(text: str) -> int:
    """Where Java's ring puts a text: the first four bytes of its MD5.

    >>> ring_place("10.0.0.1@7-0")
    1169456621
    """
    digest = md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _ring(client_ids: Sequence[str], virtual_nodes: int, place: Callable[[str], int]) -> dict[int, str]:
    """Client by place; where two collide, the later one has it. A client connected twice is named twice, and then
    has more nodes, numbered on from those it still has."""
    ring: dict[int, str] = {}
    seen: set[str] = set()
    for client_id in client_ids:
        first = sum(owner == client_id for owner in ring.values()) if client_id in seen else 0
        seen.add(client_id)
        for number in range(first, first + virtual_nodes):
            ring[place(f"{client_id}-{number}")] = client_id
    return ring


def _next_place(places: Sequence[int], place: int) -> int:
    found = bisect_left(places, place)
    return places[found] if found < len(places) else places[0]


def _java_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def by_config(queues: Iterable[MessageQueue]) -> Strategy:
    """RocketMQ's CONFIG: always these queues, whoever else is there.

    Queues of the retry topic are no exception: a consumer that wants what it handed back lists them too.
    """
    fixed = tuple(queues)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(fixed)

    return allocate


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """RocketMQ's MACHINE_ROOM: only queues of brokers called `room@name`, of these rooms, shared by all members.

    Neighbouring queues first, then one more of the rest for each of the first members.
    """
    if isinstance(rooms, str):
        raise ConfigError(f"rooms={rooms!r}: a collection of room names is needed")
    wanted = frozenset(rooms)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        check_arguments(group, client_id, queues, client_ids)
        if client_id not in client_ids:
            return []
        here = [queue for queue in queues if _room_in_name(queue.broker_name) in wanted]
        index = client_ids.index(client_id)
        size = len(here) // len(client_ids)
        rest = here[size * len(client_ids) :]
        return here[index * size : (index + 1) * size] + rest[index : index + 1]

    return allocate


def _room_in_name(broker_name: str) -> str | None:
    # Java's split drops empty parts at the end, so "room@name@" counts as well.
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def machine_room_nearby(
    inner: Strategy | str, room_of_queue: Callable[[MessageQueue], str], room_of_client: Callable[[str], str]
) -> Strategy:
    """RocketMQ's MACHINE_ROOM_NEARBY: queues go to members in their own room, shared by `inner`; those of rooms
    without a member go to all."""
    share = find_strategy(inner)

    def allocate(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        check_arguments(group, client_id, queues, client_ids)
        if client_id not in client_ids:
            return []
        queues_in = _by_room(queues, room_of_queue, "queue")
        clients_in = _by_room(client_ids, room_of_client, "client")
        own_room = room_of_client(client_id)
        own = queues_in.pop(own_room, None)
        mine = list(share(group, client_id, own, clients_in[own_room])) if own else []
        for room in sorted(queues_in.keys() - clients_in.keys()):
            mine += share(group, client_id, queues_in[room], client_ids)
        return mine

    return allocate


def _by_room(items: Sequence[T], room_of: Callable[[T], str], kind: str) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ValueError(f"no machine room is known for {kind} {item}")
        rooms.setdefault(room, []).append(item)
    return rooms


def check_arguments(group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> None:
    """Every strategy refuses to decide about nothing."""
    if not client_id or not queues or not client_ids:
        raise ValueError(
            f"group {group!r}: an own client id, queues and client ids are needed, "
            f"got {client_id!r}, {len(queues)} queues and {len(client_ids)} ids"
        )


_BY_NAME: dict[str, Strategy] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
    "CONSISTENT_HASH": consistent_hash(),
}
_MADE_BY = {
    "CONFIG": "by_config(queues)",
    "MACHINE_ROOM": "by_machine_room(rooms)",
    "MACHINE_ROOM_NEARBY": "machine_room_nearby(inner, room_of_queue, room_of_client)",
}


def find_strategy(strategy: Strategy | str) -> Strategy:
    """The function itself, or the one RocketMQ has under this name."""
    if not isinstance(strategy, str):
        if not callable(strategy):
            raise ConfigError(f"strategy {strategy!r} is neither a function nor one of {', '.join(_BY_NAME)}")
        return strategy
    found = _BY_NAME.get(strategy)
    if found is None and strategy in _MADE_BY:
        raise ConfigError(f"strategy {strategy} has to be told more: give {_MADE_BY[strategy]} instead of its name")
    if found is None:
        raise ConfigError(f"there is no strategy {strategy!r}; there are {', '.join([*_BY_NAME, *_MADE_BY])}")
    return found


def java_order(client_ids: Iterable[str]) -> list[str]:
    """Client ids as Java sorts strings, by UTF-16 units: instance names may be any text."""
    return sorted(client_ids, key=lambda client_id: client_id.encode("utf-16-be", "surrogatepass"))
