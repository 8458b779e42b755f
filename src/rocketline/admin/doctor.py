"""Looks for problems of a cluster.

It connects as clients do: the addresses that name servers give out must be reachable from here. A diagnosis names the
problem, the place, and what to do. Nothing is changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from rocketline.admin.cluster import Admin
from rocketline.admin.diagnosis import Diagnosis
from rocketline.admin.doctor_access import access_problems
from rocketline.admin.doctor_replication import replication_problems
from rocketline.admin.partial import refusal_text
from rocketline.admin.progress import all_progress
from rocketline.admin.remote import AdminBroker
from rocketline.errors import BrokerError, RocketlineError
from rocketline.message import DLQ_PREFIX, RETRY_PREFIX
from rocketline.protocol.bodies import MASTER_ID
from rocketline.protocol.names import ASIDE_TOPIC
from rocketline.protocol.numbers import read_number
from rocketline.protocol.transactions import MAX_CHECKS_TOPIC

DISK_WARNING, DISK_FULL = 0.75, 0.88
CLOCK_SKEW_S = 5.0
LAG_PAUSE_S = 2.0
MANY_BEHIND = 1000
MAX_MEMBERS_ASKED = 50
"""Members are asked one by one, so of a large group only some."""


async def examine(admin: Admin, lag_pause_s: float = LAG_PAUSE_S) -> AsyncIterator[Diagnosis]:
    """All problems found."""
    async for finding in _name_servers(admin):
        yield finding
    try:
        info = await admin.cluster_info()
    except RocketlineError:
        return
    if not info.broker_addr_table:
        yield Diagnosis(
            "error", admin.namesrv, "no broker is registered", "start a broker, and check its namesrvAddr setting"
        )
        return
    async for finding in _masters(admin):
        yield finding
    brokers = await admin.brokers(slaves=True)
    healthy, versions = [], {}
    for broker, status in zip(brokers, await admin.gather_or_errors(broker.runtime_info() for broker in brokers)):
        if isinstance(status, RocketlineError):
            yield _without_numbers(broker, status)
        else:
            healthy.append(broker)
            versions[f"{broker.name} {broker.address}"] = status.get("brokerVersionDesc", "unknown")
            for finding in _runtime_problems(broker, status):
                yield finding
    async for finding in replication_problems(admin, healthy):
        yield finding
    if len(set(versions.values())) > 1:
        shown = ", ".join(f"{where} is {version}" for where, version in versions.items())
        yield Diagnosis("warning", "brokers", f"their versions differ: {shown}", "bring all to one version")
    if healthy:
        async for finding in access_problems(admin, healthy):
            yield finding
        async for finding in _topics(admin, healthy):
            yield finding
        async for finding in _subscriptions(admin, healthy):
            yield finding
        async for finding in _lag(admin, lag_pause_s):
            yield finding


async def _name_servers(admin: Admin) -> AsyncIterator[Diagnosis]:
    answers = await admin.gather_or_errors(server.cluster_info() for server in admin.name_servers)
    tables = {}
    for server, answer in zip(admin.name_servers, answers):
        if isinstance(answer, RocketlineError):
            yield Diagnosis(
                "error",
                server.address,
                f"this name server does not answer: {answer}",
                "check that it runs and can be reached",
            )
        else:
            tables[server.address] = {
                (name, broker_id, address)
                for name, group in answer.broker_addr_table.items()
                for broker_id, address in group.broker_addrs.items()
            }
    everyone = set().union(*tables.values()) if tables else set()
    for server_address, known in tables.items():
        for name, _, address in sorted(everyone - known):
            yield Diagnosis(
                "warning",
                server_address,
                f"does not know broker {name} at {address}, other name servers do",
                "list all name servers in the broker's namesrvAddr",
            )


async def _masters(admin: Admin) -> AsyncIterator[Diagnosis]:
    for name, group in sorted((await admin.cluster_info()).broker_addr_table.items()):
        if MASTER_ID not in group.broker_addrs:
            yield Diagnosis(
                "error",
                name,
                "has no master, only slaves: nothing can be sent there",
                "start the broker that was the master last; if it never comes back, make another one the master with "
                "changeMaster, or see with getSyncStateSet why none is elected",
            )


def _without_numbers(broker: AdminBroker, error: RocketlineError) -> Diagnosis:
    """A broker that refuses can be reached."""
    where = f"{broker.name} {broker.address}"
    if isinstance(error, BrokerError):
        return Diagnosis(
            "error",
            where,
            f"gives no numbers: {refusal_text(error)}",
            "look at what the account of this client may do, and into the log of the broker",
        )
    return Diagnosis(
        "error",
        where,
        f"the address that name servers give to clients cannot be used from here: {error}",
        "set brokerIP1 to an address that clients can reach, and open its port",
    )


def _runtime_problems(broker: AdminBroker, info: dict[str, str]) -> list[Diagnosis]:
    where = f"{broker.name} {broker.address}"
    found = []
    ratio = _number(info.get("commitLogDiskRatio"))
    if ratio > DISK_WARNING:
        found.append(
            Diagnosis(
                "error" if ratio > DISK_FULL else "warning",
                where,
                f"the disk is {ratio:.0%} full; messages are refused above 90 %",
                "make room, or lower fileReservedTime",
            )
        )
    # The broker's clock: its start time plus the time it has run.
    skew_s = _skew_s(info)
    if skew_s is not None and abs(skew_s) > CLOCK_SKEW_S:
        found.append(
            Diagnosis(
                "warning",
                where,
                f"its clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this machine's",
                "let all machines get their time from one source: delays, resets and retention go by it",
            )
        )
    if info.get("brokerActive") == "false":
        found.append(Diagnosis("warning", where, "says it is not active", "look at its log"))
    aside = _number(info.get("rocketline.setAside"))
    if aside > 0:
        found.append(
            Diagnosis(
                "warning",
                where,
                f"{aside:.0f} messages or other items could not be handled since it started, and were set aside",
                f"its log says which and why; copies are in {ASIDE_TOPIC}, {MAX_CHECKS_TOPIC} and the dead letters",
            )
        )
    behind = _number(info.get("dispatchBehindBytes"))
    if behind > 64 << 20:
        found.append(
            Diagnosis("warning", where, f"{behind:.0f} bytes are stored but not readable yet", "look at its log")
        )
    return found


def _skew_s(info: dict[str, str]) -> float | None:
    """By how many seconds a broker's clock is ahead; None when it does not report enough."""
    words = info.get("runtime", "").strip("[] ").replace(",", "").split()
    started = _number(info.get("bootTimestamp"))
    parts = [number for word in words[0:8:2] if (number := read_number(word)) is not None]
    if len(parts) < 4 or started <= 0:
        return None
    days, hours, minutes, seconds = parts
    running_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return started / 1000 + running_s - time.time()


def _number(text: str | None) -> float:
    try:
        return float(text or "0")
    except ValueError:
        return 0.0


async def _topics(admin: Admin, brokers: list[AdminBroker]) -> AsyncIterator[Diagnosis]:
    """Topics that a broker has but no route leads to."""
    routed = set(await admin.ask_name_server(lambda server: server.topics()))
    for broker, topics in zip(brokers, await admin.gather_or_errors(broker.topics() for broker in brokers)):
        if isinstance(topics, RocketlineError):
            yield Diagnosis("warning", broker.name, f"does not list its topics: {topics}", "look at its log")
            continue
        for name in sorted(set(topics) - routed):
            if not name.startswith((RETRY_PREFIX, DLQ_PREFIX)) and topics[name].perm:
                yield Diagnosis(
                    "warning",
                    f"topic {name}",
                    f"{broker.name} has it, but no name server knows a route: clients cannot find it",
                    "wait half a minute for the next registration, else restart the broker",
                )


async def _subscriptions(admin: Admin, brokers: list[AdminBroker]) -> AsyncIterator[Diagnosis]:
    """Groups whose members have different subscriptions: each then misses messages that another one got."""
    names = sorted({item.group for item in (await all_progress(admin)).some()})
    asked = [(name, broker) for name in names for broker in brokers]
    online = await admin.gather_or_errors(broker.consumers(name) for name, broker in asked)
    members: dict[tuple[str, str], AdminBroker] = {}
    for (name, broker), answer in zip(asked, online):
        if not isinstance(answer, RocketlineError) and len(answer.connection_set) > 1:
            for client in answer.connection_set[:MAX_MEMBERS_ASKED]:
                members.setdefault((name, client.client_id), broker)
    infos = await admin.gather_or_errors(broker.running_info(*member) for member, broker in members.items())
    wanted: dict[str, set[frozenset[tuple[str, str]]]] = {}
    for (name, _), info in zip(members, infos):
        if not isinstance(info, RocketlineError):
            topics = frozenset((data.topic, data.sub_string) for data in info.subscription_set)
            wanted.setdefault(name, set()).add(topics)
    for name, different in wanted.items():
        if len(different) > 1:
            yield _differing_subscriptions(name, different)


def _differing_subscriptions(group: str, wanted: set[frozenset[tuple[str, str]]]) -> Diagnosis:
    differing = sorted(frozenset.union(*wanted) - frozenset.intersection(*wanted))
    shown = ", ".join(f"{topic} ({expression})" for topic, expression in differing)
    return Diagnosis(
        "error",
        f"group {group}",
        f"its members subscribe to different things: only some to {shown}",
        "give consumers with different subscriptions different groups",
    )


async def _lag(admin: Admin, pause_s: float) -> AsyncIterator[Diagnosis]:
    """Groups with a large lag that does not shrink."""
    before = {item.group: item.lag for item in (await all_progress(admin)).some() if item.lag >= MANY_BEHIND}
    if not before:
        return
    await asyncio.sleep(pause_s)
    for item in (await all_progress(admin)).some():
        if item.group in before and item.lag >= before[item.group]:
            grown = item.lag - before[item.group]
            topics = ", ".join(topic for topic in item.topics if item.in_topic(topic).lag)
            trend = f"and the lag grew by {grown} in {pause_s:g} s" if grown else "and the lag does not shrink"
            yield Diagnosis(
                "warning",
                f"group {item.group}",
                f"is {item.lag} messages behind in {topics}, {trend}",
                "are its consumers online (consumerConnection) and quick enough (consumerStatus)?",
            )
