"""The attempts of one send: how many, where to, how long, and which failure is the last.

Rules, as RocketMQ's synchronous send has them: an attempt that fails on the way (no connection, no answer) or is answered
with a code that another broker may not share is made again, at most `Retries.count` times, on another broker when there is
one. Any other refusal is final. A caller who chose the queue gets all attempts on that queue. A retry can store a message
twice: its unique id stays the same, so consumers can tell.

All attempts share one time limit. An attempt that may still be followed by another can have a shorter one of its own
(`attempt_timeout_s`), so that a broker that hangs does not use up the time of those that work.

No I/O and no waiting here: the event loop and threads make their attempts by the same rules, and a send that a thread began
goes on in the event loop with the same `Attempts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from rocketline.client.producer.outgoing import SendRequest
from rocketline.client.producer.queue_choice import QueueChoice
from rocketline.client.producer.receipts import SendReceipt, SendStatus
from rocketline.client.producer.send_options import Retries
from rocketline.errors import (
    BrokerError,
    NoPermission,
    RocketlineError,
    SendFailed,
    TransportError,
)
from rocketline.message import MessageQueue


class Failure(NamedTuple):
    """An attempt that stored nothing, as far as we know."""

    queue: MessageQueue
    address: str
    error: RocketlineError

    def __str__(self) -> str:
        error = self.error
        # The hint of a refusal is told once for all attempts.
        said = str(error).removesuffix(error.hint) if isinstance(error, BrokerError) else str(error)
        return f"{self.queue.broker_name}@{self.address} queue {self.queue.queue_id}: {said}"


class Attempts(msgspec.Struct):
    """The attempts of one send; made by `first_attempt`."""

    retries: Retries
    time: Callable[[], float]
    """The clock of whoever waits: the event loop's, or that of threads."""
    started: float
    timeout_s: float
    left_s: float
    """Time left for all attempts, as of the last look at the clock; 0 when no other may be made."""
    choice: QueueChoice | None = None
    """The queue the caller chose, or the function that chooses it; None: queues in turn."""
    count: int = 0
    """How many were made."""
    failed_broker: str | None = None
    """The broker of the last one."""
    failures: tuple[Failure, ...] = ()
    stored: SendReceipt | None = None
    """The receipt of an attempt that stored the message less safely than asked for."""

    def look_at_clock(self) -> None:
        """Count the time that waiting took."""
        self.left_s = self.timeout_s - (self.time() - self.started)

    def pause_s(self, step_s: float) -> float:
        """The wait before the broker that just failed is asked again: `step_s` more each time."""
        return max(0.0, min(step_s * self.count, self.left_s))

    def limit_s(self) -> float:
        """The time limit of the attempt that begins now."""
        limit_s = self.retries.attempt_timeout_s
        return self.left_s if limit_s is None or self.count >= self.retries.count else min(self.left_s, limit_s)

    def is_stored(self, receipt: SendReceipt) -> bool:
        """Note what an attempt brought; whether it ends the send."""
        if receipt.status is SendStatus.OK or not self.retries.not_stored:
            return True
        self.stored = receipt
        self._next(receipt.queue.broker_name)
        return False

    def failed(self, queue: MessageQueue, address: str, error: TransportError | BrokerError) -> None:
        """Note a failure; raises it when no other broker could do better."""
        if isinstance(error, BrokerError) and not error.retryable:
            raise error
        self.failures += (Failure(queue, address, error),)
        self._next(queue.broker_name)

    def _next(self, broker_name: str) -> None:
        self.count += 1
        self.failed_broker = broker_name
        if self.count > self.retries.count:
            self.left_s = 0.0
        else:
            self.look_at_clock()

    def result(self, outgoing: SendRequest) -> SendReceipt:
        """What the send comes to after the last attempt: a receipt that is not OK, or SendFailed."""
        if self.stored is not None:
            return self.stored
        failures, took_s = self.failures, self.time() - self.started
        attempts = "1 attempt" if len(failures) == 1 else f"{len(failures)} attempts"
        reasons = "; ".join(map(str, failures)) or "no time was left to make one"
        error = SendFailed(
            f"message {outgoing.message_id} for topic {outgoing.topic!r} was not acknowledged after {attempts} "
            f"in {took_s:.2f} s (limit {self.timeout_s:g} s): {reasons}{_hint(failures)}"
        )
        error.__cause__ = failures[-1].error if failures else None
        raise error


def first_attempt(
    retries: Retries, timeout_s: float, time: Callable[[], float], choice: QueueChoice | None = None
) -> Attempts:
    """What a send begins with; its time counts from now."""
    return Attempts(retries, time, time(), timeout_s, timeout_s, choice)


def _hint(failures: tuple[Failure, ...]) -> str:
    if not failures or not all(isinstance(failure.error, NoPermission) for failure in failures):
        return ""
    last = failures[-1].error
    said = last.hint if isinstance(last, NoPermission) else ""
    hint = ". Hint: nothing is wrong with the route; the topic's permission or the credentials used do not allow it"
    return hint + said.replace(" Hint:", ":").lstrip(".")
