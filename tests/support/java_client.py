"""Apache's Java client with typed Python methods.

    with JavaClient("5.4.0") as java, java.producer(namesrv, "group") as producer:
        sent = producer.send("topic", b"body", tags="blue", keys=["1"])

Names follow the Java client where it has one for a thing; bodies are bytes, times are milliseconds since 1970.
Every call has a time limit and raises `JavaCallError` for an exception on the Java side.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.patience import PATIENCE_MS, PATIENCE_S

from .java_driver import JavaDriver

# Generous, because it is only waited for when messages are missing; a loaded machine is slow to share out queues.

BROKER_ADDRESS = "{broker}"

# What the consuming client itself puts among a message's properties; no broker stored these.
CLIENT_SIDE_PROPERTIES = frozenset({"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"})


@dataclass(frozen=True, slots=True)
class Queue:
    topic: str
    broker: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send. `properties` are the user's; tags, keys and delays have their own fields."""

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] | None = None
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_level: int | None = None
    wait_store: bool = True
    delay_ms: int | None = None
    deliver_ms: int | None = None

    def arguments(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "body": self.body.hex(),
            "tags": self.tags,
            "keys": list(self.keys) if self.keys is not None else None,
            "flag": self.flag,
            "properties": dict(self.properties),
            "delay_level": self.delay_level,
            "wait_store": self.wait_store,
            "delay_ms": self.delay_ms,
            "deliver_ms": self.deliver_ms,
        }


@dataclass(frozen=True, slots=True)
class Sent:
    """What the producer knows after a send. A one-way send has only `msg_id` and `properties`."""

    msg_id: str
    properties: Mapping[str, str]
    status: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    transaction_id: str | None = None
    region_id: str | None = None
    topic: str | None = None
    recall_handle: str | None = None

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Self:
        return cls(
            msg_id=reply["msgId"],
            properties=reply.get("properties", {}),
            status=reply.get("status"),
            offset_msg_id=reply.get("offsetMsgId"),
            broker_name=reply.get("brokerName"),
            queue_id=reply.get("queueId"),
            queue_offset=reply.get("queueOffset"),
            transaction_id=reply.get("transactionId"),
            region_id=reply.get("regionId"),
            recall_handle=reply.get("recallHandle"),
            topic=reply.get("topic"),
        )


@dataclass(frozen=True, slots=True)
class SentBatch:
    """`receipt` is the one answer for all; `messages` are what the client put into each of them."""

    receipt: Sent
    messages: Sequence[Sent]


@dataclass(frozen=True, slots=True)
class SentMany:
    acknowledged: int
    failed: int
    failures: Sequence[Mapping[str, Any]]
    elapsed_ms: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as a Java consumer got it, with every field the client shows."""

    topic: str
    broker_name: str | None
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str | None
    body: bytes
    tags: str | None
    keys: str | None
    flag: int
    sys_flag: int
    properties: Mapping[str, str]
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    store_size: int
    reconsume_times: int
    body_crc: int
    commit_log_offset: int
    prepared_transaction_offset: int
    accepted: bool | None = None
    delivered_ms: int = 0
    """When a push consumer's listener got it."""

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> Self:
        return cls(
            topic=reply["topic"],
            broker_name=reply["brokerName"],
            queue_id=reply["queueId"],
            queue_offset=reply["queueOffset"],
            msg_id=reply["msgId"],
            offset_msg_id=reply["offsetMsgId"],
            body=bytes.fromhex(reply["body"]),
            tags=reply["tags"],
            keys=reply["keys"],
            flag=reply["flag"],
            sys_flag=reply["sysFlag"],
            properties=reply["properties"],
            born_timestamp=reply["bornTimestamp"],
            born_host=reply["bornHost"],
            store_timestamp=reply["storeTimestamp"],
            store_host=reply["storeHost"],
            store_size=reply["storeSize"],
            reconsume_times=reply["reconsumeTimes"],
            body_crc=reply["bodyCRC"],
            commit_log_offset=reply["commitLogOffset"],
            prepared_transaction_offset=reply["preparedTransactionOffset"],
            accepted=reply.get("accepted"),
            delivered_ms=reply.get("deliveredAt", 0),
        )

    @property
    def stored_properties(self) -> dict[str, str]:
        """The properties as the broker stored them: without what the consuming client adds."""
        return {name: value for name, value in self.properties.items() if name not in CLIENT_SIDE_PROPERTIES}


@dataclass(frozen=True, slots=True)
class Pulled:
    status: str
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[Seen]


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    min: int
    max: int
    earliest_store_time: int
    search: int | None


class _Handle:
    """A client object that lives in the driver under a name, and is stopped by one command."""

    STOP: str

    def __init__(self, driver: JavaDriver, name: str) -> None:
        self._driver = driver
        self.name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._driver.call(self.STOP, name=self.name)


class JavaProducer(_Handle):
    STOP = "stop_producer"

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        mode: str = "sync",
        queue_id: int | None = None,
        broker: str | None = None,
        **fields: Any,
    ) -> Sent:
        """Send one message; `mode` is sync, async or oneway, `fields` are those of `Outgoing`."""
        return self.send_message(Outgoing(topic, body, **fields), mode=mode, queue_id=queue_id, broker=broker)

    def send_message(
        self, message: Outgoing, *, mode: str = "sync", queue_id: int | None = None, broker: str | None = None
    ) -> Sent:
        where = {"queue_id": queue_id, "broker": broker}
        return Sent.of(self._driver.call("send", name=self.name, mode=mode, **where, **message.arguments()))

    def recall(self, topic: str, handle: str) -> str:
        """Take back a timer message; returns its unique id."""
        return str(self._driver.call("recall", name=self.name, topic=topic, handle=handle))

    def send_batch(
        self, messages: Iterable[Outgoing], *, queue_id: int | None = None, broker: str | None = None
    ) -> SentBatch:
        batch = [message.arguments() for message in messages]
        reply = self._driver.call(
            "send_batch",
            name=self.name,
            topic=batch[0]["topic"],
            messages=[{key: value for key, value in item.items() if value is not None} for item in batch],
            queue_id=queue_id,
            broker=broker,
        )
        return SentBatch(Sent.of(reply), [Sent.of(item) for item in reply["messages"]])

    def request(
        self, topic: str, body: bytes, timeout_s: float = PATIENCE_S, **fields: Any
    ) -> tuple[bytes, dict[str, str]]:
        """Send a request; body and properties of its reply."""
        message, limit_ms = Outgoing(topic, body, **fields), round(timeout_s * 1000)
        reply = self._driver.call(
            "request", timeout_s + PATIENCE_S, name=self.name, timeout_ms=limit_ms, **message.arguments()
        )
        return bytes.fromhex(reply["body"]), reply["properties"]

    def send_many(
        self,
        topic: str,
        count: int,
        *,
        threads: int = 1,
        prefix: str = "",
        size: int = 0,
        tags: str | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> SentMany:
        """Load: body i is `prefix` and i, padded with '.' to `size` bytes."""
        reply = self._driver.call(
            "send_many",
            timeout_s,
            name=self.name,
            topic=topic,
            count=count,
            threads=threads,
            prefix=prefix,
            size=size,
            tags=tags,
        )
        return SentMany(reply["acknowledged"], reply["failed"], reply["failures"], reply["elapsedMs"])


class JavaTransactionalProducer(_Handle):
    STOP = "stop_transactional"

    def send(self, topic: str, body: bytes, outcome: str, **fields: Any) -> Sent:
        """Send a message whose local transaction ends with COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
        message = Outgoing(topic, body, **fields)
        reply = self._driver.call("send_in_transaction", name=self.name, outcome=outcome, **message.arguments())
        assert reply["localTransactionState"] == outcome
        return Sent.of(reply)

    def checks(self, count: int, timeout_s: float = PATIENCE_S) -> list[Seen]:
        """All messages it was asked about since the last call, once they are `count` or the time is over."""
        arguments = {"name": self.name, "count": count, "timeout_ms": round(timeout_s * 1000)}
        return [Seen.of(item) for item in self._driver.call("poll_checks", timeout_s + PATIENCE_S, **arguments)]


class JavaReplier(_Handle):
    """A push consumer that replies "re " and the body."""

    STOP = "stop_replier"


class JavaPushConsumer(_Handle):
    STOP = "stop_push"

    def poll(self, count: int, timeout_s: float = PATIENCE_S) -> list[Seen]:
        """All deliveries since the last poll, once they are `count` or the time is over."""
        arguments = {"name": self.name, "count": count, "timeout_ms": round(timeout_s * 1000)}
        reply = self._driver.call("poll_push", timeout_s + PATIENCE_S, **arguments)
        return [Seen.of(item) for item in reply]

    def stop_and_poll(self) -> list[Seen]:
        """End it; all deliveries since the last poll, those during its shutdown included."""
        return [Seen.of(item) for item in self._driver.call(self.STOP, name=self.name)]

    def owned(self, topic: str) -> tuple[str, set[Queue]]:
        """The consumer's client id, and the queues of a topic it owns at the moment."""
        reply = self._driver.call("push_queues", name=self.name, topic=topic)
        return reply["clientId"], {Queue(*item) for item in reply["queues"]}

    def persist(self) -> None:
        """Tell the broker the offsets now; of its own accord the client waits ten seconds before it first does."""
        self._driver.call("persist_push", name=self.name)


class JavaLitePullConsumer(_Handle):
    STOP = "stop_lite_pull"

    def queues(self, topic: str) -> list[Queue]:
        return [Queue(**item) for item in self._driver.call("lite_pull_queues", name=self.name, topic=topic)]

    def assign(self, queues: Iterable[Queue]) -> None:
        self._driver.call("lite_pull_assign", name=self.name, queues=[_plain(queue) for queue in queues])

    def seek(self, queue: Queue, offset: int) -> None:
        self._driver.call("lite_pull_seek", name=self.name, offset=offset, **_plain(queue))

    def poll(self, count: int, timeout_s: float = PATIENCE_S) -> list[Seen]:
        """At least `count` messages, or fewer when the time is over."""
        arguments = {"name": self.name, "count": count, "timeout_ms": round(timeout_s * 1000)}
        reply = self._driver.call("lite_pull_poll", timeout_s + PATIENCE_S, **arguments)
        return [Seen.of(item) for item in reply]

    def commit(self) -> None:
        self._driver.call("lite_pull_commit", name=self.name)

    def committed(self, queue: Queue) -> int:
        offset: int = self._driver.call("lite_pull_committed", name=self.name, **_plain(queue))
        return offset


class JavaClient(JavaDriver):
    """A JVM with Apache's client of one version, and everything that client can be asked to do."""

    def __init__(self, version: str, serialize: str = "JSON", jvm_options: Sequence[str] = ()) -> None:
        super().__init__(version, serialize, jvm_options=jvm_options)
        self._numbers = itertools.count(1)

    @contextmanager
    def signing_as(self, access_key: str, secret_key: str) -> Iterator[None]:
        """Clients that are made inside sign their requests as this account, as long as they live."""
        self.call("sign_as", access_key=access_key, secret_key=secret_key)
        try:
            yield
        finally:
            self.call("sign_as")

    def producer(
        self,
        namesrv: str,
        group: str,
        *,
        compress_type: str = "ZLIB",
        compress_over: int = 4096,
        timeout_ms: int = PATIENCE_MS,
        retries: int = 2,
        default_queues: int = 4,
        max_message_size: int = 4 << 20,
        **more: Any,
    ) -> JavaProducer:
        """`more`: trace, trace_topic, namespace, unit_name (which switches unit mode on)."""
        name = self._name("producer")
        self.call(
            "start_producer",
            name=name,
            namesrv=namesrv,
            group=group,
            compress_type=compress_type,
            compress_over=compress_over,
            timeout_ms=timeout_ms,
            retries=retries,
            default_queues=default_queues,
            max_message_size=max_message_size,
            **more,
        )
        return JavaProducer(self, name)

    def transactional_producer(
        self, namesrv: str, group: str, *, check: str = "UNKNOW", topic: str | None = None
    ) -> JavaTransactionalProducer:
        """Answers every check with `check`; with `topic` it greets that topic's brokers before it sends anything."""
        name = self._name("transactional")
        self.call("start_transactional", name=name, namesrv=namesrv, group=group, check=check, topic=topic)
        return JavaTransactionalProducer(self, name)

    def replier(self, namesrv: str, group: str, topic: str) -> JavaReplier:
        name = self._name("replier")
        self.call("start_replier", name=name, namesrv=namesrv, group=group, topic=topic)
        return JavaReplier(self, name)

    def push_consumer(
        self,
        namesrv: str,
        group: str,
        subscriptions: Mapping[str, str],
        *,
        model: str = "CLUSTERING",
        orderly: bool = False,
        consume_from: str = "CONSUME_FROM_FIRST_OFFSET",
        fail_first: int = 0,
        retry_level: int = 0,
        max_reconsume_times: int = -1,
        threads: int = 4,
        from_timestamp: str | None = None,
        strategy: str = "AVG",
        heartbeat_v2: bool = False,
        sql: Mapping[str, str] | None = None,
        **more: Any,
    ) -> JavaPushConsumer:
        """Collects deliveries; each message fails its first `fail_first`, to come back at `retry_level`. `sql` are SQL92
        expressions by topic.

        `more`: trace, trace_topic, namespace, unit_name (which switches unit mode on), journal (a file that is told of
        every delivery before it counts as consumed), pop_invisible_ms (which lets the broker share the queues out), work_ms
        (how long a concurrent delivery takes)."""
        name = self._name("push")
        self.call(
            "start_push",
            name=name,
            namesrv=namesrv,
            group=group,
            subscriptions=dict(subscriptions),
            model=model,
            orderly=orderly,
            fail_first=fail_first,
            retry_level=retry_level,
            max_reconsume_times=max_reconsume_times,
            threads=threads,
            from_timestamp=from_timestamp,
            strategy=strategy,
            heartbeat_v2=heartbeat_v2,
            sql=dict(sql) if sql else None,
            **{"from": consume_from},
            **more,
        )
        return JavaPushConsumer(self, name)

    def lite_pull_consumer(
        self,
        namesrv: str,
        group: str,
        *,
        subscriptions: Mapping[str, str] | None = None,
        assign: Sequence[str] | None = None,
        auto_commit: bool = False,
        consume_from: str = "CONSUME_FROM_FIRST_OFFSET",
    ) -> JavaLitePullConsumer:
        """Subscribes to `subscriptions`, or takes every queue of the topics in `assign`."""
        name = self._name("lite")
        self.call(
            "start_lite_pull",
            name=name,
            namesrv=namesrv,
            group=group,
            subscriptions=dict(subscriptions) if subscriptions else None,
            assign=list(assign) if assign else None,
            auto_commit=auto_commit,
            **{"from": consume_from},
        )
        return JavaLitePullConsumer(self, name)

    def pull(
        self,
        namesrv: str,
        queue: Queue,
        offset: int,
        *,
        count: int = 32,
        expression: str = "*",
        block: bool = False,
        group: str | None = None,
    ) -> Pulled:
        """One pull of a DefaultMQPullConsumer; with `block` it is a long poll."""
        wanted = {"offset": offset, "count": count, "expression": expression, "block": block, "group": group}
        reply = self.call("pull", namesrv=namesrv, **_plain(queue), **wanted)
        messages = [Seen.of(item) for item in reply["messages"] or []]
        return Pulled(reply["status"], reply["nextBeginOffset"], reply["minOffset"], reply["maxOffset"], messages)

    def offsets(self, namesrv: str, queue: Queue, timestamp: int | None = None) -> QueueOffsets:
        reply = self.call("offsets", namesrv=namesrv, timestamp=timestamp, **_plain(queue))
        return QueueOffsets(reply["min"], reply["max"], reply["earliestStoreTime"], reply.get("search"))

    def query_message(self, namesrv: str, topic: str, key: str, count: int = 64) -> list[Seen]:
        reply = self.call("query_message", namesrv=namesrv, topic=topic, key=key, count=count)
        return [Seen.of(item) for item in reply]

    def view_message(self, namesrv: str, topic: str, message_id: str) -> Seen:
        """By offset message id or by unique id: the client tells them apart."""
        return Seen.of(self.call("view_message", namesrv=namesrv, topic=topic, id=message_id))

    def decode_trace(self, body: bytes) -> list[dict[str, Any]]:
        """The records of a trace message as Apache's own reader understands them."""
        records: list[dict[str, Any]] = self.call("decode_trace", body=body.hex())
        return records

    def create_topic(self, namesrv: str, topic: str, queues: int = 4, perm: int = 6) -> None:
        """On every master; returns once the name server shows it."""
        self.call("create_topic", namesrv=namesrv, topic=topic, queues=queues, perm=perm)

    def delete_topic(self, namesrv: str, topic: str) -> None:
        self.call("delete_topic", namesrv=namesrv, topic=topic)

    def create_group(self, namesrv: str, group: str, retry_max_times: int = 16) -> None:
        self.call("create_group", namesrv=namesrv, group=group, retry_max_times=retry_max_times)

    def set_request_mode(self, namesrv: str, topic: str, group: str, mode: str, share: int = 0) -> None:
        """How a group reads a topic from now on: PULL or POP."""
        self.call("set_request_mode", namesrv=namesrv, topic=topic, group=group, mode=mode, share=share)

    def pop(self, namesrv: str, topic: str, group: str, *, invisible_ms: int, poll_ms: int = 0) -> list[Seen]:
        """Up to 32 messages of any queue of the only broker; their handles are the property POP_CK."""
        answer = self.call("pop", namesrv=namesrv, topic=topic, group=group, invisible_ms=invisible_ms, poll_ms=poll_ms)
        return [Seen.of(item) for item in answer]

    def ack(self, namesrv: str, topic: str, group: str, handle: str) -> str:
        """OK, or NO_EXIST; `topic` is the one that the message lies on."""
        return str(self.call("ack", namesrv=namesrv, topic=topic, group=group, handle=handle))

    def ack_batch(self, namesrv: str, topic: str, group: str, handles: Sequence[str]) -> str:
        return str(self.call("ack_batch", namesrv=namesrv, topic=topic, group=group, handles=list(handles)))

    def change_invisible(self, namesrv: str, topic: str, group: str, handle: str, invisible_ms: int) -> str:
        """The handle that counts from now on."""
        return str(
            self.call(
                "change_invisible", namesrv=namesrv, topic=topic, group=group, handle=handle, invisible_ms=invisible_ms
            )
        )

    def route(self, namesrv: str, topic: str) -> dict[str, Any]:
        """TopicRouteData: queueDatas, brokerDatas, ..."""
        return self._object("route", namesrv=namesrv, topic=topic)

    def read_queues(self, namesrv: str, topic: str) -> list[Queue]:
        """Every readable queue of a topic, by its route."""
        return [
            Queue(topic, data["brokerName"], queue_id)
            for data in sorted(self.route(namesrv, topic)["queueDatas"], key=lambda data: data["brokerName"])
            for queue_id in range(data["readQueueNums"])
        ]

    def cluster_info(self, namesrv: str) -> dict[str, Any]:
        return self._object("cluster_info", namesrv=namesrv)

    def topic_stats(self, namesrv: str, topic: str) -> dict[str, Any]:
        return self._object("topic_stats", namesrv=namesrv, topic=topic)

    def topic_list(self, namesrv: str) -> set[str]:
        return set(self._object("topic_list", namesrv=namesrv)["topicList"])

    def consumer_connection(self, namesrv: str, group: str) -> dict[str, Any]:
        return self._object("consumer_connection", namesrv=namesrv, group=group)

    def admin(self, namesrv: str, method: str, *params: str | int | bool) -> Any:
        """A method of Apache's MQAdminExt; `BROKER_ADDRESS` stands for the address of the only master."""
        return self.call("admin", namesrv=namesrv, method=method, params=list(params))

    def committed(self, namesrv: str, group: str, queue: Queue) -> int | None:
        """The group's offset as the broker has it; None when it has none."""
        offset: int | None = self.call("committed", namesrv=namesrv, group=group, **_plain(queue))
        return offset

    def release(self, namesrv: str) -> None:
        """Close what queries and operator calls keep open towards a name server that goes away."""
        self.call("release", namesrv=namesrv)

    def _object(self, command: str, **args: Any) -> dict[str, Any]:
        reply: dict[str, Any] = self.call(command, **args)
        return reply

    def _name(self, kind: str) -> str:
        """Unique over all drivers: it becomes part of the client id, by which brokers tell clients apart."""
        return f"{kind}-{self.pid}-{next(self._numbers)}"


def _plain(queue: Queue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker, "queue_id": queue.queue_id}
