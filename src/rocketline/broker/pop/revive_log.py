"""Writing the revive log: check points and acknowledgements as timer messages of one topic.

The timer brings a check point to its revive queue one second before the invisible time ends and acknowledgements when
it ends; steps of the timer are delivered in order, so a check point is always there before what is matched with it.
What comes when its time is over goes to the queue at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rocketline.broker.pop.records import CHECKPOINT_TAG, PopAck, PopCheckpoint
from rocketline.broker.tables.topics import REVIVE_PREFIX
from rocketline.broker.timer.timers import Timers
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.errors import RequestRejected
from rocketline.message import TAGS, TIMER_DELIVER_MS, UNIQ_KEY
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.properties import encode_properties
from rocketline.store.message_store import AppendResult, AppendStatus, MessageStore, StoreMessage

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""Under this group's offsets is kept how far each revive queue is settled."""

EARLIER_MS = 1000
"""How long before its acknowledgements a check point comes to the queue."""


def revive_topic(cluster: str) -> str:
    return REVIVE_PREFIX + cluster


_REFUSALS = {
    AppendStatus.BUSY: ResponseCode.SYSTEM_BUSY,
    AppendStatus.NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}
TAKES_NOTHING = frozenset(_REFUSALS.values())
"""Codes of a refusal that has nothing to do with what was to be kept."""

CHECKPOINT = "CK"
ACK = "ACK"


@dataclass
class ReviveTraffic:
    """Records written and read since the start, by group, topic and type, and those read by queue too."""

    put: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    got: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)


@wired
class ReviveLog:
    store: MessageStore
    timers: Timers
    topic: str
    queue_count: int
    store_host: bytes
    clock: Clock
    stored: Callable[[], None]
    traffic: ReviveTraffic = field(default_factory=ReviveTraffic)

    def put_checkpoint(self, checkpoint: PopCheckpoint, revive_queue_id: int, acked: int = 0) -> AppendResult:
        """RequestRejected when it cannot be kept."""
        deliver_ms = checkpoint.revive_ms - EARLIER_MS
        encoded = checkpoint.encode(acked)
        result = self._put(CHECKPOINT_TAG, checkpoint.unique_id, encoded, revive_queue_id, deliver_ms)
        self.traffic.put[checkpoint.group, checkpoint.topic, CHECKPOINT] += 1
        return result

    def put_ack(self, ack: PopAck, revive_queue_id: int, deliver_ms: int) -> AppendResult:
        """RequestRejected when it cannot be kept."""
        result = self._put(ack.tag, ack.unique_id, ack.encode(), revive_queue_id, deliver_ms)
        self.traffic.put[ack.key.group, ack.key.topic, ACK] += 1
        return result

    def _put(self, tag: str, unique_id: str, body: bytes, queue_id: int, deliver_ms: int) -> AppendResult:
        properties = {TAGS: tag, UNIQ_KEY: unique_id, TIMER_DELIVER_MS: str(deliver_ms)}
        message = StoreMessage(
            topic=self.topic,
            queue_id=queue_id,
            body=body,
            properties=properties,
            properties_raw=encode_properties(properties).encode(),
            flag=0,
            sys_flag=0,
            born_ms=self.clock.now_ms(),
            born_host=self.store_host,
        )
        self.timers.redirect(message)
        result = self.store.append(message)
        if result.status is not AppendStatus.OK:
            code = _REFUSALS.get(result.status, ResponseCode.MESSAGE_ILLEGAL)
            raise RequestRejected(code, f"{unique_id} cannot be kept: {result.reason or result.status.name}")
        self.stored()
        return result
