"""The transactional producer: consumers see a message only when a local transaction has committed.

The message is stored at once, but no consumer sees it. Then the local transaction runs, and its outcome is told to the
broker. When the outcome gets lost, or is not known yet, the broker asks some producer of the group later:
every producer must be able to say how a transaction ended, also one that another process ran.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, Unpack

import msgspec

from rocketline.client.producer.producer import Producer, ProducerArguments
from rocketline.client.producer.queue_choice import QueueSelector
from rocketline.client.producer.receipts import SendReceipt, SendStatus
from rocketline.client.tasks import OwnedTasks
from rocketline.errors import ConfigError, InvalidMessage, RocketlineError, TransportError
from rocketline.message import TRANSACTION_ID, UNIQ_KEY, Message, MessageQueue, MessageView
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import CheckTransactionStateHeader, EndTransactionHeader
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.namespaces import Namespace
from rocketline.protocol.record_layout import TRANSACTION_PREPARED
from rocketline.protocol.transactions import CHECK_IMMUNITY_S, PGROUP, TRAN_MSG, Transaction
from rocketline.transport import Channel

log = logging.getLogger(__name__)

Outcome = Transaction | Awaitable[Transaction]
CheckFunction = Callable[[MessageView], Outcome]
ExecuteFunction = Callable[..., Outcome]

MAX_CHECKS = 2000
"""Questions of brokers that wait for an answer; the brokers ask again about the rest."""
CHECKS_AT_ONCE = 32


class TransactionReceipt(msgspec.Struct, frozen=True):
    """The result of a transaction."""

    receipt: SendReceipt
    """Of the half message."""
    outcome: Transaction
    """What the local transaction said; UNKNOWN also when it failed with an exception."""
    is_settled: bool
    """Whether the broker has confirmed the outcome; if not, it will ask."""


class TransactionalProducer(Producer):
    """Sends messages together with local transactions; an async context manager.

        async def place(message: Message, order: Order) -> Transaction:
            await database.insert(order, transaction_id=message.transaction_id)
            return Transaction.COMMIT

        async def was_placed(message: MessageView) -> Transaction:
            found = await database.has(transaction_id=message.transaction_id)
            return Transaction.COMMIT if found else Transaction.ROLLBACK

        async with TransactionalProducer("127.0.0.1:9876", group="shop", check=was_placed) as producer:
            await producer.send_in_transaction(Message("orders", b"..."), place, order)

    Both functions may be plain ones; those run in a thread. What they raise is logged and counts as UNKNOWN.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str,
        check: CheckFunction | None = None,
        **arguments: Unpack[ProducerArguments],
    ) -> None:
        """`check` answers brokers that ask how a transaction ended. The other arguments are those of Producer."""
        super().__init__(name_servers, group=group, **arguments)
        if not callable(check):
            raise ConfigError(
                f"transactional producer {group!r} needs check=, a function from a message to Transaction.COMMIT, ROLLBACK "
                "or UNKNOWN: brokers ask it how a transaction ended"
            )
        self._checks = TransactionChecks(self._wire_group, self._namespace, check)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._open_session.checks[self._wire_group] = self._checks
        return self

    async def close(self) -> None:
        session = self._session
        if session is not None and session.checks.get(self._wire_group) is self._checks:
            del session.checks[self._wire_group]
        await self._checks.cancel()
        await super().close()

    async def send_in_transaction(
        self,
        message: Message,
        execute: ExecuteFunction,
        *args: Any,
        queue: MessageQueue | QueueSelector | None = None,
        check_after: float | None = None,
        timeout: float | None = None,
    ) -> TransactionReceipt:
        """Store the message hidden, run `execute(message, *args)`, and let consumers see it if that commits.

        `execute` gets the message with its transaction id. `check_after` is how many seconds it may take before the
        broker asks (6 by default); an outcome told later than that counts only as an answer to the broker.
        """
        if not callable(execute):
            raise InvalidMessage(f"execute must be a function that runs the local transaction, not {execute!r}")
        half = self._half(self._prepared(message), check_after)
        outgoing = self._small(half) or await self._large(half)
        outgoing.ext["f"] = str(int(outgoing.ext["f"]) | TRANSACTION_PREPARED)
        receipt = await self._send(half, queue, timeout or self._options.timeout_s, outgoing)
        outcome = Transaction.ROLLBACK
        if receipt.status is SendStatus.OK:
            outcome = await _outcome_of(execute, half, *args)
        return TransactionReceipt(receipt, outcome, await self._end(receipt, half.topic, outcome))

    def _half(self, message: Message, check_after: float | None) -> Message:
        if message.delay_level:
            raise InvalidMessage("a message in a transaction cannot have a delay level: brokers ignore it")
        properties = dict(message.properties)
        properties[TRANSACTION_ID] = properties.setdefault(UNIQ_KEY, self._open_session.unique_ids.next())
        properties[TRAN_MSG] = "true"
        properties[PGROUP] = self._wire_group
        if check_after is not None:
            if not 0 < check_after < 1 << 31:
                raise InvalidMessage(f"check_after={check_after}: a number of seconds above 0 is needed")
            properties[CHECK_IMMUNITY_S] = str(math.ceil(check_after))
        return msgspec.structs.replace(message, properties=properties)

    async def _end(self, receipt: SendReceipt, topic: str, outcome: Transaction) -> bool:
        """Tell the broker; whether it has confirmed."""
        timeout_s = self._options.timeout_s
        try:
            header = EndTransactionHeader(
                self._wire_group,
                receipt.queue_offset,
                parse_offset_id(receipt.offset_id)[1],
                int(outcome),
                receipt.message_id,
                topic=self._namespace.wrap(topic),
                transaction_id=receipt.transaction_id,
                broker_name=receipt.queue.broker_name,
            )
            return await self._running.ask_master(
                self._namespace.wrap_queue(receipt.queue),
                lambda broker: broker.end_transaction(header, timeout_s),
                timeout_s,
            )
        except RocketlineError as error:
            log.warning("%s of transaction %s was not confirmed, the broker will ask: %s", outcome.name,
                        receipt.message_id, error)  # fmt: skip
            return False


class TransactionChecks:
    """Answers brokers that ask how transactions of a group ended."""

    def __init__(self, group: str, namespace: Namespace, function: CheckFunction) -> None:
        self._group = group
        self._namespace = namespace
        self._function = function
        self._tasks = OwnedTasks()
        self._turn = asyncio.Semaphore(CHECKS_AT_ONCE)

    def __call__(self, channel: Channel, header: CheckTransactionStateHeader, message: MessageView) -> None:
        """A broker asks over `channel`; the answer goes back over it."""
        if len(self._tasks) >= MAX_CHECKS:
            log.warning("%d checks of group %s wait already: this one is left to a later one", MAX_CHECKS, self._group)
            return
        message.topic = self._namespace.unwrap(message.topic)
        message.broker_name = header.broker_name or ""
        self._tasks.start(self._answer(channel, header, message), f"check of transaction {header.transaction_id}")

    async def cancel(self) -> None:
        await self._tasks.cancel()

    async def _answer(self, channel: Channel, header: CheckTransactionStateHeader, message: MessageView) -> None:
        async with self._turn:
            outcome = await _outcome_of(self._function, message)
        end = EndTransactionHeader(
            self._group,
            header.queue_offset,
            header.log_offset,
            int(outcome),
            message.message_id,
            from_transaction_check=True,
            topic=header.topic,
            transaction_id=header.transaction_id,
            broker_name=header.broker_name,
        )
        try:
            channel.send_oneway(Command(RequestCode.END_TRANSACTION, end.encode()))
        except TransportError as error:
            log.warning("the answer about transaction %s was not sent, the broker will ask again: %s",
                        header.transaction_id, error)  # fmt: skip


async def _outcome_of(function: Callable[..., Any], message: Message | MessageView, *args: Any) -> Transaction:
    """What the user's function says; UNKNOWN when it fails or says nothing that is an outcome."""
    try:
        if inspect.iscoroutinefunction(function):
            result = await function(message, *args)
        else:
            result = await asyncio.to_thread(_called_in_thread, function, message, *args)
            if inspect.isawaitable(result):
                result = await result
    except Exception:
        log.exception(
            "%r failed for a message of topic %s: how its transaction ends is unknown", function, message.topic
        )
        return Transaction.UNKNOWN
    if isinstance(result, Transaction):
        return result
    log.error("%r returned %r, not a Transaction: how it ends is unknown", function, result)
    return Transaction.UNKNOWN


def _called_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except StopIteration as error:
        # No future can carry a StopIteration: whoever awaits it would wait for ever.
        raise RuntimeError("the function raised StopIteration") from error
