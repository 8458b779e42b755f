"""What an operator asks of a running broker, over its own protocol and from a plain thread; ours or Apache's."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tests.support.patience import PATIENCE_S

from rocketline.client.bulk.channel import BulkChannel
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command


def ask(address: str, code: int, ext: dict[str, str] | None = None) -> bytes:
    """The body of the answer, which must be a success."""
    channel = BulkChannel(address)
    try:
        answer = channel.call(Command(code, ext or {}), time.monotonic() + PATIENCE_S)
        assert answer.command.code == ResponseCode.SUCCESS, (answer.command.code, answer.command.remark)
        return bytes(answer.body)
    finally:
        channel.close()


def create_topic(address: str, topic: str, queues: int) -> None:
    """Create a topic, or give it more queues."""
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


def delete_topic(namesrv: str, address: str, topic: str) -> None:
    ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    ask(namesrv, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})


def delete_old_files(address: str) -> None:
    """Have files deleted that are older than the broker keeps them."""
    ask(address, RequestCode.DELETE_EXPIRED_COMMITLOG)


def consume_stats(address: str, group: str, topic: str) -> dict[int, tuple[int, int]]:
    """By queue: where it ends, and how far the group is."""
    body = ask(address, RequestCode.GET_CONSUME_STATS, {"consumerGroup": group, "topic": topic}).decode()
    # Apache writes queues as keys, which are objects: no JSON.
    entry = re.compile(r'\{[^{}]*?"queueId":(\d+)[^{}]*?\}:\{([^{}]*)\}')
    found = {}
    for queue_id, values in entry.findall(body.replace('\\"', '"').replace('"{', "{").replace('}":', "}:")):
        numbers = dict(re.findall(r'"(\w+)":(-?\d+)', values))
        found[int(queue_id)] = (int(numbers["brokerOffset"]), int(numbers["consumerOffset"]))
    return found


def eventually(condition: Callable[[], bool], what: str, wait_s: float = PATIENCE_S) -> None:
    """Wait until something is so; AssertionError after a while."""
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {wait_s:g} s: {what}"
        time.sleep(0.05)
