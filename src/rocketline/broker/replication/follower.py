"""A replica's connection to its master: what the master sends is checked and appended, and the end of the log is reported.

The connection is a protocol without a task of its own. `Follower.run` makes one after the other. A log that does not fit the
master's ends that for good (LogDiverged): the same bytes would come again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, cast

from rocketline.broker.replication.config import ReplicationConfig
from rocketline.broker.replication.epochs import Epochs, common_end
from rocketline.broker.replication.meter import ByteMeter
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.errors import LogDiverged, RemoteProtocolError, RocketlineError, StoreError
from rocketline.protocol.replication_frames import (
    Data,
    DataHeader,
    Dialect,
    Epoch,
    MasterBytes,
    MasterHandshake,
    encode_hello,
    encode_replica_handshake,
    encode_report,
)
from rocketline.store.message_store import MessageStore
from rocketline.transport.client import split_address

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 5.0
CONNECT_S = 3.0
HEARTBEAT_S = 1.0
APACHE_HEARTBEAT_S = 5.0


class MasterPlace(NamedTuple):
    """Where a master is, and how one shows it who is coming."""

    ha_address: str
    hello: tuple[int, bytes] | None = None
    """Own member id and proof; None: the master is Apache's."""
    tls: ssl.SSLContext | None = None
    epoch: int = 0
    """A master whose last epoch is below this one is not followed."""


@wired
class FollowerParts:
    """What following needs of a broker."""

    store: MessageStore
    config: ReplicationConfig
    dialect: Dialect
    epochs: Epochs
    own_id: Callable[[], int]
    confirmed: Callable[[], int]
    """What this broker knows to be confirmed: nothing below is ever cut off."""
    confirm: Callable[[int], None]
    """Called with what the master says is confirmed."""
    stored: Callable[[], None]
    """Called when something was appended."""
    cut: Callable[[int], Awaitable[None]]
    """Cuts the log, and all that was made from it."""
    prepare: Callable[[], Awaitable[int]]
    """With epochs, called before the first report: a member may only count when it has the master's tables too. Returns
    where the master's log begins."""
    clock: Clock


class Follower:
    """Follows one master after the other; `run` is a task of its owner."""

    def __init__(self, parts: FollowerParts, find: Callable[[], Awaitable[MasterPlace | None]]) -> None:
        """`find` says where the master is now; None: nobody knows. LogDiverged: it has another log."""
        self.parts = parts
        self.problem = ""
        """Why the log does not follow; empty when it does."""
        self.diverged = False
        """Whether that is for good."""
        self.connection: MasterConnection | None = None
        self._find = find

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and self.connection.is_following

    async def run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                place = await self._find()
                if place is not None:
                    await self._follow(place)
                    pause_s = FIRST_PAUSE_S
            except LogDiverged as error:
                self.diverged = True
                self._note(f"this replica does not follow its master any more: {error}", logging.ERROR)
                await asyncio.Event().wait()
            except (RocketlineError, OSError, TimeoutError) as error:
                self._note(f"the master cannot be followed now: {error or type(error).__name__}", logging.WARNING)
                pause_s = min(LAST_PAUSE_S, pause_s * 2)
            await asyncio.sleep(pause_s)

    def _note(self, problem: str, level: int) -> None:
        if problem != self.problem:
            log.log(level, "%s", problem)
        self.problem = problem

    async def _follow(self, place: MasterPlace) -> None:
        """Return when the connection is lost; raises what ended it."""
        host, port = split_address(place.ha_address)
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {} if place.tls is None else {"ssl": place.tls}
        async with asyncio.timeout(CONNECT_S):
            _, connection = await loop.create_connection(
                lambda: MasterConnection(self.parts, place), host, port, **options
            )
        self.connection = connection
        try:
            await connection.shaken
            self._note("", logging.INFO)
            log.info("following the master at %s from %d on", place.ha_address, self.parts.store.log_next_offset)
            await connection.ended
        finally:
            self.connection = None
            connection.close()

    def report(self) -> None:
        """The end of the log may have moved, or more of it is on disk."""
        if self.connection is not None:
            self.connection.report()


class MasterConnection(asyncio.Protocol):
    def __init__(self, parts: FollowerParts, place: MasterPlace) -> None:
        self._parts = parts
        self._place = place
        self._bytes = MasterBytes(parts.dialect)
        self._appender = parts.store.copies.new_appender()
        self._reported = -1
        self._pending_epoch: Epoch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_read = self._last_write = parts.clock.monotonic()
        self._cutting: asyncio.Task[None] | None = None
        self.received = ByteMeter(parts.clock.monotonic)
        self.master_end = 0
        self._confirmed_before: int | None = None
        """What the master said is confirmed when it had heard how far this log is; None: it has not said so yet."""
        self.is_following = False
        loop = asyncio.get_running_loop()
        self.shaken: asyncio.Future[None] = loop.create_future()
        """Done when the master sends, or is about to."""
        self.ended: asyncio.Future[None] = loop.create_future()
        """Done when the connection is lost; the exception says why, if it is known."""

    @property
    def address(self) -> str:
        return self._place.ha_address

    @property
    def has_all_confirmed(self) -> bool:
        """Whether this log has everything that the master took to be on all members in sync. What it confirmed since then
        waited for this log."""
        before = self._confirmed_before
        return self.is_following and before is not None and self._parts.store.copies.counted_end >= before

    @property
    def bytes_per_s(self) -> int:
        return self.received.per_second

    def times_ms(self) -> tuple[int, int]:
        """When something was read and written last."""
        now, now_ms = self._parts.clock.monotonic(), self._parts.clock.now_ms()
        return now_ms - round((now - self._last_read) * 1000), now_ms - round((now - self._last_write) * 1000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._place.hello is not None:
            self._write(encode_hello(*self._place.hello))
        if self._parts.dialect is Dialect.EPOCHS:
            self._write(encode_replica_handshake(self._parts.own_id()))
        else:
            self._start()
        self._tick()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError(f"the master at {self.address} closed the connection"))

    def close(self) -> None:
        self._end(None)
        self._transport.abort()

    def _end(self, error: BaseException | None) -> None:
        self.is_following = False
        if self._timer is not None:
            self._timer.cancel()
        if self._cutting is not None:
            self._cutting.cancel()
        for future in (self.shaken, self.ended):
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
                    future.exception()  # nobody may wait for it any more

    def _fail(self, error: BaseException) -> None:
        self._end(error)
        self._transport.abort()

    def _start(self) -> None:
        self.is_following = True
        if not self.shaken.done():
            self.shaken.set_result(None)
        self.report(always=True)

    # What the master says

    def data_received(self, data: bytes) -> None:
        self._last_read = self._parts.clock.monotonic()
        try:
            for found in self._bytes.receive(data):
                if self.ended.done():
                    return
                if isinstance(found, Data):
                    self._append(found)
                elif isinstance(found, DataHeader):
                    self._begin(found)
                else:
                    self._shake_hands(found)
        except (RemoteProtocolError, StoreError) as error:
            self._fail(error)
            return
        if self.is_following:
            self._note_epoch()
            self.report()

    def _append(self, found: Data) -> None:
        if not self.is_following:
            raise RemoteProtocolError("data before the handshake")
        self.received.add(len(found.data))
        self.master_end = max(self.master_end, found.offset + len(found.data))
        if self._parts.store.copies.append(self._appender, found.offset, found.data):
            self._parts.stored()

    def _begin(self, header: DataHeader) -> None:
        own = self._appender.next_offset
        if own and header.offset != own:
            raise LogDiverged(
                f"the master at {self.address} goes on at log offset {header.offset}, this log at {own}; if the master lost "
                "what this replica has, start it with an empty folder"
            )
        if header.epoch is not None:
            self._pending_epoch = header.epoch
        if header.confirmed is not None:
            if self._confirmed_before is None:
                self._confirmed_before = header.confirmed
            self._note_epoch()
            self._parts.confirm(header.confirmed)

    def _note_epoch(self) -> None:
        """Write down that an epoch began, as soon as the log reaches that far."""
        epoch, epochs = self._pending_epoch, self._parts.epochs
        if epoch is None or epoch.number <= epochs.last_number or self._parts.store.log_next_offset < epoch.start:
            return
        # Blocks until it is on disk; once for each epoch.
        epochs.save(epochs.with_epoch(epoch))

    def _shake_hands(self, found: MasterHandshake) -> None:
        if self.is_following or self._cutting is not None:
            return
        if found.epoch < self._place.epoch:
            raise RemoteProtocolError(
                f"the master at {self.address} is in epoch {found.epoch}, {self._place.epoch} is agreed on: not followed"
            )
        self.master_end = found.end
        self._cutting = asyncio.get_running_loop().create_task(self._cut_and_start(found))

    async def _cut_and_start(self, found: MasterHandshake) -> None:
        try:
            store, parts = self._parts.store, self._parts
            end = store.log_next_offset
            common = common_end(parts.epochs, end, found.epochs, found.end)
            if common < end:
                if common < parts.confirmed():
                    raise LogDiverged(
                        f"the master at {self.address} has the same log up to {common} only, but {parts.confirmed()} was "
                        "confirmed here: nothing is cut off"
                    )
                await parts.cut(common)
                self._appender = store.copies.new_appender()
            # An epoch that begins where this log ends, and is none of the master's, would be taken for that of what comes.
            parts.epochs.save(parts.epochs.shared(common, found.epochs))
            begins = await parts.prepare()
            if 0 < store.log_next_offset < begins:
                raise LogDiverged(
                    f"this log ends at {store.log_next_offset}, the one of the master at {self.address} begins at "
                    f"{begins} now: this replica was away for too long. "
                    "Stop it, empty its data folder, and start it: it joins as a new "
                    "member; then have the group forget the former one, with `rocketline admin removeMember`"
                )
            self._start()
        except (RocketlineError, OSError) as error:
            self._fail(error)

    # What the master is told

    def report(self, always: bool = False) -> None:
        if not self.is_following:
            return
        store = self._parts.store
        end = store.copies.counted_end
        if self._reported < 0 and end < store.log_next_offset:
            return  # The master goes on where the first report says: with SYNC_FLUSH all of the log is on disk before.
        if end != self._reported or always:
            self._reported = end
            self._write(encode_report(self._parts.dialect, end))

    def _write(self, data: bytes) -> None:
        self._last_write = self._parts.clock.monotonic()
        self._transport.write(data)

    def _tick(self) -> None:
        now = self._parts.clock.monotonic()
        if now - self._last_read > self._parts.config.silence_ms / 1000:
            self._fail(TimeoutError(f"the master at {self.address} was silent for {self._parts.config.silence_ms} ms"))
            return
        pause_s = APACHE_HEARTBEAT_S if self._place.hello is None else HEARTBEAT_S
        if now - self._last_write >= pause_s:
            self.report(always=True)
        self._timer = asyncio.get_running_loop().call_later(pause_s / 2, self._tick)


def cancelled(task: asyncio.Task[None]) -> Awaitable[None]:
    """Cancel a task, and wait until it has ended."""
    task.cancel()

    async def wait() -> None:
        with suppress(asyncio.CancelledError):
            await task

    return wait()
