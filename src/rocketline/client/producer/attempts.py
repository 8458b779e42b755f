"""The attempts of one send: how many, where to, how long, and which failure is the last.

Rules, as RocketMQ's synchronous send has them: an attempt that fails on the way (no connection, no answer) or is answered
with a code that another broker may not share is made again, at most `Retries.count` times, on another broker when there is
one. Any other refusal is final. A caller who chose the queue gets all attempts on that queue. A retry can store a message
twice: its unique id stays the same, so consumers can tell.

An attempt that found no connection, or no master to connect to, has sent nothing, and a broker that answers because it is
not the master any more stores nothing from then on. So these do not count: such attempts go on until the time is over, and a
send outlives the restart of its broker or the choice of another master. Before an attempt on a broker that failed before,
there is a pause, which grows up to a second and differs from send to send, so that not all come back at once. It ends when
the broker is found at another address.

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
    ClientClosed,
    ConnectFailed,
    NoMaster,
    NoPermission,
    RocketlineError,
    SendFailed,
    TlsFailed,
    TransportError,
)
from rocketline.message import MessageQueue
from rocketline.transport import without_next_attempt

LONGEST_PAUSE_S = 1.0
"""Between two attempts on one broker."""

_DOUBLINGS = 16


class Failure(NamedTuple):
    """An attempt that stored nothing, as far as we know; or several at one address that do not count."""

    queue: MessageQueue | None
    """None: there was none to choose."""
    address: str
    error: RocketlineError
    times: int = 1

    def __str__(self) -> str:
        error = self.error
        # The hint of a refusal is told once for all attempts.
        said = (
            str(error).removesuffix(error.hint) if isinstance(error, BrokerError) else without_next_attempt(str(error))
        )
        times = f" ({self.times} times)" if self.times > 1 else ""
        if self.queue is None:
            return said
        place = f"{self.queue.broker_name}@{self.address}" if self.address else self.queue.broker_name
        return f"{place} queue {self.queue.queue_id}: {said}{times}"

    def is_like(self, other: Failure) -> bool:
        """Whether neither counts, at the same broker."""
        return stored_nothing(other.error) and (self.queue and self.queue.broker_name, self.address) == (
            other.queue and other.queue.broker_name,
            other.address,
        )


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
    """How many were made, without those that found no connection or no master."""
    failed_on: tuple[str, ...] = ()
    """The brokers of all that were made, in order."""
    failures: tuple[Failure, ...] = ()
    stored: SendReceipt | None = None
    """The receipt of an attempt that stored the message less safely than asked for."""

    def look_at_clock(self) -> None:
        """Count the time that waiting took."""
        self.left_s = self.timeout_s - (self.time() - self.started)

    @property
    def failed_broker(self) -> str | None:
        """The broker of the last one."""
        return self.failed_on[-1] if self.failed_on else None

    def missed_at(self, broker_name: str) -> str | None:
        """The address of the last attempt on a broker, if it does not count: the broker may be found elsewhere."""
        made = [failure for failure in self.failures if failure.queue and failure.queue.broker_name == broker_name]
        return made[-1].address if made and stored_nothing(made[-1].error) else None

    def pause_s(self, broker_name: str, first_s: float, chance: float) -> float:
        """The wait before an attempt on a broker: about `first_s` after its first failure, then doubled each time.

        `chance`, between 0 and 1, takes up to a half of it away. It never takes more than half of the time left, so that
        an attempt is made late too.
        """
        times = self.failed_on.count(broker_name)
        if not times:
            return 0.0
        longest_s = min(first_s * (1 << min(times - 1, _DOUBLINGS)), LONGEST_PAUSE_S, max(first_s, self.left_s / 2))
        return min(longest_s * (1 - chance / 2), self.left_s)

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
        failure = Failure(queue, address, error)
        if stored_nothing(error):
            self._note_uncounted(failure)
            self._next(queue.broker_name, counts=False)
        else:
            self.failures += (failure,)
            self._next(queue.broker_name)

    def found_no_master(self, error: NoMaster) -> None:
        """Note that until the time was over no broker of the topic had a master."""
        self.failures += (Failure(None, "", error, times=0),)
        self.left_s = 0.0

    def _note_uncounted(self, failure: Failure) -> None:
        """Keep the last one of each address, and how many there were: there can be many in a long time."""
        same = [old for old in self.failures if failure.is_like(old)]
        others = tuple(old for old in self.failures if old not in same)
        self.failures = (*others, failure._replace(times=1 + sum(old.times for old in same)))

    def _next(self, broker_name: str, *, counts: bool = True) -> None:
        self.count += counts
        self.failed_on += (broker_name,)
        if self.count > self.retries.count:
            self.left_s = 0.0
        else:
            self.look_at_clock()

    def result(self, outgoing: SendRequest) -> SendReceipt:
        """What the send comes to after the last attempt: a receipt that is not OK, or SendFailed."""
        if self.stored is not None:
            return self.stored
        failures, took_s = self.failures, self.time() - self.started
        made = sum(failure.times for failure in failures)
        attempts = "1 attempt" if made == 1 else f"{made} attempts"
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


def stored_nothing(error: RocketlineError) -> bool:
    """Whether nothing was sent, or the broker takes nothing any more, and a later attempt may do better."""
    if isinstance(error, BrokerError):
        return error.may_lack_role
    return isinstance(error, ConnectFailed) and not isinstance(error, TlsFailed | ClientClosed)


def _hint(failures: tuple[Failure, ...]) -> str:
    if not failures or not all(isinstance(failure.error, NoPermission) for failure in failures):
        return ""
    last = failures[-1].error
    said = last.hint if isinstance(last, NoPermission) else ""
    hint = ". Hint: nothing is wrong with the route; the topic's permission or the credentials used do not allow it"
    return hint + said.replace(" Hint:", ":").lstrip(".")
