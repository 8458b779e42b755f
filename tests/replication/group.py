"""A group of our brokers as processes, with etcd and a name server, and a link that can fail between any two of them.

Member k listens on 127.0.1.k and is known to others as 127.0.2.k, where the proxies are.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Self

from tests.crash.child import BrokerChild
from tests.crash.plan import Troubles, plan_for
from tests.crash.servers import ServerChild
from tests.crash.shadow_disk import cut
from tests.replication.links import Link
from tests.support.etcd import EtcdServers, free_ports
from tests.support.patience import PATIENCE_S

from rocketline.coordination import GroupRecord, View
from rocketline.coordination.config import CoordinationConfig
from rocketline.coordination.etcd import EtcdCoordinator
from rocketline.errors import CoordinationFailed, RocketlineError
from rocketline.protocol.bodies import TopicRouteData, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetRouteHeader
from rocketline.transport import RemotingClient

CLUSTER, GROUP = "DefaultCluster", "broker-a"
LEASE_MS = 2_000
POLL_S = 0.05


class Peer:
    """One member: its process, and the links to it and from it."""

    def __init__(self, number: int, folder: Path, ports: tuple[int, int]) -> None:
        self.number = number
        self.folder = folder
        self.own_host, self.known_host = f"127.0.1.{number}", f"127.0.2.{number}"
        self.port, self.ha_port = ports
        self.clients = Link((self.own_host, self.port), (self.known_host, self.port))
        self.followers = Link((self.own_host, self.ha_port), (self.known_host, self.ha_port))
        self.to_etcd: list[Link] = []
        self.faults: tuple[str, ...] = ()
        self.troubles = Troubles()
        self.settings: dict[str, str] = {}
        self.may_lose_power = False
        self._child: BrokerChild | None = None

    @property
    def address(self) -> str:
        """For clients."""
        return f"{self.known_host}:{self.port}"

    @property
    def _shadow(self) -> str:
        return f"{self.folder}.shadow" if self.may_lose_power else ""

    @property
    def child(self) -> BrokerChild:
        assert self._child is not None, f"member {self.number} does not run"
        return self._child

    @property
    def is_running(self) -> bool:
        return self._child is not None

    async def start(self) -> None:
        plan = plan_for(self.folder, self.settings, shadow=self._shadow, faults=self.faults, troubles=self.troubles)
        child = BrokerChild(plan)
        self._child = child
        await child.start()

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def lose_power(self, seed: int) -> None:
        """Die, and find on the disk what was flushed, and a random part of what was not."""
        self.kill()
        cut(self.folder, Path(self._shadow), seed)
        # The machine of the tests goes on, and with it its boot.
        identity = self.folder / "rocketline.member"
        if identity.exists():
            identity.write_text(json.dumps(json.loads(identity.read_text()) | {"boot_id": "before the power cut"}))

    async def stop(self) -> None:
        child, self._child = self.child, None
        await child.stop()

    def pause(self) -> None:
        os.kill(self.child._pid, signal.SIGSTOP)

    def resume(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.child._pid, signal.SIGCONT)


class ReplicatedGroup:
    """An async context manager."""

    def __init__(
        self,
        folder: Path,
        size: int = 2,
        settings: Mapping[str, str] | None = None,
        *,
        etcd_count: int = 1,
        faults: tuple[str, ...] = (),
        troubles: Troubles = Troubles(),
        may_lose_power: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(2 * size)
        self.peers = [
            Peer(number, folder / f"m{number}", (ports[2 * number - 2], ports[2 * number - 1]))
            for number in range(1, size + 1)
        ]
        for peer in self.peers:
            peer.faults, peer.troubles, peer.may_lose_power = faults, troubles, may_lose_power
        self.etcd = EtcdServers(folder / "etcd", etcd_count)
        self._settings = {"rocketline.leaseMs": str(LEASE_MS), **(settings or {})}
        self._name_server = ServerChild(folder / "n.log", "nameserver")
        self._undo = AsyncExitStack()

    @property
    def is_flushed_at_once(self) -> bool:
        """Whether answers wait for the disk."""
        return self._settings.get("flushDiskType") != "ASYNC_FLUSH"

    @property
    def lease_s(self) -> float:
        return int(self._settings["rocketline.leaseMs"]) / 1000

    @property
    def addresses(self) -> list[str]:
        return [peer.address for peer in self.peers]

    @property
    def name_server_address(self) -> str:
        return self._name_server.address

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            self._start_etcd(undo)
            self._remoting = RemotingClient()
            undo.push_async_callback(self._remoting.close)
            undo.push_async_callback(self._name_server.kill)
            await self._name_server.start()
            for peer in self.peers:
                await self._connect(peer, undo)
                undo.callback(peer.kill)
            await self._start_all()
            self._undo = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._undo.aclose()

    async def _start_all(self) -> None:
        await asyncio.gather(*(peer.start() for peer in self.peers))

    def _start_etcd(self, undo: AsyncExitStack) -> None:
        self.etcd.__enter__()
        undo.callback(self.etcd.__exit__)
        self.observer = EtcdCoordinator(CoordinationConfig(self.etcd.url), CLUSTER, GROUP)
        undo.push_async_callback(self.observer.close)

    def _role_settings(self, peer: Peer) -> dict[str, str]:
        return {"rocketline.coordination": "etcd://" + ",".join(link.address for link in peer.to_etcd)}

    async def _connect(self, peer: Peer, undo: AsyncExitStack) -> None:
        for server in self.etcd.servers:
            peer.to_etcd.append(await undo.enter_async_context(Link(("127.0.0.1", server.port))))
        await undo.enter_async_context(peer.clients)
        await undo.enter_async_context(peer.followers)
        peer.settings = {
            "brokerName": GROUP,
            "brokerClusterName": CLUSTER,
            "bindAddress": peer.own_host,
            "brokerIP1": peer.known_host,
            "brokerIP2": peer.known_host,
            "listenPort": str(peer.port),
            "haListenPort": str(peer.ha_port),
            "rocketline.apacheSlavePort": "0",
            "namesrvAddr": self.name_server_address,
            **self._role_settings(peer),
            "flushDiskType": "SYNC_FLUSH",
            **self._settings,
        }

    # What is agreed

    async def view(self) -> View:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await self.observer.read()
                except CoordinationFailed:
                    await asyncio.sleep(POLL_S)

    async def lease_count(self) -> int:
        """Of this group and whoever else uses these servers."""
        return len((await self.observer._gateway.call("lease/leases", {})).get("leases", ()))

    async def record(self) -> GroupRecord:
        agreed = (await self.view()).agreed
        return agreed.record if agreed else GroupRecord()

    async def until(self, wanted: Callable[[GroupRecord], bool], what: str, poll_s: float = POLL_S) -> GroupRecord:
        limit = time.monotonic() + PATIENCE_S
        while not wanted(record := await self.record()):
            assert time.monotonic() < limit, f"{what} did not come: {record}"
            await asyncio.sleep(poll_s)
        return record

    def peer_of(self, member_id: int, record: GroupRecord) -> Peer:
        address = record.members[member_id].address
        return next(peer for peer in self.peers if peer.address == address)

    async def master(self) -> Peer:
        """Who leads by the record, as soon as it has a lease."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                view = await self.view()
                if view.agreed is not None and view.has_master:
                    return self.peer_of(view.agreed.record.master, view.agreed.record)
                await asyncio.sleep(POLL_S)

    async def others(self) -> list[Peer]:
        master = await self.master()
        return [peer for peer in self.peers if peer is not master]

    async def all_in_sync(self) -> GroupRecord:
        return await self.until(
            lambda record: record.master in record.in_sync and len(record.in_sync) == len(self.peers), "all in sync"
        )

    async def history(self) -> list[GroupRecord]:
        """Every record that was ever agreed, oldest first."""
        found: list[GroupRecord] = []
        last = (await self.view()).agreed
        request = {
            "create_request": {"key": b64encode(self.observer._record_key.encode()).decode(), "start_revision": "1"}
        }
        stream = self.observer._gateway.stream("watch", request)
        try:
            async for answer in stream:
                for event in answer.get("result", {}).get("events", ()):
                    found.append(GroupRecord.decode(b64decode(event["kv"]["value"]), "history"))
                    if last is not None and int(event["kv"]["mod_revision"]) >= last.revision:
                        return found
        finally:
            await stream.aclose()
        return found

    async def routed_to(self, topic: str) -> str:
        """The master's address as the name server shows it, "" if it shows none."""
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteHeader(topic).encode())
        try:
            answer = await self._remoting.call(self.name_server_address, command, PATIENCE_S)
        except RocketlineError:
            return ""
        if answer.code != ResponseCode.SUCCESS:
            return ""
        brokers = decode_body(TopicRouteData, answer.body).broker_datas
        return next((item.broker_addrs.get(0, "") for item in brokers if item.broker_name == GROUP), "")

    # What fails

    def cut_off_from_etcd(self, peer: Peer) -> None:
        for link in peer.to_etcd:
            link.hold()

    def heal(self) -> None:
        for peer in self.peers:
            for link in (peer.clients, peer.followers, *peer.to_etcd):
                link.release()
