"""What `doctor` finds out about access: who gets in without an account, without TLS, or with a password everybody knows.

It only asks: requests without a signature, and signatures with accounts from examples. Servers that only this machine
reaches may be open.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from rocketline.admin.cluster import Admin
from rocketline.admin.diagnosis import Diagnosis
from rocketline.admin.remote import AdminBroker
from rocketline.errors import NoPermission, RocketlineError
from rocketline.protocol.signing import Credentials
from rocketline.system.files import others_may_use
from rocketline.system.sockets import is_loopback
from rocketline.transport.client import split_address
from rocketline.transport.server import TLS_REQUIRED

EXAMPLES = (("rocketmq2", "12345678"), ("RocketMQ", "12345678"), ("admin", "admin"))
"""Accounts of RocketMQ's sample files and of many tutorials."""
Settings = Mapping[str, str]
GRPC = "grpcServerPort"
USERS_FILE = Path("config", "users.json")


async def access_problems(admin: Admin, brokers: list[AdminBroker]) -> AsyncIterator[Diagnosis]:
    """All that is open to people who should not get in."""
    async with admin.signed_by(None) as nobody:
        asks = {broker.address: not await _answers(_runtime(broker.address, nobody)) for broker in brokers}
        for broker in brokers:
            where = f"{broker.name} {broker.address}"
            settings = await _settings(broker)
            if asks[broker.address]:
                async for finding in _known_passwords(admin, broker, where):
                    yield finding
                if _is_public(broker.address) and await _takes_plain(admin, partial(_runtime, broker.address)):
                    yield _without_tls(
                        where, "requests" if settings.get(GRPC, "-1") == "-1" else "requests and gRPC calls"
                    )
            elif _is_public(broker.address):
                yield _open_broker(settings, where)
            for finding in _readable_passwords(settings, where):
                yield finding
            for finding in _open_ports(settings, where, asks=asks[broker.address]):
                yield finding
        async for finding in _name_servers(admin, nobody, brokers_ask=any(asks.values())):
            yield finding


async def _answers(asked: Awaitable[object]) -> bool:
    try:
        await asked
    except RocketlineError:
        return False
    return True


Ask = Callable[[Admin], Awaitable[object]]
"""A question to a server."""


async def _runtime(address: str, admin: Admin) -> None:
    await admin.broker_at(address).runtime_info()


async def _routes(address: str, admin: Admin) -> None:
    """What a name server tells every account."""
    for server in admin.name_servers:
        if server.address == address:
            await server.cluster_info()


async def _takes_plain(admin: Admin, ask: Ask) -> bool:
    """Whether a server that has TLS, or has none, serves connections without."""
    if admin.client_options.tls is False:
        return True
    async with Admin(admin.namesrv, timeout=admin.timeout_s) as plain:
        try:
            await ask(plain)
        except NoPermission as error:
            return TLS_REQUIRED not in str(error)
        except RocketlineError:
            return False
        return True


def _is_public(address: str) -> bool:
    return not is_loopback(split_address(address)[0])


def _without_tls(where: str, what: str) -> Diagnosis:
    return Diagnosis(
        "warning",
        where,
        f"takes {what} without TLS: whoever listens on the way reads them and can send them again",
        "give it certificates (tls.server.certPath) and set tls.server.mode=enforcing",
    )


def _open_broker(settings: Settings, where: str) -> Diagnosis:
    is_wanted = settings.get("rocketline.insecure") == "true"
    return Diagnosis(
        "warning" if is_wanted else "error",
        where,
        f"asks for no accounts{', as rocketline.insecure=true wants it' if is_wanted else ''}: whoever reaches its port "
        "may read and write all messages",
        "set authenticationEnabled=true and initAuthenticationUser, or let it listen on 127.0.0.1 only",
    )


def _open_ports(settings: Settings, where: str, *, asks: bool) -> Iterator[Diagnosis]:
    """The ports besides that of clients, by the broker's settings."""
    ha_host = settings.get("rocketline.haBindAddress") or settings.get("bindAddress")
    strangers = settings.get("rocketline.haStrangers")
    # Without accounts the broker as a whole is open, which was told.
    if ha_host and not is_loopback(ha_host) and strangers == "serve" and asks:
        yield Diagnosis(
            "warning",
            where,
            f"gives its whole log to whoever reaches its HA port at {ha_host}, though it asks for accounts",
            "set rocketline.haStrangers=auto, or keep all but Apache's slaves away from that port",
        )
    page = settings.get("metricsPromExporterHost")
    client_auth = settings.get("tls.server.need.client.auth")
    if page and not is_loopback(page) and client_auth != "require":
        yield Diagnosis(
            "warning",
            where,
            f"shows its metrics, with the names of topics and groups, to whoever reaches {page}",
            "set metricsPromExporterHost=127.0.0.1, or tls.server.need.client.auth=require",
        )


async def _settings(broker: AdminBroker) -> Settings:
    """Nothing, if it does not tell."""
    try:
        return await broker.config()
    except RocketlineError:
        return {}


async def _known_passwords(admin: Admin, broker: AdminBroker, where: str) -> AsyncIterator[Diagnosis]:
    for name, password in EXAMPLES:
        async with admin.signed_by(Credentials(name, password)) as somebody:
            if await _answers(_runtime(broker.address, somebody)):
                yield Diagnosis(
                    "error",
                    where,
                    f"the account {name} has the password of an example that everybody knows",
                    f"change it: rocketline admin updateUser -b {broker.address} -u {name} -p -",
                )


async def _name_servers(admin: Admin, nobody: Admin, *, brokers_ask: bool) -> AsyncIterator[Diagnosis]:
    for address in (server.address for server in nobody.name_servers):
        if not _is_public(address):
            continue
        ask = partial(_routes, address)
        if await _answers(ask(nobody)):
            yield Diagnosis(
                "warning",
                address,
                f"asks for no accounts{', though brokers do' if brokers_ask else ''}: whoever reaches this name server may "
                "register and remove brokers",
                "set authenticationEnabled=true there too, or keep strangers away from its port; Apache's cannot ask",
            )
        elif await _takes_plain(admin, ask):
            yield _without_tls(address, "requests")


def _readable_passwords(settings: Settings, where: str) -> Iterator[Diagnosis]:
    """Of a broker whose folder is on this machine."""
    if not (root := settings.get("storePathRootDir")):
        return
    folder, users = Path(root), Path(root) / USERS_FILE
    if others_may_use(users):
        yield Diagnosis(
            "error", where, f"other users of this machine can read {users}, with all passwords", f"chmod 600 {users}"
        )
    if users.exists() and others_may_use(folder):
        yield Diagnosis(
            "warning", where, f"other users of this machine can read the messages in {folder}", f"chmod 700 {folder}"
        )
