"""Random cases for allocation strategies, compact enough to be kept, and what they mean to either side.

A case names a topic's brokers with their queue counts, the members, whose share is asked for, and the strategy with its
options. Its `share` is a list of positions in the sorted queues, or the name of the exception Java throws.
"""

from __future__ import annotations

from random import Random
from typing import Any

from rocketline.client.consumer.group.assignment import (
    Strategy,
    allocate_averagely,
    allocate_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    machine_room_nearby,
)
from rocketline.message import MessageQueue

SIMPLE = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")
ROOMS = ("north", "south", "west")

Case = dict[str, Any]


def random_cases(seed: int, count: int) -> list[Case]:
    chance = Random(seed)
    return [_random_case(chance) for _ in range(count)]


def _random_case(chance: Random) -> Case:
    strategy = chance.choice((*SIMPLE, "CONSISTENT_HASH", "CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY"))
    brokers = {_broker_name(chance, strategy): chance.randint(1, 16) for _ in range(chance.randint(1, 4))}
    members = [_client_id(chance, strategy) for _ in range(chance.choice((1, 2, 3, 5, 8, chance.randint(1, 40))))]
    if chance.random() < 0.1:
        members.append(chance.choice(members))  # connected twice
    case: Case = {
        "strategy": strategy,
        "topic": chance.choice(("orders", "%RETRY%billing", "T")),
        "brokers": brokers,
        "members": members,
        "own": chance.choice(members) if chance.random() < 0.93 else f"{ROOMS[0]}-stranger",
    }
    return case | _options(chance, case)


def _options(chance: Random, case: Case) -> Case:
    queue_count = sum(case["brokers"].values())
    match case["strategy"]:
        case "CONSISTENT_HASH":
            return {"virtual_nodes": chance.choice((10, 10, 10, 0, 1, 3, 100, -1))}
        case "CONFIG":
            return {"fixed": chance.sample(range(queue_count), chance.randint(0, queue_count))}
        case "MACHINE_ROOM":
            return {"rooms": chance.sample(ROOMS, chance.randint(0, len(ROOMS)))}
        case "MACHINE_ROOM_NEARBY":
            return {"inner": chance.choice(SIMPLE)}
    return {}


def _broker_name(chance: Random, strategy: str) -> str:
    name = f"broker-{chance.choice('abcdef')}"
    match strategy:
        case "MACHINE_ROOM":
            return chance.choice(
                (f"{chance.choice(ROOMS)}@{name}", name, f"{ROOMS[0]}@{name}@", f"{ROOMS[1]}@a@{name}")
            )
        case "MACHINE_ROOM_NEARBY":
            return name.replace("-", "") if chance.random() < 0.05 else f"{chance.choice(ROOMS)}-{name}"
    return name


def _client_id(chance: Random, strategy: str) -> str:
    name = f"10.0.{chance.randrange(4)}.{chance.randrange(256)}@{chance.randrange(100_000)}#{chance.getrandbits(48)}"
    if strategy == "MACHINE_ROOM_NEARBY":
        return f"{chance.choice(ROOMS)}-{name}"
    return f"{name}@käse\N{COW FACE}" if chance.random() < 0.1 else name


def queues_of(case: Case) -> list[MessageQueue]:
    return sorted(
        MessageQueue(case["topic"], broker, number)
        for broker, count in case["brokers"].items()
        for number in range(count)
    )


def strategy_of(case: Case) -> Strategy:
    match case["strategy"]:
        case "CONSISTENT_HASH":
            return consistent_hash(case["virtual_nodes"])
        case "CONFIG":
            queues = queues_of(case)
            return by_config(queues[position] for position in case["fixed"])
        case "MACHINE_ROOM":
            return by_machine_room(case["rooms"])
        case "MACHINE_ROOM_NEARBY":
            return machine_room_nearby(case["inner"], lambda queue: _prefix(queue.broker_name), _prefix)
        case "AVG":
            return allocate_averagely
    return allocate_by_circle


def _prefix(name: str) -> str:
    return name.partition("-")[0] if "-" in name else ""


def our_share(case: Case) -> list[int] | str:
    """What our function gives, in the words of a table."""
    queues = queues_of(case)
    try:
        share = strategy_of(case)("billing", case["own"], queues, sorted(case["members"]))
    except ValueError:
        return "IllegalArgumentException"
    return [queues.index(queue) for queue in share]


def java_arguments(case: Case) -> dict[str, Any]:
    """A case as the Java driver's `allocate` takes it."""
    queues = [_plain(queue) for queue in queues_of(case)]
    arguments: dict[str, Any] = {
        name: case[name] for name in ("strategy", "virtual_nodes", "rooms", "inner") if name in case
    }
    if "fixed" in case:
        arguments["fixed"] = [queues[position] for position in case["fixed"]]
    ids = sorted(case["members"])
    return arguments | {"group": "billing", "client_id": case["own"], "queues": queues, "client_ids": ids}


def java_share(case: Case, answer: list[list[Any]] | str) -> list[int] | str:
    if isinstance(answer, str):
        return answer
    queues = queues_of(case)
    return [queues.index(MessageQueue(*item)) for item in answer]


def _plain(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}
