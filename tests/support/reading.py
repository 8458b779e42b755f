"""Read what a broker holds through Apache's Java client: a topic by each kind of consumer, or everything.

Every function starts at the beginning of the queues and expects an exact number of messages, so that a missing
or an invented message fails where it is noticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from tests.support.patience import PATIENCE_S

from .comparing import assert_same_records
from .java_client import JavaClient, JavaPushConsumer, Queue, Seen

# Topics a broker makes for itself; their content is bookkeeping and changes while one looks.
SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
PULLS_PER_QUEUE = 100_000

T = TypeVar("T")


def eventually(probe: Callable[[], T], wanted: T, timeout_s: float = PATIENCE_S) -> T:
    """The probe's value once it is what is wanted, or its last one when the time is over."""
    deadline = time.monotonic() + timeout_s
    while (value := probe()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return value


def push_all(
    java: JavaClient,
    namesrv: str,
    group: str,
    topic: str,
    count: int,
    expression: str = "*",
    *,
    committed: bool = False,
) -> list[Seen]:
    """What a push consumer gets: exactly `count` deliveries, each of another message.

    With `committed` it stays until the broker knows of them all. Stopping it at once is not enough: a pull carries
    the offset of its own time, and one that waits in the broker's queue can set the last offset back.
    """
    with java.push_consumer(namesrv, group, {topic: expression}) as consumer:
        messages = _exactly(count, consumer.poll(count))
        if committed:
            _await_committed(java, namesrv, group, topic, consumer)
    return messages


def lite_pull_all(
    java: JavaClient, namesrv: str, group: str, topic: str, count: int, *, subscribe: bool = False
) -> list[Seen]:
    """What a lite pull consumer of a new group gets; assigned to every queue, or subscribed."""
    with java.lite_pull_consumer(
        namesrv,
        group,
        subscriptions={topic: "*"} if subscribe else None,
        assign=None if subscribe else [topic],
    ) as consumer:
        return _exactly(count, consumer.poll(count))


def read_queue(java: JavaClient, namesrv: str, queue: Queue) -> list[Seen]:
    """Every message of a queue, by plain pulls from its minimum to its maximum offset."""
    bounds = java.offsets(namesrv, queue)
    messages: list[Seen] = []
    offset = bounds.min
    for _ in range(PULLS_PER_QUEUE):
        if offset >= bounds.max:
            break
        pulled = java.pull(namesrv, queue, offset)
        assert pulled.status in ("FOUND", "NO_MATCHED_MSG"), f"{queue} at {offset} answers {pulled.status}"
        assert pulled.next_begin_offset > offset, f"{queue} does not move on from {offset}"
        messages.extend(pulled.messages)
        offset = pulled.next_begin_offset
    # Apache's broker lists messages a moment after it acknowledged them: there may be more by now.
    assert offset >= bounds.max
    assert [message.queue_offset for message in messages] == list(range(bounds.min, offset))
    return messages


def await_listed(java: JavaClient, namesrv: str, topic: str, count: int) -> None:
    """Wait until a topic's queues list this many messages: Apache's broker lists them after it acknowledged them."""

    def listed() -> int:
        queues = java.topic_stats(namesrv, topic)["offsetTable"].values()
        return sum(queue["maxOffset"] - queue["minOffset"] for queue in queues)

    assert eventually(listed, count) == count


def read_topic(java: JavaClient, namesrv: str, topic: str, count: int | None = None) -> list[Seen]:
    """Every message of a topic, queue after queue; with `count`, once there are so many."""
    if count is not None:
        await_listed(java, namesrv, topic, count)
    queues = java.read_queues(namesrv, topic)
    return [message for queue in queues for message in read_queue(java, namesrv, queue)]


def user_topics(java: JavaClient, namesrv: str) -> set[str]:
    """The topics the name server lists, without those the brokers made for themselves."""
    info = java.cluster_info(namesrv)
    own = {*info["clusterAddrTable"], *info["brokerAddrTable"]}
    own |= {f"{cluster}_REPLY_TOPIC" for cluster in info["clusterAddrTable"]}
    listed = java.topic_list(namesrv) - SYSTEM_TOPICS - own
    return {topic for topic in listed if not topic.startswith("rmq_sys_")}


def read_everything(java: JavaClient, namesrv: str, topics: Iterable[str] | None = None) -> dict[str, list[Seen]]:
    """Every message of every topic (default: of all user topics, retry and dead-letter topics among them)."""
    wanted = user_topics(java, namesrv) if topics is None else set(topics)
    return {topic: read_topic(java, namesrv, topic) for topic in sorted(wanted)}


def assert_same_contents(before: Mapping[str, list[Seen]], after: Mapping[str, list[Seen]]) -> None:
    """Two readings of one store, whichever broker served them. Topics without messages may come and go."""
    filled = {topic for topic, messages in before.items() if messages}
    assert {topic for topic, messages in after.items() if messages} == filled
    for topic in filled:
        assert_same_records(before[topic], after[topic])


def _await_committed(java: JavaClient, namesrv: str, group: str, topic: str, consumer: JavaPushConsumer) -> None:
    ends = {queue: java.offsets(namesrv, queue).max for queue in java.read_queues(namesrv, topic)}
    filled: dict[Queue, int | None] = {}
    filled.update((queue, end) for queue, end in ends.items() if end)

    def committed() -> dict[Queue, int | None]:
        consumer.persist()
        return {queue: java.committed(namesrv, group, queue) for queue in filled}

    assert eventually(committed, filled) == filled


def _exactly(count: int, messages: list[Seen]) -> list[Seen]:
    assert len(messages) == count, f"expected {count} messages, got {len(messages)}"
    assert len({message.msg_id for message in messages}) == count, "a message came twice"
    return messages
