"""Brokers: their state, settings, replication, and the right to write to them."""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, Annotated

import msgspec

from rocketline.admin import AdminBroker
from rocketline.admin.broker_settings import change_setting, settings_of
from rocketline.admin.partial import Missing
from rocketline.console.access import Role
from rocketline.console.endpoints import Change, Input, Name, PartialView, Silent, View, changes, reads
from rocketline.console.problems import Problem
from rocketline.console.views import Item, Result, matches
from rocketline.errors import RocketlineError
from rocketline.protocol.bodies import PERM_WRITE
from rocketline.protocol.numbers import read_number

if TYPE_CHECKING:
    from rocketline.console.desk import BrokerPlace
    from rocketline.console.visit import Visit

_LONG_NUMBER = re.compile(r"^\d+\.\d{4,}$")
FORGET_S = 3600.0
"""A broker that left is shown for so long."""


class BrokerRow(View, kw_only=True):
    cluster: str
    name: str
    id: int
    address: str
    version: str = ""
    in_rate: float | None = None
    out_rate: float | None = None
    stored: int | None = None
    """Messages since its counters began."""
    disk: float | None = None
    oldest_ms: int | None = None
    started_ms: int | None = None
    problem: str = ""
    """Why it gives no numbers."""
    code: int | None = None
    """Its answer when it refuses to give them."""
    is_registered: bool = True


class Brokers(PartialView, kw_only=True):
    items: list[BrokerRow]
    name_servers: list[str]


async def broker_rows(visit: Visit) -> tuple[list[BrokerRow], list[Silent]]:
    """All brokers, one request to each; those that left in the last hour too."""
    info = await visit.admin.cluster_info()
    places = [
        (cluster, name, broker_id, address)
        for cluster, names in sorted(info.cluster_addr_table.items())
        for name in sorted(names)
        if name in info.broker_addr_table
        for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
    ]
    asked = [visit.admin.broker_at(address, name) for _, name, _, address in places]
    answers = await visit.admin.gather_or_errors(broker.runtime_info() for broker in asked)
    rows = [_row(visit, place, answer) for place, answer in zip(places, answers)]
    rows += visit.desk.left_brokers(visit.cluster, places, FORGET_S, _left)
    missing = [
        Silent(broker=row.name, address=row.address, problem=row.problem, code=row.code) for row in rows if row.problem
    ]
    return rows, missing


def _row(visit: Visit, place: BrokerPlace, answer: dict[str, str] | RocketlineError) -> BrokerRow:
    cluster, name, broker_id, address = place
    row = BrokerRow(cluster=cluster, name=name, id=broker_id, address=address)
    if isinstance(answer, RocketlineError):
        missing = Missing.of(name, address, answer)
        row.problem, row.code = missing.problem, missing.code
        return row
    sampler = visit.desk.samplers.get(visit.cluster)
    row.version = answer.get("brokerVersionDesc", "")
    row.in_rate = _rate(answer, "putTps")
    row.out_rate = _rate(answer, "getTransferredTps")
    if sampler is not None and broker_id == 0:
        row.in_rate = _first(sampler.samples.last(f"in.{name}"), row.in_rate)
        row.out_rate = _first(sampler.samples.last(f"out.{name}"), row.out_rate)
    row.stored = read_number(answer.get("msgPutTotalTodayNow", ""))
    row.disk = _decimal(answer.get("commitLogDiskRatio", ""))
    oldest = read_number(answer.get("earliestMessageTimeStamp", ""))
    row.oldest_ms = oldest if oldest and oldest > 0 else None
    row.started_ms = read_number(answer.get("bootTimestamp", ""))
    return row


def _left(place: BrokerPlace) -> BrokerRow:
    cluster, name, broker_id, address = place
    return BrokerRow(
        cluster=cluster, name=name, id=broker_id, address=address, is_registered=False,
        problem="does not answer: it is no longer registered with a name server",
    )  # fmt: skip


def _rate(info: dict[str, str], key: str) -> float | None:
    """The first of the rates that a broker tells; Apache's leaves windows without data blank."""
    return _decimal(info.get(key, "").split(" ")[0])


def _decimal(text: str) -> float | None:
    """
    >>> _decimal("231.15"), _decimal(""), _decimal("NaN")
    (231.15, None, None)
    """
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


@reads("/brokers", Role.VIEWER, "brokers.html", live=True)
async def brokers(visit: Visit, wanted: Input) -> Brokers:
    """All brokers with their load, disk and age."""
    rows, missing = await broker_rows(visit)
    return Brokers(items=rows, name_servers=[server.address for server in visit.admin.name_servers], partial=missing)


class BrokerInput(Input, kw_only=True):
    broker: Name
    id: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = 0
    tab: Annotated[str, msgspec.Meta(max_length=32)] = "status"
    q: Annotated[str, msgspec.Meta(max_length=255)] = ""
    changed: bool = False
    """Only settings that differ from their default."""


class SettingRow(View, kw_only=True):
    name: str
    value: str
    default: str | None
    changed: bool | None
    changeable: bool
    secret: bool


class ReplicaRow(View, kw_only=True):
    address: str
    in_sync: bool
    behind_bytes: int


class WaitingTimers(View, kw_only=True):
    topic: str
    waiting: int


class Timers(View, kw_only=True):
    """The timer messages of one broker."""

    waiting: list[WaitingTimers]
    delivered_ms: int | None
    """Messages that were due before this time are delivered."""
    taken_in: int
    """Messages of the timer's queue before this offset were taken in."""


class BrokerHealth(View, kw_only=True):
    """What tells at a glance how a broker is. None: it does not say."""

    log_begin: int | None
    """Log offsets of the oldest record, and after the newest."""
    log_end: int | None
    unflushed: str
    """How much is not on the disk yet, in the broker's words."""
    undispatched_bytes: int | None
    """How much cannot be read yet."""
    average_bytes: float | None
    """Of a message."""


class BrokerView(View, kw_only=True):
    name: str
    id: int
    address: str
    addresses: dict[int, str]
    tab: str
    numbers: BrokerRow | None = None
    health: BrokerHealth | None = None
    status: dict[str, str] = {}
    """All that it says of itself."""
    settings: list[SettingRow] = []
    hidden_settings: int = 0
    replicas: list[ReplicaRow] = []
    replication_problem: str = ""
    timers: Timers | None = None
    timers_problem: str = ""
    writable: bool | None = None


async def broker_of(visit: Visit, name: str, broker_id: int = 0) -> AdminBroker:
    """A broker that a name server knows: no address ever comes from a browser."""
    group = (await visit.admin.cluster_info()).broker_addr_table.get(name)
    if group is None or broker_id not in group.broker_addrs:
        raise Problem(404, "no_broker", name)
    return visit.admin.broker_at(group.broker_addrs[broker_id], name)


@reads("/brokers/{broker}", Role.VIEWER, "broker.html", live=True)
async def broker(visit: Visit, wanted: BrokerInput) -> BrokerView:
    """One broker: state, settings, timers, replication."""
    one = await broker_of(visit, wanted.broker, wanted.id)
    group = (await visit.admin.cluster_info()).broker_addr_table[wanted.broker]
    view = BrokerView(
        name=wanted.broker,
        id=wanted.id,
        address=one.address,
        addresses=dict(sorted(group.broker_addrs.items())),
        tab=wanted.tab,
    )
    if wanted.tab == "settings":
        found = await settings_of(one)
        view.settings = [
            SettingRow(
                name=item.name, value=item.value, default=item.default, changed=item.changed,
                changeable=item.changeable, secret=item.secret,
            )
            for item in found
            if matches(item.name, wanted.q) and (item.changed or not wanted.changed)
        ]  # fmt: skip
        view.hidden_settings = len(found) - len(view.settings)
    elif wanted.tab == "replication":
        await _fill_replication(view, one)
    elif wanted.tab == "timers":
        await _fill_timers(view, one)
    else:
        await _fill_status(visit, view, (group.cluster, view.name, view.id, one.address), wanted.q)
    if not visit.is_refresh:
        view.writable = await _is_writable(visit, wanted.broker)
    return view


async def _fill_status(visit: Visit, view: BrokerView, place: BrokerPlace, q: str) -> None:
    info = await visit.admin.broker_at(view.address, view.name).runtime_info()
    view.numbers = _row(visit, place, info)
    view.health = BrokerHealth(
        log_begin=read_number(info.get("commitLogMinOffset", "")),
        log_end=read_number(info.get("commitLogMaxOffset", "")),
        unflushed=info.get("remainHowManyDataToFlush", ""),
        undispatched_bytes=read_number(info.get("dispatchBehindBytes", "")),
        average_bytes=_decimal(info.get("putMessageAverageSize", "")),
    )
    view.status = {name: _rounded(value) for name, value in sorted(info.items()) if matches(name, q)}


async def _fill_replication(view: BrokerView, one: AdminBroker) -> None:
    try:
        status = await one.replication()
    except RocketlineError as error:
        view.replication_problem = Missing.of(view.name, view.address, error).problem
        return
    view.replicas = [
        ReplicaRow(address=item.addr, in_sync=item.in_sync, behind_bytes=item.diff)
        for item in status.ha_connection_info
    ]


async def _fill_timers(view: BrokerView, one: AdminBroker) -> None:
    try:
        counts, mark = await one.timer_counts(), await one.timer_check_point()
    except RocketlineError as error:
        view.timers_problem = Missing.of(view.name, view.address, error).problem
        return
    rows = [WaitingTimers(topic=topic, waiting=count) for topic, count in sorted(counts.items()) if count > 0]
    view.timers = Timers(
        waiting=sorted(rows, key=lambda row: -row.waiting),
        delivered_ms=mark.read_ms if mark.read_ms > 0 else None,
        taken_in=mark.queue_offset,
    )


async def _is_writable(visit: Visit, name: str) -> bool | None:
    """Whether name servers tell clients that they may write to a broker: by one of its topics."""
    try:
        route = await visit.admin.route(name)  # each broker has a topic with its name
    except RocketlineError:
        return None
    queues = [item for item in route.queue_datas if item.broker_name == name]
    return bool(queues[0].perm & PERM_WRITE) if queues else None


def _rounded(text: str) -> str:
    """
    >>> _rounded("231.15380800411117 0.0 ")
    '231.154 0.0'
    """
    return " ".join(_LONG_NUMBER.sub(lambda found: f"{float(found[0]):.3f}", word) for word in text.split())


class SettingChange(Change, kw_only=True):
    broker: Name
    id: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = 0
    name: Name
    value: Annotated[str, msgspec.Meta(max_length=2000)] = ""


class SettingInput(Input, kw_only=True):
    broker: Name
    id: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = 0
    name: Name
    value: Annotated[str, msgspec.Meta(max_length=2000)] = ""


class SettingPreview(View, kw_only=True):
    broker: str
    id: int
    setting: SettingRow
    after: str


@reads("/brokers/{broker}/settings", Role.ADMIN, "setting.html")
async def setting(visit: Visit, wanted: SettingInput) -> SettingPreview:
    """One setting, and what a change would make of it."""
    one = await broker_of(visit, wanted.broker, wanted.id)
    found = next((item for item in await settings_of(one) if item.name == wanted.name), None)
    if found is None or not found.changeable:
        raise Problem(422, "not_changeable", wanted.name)
    row = SettingRow(
        name=found.name,
        value=found.value,
        default=found.default,
        changed=found.changed,
        changeable=True,
        secret=found.secret,
    )
    return SettingPreview(broker=wanted.broker, id=wanted.id, setting=row, after=wanted.value)


@changes("POST", "/brokers/{broker}/settings", Role.ADMIN, "/brokers/{broker}/settings")
async def change_broker_setting(visit: Visit, wanted: SettingChange) -> Result:
    """Change a setting of a running broker; only settings that are safe to change can be."""
    one = await broker_of(visit, wanted.broker, wanted.id)
    before, after = await change_setting(one, wanted.name, wanted.value)
    where = f"{wanted.broker} {wanted.name}: {before} → {after}"
    back = f"/brokers/{wanted.broker}?tab=settings&q={wanted.name}"
    return Result(title="setting_changed", about=wanted.name, items=[Item(where=where, ok=True)], back=back)


class WriteChange(Change, kw_only=True):
    broker: Name
    allowed: bool


class WriteInput(Input, kw_only=True):
    broker: Name


class WritePreview(View, kw_only=True):
    broker: str
    writable: bool | None


@reads("/brokers/{broker}/writing", Role.ADMIN, "writing.html")
async def writing(visit: Visit, wanted: WriteInput) -> WritePreview:
    """Whether clients may write to a broker."""
    await broker_of(visit, wanted.broker)
    return WritePreview(broker=wanted.broker, writable=await _is_writable(visit, wanted.broker))


@changes("POST", "/brokers/{broker}/writing", Role.ADMIN, "/brokers/{broker}/writing")
async def change_writing(visit: Visit, wanted: WriteChange) -> Result:
    """Tell name servers that clients may, or may not, write to a broker."""
    await broker_of(visit, wanted.broker)
    visit.confirm(wanted.confirm, wanted.broker)
    items = []
    for server in visit.admin.name_servers:
        try:
            count = await (server.add_write_permission if wanted.allowed else server.wipe_write_permission)(
                wanted.broker
            )
            items.append(Item(where=f"{server.address}: {count}", ok=True))
        except RocketlineError as error:
            items.append(Item(where=server.address, ok=False, problem=str(error)))
    visit.changed()
    return Result(title="writing_changed", about=wanted.broker, items=items, back=f"/brokers/{wanted.broker}")


class NameServerRow(View, kw_only=True):
    address: str
    brokers: int | None
    """How many it knows; None: it does not answer."""
    problem: str = ""


class NameServers(PartialView, kw_only=True):
    items: list[NameServerRow]


@reads("/nameservers", Role.VIEWER)
async def name_servers(visit: Visit, wanted: Input) -> NameServers:
    """The name servers, and how many brokers each of them knows."""
    servers = visit.admin.name_servers
    answers = await visit.admin.gather_or_errors(server.cluster_info() for server in servers)
    rows = [
        NameServerRow(address=server.address, brokers=None, problem=str(answer))
        if isinstance(answer, RocketlineError)
        else NameServerRow(address=server.address, brokers=len(answer.broker_addr_table))
        for server, answer in zip(servers, answers)
    ]
    return NameServers(items=rows, complete=not any(row.problem for row in rows))
