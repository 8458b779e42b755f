"""A scripted name server and brokers for the client's tests: real sockets, real frames, answers as the test wants them.

A fake records every request it gets, in order, and answers as a small, well-behaved server would. A test takes over by
scripting: `broker.script(code, reply, ...)` uses up one reply per request, `broker.on[code] = function` answers all of
them. A reply is a response code, a function of the request, or SILENCE.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.patience import PATIENCE_S

from rocketline.client import ClientOptions, ClientTiming
from rocketline.errors import ConnectionLost
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import (
    BrokerData,
    ConsumerIdList,
    HeartbeatData,
    QueueData,
    TopicRouteData,
    decode_body,
    encode_body,
    encode_route,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    ConsumerSendMsgBackHeader,
    GetConsumerListHeader,
    GetRouteHeader,
    OffsetResponseHeader,
    PullMessageHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetHeader,
    SearchOffsetHeader,
    SendMessageHeader,
    SendMessageResponseHeader,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
)
from rocketline.protocol.message_ids import encode_host, offset_id
from rocketline.protocol.names import DEFAULT_TOPIC
from rocketline.protocol.properties import decode_properties, encode_properties
from rocketline.protocol.records import RecordHead, decode_batch, encode_record, topic_part
from rocketline.transport import Channel, RemotingServer, Reply, Router

QUICK = ClientTiming(
    rebalance_soon_s=0.02,
    next_server_s=0.05,
    send_again_s=0.001,
    retry_here_s=0.01,
    pull_retry_s=0.01,
    pull_busy_s=0.005,
    unregister_s=0.5,
)
"""Periods as in real life (a test that needs a timer shortens that one), short delays after failures."""
QUICK_OPTIONS = ClientOptions(timing=QUICK)

SILENCE = object()
Scripted = int | Callable[[Command], Reply] | object


class FakeServer:
    """Records requests and answers them by script or by habit."""

    def __init__(self) -> None:
        self.requests: list[Command] = []
        self.on: dict[int, Callable[[Command], Reply]] = {}
        self._scripts: dict[int, deque[Scripted]] = defaultdict(deque)
        self._arrival = asyncio.Condition()
        self._server: RemotingServer | None = None
        self._notices: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.port}"

    @property
    def channels(self) -> set[Channel]:
        assert self._server is not None
        return self._server.channels

    async def start(self, port: int = 0) -> None:
        router = Router(dict.fromkeys(RequestCode, self._serve))
        self._server = RemotingServer(router, "127.0.0.1", port)
        await self._server.start()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close(grace_s=0.0)

    async def restart(self) -> None:
        """Cut every connection and listen again on the same port."""
        assert self._server is not None
        port = self._server.port
        await self.close()
        await self.start(port)

    def script(self, code: int, *replies: Scripted) -> None:
        """Answer the next requests of a code with these, one each."""
        self._scripts[code].extend(replies)

    def requests_of(self, *codes: int) -> list[Command]:
        return [request for request in self.requests if request.code in codes]

    async def request(self, code: int, count: int = 1, where: Callable[[Command], bool] = lambda _: True) -> Command:
        """The `count`-th request of a code (that fits), waiting until it has come."""

        def found() -> list[Command]:
            return [request for request in self.requests_of(code) if where(request)]

        async with asyncio.timeout(PATIENCE_S), self._arrival:
            await self._arrival.wait_for(lambda: len(found()) >= count)
        return found()[count - 1]

    def _serve(self, channel: Channel, request: Command) -> Reply:
        self.requests.append(request)
        notice = asyncio.get_running_loop().create_task(self._notify())
        self._notices.add(notice)
        notice.add_done_callback(self._notices.discard)
        scripted = self._scripts[request.code]
        if scripted:
            return self._by_script(scripted.popleft(), channel, request)
        if request.code in self.on:
            return self.on[request.code](request)
        return self.habit(channel, request)

    async def _notify(self) -> None:
        async with self._arrival:
            self._arrival.notify_all()

    def _by_script(self, scripted: Scripted, channel: Channel, request: Command) -> Reply:
        if scripted is SILENCE:
            return None
        if isinstance(scripted, int):
            return self.habit(channel, request) if scripted == 0 else refused(request, scripted)
        assert callable(scripted)
        reply: Reply = scripted(request)
        return reply

    def habit(self, channel: Channel, request: Command) -> Reply:
        raise NotImplementedError


def refused(request: Command, code: int, remark: str = "as scripted") -> Command:
    return request.reply(code, remark=remark)


class FakeNameServer(FakeServer):
    def __init__(self) -> None:
        super().__init__()
        self.routes: dict[str, TopicRouteData] = {}

    def habit(self, channel: Channel, request: Command) -> Reply:
        if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return refused(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        route = self.routes.get(GetRouteHeader.decode(request).topic)
        if route is None:
            return refused(request, ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        return request.reply(ResponseCode.SUCCESS, body=encode_route(route, standard=True))


@dataclass
class FakeQueue:
    """One queue's records, and the pulls that wait for more."""

    first: int = 0
    records: list[bytes] = field(default_factory=list)
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class FakeBroker(FakeServer):
    """Stores in memory; pulls are held until something arrives."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.queues: dict[tuple[str, int], FakeQueue] = defaultdict(FakeQueue)
        self.committed: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, list[str]] = defaultdict(list)
        self.extra_members: dict[str, list[str]] = defaultdict(list)
        self.heartbeats: list[HeartbeatData] = []
        self.sent_back: list[ConsumerSendMsgBackHeader] = []
        self.log_offset = 0
        self.auto_create_retry: Callable[[str], None] = lambda group: None

    def store(
        self, topic: str, queue_id: int, body: bytes, properties: dict[str, str] | None = None, **fields: Any
    ) -> int:
        """Put a message into a queue; returns its offset."""
        queue = self.queues[topic, queue_id]
        offset = queue.end
        magic, topic_bytes = topic_part(topic)
        host = encode_host("127.0.0.1", int(self.address.rpartition(":")[2]))
        record = encode_record(
            RecordHead(
                magic,
                topic_bytes,
                queue_id,
                offset,
                self.log_offset,
                fields.get("flag", 0),
                fields.get("sys_flag", 0),
                fields.get("born_ms", 1000),
                encode_host("127.0.0.1", 1),
                fields.get("store_ms", 2000),
                host,
                fields.get("reconsume_times", 0),
                0,
            ),
            body,
            encode_properties(properties or {}).encode(),
        )
        self.log_offset += len(record)
        self.put(topic, queue_id, record)
        return offset

    def put(self, topic: str, queue_id: int, record: bytes) -> None:
        """Put raw bytes in place of a record."""
        queue = self.queues[topic, queue_id]
        queue.records.append(record)
        queue.grown.set()
        queue.grown = asyncio.Event()

    async def notify_members(self, group: str) -> None:
        """Tell the connected clients that membership changed (40)."""
        for channel in self.channels:
            with suppress(ConnectionLost):  # one that a client has just closed
                channel.send_oneway(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}))

    async def ask_client(self, request: Command) -> Command:
        """Send a request over the connection of the only client."""
        (channel,) = self.channels
        return await channel.call(request, PATIENCE_S)

    def habit(self, channel: Channel, request: Command) -> Reply:
        habits: dict[int, Callable[[Command], Reply]] = {
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send_batch,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_MAX_OFFSET: lambda r: self._offset(r, lambda queue: queue.end),
            RequestCode.GET_MIN_OFFSET: lambda r: self._offset(r, lambda queue: queue.first),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
        }
        habit = habits.get(request.code)
        return habit(request) if habit is not None else refused(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    def _send(self, request: Command) -> Reply:
        header = SendMessageHeader.decode(request)
        at = self.log_offset
        offset = self.store(
            header.topic,
            header.queue_id,
            request.body,
            decode_properties(header.properties),
            flag=header.flag,
            sys_flag=header.sys_flag,
        )
        return self.stored(request, header, [at], offset)

    def _send_batch(self, request: Command) -> Reply:
        header = SendMessageHeader.decode(request)
        at, first = [], self.queues[header.topic, header.queue_id].end
        for item in decode_batch(request.body):
            at.append(self.log_offset)
            self.store(header.topic, header.queue_id, bytes(item.body), flag=item.flag)
        return self.stored(request, header, at, first)

    def stored(
        self, request: Command, header: SendMessageHeader, log_offsets: list[int], offset: int, code: int = 0
    ) -> Command:
        host = encode_host("127.0.0.1", int(self.address.rpartition(":")[2]))
        ids = ",".join(offset_id(host, at) for at in log_offsets)
        return request.reply(code, SendMessageResponseHeader(ids, header.queue_id, offset).encode())  # type: ignore[arg-type]

    def _pull(self, request: Command) -> Reply:
        header = PullMessageHeader.decode(request)
        queue = self.queues[header.topic, header.queue_id]
        if not queue.first <= header.queue_offset <= queue.end:
            wanted = queue.first if header.queue_offset < queue.first else queue.end
            return request.reply(ResponseCode.PULL_OFFSET_MOVED, pull_fields(queue, wanted))
        if header.queue_offset < queue.end:
            return self._found(request, header, queue)
        return self._hold(request, header, queue)

    def _found(self, request: Command, header: PullMessageHeader, queue: FakeQueue) -> Command:
        start = header.queue_offset - queue.first
        records = queue.records[start : start + header.max_msg_nums]
        return request.reply(
            ResponseCode.SUCCESS, pull_fields(queue, header.queue_offset + len(records)), b"".join(records)
        )

    async def _hold(self, request: Command, header: PullMessageHeader, queue: FakeQueue) -> Command:
        try:
            async with asyncio.timeout(header.suspend_ms / 1000):
                while queue.end <= header.queue_offset:
                    await queue.grown.wait()
        except TimeoutError:
            return request.reply(ResponseCode.PULL_NOT_FOUND, pull_fields(queue, header.queue_offset))
        return self._found(request, header, queue)

    def _heartbeat(self, request: Command) -> Reply:
        data = decode_body(HeartbeatData, request.body)
        self.heartbeats.append(data)
        for consumer in data.consumer_data_set:
            members = self.members[consumer.group_name]
            if data.client_id not in members:
                members.append(data.client_id)
            self.auto_create_retry(consumer.group_name)
        return request.reply(ResponseCode.SUCCESS)

    def _unregister(self, request: Command) -> Reply:
        header = UnregisterClientHeader.decode(request)
        if header.consumer_group and header.client_id in self.members[header.consumer_group]:
            self.members[header.consumer_group].remove(header.client_id)
        return request.reply(ResponseCode.SUCCESS)

    def _members(self, request: Command) -> Reply:
        group = GetConsumerListHeader.decode(request).consumer_group
        ids = self.members[group] + self.extra_members[group]
        if not ids:
            return refused(request, ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        return request.reply(ResponseCode.SUCCESS, body=encode_body(ConsumerIdList(ids)))

    def _query_offset(self, request: Command) -> Reply:
        header = QueryConsumerOffsetHeader.decode(request)
        offset = self.committed.get((header.consumer_group, header.topic, header.queue_id))
        if offset is None:
            return refused(request, ResponseCode.QUERY_NOT_FOUND)
        return request.reply(ResponseCode.SUCCESS, OffsetResponseHeader(offset).encode())

    def _update_offset(self, request: Command) -> Reply:
        header = UpdateConsumerOffsetHeader.decode(request)
        self.committed[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return request.reply(ResponseCode.SUCCESS)

    def _offset(self, request: Command, of: Callable[[FakeQueue], int]) -> Reply:
        assert request.ext is not None
        queue = self.queues[request.ext["topic"], int(request.ext["queueId"])]
        return request.reply(ResponseCode.SUCCESS, OffsetResponseHeader(of(queue)).encode())

    def _search(self, request: Command) -> Reply:
        SearchOffsetHeader.decode(request)
        return request.reply(ResponseCode.SUCCESS, OffsetResponseHeader(7).encode())

    def _send_back(self, request: Command) -> Reply:
        self.sent_back.append(ConsumerSendMsgBackHeader.decode(request))
        return request.reply(ResponseCode.SUCCESS)


def pull_fields(queue: FakeQueue, next_offset: int, broker_id: int = 0) -> dict[str, str]:
    return PullMessageResponseHeader(next_offset, queue.first, queue.end, broker_id).encode()  # type: ignore[arg-type]


def found(request: Command, queue: FakeQueue, next_offset: int, body: bytes) -> Command:
    """The answer to a pull with exactly this body."""
    return request.reply(ResponseCode.SUCCESS, pull_fields(queue, next_offset), body)


class FakeCluster:
    """A name server and brokers, with routes that name them."""

    def __init__(self, name_server: FakeNameServer, brokers: list[FakeBroker]) -> None:
        self.name_server = name_server
        self.brokers = brokers
        self.slaves: dict[str, FakeBroker] = {}

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    @property
    def broker(self) -> FakeBroker:
        return self.brokers[0]

    async def add_slave(self) -> FakeBroker:
        """Give the first broker a slave, with id 1; topics added from now on name it."""
        slave = self.slaves[self.broker.name] = FakeBroker(self.broker.name)
        await slave.start()
        return slave

    def add_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        perm: int = 6,
        brokers: Iterable[FakeBroker] | None = None,
        write_queues: int | None = None,
    ) -> list[MessageQueue]:
        """Give a topic a route; returns its queues to read."""
        chosen = list(self.brokers if brokers is None else brokers)
        self.name_server.routes[topic] = TopicRouteData(
            [BrokerData("cluster", broker.name, self._ids(broker)) for broker in chosen],
            [
                QueueData(broker.name, queues, write_queues if write_queues is not None else queues, perm)
                for broker in chosen
            ],
        )
        return [MessageQueue(topic, broker.name, queue_id) for broker in chosen for queue_id in range(queues)]

    def _ids(self, broker: FakeBroker) -> dict[int, str]:
        slave = self.slaves.get(broker.name)
        return {0: broker.address} | ({1: slave.address} if slave is not None else {})

    def add_template(self, queues: int = 8) -> None:
        self.add_topic(DEFAULT_TOPIC, queues, perm=7)


@asynccontextmanager
async def fake_cluster(brokers: int = 1, *, retry_topics: bool = True) -> AsyncIterator[FakeCluster]:
    """A running fake cluster; with `retry_topics` a group's retry topic appears with its first heartbeat."""
    async with AsyncExitStack() as stack:
        name_server = FakeNameServer()
        made = [FakeBroker(f"broker-{chr(ord('a') + number)}") for number in range(brokers)]
        for server in (name_server, *made):
            await server.start()
            stack.push_async_callback(server.close)
        cluster = FakeCluster(name_server, made)
        if retry_topics:
            for broker in made:
                broker.auto_create_retry = lambda group: _add_retry_topic(cluster, group)
        yield cluster
        for slave in cluster.slaves.values():
            await slave.close()


def _add_retry_topic(cluster: FakeCluster, group: str) -> None:
    topic = f"%RETRY%{group}"
    if topic not in cluster.name_server.routes:
        cluster.add_topic(topic, 1)


async def until(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Poll for something no event tells of."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true within {PATIENCE_S:g} s") from None


def own_tasks() -> set[asyncio.Task[Any]]:
    """Every task but the test's own."""
    return asyncio.all_tasks() - {asyncio.current_task()}
