"""Tells the name servers which topics this broker has: all at the start and every half minute, a changed topic at once.

Each name server is told separately; one that is down, or talks nonsense, costs only a log line, and gets everything when it
is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from zlib import crc32

from rocketline.broker.config import RegistrationConfig
from rocketline.broker.tables.topics import INHERIT, READ, WRITE, Topics
from rocketline.clock import Clock
from rocketline.errors import BrokerError, RocketlineError
from rocketline.protocol.bodies import (
    BrokerMemberGroupAnswer,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    decode_body,
    encode_body,
    encode_registration,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    GetBrokerMemberGroupHeader,
    QueryDataVersionHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerHeader,
)
from rocketline.transport import RemotingClient

log = logging.getLogger(__name__)

FIRST_ANSWER_S = 3.0
"""How long a starting broker waits for a name server."""

HEARTBEAT_TIMEOUT_MS = 10_000
"""A broker that may be shown as master is gone after so long without a heartbeat."""

SECOND_FULL_S = 10.0
"""Apache's brokers register again this long after their start, and then at the configured interval."""


@dataclass
class Identity:
    """Who registers; what depends on the role may change."""

    name: str
    cluster: str
    broker_id: int
    address: str
    ha_address: str = ""
    """Where replicas connect; empty: none can, but Apache's name server insists on the field."""
    epoch: int = 0
    """Of a master that was elected: name servers refuse one with a lower epoch."""
    acts_as_master: bool = False
    """Whether name servers may show this broker as master of its name, if there is none."""
    is_silent: bool = False
    """Whether nobody is told anything, because the role is not known yet."""


class _NameServer:
    """One name server, and what it has not been told yet."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_failing = False
        self.wake = asyncio.Event()
        self._changed: dict[str, TopicConfig] = {}

    def note(self, topics: list[TopicConfig]) -> None:
        self._changed.update((topic.topic_name, topic) for topic in topics)
        self.wake.set()

    def take_changes(self) -> dict[str, TopicConfig]:
        changed, self._changed = self._changed, {}
        self.wake.clear()
        return changed


class Registration:
    """Keeps the name servers informed, each at its own pace."""

    def __init__(
        self,
        identity: Identity,
        config: RegistrationConfig,
        topics: Topics,
        client: RemotingClient,
        clock: Clock,
        permission: int = READ | WRITE,
        on_answer: Callable[[RegisterBrokerResponseHeader], None] = lambda answer: None,
    ) -> None:
        """`on_answer` is called with what a name server knows about the master of this broker."""
        self._identity = identity
        self._on_answer = on_answer
        self._name_servers = [_NameServer(address) for address in config.name_servers]
        self._topics = topics
        self._client = client
        self._clock = clock
        self._interval_s = config.interval_ms / 1000
        self._timeout_s = config.timeout_ms / 1000
        self._permission = permission

    def set_permission(self, permission: int) -> None:
        """What the broker may do from now on: 4 be read + 2 be written to."""
        self._permission = permission

    def topics_changed(self, topics: list[TopicConfig]) -> None:
        """Announce these soon."""
        for name_server in self._name_servers:
            name_server.note(topics)

    async def register_all(self) -> None:
        """Register with all name servers; one that does not answer is waited for briefly, `run` tries it again."""
        await asyncio.gather(*(self._register_anew(name_server) for name_server in self._name_servers))

    async def run(self) -> None:
        """Register for ever; the first full registration is `register_all`, called before."""
        async with asyncio.TaskGroup() as tasks:
            for name_server in self._name_servers:
                tasks.create_task(self._keep_informed(name_server))

    async def _keep_informed(self, name_server: _NameServer) -> None:
        next_full = self._clock.monotonic() + min(SECOND_FULL_S, self._interval_s)
        while True:
            try:
                async with asyncio.timeout(max(0.0, next_full - self._clock.monotonic())):
                    await name_server.wake.wait()
            except TimeoutError:
                await self._tell_all(name_server, self._timeout_s)
                next_full = self._clock.monotonic() + self._interval_s
                continue
            if not name_server.is_failing:
                await self._tell(name_server, name_server.take_changes(), self._timeout_s)
            if name_server.is_failing:
                # It missed something, or was restarted: it accepts no single topic of a broker that it does not know.
                await self._tell_all(name_server, self._timeout_s)

    async def _tell_all(self, name_server: _NameServer, timeout_s: float) -> None:
        name_server.take_changes()
        await self._tell(name_server, self._topics.table, timeout_s)

    async def unregister(self) -> None:
        fields = self._unregistration()
        await asyncio.gather(*(self._forget(name_server, fields) for name_server in self._name_servers))

    async def register_as(self, broker_id: int, epoch: int) -> None:
        """Register with another number. A name server that hangs holds up no other one."""
        identity = self._identity
        former = None if identity.is_silent or identity.broker_id == broker_id else self._unregistration()
        identity.broker_id, identity.epoch, identity.is_silent = broker_id, epoch, False
        await asyncio.gather(*(self._register_anew(name_server, former) for name_server in self._name_servers))

    async def _register_anew(self, name_server: _NameServer, former: dict[str, str] | None = None) -> None:
        if former is not None:
            await self._forget(name_server, former)
        await self._tell_all(name_server, min(FIRST_ANSWER_S, self._timeout_s))

    def _unregistration(self) -> dict[str, str]:
        return UnregisterBrokerHeader(
            broker_name=self._identity.name,
            broker_addr=self._identity.address,
            cluster_name=self._identity.cluster,
            broker_id=self._identity.broker_id,
        ).encode()

    async def _forget(self, name_server: _NameServer, fields: dict[str, str]) -> None:
        await self._call(name_server, Command(RequestCode.UNREGISTER_BROKER, dict(fields)), 1.0)

    async def _tell(self, name_server: _NameServer, topics: dict[str, TopicConfig], timeout_s: float) -> None:
        if self._identity.is_silent:
            return
        body = self._body(topics)
        header = RegisterBrokerHeader(
            broker_name=self._identity.name,
            broker_addr=self._identity.address,
            cluster_name=self._identity.cluster,
            ha_server_addr=self._identity.ha_address,
            broker_id=self._identity.broker_id,
            enable_acting_master=self._identity.acts_as_master or None,
            heartbeat_timeout_ms=HEARTBEAT_TIMEOUT_MS if self._identity.acts_as_master else None,
            compressed=False,
            body_crc32=crc32(body) & 0x7FFFFFFF,
        )
        answer = await self._call(name_server, Command(RequestCode.REGISTER_BROKER, header.encode(), body), timeout_s)
        if answer is not None:
            self._on_answer(RegisterBrokerResponseHeader.decode(answer))

    def _body(self, topics: dict[str, TopicConfig]) -> bytes:
        table = {name: self._visible(topic) for name, topic in topics.items()}
        return encode_registration(
            RegisterBrokerBody(
                TopicConfigSerializeWrapper(
                    data_version=self._version,
                    topic_config_table=table,
                    mapping_data_version=DataVersion(timestamp=self._clock.now_ms()),
                    topic_queue_mapping_detail_map={},
                    topic_queue_mapping_info_map={},
                )
            )
        )

    @property
    def _version(self) -> DataVersion:
        version = self._topics.version
        if not self._identity.epoch:
            return version
        return DataVersion(version.counter, self._identity.epoch, version.timestamp)

    def _visible(self, topic: TopicConfig) -> TopicConfig:
        """The topic as name servers see it: a broker that is not writable (or readable) says so for each of its topics."""
        if self._permission & (READ | WRITE) == READ | WRITE:
            return topic
        return TopicConfig(
            topic_name=topic.topic_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm & (self._permission | INHERIT),
            topic_filter_type=topic.topic_filter_type,
            topic_sys_flag=topic.topic_sys_flag,
            order=topic.order,
            attributes=topic.attributes,
        )

    async def members(self) -> dict[int, str]:
        """The brokers of this one's name, by number, as the first name server knows them that answers."""
        header = GetBrokerMemberGroupHeader(self._identity.cluster, self._identity.name)
        for name_server in self._name_servers:
            with suppress(RocketlineError, OSError):
                command = Command(RequestCode.GET_BROKER_MEMBER_GROUP, header.encode())
                answer = await self._client.call(name_server.address, command, FIRST_ANSWER_S)
                if answer.code == ResponseCode.SUCCESS:
                    group = decode_body(BrokerMemberGroupAnswer, answer.body).broker_member_group
                    return dict(group.broker_addrs) if group is not None else {}
        return {}

    async def heartbeat(self) -> None:
        """Tell all name servers that this broker lives; nobody waits for an answer."""
        header = QueryDataVersionHeader(
            broker_name=self._identity.name,
            broker_addr=self._identity.address,
            cluster_name=self._identity.cluster,
            broker_id=self._identity.broker_id,
        )
        body = encode_body(self._version)
        for name_server in self._name_servers:
            command = Command(RequestCode.QUERY_DATA_VERSION, header.encode(), body)
            with suppress(RocketlineError):
                await self._client.send_oneway(name_server.address, command)

    async def _call(self, name_server: _NameServer, command: Command, timeout_s: float) -> Command | None:
        """The answer; None when there is none that counts."""
        address = name_server.address
        try:
            answer = await self._client.call(address, command, timeout_s)
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError.of(answer.code, answer.remark, address, "registration")
        except Exception as error:  # whatever it is about one of them, the others are told
            if not name_server.is_failing:
                log.warning("name server %s: %s", address, error, exc_info=not isinstance(error, RocketlineError))
            name_server.is_failing = True
            return None
        else:
            if name_server.is_failing:
                log.info("name server %s is back", address)
            name_server.is_failing = False
            return answer
