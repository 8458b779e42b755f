"""What a consumer reports about itself when an operator asks through the broker; names are RocketMQ's."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback

from msgspec import field

from rocketline.protocol.bodies import Body, SubscriptionData


class ProcessQueueInfo(Body):
    """One queue as this consumer holds it at the moment."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class ConsumeStatus(Body):
    """Rates of one topic."""

    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(Body):
    """The answer to 307; maps by queue have the queue's JSON text as key."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[str, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[str, dict[str, int]] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


class ConsumeDirectlyResult(Body):
    """The answer to 309: what the handler made of one message."""

    consume_result: str = "CR_SUCCESS"
    spent_time_mills: int = 0
    remark: str | None = None
    order: bool = False
    auto_commit: bool = True


def stacks() -> str:
    """The stacks of all threads and of all tasks of this loop; the counterpart of Java's jstack."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = []
    for ident, frame in sys._current_frames().items():
        lines += [f"thread {names.get(ident, '?')} {ident}\n", *traceback.format_stack(frame), "\n"]
    for task in asyncio.all_tasks():
        frames = task.get_stack()
        lines += (
            [f"task {task.get_name()}\n", *traceback.format_list(traceback.extract_stack(frames[-1]))] if frames else []
        )
    return "".join(lines)
