"""What a replica does not decide but passes on to its master: commits of offsets, questions for them, queue locks.

A consumer may not have heard yet that another broker leads: clients of Java ask for routes every 30 s. What it commits only
here would be lost, because the master's table is copied over it, and a queue could be locked for two consumers.

    the master is there       passed on; the consumer gets the master's answer
    it is not, elections      offsets are told as they were copied; commits and locks are refused, and asked for again
    it is not, fixed roles    served here, as Apache's slaves do: what is committed counts until the master is back
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rocketline.broker.replication.follower import cancelled
from rocketline.broker.replication.roles import NOT_MASTER, Roles
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.errors import RequestRejected, RocketlineError
from rocketline.message import ConsumerOffset
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import UpdateConsumerOffsetHeader
from rocketline.protocol.signing import ACCOUNT_FIELDS
from rocketline.transport import Channel, Handler, RemotingClient, Reply

PASSED_ON = "rocketlinePassedOn"
"""Field of a request that a replica has passed on: who gets it and is not the master refuses it."""
MOST_WAITING = 10_000
"""Commits of pulls that are not passed on yet; a consumer says each of them again."""
TIMEOUT_S = 1.0
"""As long as clients wait for a lock."""

CODES = (
    RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
)  # fmt: skip

_Queue = tuple[str, str, int]
"""Group, topic, number."""


class ForMaster:
    """A replica's requests to its master on behalf of consumers."""

    def __init__(
        self, roles: Roles, address: Callable[[], str], client: RemotingClient, offsets: ConsumerOffsets
    ) -> None:
        """`address` is the master's, empty while nobody knows it."""
        self._roles = roles
        self._address = address
        self._client = client
        self._offsets = offsets
        self._latest: dict[_Queue, int] = {}
        """Offsets that came with pulls and are to be passed on."""
        self._passing: asyncio.Task[None] | None = None

    def pass_on(self, routes: dict[int, Handler]) -> dict[int, Handler]:
        """The routes of a replica."""
        return routes | {code: self._passing_on(routes[code]) for code in CODES if code in routes}

    def _passing_on(self, here: Handler) -> Handler:
        def pass_on(channel: Channel, request: Command) -> Reply:
            if PASSED_ON in (request.ext or {}):
                raise RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_MASTER)
            if not self._has_master:
                return self._alone(here, channel, request)
            return self._answer_of_master(here, channel, request)

        return pass_on

    @property
    def _has_master(self) -> bool:
        return self._roles.has_master and bool(self._address())

    def _alone(self, here: Handler, channel: Channel, request: Command) -> Reply:
        if self._roles.is_coordinated and request.code != RequestCode.QUERY_CONSUMER_OFFSET:
            raise RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_MASTER)
        return here(channel, request)

    async def _answer_of_master(self, here: Handler, channel: Channel, request: Command) -> Command | None:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            header = UpdateConsumerOffsetHeader.decode(request)
            self._latest.pop((header.consumer_group, header.topic, header.queue_id), None)  # what a pull said is older
        fields = {name: value for name, value in (request.ext or {}).items() if name not in ACCOUNT_FIELDS}
        try:
            answer = await self._ask(Command(request.code, fields, request.body))
        except (RocketlineError, OSError):
            return await _awaited(self._alone(here, channel, request))
        if answer.code == ResponseCode.SUCCESS and request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            await _awaited(here(channel, request))  # this replica may lead before it copies the table again
        return request.reply(answer.code, answer.ext, answer.body, remark=answer.remark)

    def commit(self, client: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A commit that came with a pull. What cannot be passed on, the consumer commits again."""
        has_master = self._has_master
        if has_master or not self._roles.is_coordinated:
            self._offsets.commit(client, group, topic, queue_id, offset)
        if not has_master or len(self._latest) >= MOST_WAITING:
            return
        self._latest[group, topic, queue_id] = offset
        if self._passing is None or self._passing.done():
            self._passing = asyncio.get_running_loop().create_task(self._pass_commits(), name="commits for the master")

    async def _pass_commits(self) -> None:
        while self._latest:
            (group, topic, queue_id), offset = self._latest.popitem()
            header = UpdateConsumerOffsetHeader(group, topic, queue_id, ConsumerOffset(offset))
            with suppress(RocketlineError, OSError):
                await self._ask(Command(RequestCode.UPDATE_CONSUMER_OFFSET, header.encode()))

    async def _ask(self, command: Command) -> Command:
        assert command.ext is not None
        command.ext[PASSED_ON] = "true"
        return await self._client.call(self._address(), command, TIMEOUT_S)

    async def close(self) -> None:
        if self._passing is not None:
            await cancelled(self._passing)


async def _awaited(reply: Reply) -> Command | None:
    answer = await reply if isinstance(reply, Awaitable) else reply
    assert answer is None or isinstance(answer, Command)
    return answer
