"""Finds out why a command failed, where the error alone does not tell: a few questions to the servers, asked only then.

A name server and a broker speak the same protocol and refuse each other's requests with the same code, and a topic without
a route may mean that no broker is there at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, TypeVar

from rocketline.cli.access import NAMESRV_VARIABLE, ClusterAccess
from rocketline.errors import ClientError, RequestNotSupported, RocketlineError, RouteNotFound, TransportError

if TYPE_CHECKING:
    from rocketline.admin import Admin

T = TypeVar("T")
ASK_S = 3.0


async def diagnosed(cluster: ClusterAccess, work: Awaitable[T], broker: str | None = None) -> T:
    """The result of the work; when it fails, a better error if one is found. `broker` is an address that the user gave."""
    try:
        return await work
    except Exception as error:
        better = await _better(cluster, _first(error), broker)
        if better is None:
            raise
        raise ClientError(better) from error


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


async def _better(cluster: ClusterAccess, error: Exception, broker: str | None) -> str | None:
    if not isinstance(error, RocketlineError):
        return None
    from rocketline.admin import Admin

    refusal = next((cause for cause in _causes(error) if isinstance(cause, RequestNotSupported)), None)
    is_unreachable = isinstance(error, (ClientError, TransportError)) and isinstance(error.__cause__, TransportError)
    if not (refusal or isinstance(error, RouteNotFound) or (cluster.is_default and is_unreachable)):
        return None
    if cluster.is_default and is_unreachable:
        return (
            f"no name server answers at {cluster.namesrv}, the default: give --namesrv HOST:PORT, set {NAMESRV_VARIABLE}, "
            "add a context (`rocketline context add NAME --namesrv HOST:PORT`), or start a cluster (`rocketline up`)"
        )
    async with Admin(cluster.namesrv, timeout=ASK_S, **cluster.access) as admin:
        if refusal is not None:
            return await _wrong_port(admin, refusal.address, broker)
        return await no_broker(admin)


async def _wrong_port(admin: Admin, address: str, broker: str | None) -> str | None:
    """Whether the server that refused a request is one of the other kind."""
    if address == broker:
        if await _answers(admin.name_server_at(address).cluster_info()):
            return (
                f"{address} is the port of a name server, not of a broker: `rocketline admin clusterList` shows brokers"
            )
    elif await _answers(admin.broker_at(address).runtime_info()) and address in admin.namesrv.split(";"):
        return f"{address} is the port of a broker, not of a name server: give the name server's, usually 9876"
    return None


async def _answers(question: Awaitable[object]) -> bool:
    try:
        await question
    except RocketlineError:
        return False
    return True


async def no_broker(admin: Admin) -> str | None:
    """The text for a cluster without brokers; None when there are some, or nobody tells."""
    try:
        has_brokers = (await admin.cluster_info()).broker_addr_table
    except RocketlineError:
        return None
    return None if has_brokers else admin.no_broker_text
