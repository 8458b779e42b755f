"""Pops, acknowledgements, longer invisible times, time, stops and kills against a dictionary that says what must come.

A message is hidden while somebody holds it, comes again when its time is over, with one more attempt each time, and never
again once it was acknowledged in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.unit.broker.parts import Parts, Setup
from tests.unit.broker.popper import Popped, Popper, ack_request, killed, put, save, stop

from rocketline.broker.config import PopConfig
from rocketline.protocol.bodies import SubscriptionGroupConfig
from rocketline.testing.disks import FaultyDisk, MemoryDisk

QUEUES = 3
SLACK_S = 6
"""The most that a redelivery takes after its time: steps of the timer, and the time for acknowledgements on their way."""


class PopModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.disk = MemoryDisk()
        self.parts: Parts
        self.held: dict[bytes, Popped] = {}
        """By message: who holds it, and so until when nobody else may get it."""
        self.attempts: dict[bytes, int] = {}
        self.acked: set[bytes] = set()
        self.unsure: set[bytes] = set()
        """Acknowledged when it may have been too late."""

    def do(self, work: Callable[[], Any]) -> Any:
        async def inside() -> Any:
            return work()

        return self.runner.run(inside())

    @initialize(merges=st.booleans(), v2=st.booleans())
    def start(self, merges: bool, v2: bool) -> None:
        self.config = PopConfig(merges_in_memory=merges, retry_v2=v2)
        self.do(lambda: self._open(self.disk))
        self.parts.put_topic("orders", QUEUES)
        self.parts.groups.put(SubscriptionGroupConfig("readers", retry_max_times=1000))

    def _open(self, disk: MemoryDisk, **more: Any) -> None:
        self.disk = disk
        self.parts = Parts(Setup(disk=FaultyDisk(disk), pop=self.config, **more))

    @rule(queue_id=st.integers(0, QUEUES - 1), count=st.integers(1, 4))
    def send(self, queue_id: int, count: int) -> None:
        bodies = [b"%d" % (len(self.attempts) + number) for number in range(count)]
        self.attempts |= dict.fromkeys(bodies, 0)
        self.do(lambda: put(self.parts, *bodies, queue_id=queue_id))

    @rule(count=st.integers(1, 8), invisible_s=st.sampled_from([1, 3, 8, 20]), queue_id=st.integers(-1, QUEUES - 1))
    def pop(self, count: int, invisible_s: int, queue_id: int) -> None:
        taken = self.do(lambda: Popper(self.parts).pop(count, invisible_ms=invisible_s * 1000, queue_id=queue_id))
        self.check(taken)
        self.held |= {one.body: one for one in taken}

    def check(self, taken: list[Popped]) -> None:
        now_ms = self.parts.clock.now_ms()
        assert len({one.body for one in taken}) == len(taken), "one pop gives a message once"
        for one in taken:
            assert one.body not in self.acked, f"{one.body!r} was acknowledged"
            before = self.held.get(one.body)
            if before is not None:
                assert before.handle.next_visible_ms <= now_ms, f"{one.body!r} is in somebody's hands"
            assert one.message.reconsume_times == self.attempts[one.body]
            self.attempts[one.body] += 1

    def in_time(self) -> list[bytes]:
        now_ms = self.parts.clock.now_ms()
        return sorted(body for body, one in self.held.items() if one.handle.next_visible_ms > now_ms)

    @precondition(lambda self: self.held and self.in_time())
    @rule(data=st.data(), batch=st.booleans())
    def ack(self, data: st.DataObject, batch: bool) -> None:
        one = self.held.pop(data.draw(st.sampled_from(self.in_time())))
        popper = Popper
        work = (lambda: popper(self.parts).ack_batch([one])) if batch else (lambda: popper(self.parts).ack(one))
        assert self.do(work).code == 0
        self.acked.add(one.body)

    @precondition(lambda self: self.held and self.in_time())
    @rule(data=st.data())
    def ack_some_in_one_read(self, data: st.DataObject) -> None:
        bodies = data.draw(st.lists(st.sampled_from(self.in_time()), min_size=1, unique=True))
        taken = [self.held.pop(body) for body in bodies]

        def work() -> list[int]:
            popper = Popper(self.parts)
            popper.peer.send(*map(ack_request, taken))
            self.parts.dispatch()
            return [answer.code for answer in popper.peer.received()]

        assert self.do(work) == [0] * len(taken)
        self.acked.update(bodies)

    @precondition(lambda self: self.held and len(self.in_time()) < len(self.held))
    @rule(data=st.data())
    def ack_late(self, data: st.DataObject) -> None:
        late = sorted(self.held.keys() - set(self.in_time()))
        one = self.held[data.draw(st.sampled_from(late))]
        assert self.do(lambda: Popper(self.parts).ack(one)).code == 0
        self.unsure.add(one.body)

    @precondition(lambda self: self.held and self.in_time())
    @rule(data=st.data(), invisible_s=st.sampled_from([0, 2, 15]))
    def change(self, data: st.DataObject, invisible_s: int) -> None:
        body = data.draw(st.sampled_from(self.in_time()))
        one = self.held[body]
        self.held[body] = self.do(lambda: Popper(self.parts).change(one, invisible_s * 1000))

    @rule(seconds=st.sampled_from([0, 1, 3, 12]))
    def pass_time(self, seconds: int) -> None:
        self.do(lambda: self.parts.pass_time(seconds))

    @rule()
    def save(self) -> None:
        self.do(lambda: save(self.parts))

    @rule()
    def restart(self) -> None:
        def again() -> None:
            stop(self.parts)
            self._open(self.disk, clock=self.parts.clock)

        self.do(again)

    @precondition(lambda self: not self.config.merges_in_memory)
    @rule()
    def kill(self) -> None:
        self.do(lambda: self._open(killed(self.parts, self.disk), clock=self.parts.clock))

    def teardown(self) -> None:
        if hasattr(self, "parts"):
            self.do(self._drain)
            self.do(self.parts.close)
        self.runner.close()

    def _drain(self) -> None:
        """Everything that was not acknowledged comes."""
        for _ in range(3):
            self.parts.pass_time(20 + SLACK_S)
            in_vain = 0
            # A pop looks at one of the two retry topics, by chance.
            while in_vain < 20:
                taken = Popper(self.parts).pop()
                in_vain = 0 if taken else in_vain + 1
                self.check(taken)
                self.acked.update(one.body for one in taken)
                Popper(self.parts).ack_all(taken)
        assert self.attempts.keys() - self.acked - self.unsure == set(), "lost"


TestPopModel = PopModel.TestCase
TestPopModel.settings = settings(max_examples=25, stateful_step_count=30)
