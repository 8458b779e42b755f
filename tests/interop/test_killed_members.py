"""Members of three kinds in one group, a process each, killed with SIGKILL in the middle of their work: first a Java one,
then one of ours. On our broker and, for those that keep order, on Apache's.

Everything sent is consumed by somebody. Once the queues have changed hands each has one owner: what is sent then is
consumed once, and what came from one queue by one member. In a group that keeps order nobody ever gets a message before
somebody got all that are in front of it. The members' locks last a tenth of what they do by default, and so do the broker's.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java
from tests.support.java_client import JavaClient
from tests.support.java_driver import client_coordinates
from tests.support.members import LOCK_EXPIRY_MS, Delivery, JavaMember, OurMember
from tests.support.patience import PATIENCE_S

from rocketline.client import blocking
from rocketline.message import Message
from rocketline.testing import LocalCluster

pytestmark = pytest.mark.interop

QUEUES = 8
LOCK_SETTING = "rocketmq.broker.rebalance.lockMaxLiveTime"


class Cluster(Protocol):
    @property
    def namesrv(self) -> str: ...


@pytest.fixture
def brief_locks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "rocketline":
        with LocalCluster(config={LOCK_SETTING: LOCK_EXPIRY_MS}) as ours:
            yield ours
        return
    require_java(*server_coordinates(SERVER_VERSION))
    options = (*QUICK_START, f"-D{LOCK_SETTING}={LOCK_EXPIRY_MS}")
    theirs = ApacheCluster(tmp_path, jvm_options=options).start()
    yield theirs
    theirs.kill()


class Group:
    """Everybody who ever was a member, and everything that was sent."""

    def __init__(self, producer: blocking.Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._queues = producer.queues(topic)
        self._numbers = count()
        self.members: list[OurMember | JavaMember] = []
        self.sent: set[bytes] = set()

    def send(self, message_count: int) -> set[bytes]:
        """To the queues in turn."""
        bodies = [b"%d" % next(self._numbers) for _ in range(message_count)]
        for number, body in enumerate(bodies):
            self._producer.send(Message(self._topic, body), queue=self._queues[number % QUEUES])
        self.sent.update(bodies)
        return set(bodies)

    def deliveries(self) -> list[Delivery]:
        return [delivery for member in self.members for delivery in member.deliveries()]

    def drain(self) -> None:
        """Wait until everything sent was consumed."""
        end = time.monotonic() + PATIENCE_S
        while missing := self.sent - {delivery.body for delivery in self.deliveries()}:
            assert time.monotonic() < end, f"{len(missing)} messages were consumed by nobody within {PATIENCE_S:g} s"
            time.sleep(0.05)

    def owners(self, bodies: set[bytes]) -> dict[int, set[int]]:
        """Who, by number, consumed these messages of each queue."""
        found: dict[int, set[int]] = defaultdict(set)
        for number, member in enumerate(self.members):
            for delivery in member.deliveries():
                if delivery.body in bodies:
                    found[delivery.queue_id].add(number)
        return dict(found)

    def settle(self, members: set[int]) -> None:
        """Wait until a round of messages is consumed by all of these members and no other, each once, and each queue's
        by one of them."""
        end = time.monotonic() + PATIENCE_S
        while True:
            fresh = self.send(4 * QUEUES)
            self.drain()
            times = Counter(delivery.body for delivery in self.deliveries() if delivery.body in fresh)
            owners = self.owners(fresh)
            have_one_owner = all(len(numbers) == 1 for numbers in owners.values())
            if set(times.values()) == {1} and have_one_owner and set().union(*owners.values()) == members:
                return
            assert time.monotonic() < end, f"members {members} do not share the queues, but {owners}"
            time.sleep(0.2)

    def lose(self, number: int) -> None:
        """Kill a member between messages that it has and messages that come."""
        self.send(20 * QUEUES)
        self.members[number].kill()
        self.send(10 * QUEUES)
        self.drain()


def assert_in_order(deliveries: Iterable[Delivery]) -> None:
    """Nobody gets a message before somebody got all that are in front of it."""
    reached: dict[int, int] = defaultdict(lambda: -1)
    for delivery in sorted(deliveries):
        assert delivery.queue_offset <= reached[delivery.queue_id] + 1, (delivery, dict(reached))
        reached[delivery.queue_id] = max(reached[delivery.queue_id], delivery.queue_offset)


@pytest.mark.parametrize(
    ("brief_locks", "ordered"),
    [("rocketline", False), ("rocketline", True), ("apache", True)],
    indirect=["brief_locks"],
    ids=["concurrent", "ordered", "ordered on Apache"],
)
def test_nothing_is_lost_or_out_of_order_when_members_are_killed(
    brief_locks: Cluster,
    ordered: bool,
    java_clients: Callable[[str], JavaClient],
    name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    namesrv, topic, group_name = brief_locks.namesrv, name("killed"), name("members")
    require_java(*client_coordinates("4.9.7"))
    java = java_clients("5.4.0")
    java.create_topic(namesrv, topic, QUEUES)
    with ExitStack() as undo:
        producer = undo.enter_context(blocking.Producer(namesrv, group=name("senders")))
        group = Group(producer, topic)
        for version in ("4.9.7", "5.4.0"):
            member = JavaMember(version, namesrv, group_name, topic, tmp_path / version, ordered=ordered)
            group.members.append(undo.enter_context(member))
        for _ in range(2):
            group.members.append(undo.enter_context(OurMember(namesrv, group_name, topic, ordered=ordered)))
        older, newer, first, second = range(4)
        group.settle({older, newer, first, second})
        group.lose(older)
        group.settle({newer, first, second})
        group.lose(first)
        group.settle({newer, second})
        if ordered:
            assert_in_order(group.deliveries())
    java.release(namesrv)
