"""Telemetry: the stream on which a client tells its settings and takes commands.

A client is registered by its settings, and told in answer what holds here. Operators' requests that a broker passes on to a
client become commands on its stream; its answers come back on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import Any

from rocketline.auth.guard import Refused
from rocketline.auth.needs import PUB, SUB, topic_need
from rocketline.broker.grpc_config import GrpcConfig
from rocketline.errors import CorruptRecord, InvalidMessage, RocketlineError
from rocketline.grpc.calls import Call, StreamCall
from rocketline.grpc.status import CallFailed, Status
from rocketline.grpc.steps import Steps
from rocketline.protocol.bodies import SQL92, TAG, SubscriptionGroupConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.records import decode_message
from rocketline.protocol.subscription import build_subscription
from rocketline.proxy.access import Access, group_need, new_channel
from rocketline.proxy.answers import consume_result, running_info
from rocketline.proxy.backend import Backend
from rocketline.proxy.clients import MAX_ID_CHARS, Client, Clients
from rocketline.proxy.links import FrontChannel
from rocketline.proxy.messages import to_client
from rocketline.proxy.problems import Problem, status
from rocketline.proxy.proto import ClientType, Code, FilterType, Language, pb
from rocketline.proxy.validation import checked_group, checked_topic
from rocketline.transport import Reply

log = logging.getLogger(__name__)

RETRY_STEPS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
MAX_TOPICS = 1024
MAX_SETTINGS_BYTES = 128 * 1024
"""Of one client: they are kept for as long as it is there."""
MAX_WAITING = 1024
"""Commands whose answers are waited for, of one client."""
_LANGUAGES = {
    value: {"DOT_NET": "DOTNET", "GOLANG": "GO"}.get(name, name) for name, value in vars(Language).items() if value
}
"""What brokers call the languages of user agents."""
_KINDS = (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER)

Check = Callable[[Client, Command], None]
"""Asks a producer about a transaction."""


class Telemetry:
    """Makes the server's side of such streams."""

    def __init__(self, config: GrpcConfig, backend: Backend, access: Access, clients: Clients, check: Check) -> None:
        self.config = config
        self.backend = backend
        self.access = access
        self.clients = clients
        self.check = check

    def open(self, stream: StreamCall) -> TelemetryStream:
        return TelemetryStream(self, stream)


class TelemetryStream:
    """One stream; its commands are served one after the other."""

    def __init__(self, telemetry: Telemetry, stream: StreamCall) -> None:
        self._telemetry = telemetry
        self._stream = stream
        self._client: Client | None = None
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._numbers = count()
        self._commands: asyncio.Queue[Any] = asyncio.Queue(64)
        self._is_working = False
        self._is_ended = False

    # What the channel calls

    def received(self, message: Any) -> None:
        kind = message.WhichOneof("command")
        if kind in ("thread_stack_trace", "verify_message_result", "verify_message_command"):
            # Node's client answers with the command itself.
            self._answered(getattr(message, kind).nonce, message)
        elif kind == "settings":
            if self._commands.full():
                raise CallFailed(Status.RESOURCE_EXHAUSTED, "settings come faster than they are served")
            self._commands.put_nowait(message.settings)
            if not self._is_working:
                self._is_working = True
                Steps(self._work(), _ended).run([])

    def ended(self) -> None:
        self._is_ended = True
        if not self._is_working:
            self._stream.finish()

    def lost(self) -> None:
        if self._client is not None:
            self._telemetry.clients.stream_lost(self._client, self._stream)
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    # Settings

    async def _work(self) -> None:
        try:
            while not self._commands.empty() and self._stream.is_open:
                await self._settings(self._commands.get_nowait())
        finally:
            self._is_working = False
        if self._is_ended:
            self._stream.finish()

    async def _settings(self, settings: Any) -> None:
        try:
            answer = await self._registered(settings)
        except Refused as refused:
            self._refuse(await self._telemetry.access.refused(self._stream.call, refused))
        except CallFailed as failed:
            self._stream.finish(failed.status, failed.text)
        except Problem as problem:
            self._refuse(problem)
        except RocketlineError as error:
            self._stream.finish(Status.INTERNAL, f"process client telemetryCommand failed. {error}")
        except Exception as error:
            log.exception("settings of a client of %s could not be used", self._stream.call.channel.remote)
            self._stream.finish(Status.INTERNAL, f"process client telemetryCommand failed. {type(error).__name__}")
        else:
            self._stream.send(pb.TelemetryCommand(status=status(Code.OK), settings=answer))

    def _refuse(self, problem: Problem) -> None:
        if problem.code in (Code.UNAUTHORIZED, Code.CLIENT_ID_REQUIRED):
            self._stream.send(pb.TelemetryCommand(status=status(problem.code, problem.text)))
            self._stream.finish()
            return
        kind = Status.INVALID_ARGUMENT if Code.BAD_REQUEST <= problem.code < Code.INTERNAL_ERROR else Status.INTERNAL
        self._stream.finish(kind, f"process client telemetryCommand failed. {problem.text}")

    async def _registered(self, settings: Any) -> Any:
        """Register the client that these settings are of; returns those that hold."""
        telemetry, call = self._telemetry, self._stream.call
        channel = telemetry.access.channel(call)
        client_id = checked_client_id(call)
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            raise CallFailed(Status.INVALID_ARGUMENT, "there is no publishing or subscription data in settings")
        if kind == "subscription" and settings.client_type not in _KINDS:
            raise CallFailed(
                Status.INTERNAL, "process client telemetryCommand failed. the client type is none of a consumer"
            )
        if settings.ByteSize() > MAX_SETTINGS_BYTES:
            raise Problem(Code.BAD_REQUEST, f"settings have at most {MAX_SETTINGS_BYTES} bytes")
        client = self._client_of(client_id, channel)
        agent = settings.user_agent  # Node's header says HTTP
        language = _LANGUAGES.get(agent.language) or call.header(b"x-mq-language").upper()
        client.is_by(language, agent.version or call.header(b"x-mq-client-version"))
        merged = pb.Settings()
        merged.CopyFrom(settings)
        if kind == "publishing":
            self._take_publishing(client, merged)
        else:
            await self._take_subscription(client, merged)
        client.settings = merged
        telemetry.clients.add(client)
        client.stream = self._stream
        client.lost_at = None
        self._client = client
        client.channel.listen(self._asked)
        await telemetry.clients.register(client)
        return merged

    def _client_of(self, client_id: str, channel: FrontChannel) -> Client:
        """The client as it is known, maybe only by what it holds, or a new one."""
        client = self._telemetry.clients.get(client_id)
        call = self._stream.call
        if client is None or client.channel.identity != channel.identity or not client.channel.is_open:
            client = Client(client_id, new_channel(call.channel, channel.identity), call.channel)
        return client

    def _take_publishing(self, client: Client, settings: Any) -> None:
        config, publishing = self._telemetry.config, settings.publishing
        topics = tuple(dict.fromkeys(checked_topic(topic.name) for topic in publishing.topics[: MAX_TOPICS + 1]))
        _check_count(topics)
        self._telemetry.access.require(self._stream.call, client.channel, (topic_need(topic, PUB) for topic in topics))
        client.group, client.topics, client.subscriptions = "", topics, []
        publishing.max_body_size = config.max_body_bytes
        publishing.validate_message_type = True
        settings.backoff_policy.max_attempts = config.producer_attempts
        backoff = settings.backoff_policy.exponential_backoff
        backoff.initial.nanos, backoff.initial.seconds = 10_000_000, 0
        backoff.max.seconds, backoff.max.nanos = 1, 0
        backoff.multiplier = 2
        settings.metric.on = False

    async def _take_subscription(self, client: Client, settings: Any) -> None:
        telemetry, subscription = self._telemetry, settings.subscription
        group = checked_group(subscription.group.name)
        entries = list(subscription.subscriptions[: MAX_TOPICS + 1])
        topics = tuple(dict.fromkeys(entry.topic.name for entry in entries))
        _check_count(topics)
        telemetry.access.require(
            self._stream.call, client.channel, (group_need(group), *(topic_need(topic, SUB) for topic in topics))
        )
        client.group, client.topics = group, topics
        client.subscriptions = [subscription_of(entry.topic.name, entry.expression) for entry in entries]
        config = await telemetry.backend.group(group) or SubscriptionGroupConfig(group)
        subscription.fifo = config.consume_message_orderly
        subscription.receive_batch_size = telemetry.config.batch_size
        subscription.long_polling_timeout.seconds = telemetry.config.max_poll_ms // 1000
        subscription.long_polling_timeout.nanos = 0
        set_retry_policy(settings.backoff_policy, config)
        settings.metric.on = False

    # What brokers ask the client

    def _asked(self, command: Command) -> Reply:
        client = self._client
        if client is None:
            return None
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._telemetry.check(client, command)
            return None
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return self._verify(client, command)
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return self._stack(client, command)
        return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="a gRPC client does not answer this")

    async def _verify(self, client: Client, command: Command) -> Command:
        try:
            message = decode_message(command.body, 0, len(command.body), inflates=False)
        except CorruptRecord as error:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=f"the message cannot be read: {error}")
        shown = pb.TelemetryCommand()
        shown.verify_message_command.message.CopyFrom(to_client(message, pb.Resource(name=message.topic)))
        shown.verify_message_command.nonce = nonce = str(next(self._numbers))
        answer = await self._ask(nonce, shown)
        if answer is None:
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=f"{client.id} did not answer in time")
        return command.reply(ResponseCode.SUCCESS, body=consume_result(answer.status))

    async def _stack(self, client: Client, command: Command) -> Command:
        text = None
        if (command.ext or {}).get("jstackEnable", "").lower() == "true":
            shown = pb.TelemetryCommand()
            shown.print_thread_stack_trace_command.nonce = nonce = str(next(self._numbers))
            answer = await self._ask(nonce, shown)
            text = None if answer is None else answer.thread_stack_trace.thread_stack_trace
        return command.reply(ResponseCode.SUCCESS, body=running_info(client, text))

    async def _ask(self, nonce: str, command: Any) -> Any:
        """The client's answer to a command; None when there is none in time."""
        if len(self._waiting) >= MAX_WAITING or not self._stream.is_open:
            return None
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[nonce] = waiting
        self._stream.send(command)
        try:
            return await asyncio.wait_for(waiting, self._telemetry.config.relay_timeout_s)
        except (TimeoutError, asyncio.CancelledError):
            return None
        finally:
            self._waiting.pop(nonce, None)

    def _answered(self, nonce: str, message: Any) -> None:
        waiting = self._waiting.get(nonce)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


def _ended(_owner: object, _result: object, error: BaseException | None) -> None:
    if error is not None and not isinstance(error, asyncio.CancelledError):
        log.error("settings could not be served", exc_info=error)


def checked_client_id(call: Call) -> str:
    """The id of the client that calls."""
    client_id = call.header(b"x-mq-client-id")
    if not client_id or client_id.isspace():
        raise Problem(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(client_id) > MAX_ID_CHARS:
        raise Problem(Code.BAD_REQUEST, f"a client id has at most {MAX_ID_CHARS} characters")
    return client_id


def _check_count(topics: tuple[str, ...]) -> None:
    if len(topics) > MAX_TOPICS:
        raise Problem(Code.BAD_REQUEST, f"a client has at most {MAX_TOPICS} topics")


def subscription_of(topic: str, expression: Any) -> Any:
    """A subscription as brokers know it; Problem when its expression names nothing."""
    if expression.type == FilterType.SQL:
        return build_subscription(topic, expression.expression, SQL92)
    try:
        return build_subscription(topic, expression.expression.strip() or "*", TAG)
    except InvalidMessage as error:
        raise Problem(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from error


def set_retry_policy(policy: Any, config: SubscriptionGroupConfig) -> None:
    """How often and when consumers of a group try a message again."""
    policy.max_attempts = config.retry_max_times + 1
    chosen = config.group_retry_policy
    exponential = chosen.exponential_retry_policy
    if chosen.type == "EXPONENTIAL" and exponential is not None:
        backoff = policy.exponential_backoff
        _set_ms(backoff.initial, exponential.initial)
        _set_ms(backoff.max, exponential.max)
        backoff.multiplier = exponential.multiplier
        return
    customized = chosen.customized_retry_policy
    steps_ms = [step * 1000 for step in RETRY_STEPS_S] if customized is None else list(customized.next)
    policy.customized_backoff.ClearField("next")
    for step_ms in steps_ms:
        _set_ms(policy.customized_backoff.next.add(), step_ms)


def _set_ms(duration: Any, ms: int) -> None:
    duration.seconds, duration.nanos = ms // 1000, ms % 1000 * 1_000_000
