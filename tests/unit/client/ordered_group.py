"""A simulated group that consumes in order: a real broker's parts, real consumers, virtual time, and a judge.

The judge hears of every call and objects at once when a queue has two at a time, or when a message is handed out before
all that come before it in its queue were consumed by somebody.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from random import Random
from typing import Any

from tests.support.virtual import LoopClock, VirtualLoop, belongs_to
from tests.unit.broker.parts import Parts, Setup, send_request

from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, PushConsumer
from rocketline.client.consumer.push.handlers import HandlerFunction
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.bodies import BrokerData, QueueData, TopicRouteData, encode_route
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetRouteHeader
from rocketline.transport import Channel, Reply, Router

TOPIC, GROUP = "T", "g"


@dataclass
class Judge:
    running: dict[MessageQueue, str] = field(default_factory=dict)
    done: dict[MessageQueue, set[int]] = field(default_factory=dict)
    consumed: Counter[tuple[MessageQueue, int]] = field(default_factory=Counter)
    calls: list[tuple[float, str, MessageQueue, int]] = field(default_factory=list)
    objections: list[str] = field(default_factory=list)

    def begins(self, now: float, member: str, message: MessageView) -> None:
        queue, offset = message.queue, message.queue_offset
        self.calls.append((now, member, queue, offset))
        if queue in self.running:
            self.objections.append(f"{now:.3f}: {queue} runs at {self.running[queue]} and begins at {member}")
        self.running[queue] = member
        missing = set(range(offset)) - self.done.setdefault(queue, set())
        if missing:
            self.objections.append(f"{now:.3f}: {member} got {queue} {offset} before {min(missing)} was done")

    def ends(self, message: MessageView, *, done: bool) -> None:
        self.running.pop(message.queue, None)
        if done:
            self.done[message.queue].add(message.queue_offset)
            self.consumed[message.queue, message.queue_offset] += 1


class _Broker(Parts):
    def _stored(self) -> None:
        super()._stored()
        asyncio.get_running_loop().call_soon(self.dispatch)


class _Recording(Router):
    """Notes when each request came."""

    def __init__(self, router: Router, clock: LoopClock) -> None:
        super().__init__()
        self.take(router)
        self.requests: list[tuple[float, Command]] = []
        self._clock = clock

    def serve(self, channel: Channel, request: Command) -> Reply:
        self.requests.append((self._clock.monotonic(), request))
        return super().serve(channel, request)


class OrderedGroup:
    """Start members, send messages, and look at what the judge has to say."""

    def __init__(self, loop: VirtualLoop, chance: Random, queue_count: int = 4) -> None:
        self.loop, self.chance = loop, chance
        self.clock = LoopClock(loop)
        self.judge = Judge()
        self.broker = _Broker(Setup(clock=self.clock))
        self.broker.put_topic(TOPIC, queue_count)
        self.queue_count = queue_count
        self.members: dict[str, PushConsumer] = {}
        self.sent: Counter[int] = Counter()
        self.call_s = (0.0, 0.2)
        self.failures = 0.0
        self._numbers = 0
        self._recording = _Recording(self.broker.router, self.clock)
        loop.servers["127.0.0.1", 10911] = self._recording
        loop.servers["127.0.0.1", 9876] = Router({RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route})

    def _route(self, channel: Channel, request: Command) -> Reply:
        topic = self.broker.topics.get(GetRouteHeader.decode(request).topic)
        if topic is None:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
        route = TopicRouteData(
            [BrokerData("cluster", "broker-a", {0: "127.0.0.1:10911"})],
            [QueueData("broker-a", topic.read_queue_nums, topic.write_queue_nums, topic.perm)],
        )
        return request.reply(ResponseCode.SUCCESS, body=encode_route(route, standard=True))

    def requests(self, *codes: int) -> list[tuple[float, Command]]:
        """What came to the broker, and when."""
        return [(at, request) for at, request in self._recording.requests if request.code in codes]

    async def join(self, handler: HandlerFunction | None = None, **options: Any) -> str:
        """A member whose calls the judge sees, unless they are made by a handler given."""
        self._numbers += 1
        name = f"m{self._numbers}"
        with belongs_to(name):
            consumer = self.consumer(name, **options)
            await consumer.__aenter__()
            consumer.subscribe(TOPIC, "*", handler or (lambda message: self._consume(name, message)), in_thread=False)
            await consumer.start()
        self.members[name] = consumer
        return name

    def consumer(self, name: str, timing: ClientTiming = ClientTiming(), **arguments: Any) -> PushConsumer:
        arguments = {"ordered": True, "from_where": ConsumeFrom.FIRST, **arguments}
        options = ClientOptions(instance_name=name, client_ip="10.0.0.1", clock=self.clock, timing=timing)
        return PushConsumer("127.0.0.1:9876", group=GROUP, options=options, **arguments)

    async def _consume(self, name: str, message: MessageView) -> None:
        self.judge.begins(self.loop.time(), name, message)
        done = False
        try:
            await asyncio.sleep(self.chance.uniform(*self.call_s))
            if self.chance.random() < self.failures:
                raise ValueError("as the dice fell")
            done = True
        finally:
            self.judge.ends(message, done=done)

    async def leave(self, name: str) -> None:
        with belongs_to(name):
            await self.members.pop(name).close()

    async def kill(self, name: str) -> None:
        del self.members[name]
        await self.loop.end(name)

    def send(self, queue_id: int = 0) -> None:
        unique = f"7F00000100{queue_id:02X}{self.sent[queue_id]:020X}"
        request = send_request(TOPIC, b"x", queue_id=queue_id, properties={"UNIQ_KEY": unique})
        answer = self.broker.peer().ask(request)
        assert answer.code == ResponseCode.SUCCESS, answer
        self.broker.dispatch()
        self.sent[queue_id] += 1

    @property
    def all_done(self) -> bool:
        done = self.judge.done
        return all(
            len(done.get(MessageQueue(TOPIC, "broker-a", queue_id), ())) == count
            for queue_id, count in self.sent.items()
        )

    async def until_done(self, limit_s: float = 1000.0) -> None:
        end = self.loop.time() + limit_s
        while not self.all_done:
            assert not self.judge.objections, self.judge.objections
            assert self.loop.time() < end, f"not everything was consumed within {limit_s:g} s"
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        for name in list(self.members):
            await self.leave(name)
        self.broker.close()


def on_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test whose `group` is one with two queues, run on a virtual loop; other arguments are fixtures as ever."""

    async def scenario(arguments: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        group = OrderedGroup(loop, Random(1), 2)
        try:
            await test(group=group, **arguments)
        finally:
            await group.close()
        assert not group.judge.objections

    @wraps(test)
    def run(**arguments: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(scenario(arguments))

    given = signature(test)
    others = [parameter for name, parameter in given.parameters.items() if name != "group"]
    run.__signature__ = given.replace(parameters=others)  # type: ignore[attr-defined]
    return run
