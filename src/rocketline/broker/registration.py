"""Telling the name servers what this broker has: all of it at the start and every half minute, a changed topic at once.

Each name server is told on its own; one that is down costs nothing but a log line, and gets everything when it is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from rocketline.broker.topics import Topics
from rocketline.clock import Clock
from rocketline.errors import BrokerError, RocketlineError
from rocketline.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    encode_registration,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import RegisterBrokerHeader, UnregisterBrokerHeader
from rocketline.transport import RemotingClient

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """Who registers."""

    name: str
    cluster: str
    broker_id: int
    address: str
    ha_address: str


class Registration:
    """Keeps the name servers informed."""

    def __init__(
        self,
        identity: Identity,
        name_servers: Sequence[str],
        topics: Topics,
        client: RemotingClient,
        clock: Clock,
        *,
        interval_s: float = 30.0,
        timeout_s: float = 24.0,
        broker_perm: int = 6,
    ) -> None:
        self._identity = identity
        self._name_servers = list(name_servers)
        self._topics = topics
        self._client = client
        self._clock = clock
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._broker_perm = broker_perm
        self._changed: dict[str, TopicConfig] = {}
        self._wake = asyncio.Event()
        self._failing: set[str] = set()

    def topics_changed(self, topics: list[TopicConfig]) -> None:
        """Announce these soon."""
        for topic in topics:
            self._changed[topic.topic_name] = topic
        self._wake.set()

    async def run(self) -> None:
        """Register for ever; the first full registration is `register_all`, called before."""
        next_full = self._clock.monotonic() + self._interval_s
        while True:
            try:
                async with asyncio.timeout(max(0.0, next_full - self._clock.monotonic())):
                    await self._wake.wait()
            except TimeoutError:
                await self.register_all()
                next_full = self._clock.monotonic() + self._interval_s
                continue
            await self._register_changed()

    async def register_all(self) -> None:
        self._changed.clear()
        self._wake.clear()
        await self._tell_everyone(self._topics.table)

    async def _register_changed(self) -> None:
        changed, self._changed = self._changed, {}
        self._wake.clear()
        if self._failing:
            # A name server that missed something gets the whole picture.
            await self.register_all()
        else:
            await self._tell_everyone(changed)

    async def unregister(self) -> None:
        header = UnregisterBrokerHeader(
            broker_name=self._identity.name,
            broker_addr=self._identity.address,
            cluster_name=self._identity.cluster,
            broker_id=self._identity.broker_id,
        )
        await asyncio.gather(
            *(
                self._call(address, Command(RequestCode.UNREGISTER_BROKER, header.encode()), 1.0)
                for address in self._name_servers
            )
        )

    async def _tell_everyone(self, topics: dict[str, TopicConfig]) -> None:
        body = self._body(topics)
        header = RegisterBrokerHeader(
            broker_name=self._identity.name,
            broker_addr=self._identity.address,
            cluster_name=self._identity.cluster,
            ha_server_addr=self._identity.ha_address,
            broker_id=self._identity.broker_id,
            compressed=False,
            body_crc32=crc32(body) & 0x7FFFFFFF,
        )
        calls = [
            self._call(address, Command(RequestCode.REGISTER_BROKER, header.encode(), body), self._timeout_s)
            for address in self._name_servers
        ]
        await asyncio.gather(*calls)

    def _body(self, topics: dict[str, TopicConfig]) -> bytes:
        table = {name: self._visible(topic) for name, topic in topics.items()}
        return encode_registration(
            RegisterBrokerBody(
                TopicConfigSerializeWrapper(
                    data_version=self._topics.version,
                    topic_config_table=table,
                    mapping_data_version=DataVersion(timestamp=self._clock.now_ms()),
                    topic_queue_mapping_detail_map={},
                    topic_queue_mapping_info_map={},
                )
            )
        )

    def _visible(self, topic: TopicConfig) -> TopicConfig:
        """A broker that may not be written to (or read) says so for each of its topics."""
        if self._broker_perm & 6 == 6:
            return topic
        return TopicConfig(
            topic_name=topic.topic_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm & (self._broker_perm | 1),
            topic_filter_type=topic.topic_filter_type,
            topic_sys_flag=topic.topic_sys_flag,
            order=topic.order,
            attributes=topic.attributes,
        )

    async def _call(self, address: str, command: Command, timeout_s: float) -> None:
        try:
            answer = await self._client.call(address, command, timeout_s)
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError.of(answer.code, answer.remark, address, "registration")
        except RocketlineError as error:
            if address not in self._failing:
                log.warning("name server %s: %s", address, error)
            self._failing.add(address)
        else:
            if address in self._failing:
                log.info("name server %s is back", address)
            self._failing.discard(address)
