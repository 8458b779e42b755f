"""Has the replicas of a group with elections copy a change of topics and groups before it is answered.

Replicas copy tables every few seconds. What an operator was told to exist must be there after the next failover, too: so the
master asks the members that are connected to copy at once, and answers when those in sync have done so. What is created by a
first message or a first member is not waited for: it is created again, or found by its queues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from rocketline.errors import BrokerError, RequestRejected, RocketlineError
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ExchangeHaInfoHeader
from rocketline.transport import Channel, Handler, Reply

if TYPE_CHECKING:
    from rocketline.broker.parts import BrokerParts

log = logging.getLogger(__name__)

CODES = (
    RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, RequestCode.SET_MESSAGE_REQUEST_MODE,
)  # fmt: skip
"""Changes that are waited for."""


class FreshRuns:
    """Runs work so that everybody gets a run that began after he asked; who asks meanwhile shares the next one."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    def __call__(self) -> Awaitable[None]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run_after(self._running))
            self._next.add_done_callback(_seen)
        return asyncio.shield(self._next)

    async def _run_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        await self._work()


def _seen(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # whoever asked may have left


class TableChanges:
    """The master's side."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self.copied = FreshRuns(self._have_all_copy)
        """RequestRejected: a member in sync did not copy."""

    def wait_in(self, routes: dict[int, Handler]) -> dict[int, Handler]:
        """The routes with changes that are answered when replicas have them."""
        return routes | {code: self._waiting(routes[code]) for code in CODES if code in routes}

    def _waiting(self, handler: Handler) -> Handler:
        def change(channel: Channel, request: Command) -> Reply:
            reply = handler(channel, request)
            return self._answer_later(reply) if self._targets() else reply

        return change

    async def _answer_later(self, reply: Reply) -> Command | None:
        answer = await reply if isinstance(reply, Awaitable) else reply
        assert answer is None or isinstance(answer, Command)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            await self.copied()
        return answer

    def _targets(self) -> set[int]:
        """Members that may be elected next, as far as this broker knows: those in sync, and those about to be."""
        roles = self._parts.roles
        return {*roles.in_sync, *roles.replicas()} - {roles.own_id}

    async def _have_all_copy(self) -> None:
        roles, record = self._parts.roles, self._parts.member.record if self._parts.member else None
        members = record.members if record is not None else {}
        addresses = {member: members[member].address for member in self._targets() if member in members}
        found = await asyncio.gather(*map(self.have_copied, addresses.values()), return_exceptions=True)
        failed = {member: error for member, error in zip(addresses, found) if error is not None}
        late = [f"member {member}: {error}" for member, error in failed.items() if member in roles.in_sync]
        if late or not roles.is_master:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                "the change is made here, but not all members in sync have it: it may be lost with this broker. Order it "
                f"again ({'; '.join(late) or 'this broker is not the master any more'})",
            )

    async def have_copied(self, address: str) -> None:
        """Return when the member at an address has copied all tables since the call."""
        header = ExchangeHaInfoHeader(rocketline_copy_tables=self._parts.roles.epoch)
        command = Command(RequestCode.EXCHANGE_BROKER_HA_INFO, header.encode())
        timeout_s = self._parts.config.replication.slave_timeout_ms / 1000
        try:
            answer = await self._parts.environment.client.call(address, command, timeout_s)
        except OSError as error:
            raise RocketlineError(f"{address}: {error}") from error
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark, address, "copying tables")
