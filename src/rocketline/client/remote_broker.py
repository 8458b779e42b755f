"""One broker as a client sees it: a method per request, typed answers, and BrokerError for every refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from enum import Enum

from rocketline.client.consumer_info import ConsumerRunningInfo
from rocketline.errors import BrokerError
from rocketline.message import ConsumerOffset, LogOffset, MessageQueue, QueueOffset
from rocketline.protocol.bodies import (
    ConsumerIdList,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    QueueBody,
    SubscriptionData,
    TopicConfig,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from rocketline.protocol.bodies.filters import CheckClientBody
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    ConsumerSendMsgBackHeader,
    CreateTopicHeader,
    EarliestStoreTimeResponseHeader,
    EndTransactionHeader,
    GetConsumerListHeader,
    GetConsumerRunningInfoHeader,
    GetEarliestStoreTimeHeader,
    GetMaxOffsetHeader,
    GetMinOffsetHeader,
    Header,
    OffsetResponseHeader,
    PullMessageHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetHeader,
    RecallMessageHeader,
    RecallMessageResponseHeader,
    SearchOffsetHeader,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
)
from rocketline.protocol.names import DEFAULT_TOPIC
from rocketline.protocol.subscription import CONFLICT
from rocketline.transport import RemotingClient


class PullStatus(Enum):
    """What a broker found at an offset."""

    FOUND = 0
    NO_NEW = 19
    NO_MATCH = 20
    OFFSET_MOVED = 21


_PULL_STATUSES = {status.value: status for status in PullStatus}
_SUCCESS = int(ResponseCode.SUCCESS)


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """The answer to a pull: stored messages back to back, and where to go on."""

    status: PullStatus
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    suggested_broker_id: int
    offset_delta: int
    body: bytes
    is_replica: bool = False
    """Whether a broker of rocketline says that it is not the master."""


class RemoteBroker:
    """Calls to one broker address."""

    __slots__ = ("_remoting", "address", "name", "timeout_s")

    def __init__(self, remoting: RemotingClient, address: str, name: str = "", timeout_s: float = 3.0) -> None:
        self._remoting = remoting
        self.address = address
        self.name = name
        self.timeout_s = timeout_s

    def call(self, command: Command, timeout_s: float) -> Awaitable[Command]:
        """The answer as it came, whatever its code."""
        return self._remoting.call(self.address, command, timeout_s)

    async def send_oneway(self, command: Command, timeout_s: float | None = None) -> None:
        """Hand a request to the socket; waits only while the broker is behind with reading."""
        await self._remoting.send_oneway(self.address, command, timeout_s or self.timeout_s)

    async def _ask(
        self, code: int, header: Header | None, doing: str, *, body: bytes = b"", timeout_s: float | None = None
    ) -> Command:
        command = Command(code, header.encode() if header is not None else {}, body)
        answer = await self._remoting.call(self.address, command, timeout_s or self.timeout_s)
        if answer.code != _SUCCESS:
            raise BrokerError.of(answer.code, answer.remark, self.address, doing)
        return answer

    async def heartbeat(self, data: HeartbeatData) -> tuple[int, str | None]:
        """Send groups and subscriptions; returns the broker's version and which members disagree, if any."""
        doing = f"heartbeat of {data.client_id}"
        answer = await self._ask(RequestCode.HEART_BEAT, None, doing, body=encode_body(data))
        conflict = answer.remark if answer.remark and answer.remark.startswith(CONFLICT) else None
        return answer.version, conflict

    async def check_client(self, client_id: str, group: str, subscription: SubscriptionData) -> None:
        """Whether pulls with this subscription will be served; BrokerError says why not."""
        doing = f"check of {subscription.expression_type} {subscription.sub_string[:200]!r} for {subscription.topic}"
        body = encode_body(CheckClientBody(subscription, client_id, group))
        await self._ask(RequestCode.CHECK_CLIENT_CONFIG, None, doing, body=body)

    async def unregister(
        self, client_id: str, *, producer_group: str | None = None, consumer_group: str | None = None, timeout_s: float
    ) -> None:
        header = UnregisterClientHeader(client_id, producer_group, consumer_group)
        doing = f"unregistering {client_id} in group {producer_group or consumer_group}"
        await self._ask(RequestCode.UNREGISTER_CLIENT, header, doing, timeout_s=timeout_s)

    async def consumer_ids(self, group: str) -> list[str]:
        """The client ids of a group's members."""
        doing = f"members of group {group}"
        answer = await self._ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListHeader(group), doing)
        return decode_body(ConsumerIdList, answer.body).consumer_id_list

    async def running_info(self, group: str, client: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """What a member of a group says about itself; the broker passes the question on."""
        header = GetConsumerRunningInfoHeader(group, client, stacks)
        answer = await self._ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header, f"state of {client} in {group}")
        return decode_body(ConsumerRunningInfo, answer.body)

    async def lock(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], timeout_s: float
    ) -> set[MessageQueue]:
        """Lock queues for this client, or renew its locks; returns those that were granted."""
        body = encode_body(LockBatchRequestBody(group, client_id, [QueueBody.of(queue) for queue in queues]))
        doing = f"lock of {len(queues)} queues for group {group}"
        answer = await self._ask(RequestCode.LOCK_BATCH_MQ, None, doing, body=body, timeout_s=timeout_s)
        return {item.queue for item in decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set}

    async def unlock(self, group: str, client_id: str, queues: Sequence[MessageQueue], timeout_s: float) -> None:
        body = encode_body(UnlockBatchRequestBody(group, client_id, [QueueBody.of(queue) for queue in queues]))
        doing = f"unlock of {len(queues)} queues for group {group}"
        await self._ask(RequestCode.UNLOCK_BATCH_MQ, None, doing, body=body, timeout_s=timeout_s)

    async def pull(
        self, header: PullMessageHeader, timeout_s: float, code: int = RequestCode.PULL_MESSAGE
    ) -> PullAnswer:
        """Messages from an offset on; what the offset turned out to be is a status, everything else an error."""
        answer = await self._remoting.call(self.address, Command(code, header.encode()), timeout_s)
        status = _PULL_STATUSES.get(answer.code)
        if status is None:
            doing = f"pull of {header.topic}@{self.name}:{header.queue_id} at {header.queue_offset}"
            if header.subscription is not None:
                doing += f" with {header.expression_type} {header.subscription[:200]!r}"
            raise BrokerError.of(answer.code, answer.remark, self.address, doing)
        fields = PullMessageResponseHeader.decode(answer)
        return PullAnswer(
            status,
            fields.next_begin_offset,
            fields.min_offset,
            fields.max_offset,
            fields.suggest_which_broker_id,
            fields.offset_delta or 0,
            answer.body,
            fields.is_replica,
        )

    async def consumer_offset(self, group: str, queue: MessageQueue) -> ConsumerOffset:
        """What the group committed; QueryNotFound when nothing."""
        header = QueryConsumerOffsetHeader(group, queue.topic, queue.queue_id, broker_name=queue.broker_name)
        answer = await self._ask(RequestCode.QUERY_CONSUMER_OFFSET, header, f"offset of {group} in {queue}")
        return ConsumerOffset(OffsetResponseHeader.decode(answer).offset)

    async def commit_offset(self, group: str, queue: MessageQueue, offset: ConsumerOffset, *, oneway: bool) -> None:
        header = UpdateConsumerOffsetHeader(group, queue.topic, queue.queue_id, offset, queue.broker_name)
        if oneway:
            await self.send_oneway(Command(RequestCode.UPDATE_CONSUMER_OFFSET, header.encode()))
        else:
            await self._ask(RequestCode.UPDATE_CONSUMER_OFFSET, header, f"commit {offset} of {group} in {queue}")

    async def max_offset(self, queue: MessageQueue) -> QueueOffset:
        """The offset the next message of the queue will get."""
        header = GetMaxOffsetHeader(queue.topic, queue.queue_id, broker_name=queue.broker_name)
        return await self._ask_offset(RequestCode.GET_MAX_OFFSET, header, f"end of {queue}")

    async def min_offset(self, queue: MessageQueue) -> QueueOffset:
        """The offset of the oldest message kept."""
        header = GetMinOffsetHeader(queue.topic, queue.queue_id, broker_name=queue.broker_name)
        return await self._ask_offset(RequestCode.GET_MIN_OFFSET, header, f"start of {queue}")

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> QueueOffset:
        """The offset of the first message stored at or after a time."""
        header = SearchOffsetHeader(queue.topic, queue.queue_id, timestamp_ms, broker_name=queue.broker_name)
        return await self._ask_offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, f"offset in {queue} by time")

    async def earliest_ms(self, queue: MessageQueue) -> int:
        """When the oldest message kept was stored; -1 for an empty queue."""
        header = GetEarliestStoreTimeHeader(queue.topic, queue.queue_id, broker_name=queue.broker_name)
        answer = await self._ask(RequestCode.GET_EARLIEST_MSG_STORETIME, header, f"oldest message of {queue}")
        return EarliestStoreTimeResponseHeader.decode(answer).timestamp_ms

    async def _ask_offset(self, code: int, header: Header, doing: str) -> QueueOffset:
        return QueueOffset(OffsetResponseHeader.decode(await self._ask(code, header, doing)).offset)

    async def send_back(self, header: ConsumerSendMsgBackHeader, timeout_s: float) -> None:
        """Have a stored message delivered to the group again later; only its commit-log offset travels."""
        doing = f"send back of {header.origin_msg_id or LogOffset(header.log_offset)} for group {header.group}"
        await self._ask(RequestCode.CONSUMER_SEND_MSG_BACK, header, doing, timeout_s=timeout_s)

    async def recall(self, group: str, topic: str, handle: str, timeout_s: float) -> str:
        """Have a timer message not delivered; returns its unique id."""
        header = RecallMessageHeader(topic, handle, group, self.name or None)
        answer = await self._ask(RequestCode.RECALL_MESSAGE, header, f"recall of {topic}", timeout_s=timeout_s)
        return RecallMessageResponseHeader.decode(answer).msg_id

    async def end_transaction(self, header: EndTransactionHeader, timeout_s: float) -> bool:
        """Tell how a transaction ended; whether the broker confirmed it. UNKNOWN is never answered."""
        if not header.commit_or_rollback:
            await self.send_oneway(Command(RequestCode.END_TRANSACTION, header.encode()), timeout_s)
            return False
        doing = f"end of transaction {header.transaction_id} for group {header.producer_group}"
        await self._ask(RequestCode.END_TRANSACTION, header, doing, timeout_s=timeout_s)
        return True

    async def put_topic(self, topic: TopicConfig) -> None:
        """Create or change a topic; its attributes are those to set."""
        attributes = ",".join(
            f"{name if name[:1] in '+-' else '+' + name}{'=' + value if value else ''}"
            for name, value in topic.attributes.items()
        )
        header = CreateTopicHeader(
            topic=topic.topic_name,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_filter_type=topic.topic_filter_type,
            topic_sys_flag=topic.topic_sys_flag,
            order=topic.order,
            attributes=attributes or None,
        )
        await self._ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header, f"creation of topic {topic.topic_name}")
