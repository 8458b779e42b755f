"""What all producers and consumers with one client id share: connections, routes, heartbeats and timers.

A session lives on one event loop and is counted: the first client that opens it starts it, the last one that leaves
ends it. It keeps these rules:

* Every known route is fetched anew every 30 s, and at once when a broker of it cannot be reached.
* A heartbeat goes to all brokers every 30 s, and at once to a broker that a route newly names: a broker refuses pulls
  of a group it has not heard of. Two heartbeats never run at the same time.
* Brokers that no route names any more are forgotten and their connections closed.
* A heartbeat that a broker refuses because of the account, or of its rights, is no failure of the moment: a client that
  starts raises it, and one that runs logs it as an error.
* Offsets are committed every 5 s.
* No failure inside a timer ends the timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from rocketline.client.address_server import REFRESH_S as ADDRESS_REFRESH_S
from rocketline.client.connection_events import ConnectionEvents
from rocketline.client.incoming import CheckBack, ConsumerMember, broker_requests
from rocketline.client.middleware import MiddlewareClient
from rocketline.client.options import ClientOptions
from rocketline.client.pending import PendingRequests
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.remote_nameserver import RemoteNameServer
from rocketline.client.route_cache import RouteCache
from rocketline.client.routes import TopicRoute
from rocketline.client.tasks import OwnedTasks, repeat
from rocketline.errors import ClientError, ConfigError, NoPermission, RocketlineError, RouteNotFound
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import MASTER_ID, HeartbeatData, ProducerData
from rocketline.protocol.message_ids import UniqueIds
from rocketline.system.forks import in_forked_child
from rocketline.transport import Channel, RemotingClient

log = logging.getLogger(__name__)


class ClientSession:
    """Shared by the clients of one id; made by `open_session`, left by `release`."""

    def __init__(self, client_id: str, name_servers: Sequence[str], options: ClientOptions) -> None:
        self.client_id = client_id
        self.middleware = middleware = options.middleware
        self.access = access = options.access
        self.timing = timing = options.timing
        self.clock = clock = options.clock
        self.unique_ids = UniqueIds(client_id.partition("@")[0], clock)
        self.producers: list[str] = []
        """Groups of the producers that are open."""
        self.consumers: dict[str, ConsumerMember] = {}
        self.broker_versions: dict[str, int] = {}
        self.checks: dict[str, CheckBack] = {}
        """By producer group: the function that answers about its transactions."""
        self.requests = PendingRequests()
        router = broker_requests(self.consumers, self.checks, self.requests, clock)
        self.remoting = (
            RemotingClient(router, access=access)
            if middleware is None
            else MiddlewareClient(router, middleware, access)
        )
        self.on_connection = options.on_connection
        self._events = ConnectionEvents(options.on_connection) if options.on_connection is not None else None
        if self._events is not None:
            self.remoting.on_connection = self._events.note
        self.name_server = RemoteNameServer(
            self.remoting, name_servers, timeout_s=timing.call_s, next_server_s=timing.next_server_s
        )
        self.routes = RouteCache(self.name_server, self._route_changed, self._introduce_new)
        self._brokers: dict[str, RemoteBroker] = {}
        self._silent: set[str] = set()
        self.refusals: dict[str, NoPermission] = {}
        """By address: why a broker refuses the heartbeats of this client."""
        self._conflicts: dict[str, str | None] = {}
        self._lost: set[str] = set()
        self._introduced: dict[str, Channel | None] = {}
        self._heartbeat_lock = asyncio.Lock()
        self._introducing_lock = asyncio.Lock()
        self._tasks = OwnedTasks()
        self._users = 0
        self.is_inherited = False
        """Whether it was opened before this process was forked: then it cannot be used here."""

    def _start(self) -> None:
        timing = self.timing
        self._tasks.start(repeat(timing.route_refresh_s, self._refresh_routes, "route refresh"), "routes")
        self._tasks.start(repeat(timing.heartbeat_s, self._tick, "heartbeat"), "heartbeats")
        self._tasks.start(repeat(timing.persist_s, self._persist_offsets, "offset commit"), "offsets")
        if self.name_server.asks_for_addresses:
            asking = repeat(ADDRESS_REFRESH_S, self.name_server.refresh_addresses, "question to the address server")
            self._tasks.start(asking, "addresses")

    async def release(self) -> None:
        """Leave the session; the last client to leave closes everything."""
        if self.is_inherited:
            return
        self._users -= 1
        if self._users:
            return
        sessions = _sessions.get(asyncio.get_running_loop(), {})
        if sessions.get(self.client_id) is self:
            del sessions[self.client_id]
        try:
            await self._tasks.cancel()
            await self.routes.close()
        finally:  # a release that is cancelled still closes the connections
            await self.remoting.close()
            if self._events is not None:
                await self._events.close()

    def disown(self) -> None:
        """In a forked child: drop the parent's connections without writing to them."""
        self.is_inherited = True
        self.remoting.disown()

    def add_producer(self, group: str) -> None:
        if group in self.producers:
            raise ClientError(self._taken("producer", group))
        self.producers.append(group)
        self._tasks.start(self.heartbeat(), "first heartbeat")

    async def remove_producer(self, group: str) -> None:
        if group in self.producers:
            self.producers.remove(group)
            await self._unregister(producer_group=group)

    def add_consumer(self, consumer: ConsumerMember) -> None:
        """Add a consumer to the timers and to the next heartbeats."""
        if consumer.group in self.consumers:
            raise ClientError(self._taken("consumer", consumer.group))
        self.consumers[consumer.group] = consumer

    async def remove_consumer(self, consumer: ConsumerMember) -> None:
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]
            await self._unregister(consumer_group=consumer.group)

    def _taken(self, kind: str, group: str) -> str:
        return (
            f"a {kind} of group {group!r} already runs with client id {self.client_id}: "
            "use another group, or give each its own instance_name"
        )

    def broker_at(self, address: str, name: str = "") -> RemoteBroker:
        broker = self._brokers.get(address)
        if broker is None or broker.name != name:
            broker = self._brokers[address] = RemoteBroker(self.remoting, address, name, self.timing.call_s)
        return broker

    def master_of(self, broker_name: str) -> RemoteBroker | None:
        address = self.routes.ids_of(broker_name).get(MASTER_ID)
        if address is None:
            return None
        broker = self._brokers.get(address)  # as `broker_at`, for every message sent
        return broker if broker is not None and broker.name == broker_name else self.broker_at(address, broker_name)

    def reader_of(self, broker_name: str, broker_id: int) -> tuple[RemoteBroker, int] | None:
        """The broker to read from and its id: the one asked for, else the master, else any of that name."""
        ids = self.routes.ids_of(broker_name)
        if not ids:
            return None
        chosen = broker_id if broker_id in ids else min(ids)
        return self.broker_at(ids[chosen], broker_name), chosen

    async def find_reader(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> tuple[RemoteBroker, int]:
        """Like `reader_of`; the route is asked for again when it does not know the broker."""
        found = self.reader_of(queue.broker_name, broker_id)
        if found is None:
            await self.routes.refresh(queue.topic)
            found = self.reader_of(queue.broker_name, broker_id)
        if found is None:
            raise RouteNotFound(f"the route of topic {queue.topic!r} names no broker {queue.broker_name!r}")
        return found

    async def broker_of(self, queue: MessageQueue) -> RemoteBroker:
        """The broker that keeps a queue's offsets: the master, or in its absence any of that name."""
        broker, _ = await self.find_reader(queue)
        return broker

    async def heartbeat(self, address: str | None = None) -> None:
        """Send the groups of this client to one broker, or to all. Failures are logged; the next heartbeat repeats it."""
        async with self._heartbeat_lock:
            data = HeartbeatData(
                self.client_id,
                [ProducerData(group) for group in self.producers],
                [consumer.consumer_data() for consumer in self.consumers.values()],
            )
            if not data.producer_data_set and not data.consumer_data_set:
                return
            # Slaves matter only to consumers.
            targets = {address} if address is not None else self.routes.addresses(slaves=bool(self.consumers))
            await asyncio.gather(*(self._beat(target, data) for target in targets))

    async def join(self) -> None:
        """Send a first heartbeat to all brokers; NoPermission when one refuses it."""
        await self.heartbeat()
        if self.refusals:
            raise next(iter(self.refusals.values()))

    async def check_account(self, group: str) -> None:
        """Whether name server and a broker take the credentials of a producer; NoPermission when one does not.

        Without this, a wrong secret would be noticed by the first send only. Servers that do not answer say nothing about
        the account: the client starts without them, as it does without credentials.
        """
        if self.access.credentials is None:
            return
        try:
            info = await self.name_server.cluster_info()
        except NoPermission:
            raise
        except RocketlineError as error:
            log.debug("the credentials were not checked: %s", error)
            return
        masters = [
            item.broker_addrs[MASTER_ID] for item in info.broker_addr_table.values() if MASTER_ID in item.broker_addrs
        ]
        if masters:
            await self._beat(masters[0], HeartbeatData(self.client_id, [ProducerData(group)], []))
            if masters[0] in self.refusals:
                raise self.refusals[masters[0]]

    async def _beat(self, address: str, data: HeartbeatData) -> None:
        try:
            broker = self.broker_at(address, self.routes.name_at(address))
            self.broker_versions[address], conflict = await broker.heartbeat(data)
        except RocketlineError as error:
            level = logging.ERROR if isinstance(error, NoPermission) else logging.WARNING
            log.log(logging.DEBUG if address in self._silent else level, "heartbeat to %s failed: %s", address, error)
            self._silent.add(address)
            if isinstance(error, NoPermission):
                self.refusals[address] = error
        else:
            self._silent.discard(address)
            self.refusals.pop(address, None)
            self._introduced[address] = self.remoting.connected(address)
            if conflict is not None and conflict not in self._conflicts.values():
                log.warning("%s (says the broker at %s)", conflict, address)
            self._conflicts[address] = conflict

    def connection_failed(self, address: str, topic: str) -> None:
        """Note that a broker could not be reached for a topic: it forgets its clients with their connection, and may come
        back at another address."""
        self._lost.add(address)
        self.routes.doubt(topic)

    async def reintroduce(self, address: str) -> None:
        """Send a heartbeat to a broker that may have forgotten this client; does nothing otherwise."""
        if address not in self._lost:
            return
        async with self._introducing_lock:
            if address in self._lost:
                await self.heartbeat(address)
                self._lost.discard(address)

    async def introduce(self, addresses: Iterable[str]) -> None:
        """Send a heartbeat to brokers that do not know the present connection of this client yet."""
        for address in addresses:
            channel = self.remoting.connected(address)
            if channel is None or channel is not self._introduced.get(address):
                await self.heartbeat(address)

    def _introduce_new(self, address: str) -> None:
        self._tasks.start(self.heartbeat(address), f"heartbeat to {address}")

    def _route_changed(self, route: TopicRoute) -> None:
        for consumer in self.consumers.values():
            consumer.route_changed(route.topic)

    async def _refresh_routes(self) -> None:
        await self.routes.refresh_all(topic for consumer in self.consumers.values() for topic in consumer.topics)

    async def _tick(self) -> None:
        for address in self.routes.forget_offline():
            log.info("the broker at %s is in no route any more", address)
            self._brokers.pop(address, None)
            self.broker_versions.pop(address, None)
            self._conflicts.pop(address, None)
            self._introduced.pop(address, None)
            self._silent.discard(address)
            self.refusals.pop(address, None)
            self._lost.discard(address)
            self.remoting.drop(address)
        await self.heartbeat()

    async def _persist_offsets(self) -> None:
        for consumer in list(self.consumers.values()):
            try:
                await consumer.persist_offsets()
            except (RocketlineError, OSError) as error:
                log.warning("offsets of group %s were not committed: %s", consumer.group, error)

    async def _unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Unregister from brokers with an open connection; the others have noticed that it is closed."""
        connected = [address for address in self.routes.addresses() if self.remoting.connected(address) is not None]
        requests = (
            self.broker_at(address, self.routes.name_at(address)).unregister(
                self.client_id,
                producer_group=producer_group,
                consumer_group=consumer_group,
                timeout_s=self.timing.unregister_s,
            )
            for address in connected
        )
        for address, result in zip(connected, await asyncio.gather(*requests, return_exceptions=True)):
            if isinstance(result, Exception):
                log.debug("unregistering from %s failed: %s", address, result)


_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, ClientSession]] = WeakKeyDictionary()


def open_session(
    client_id: str, name_servers: Sequence[str], options: ClientOptions = ClientOptions()
) -> ClientSession:
    """The session of a client id on this event loop; every call needs its `release`."""
    sessions = _sessions.setdefault(asyncio.get_running_loop(), {})
    session = sessions.get(client_id)
    if session is None:
        session = ClientSession(client_id, name_servers, options)
        sessions[client_id] = session
        session._start()
    elif set(session.name_server.given) != set(name_servers):
        raise ConfigError(
            f"client id {client_id} is in use for name servers {';'.join(session.name_server.given)} and cannot "
            f"serve {';'.join(name_servers)} too: give each client its own instance_name"
        )
    elif session.middleware is not options.middleware:
        raise ConfigError(
            f"client id {client_id} is in use with middleware {session.middleware!r} and cannot have {options.middleware!r} "
            "too: its clients share their connections; give each its own instance_name"
        )
    elif session.on_connection != options.on_connection:
        raise ConfigError(
            f"client id {client_id} is in use with on_connection {session.on_connection!r} and cannot have "
            f"{options.on_connection!r} too: its clients share their connections; give each its own instance_name"
        )
    elif session.access != options.access:
        raise ConfigError(
            f"client id {client_id} is in use with other credentials or another TLS: its clients share their connections; "
            "give each its own instance_name"
        )
    session._users += 1
    return session


def opened_before_fork(client: str) -> str:
    """The error text for a client that was opened before a fork."""
    return f"{client} was opened before this process was forked, its connections are the parent's: open a new one here"


def forget_session(loop: asyncio.AbstractEventLoop, client_id: str) -> None:
    """For simulations: a process died and the loop goes on; the next one starts with a new session."""
    _sessions.get(loop, {}).pop(client_id, None)


def _disown_sessions() -> None:
    for sessions in list(_sessions.values()):
        for session in sessions.values():
            session.disown()
    _sessions.clear()


in_forked_child(_disown_sessions)
