"""A replica copies the tables of its master: topics, groups, offsets, delays, timers, pop modes; of ours also accounts.

It asks every few seconds, by the requests that Apache's slaves use, and takes what has another version. Copying is not
ordered with the log: a topic that was created just before its master failed may be missing, and is then found by its queues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rocketline.broker.replication.table_changes import FreshRuns
from rocketline.broker.tables.consumer_offsets import SEPARATOR
from rocketline.errors import BAD_ITEM, BrokerError, RemoteProtocolError, RocketlineError, TransportError
from rocketline.protocol.bodies import (
    Body,
    ConsumerOffsetTable,
    DelayOffsetTable,
    HaStatus,
    MessageRequestModeTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    decode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    ExchangeHaInfoHeader,
    GetAllGroupConfigHeader,
    GetAllTopicConfigHeader,
)
from rocketline.protocol.numbers import read_number
from rocketline.protocol.timer_mark import TimerMark

if TYPE_CHECKING:
    from rocketline.broker.parts import BrokerParts

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
PAGE = 2000
MAX_PAGES = 1000
NOT_COPIED = (RocketlineError, OSError, msgspec.MsgspecError, *BAD_ITEM)
"""What copying a table raises, whatever the master says."""

T = TypeVar("T", bound=Body)
P = TypeVar("P", TopicConfigSerializeWrapper, SubscriptionGroupWrapper)


def _rows(page: TopicConfigSerializeWrapper | SubscriptionGroupWrapper) -> dict[str, Any]:
    if isinstance(page, TopicConfigSerializeWrapper):
        return page.topic_config_table
    return page.subscription_group_table


class AccountFilesBody(Body):
    """Users and rights, as their files have them."""

    users: str = ""
    acls: str = ""

    def __repr__(self) -> str:
        return "AccountFilesBody()"  # it has passwords


@dataclass
class TableCopier:
    """Copies from one master after the other."""

    parts: BrokerParts
    master: Callable[[], str]
    """Its address; empty: nobody knows."""
    problem: str = ""
    account_problem: str = ""
    known_end: int = 0
    """Below this log offset all messages are of topics that the table had or that were deleted, when it was copied last."""
    _master_begins: int = 0
    """Where the master's log began then."""
    _timer_mark: TimerMark | None = None
    _turn: int = 0

    def __post_init__(self) -> None:
        self._copied = FreshRuns(self.copy)
        self._copying = asyncio.Lock()
        """One at a time: each belongs to a turn of the role."""

    async def copy(self) -> None:
        """Copy all tables once; what fails is logged once, and tried again the next time. A table that cannot be taken over
        costs no other one."""
        async with self._copying:
            if address := self.master():
                self._turn = self.parts.roles.turn
                await self._copy_all(address)

    async def _copy_all(self, address: str) -> None:
        problems: list[str] = []
        is_away = False
        for copy in (
            self._copy_topics,
            self._copy_groups,
            self._copy_offsets,
            self._copy_delays,
            self._copy_modes,
            self._copy_timers,
        ):
            try:
                await copy(address)
            except NOT_COPIED as error:
                if self.parts.roles.turn != self._turn:
                    return
                problems.append(str(error) or type(error).__name__)
                if is_away := isinstance(error, TransportError):
                    break  # it would not answer the others either
        problem = "; ".join(problems)
        if problem and problem != self.problem:
            log.warning("tables of the master at %s cannot be copied now: %s", address, problem)
        self.problem = problem
        if not is_away:
            await self._copy_accounts_too(address)

    async def copy_now(self) -> int:
        """Return when all tables but accounts were copied since the call: the log offset at which the master's log begins.
        RocketlineError when they could not be."""
        await self._copied()
        if self.problem:
            raise RocketlineError(f"tables could not be copied: {self.problem}")
        return self._master_begins

    async def copy_offsets(self) -> None:
        """Copy what changes most and is repeated after a failover; problems are told by `copy`."""
        async with self._copying:
            if address := self.master():
                self._turn = self.parts.roles.turn
                with suppress(*NOT_COPIED):
                    await self._copy_offsets(address)

    async def _copy_topics(self, address: str) -> None:
        def ask(seq: int) -> dict[str, str]:
            return GetAllTopicConfigHeader(topic_seq=seq, max_topic_num=PAGE, data_version="").encode()

        # First the end of the log: a message below it whose topic is not in the table is of a topic that was deleted.
        status = await self._get(address, RequestCode.GET_BROKER_HA_STATUS, HaStatus)
        self._master_begins = status.rocketline_log_begins
        first: TopicConfigSerializeWrapper | None = None
        while first is None:
            first = await self._pages(
                address, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper, ask, "totalTopicNum"
            )
        self.parts.topics.follow(first)
        if self.parts.follows_ours:
            self.known_end = status.master_commit_log_max_offset
            self.parts.forget_deleted(self.known_end)

    async def take_back(self, address: str) -> None:
        """As a master that was away: take the offsets that groups committed to the replica at this address meanwhile. The
        higher one counts: what the replica has of this master's own table is up to a few seconds old."""
        async with self._copying:
            self._turn = self.parts.roles.turn
            groups = (await self._groups_at(address)).subscription_group_table
            offsets = await self._get(address, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetTable)
            # Those of others are of groups that were deleted.
            known = {
                key: queues for key, queues in offsets.offset_table.items() if key.partition(SEPARATOR)[2] in groups
            }
            self.parts.offsets.take_ahead(known)
            self.parts.cap_offsets()

    async def _copy_groups(self, address: str) -> None:
        self.parts.groups.follow(await self._groups_at(address))

    async def _groups_at(self, address: str) -> SubscriptionGroupWrapper:
        def ask(seq: int) -> dict[str, str]:
            return GetAllGroupConfigHeader(group_seq=seq, max_group_num=PAGE, data_version="").encode()

        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        first: SubscriptionGroupWrapper | None = None
        while first is None:
            first = await self._pages(address, code, SubscriptionGroupWrapper, ask, "totalGroupNum")
        return first

    async def _copy_offsets(self, address: str) -> None:
        offsets = await self._get(address, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetTable)
        # With fixed roles a replica may know groups that its master never saw: they read it while the master was away.
        self.parts.offsets.follow(offsets, forgets=self.parts.roles.is_coordinated)

    async def _copy_delays(self, address: str) -> None:
        self.parts.delays.follow(await self._get(address, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetTable))

    async def _copy_modes(self, address: str) -> None:
        modes = await self._get(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, MessageRequestModeTable)
        self.parts.pops.modes.follow(modes)

    async def _pages(
        self, address: str, code: RequestCode, kind: type[P], ask: Callable[[int], dict[str, str]], total_field: str
    ) -> P | None:
        """All pages of a table as one; None when it changed in between."""
        first: P | None = None
        for _ in range(MAX_PAGES):
            answer = await self._call(address, code, ask(0 if first is None else len(_rows(first))))
            page = decode_body(kind, answer.body)
            if first is None:
                first = page
            elif page.data_version != first.data_version:
                return None
            else:
                _rows(first).update(_rows(page))
            total = read_number((answer.ext or {}).get(total_field)) or 0
            if not _rows(page) or len(_rows(first)) >= total:
                return first
        raise RemoteProtocolError(f"{address} always has one more page for {code.name}")

    async def _copy_timers(self, address: str) -> None:
        try:
            answer = await self._call(address, RequestCode.GET_TIMER_CHECK_POINT, {})
        except BrokerError:
            return  # the master has no timers
        mark = TimerMark.decode(answer.body)
        if mark is None:
            raise RemoteProtocolError(f"{address} has a timer checkpoint that is none")
        if mark != self._timer_mark:
            self._timer_mark = mark
            await self.parts.run_off_loop(partial(self.parts.timers.follow, mark))

    async def _copy_accounts_too(self, address: str) -> None:
        """On their own: a replica without the right to copy accounts still has all else."""
        try:
            await self._copy_accounts(address)
        except NOT_COPIED as error:
            if str(error) != self.account_problem and self.parts.roles.turn == self._turn:
                log.warning("accounts of the master at %s cannot be copied now: %s", address, error)
            self.account_problem = str(error)
        else:
            self.account_problem = ""

    async def _copy_accounts(self, address: str) -> None:
        """Of a master of rocketline: Apache's tells no passwords."""
        accounts = self.parts.accounts
        if accounts is None or not self.parts.follows_accounts:
            return
        header = ExchangeHaInfoHeader(rocketline_accounts=True)
        answer = await self._call(address, RequestCode.EXCHANGE_BROKER_HA_INFO, header.encode())
        if answer.body:
            files = decode_body(AccountFilesBody, answer.body)
            accounts.follow(files.users.encode(), files.acls.encode())

    async def _get(self, address: str, code: RequestCode, kind: type[T]) -> T:
        answer = await self._call(address, code, {})
        return decode_body(kind, answer.body)

    async def _call(self, address: str, code: RequestCode, ext: dict[str, str]) -> Command:
        answer = await self.parts.environment.client.call(address, Command(code, ext), TIMEOUT_S)
        if self.parts.roles.turn != self._turn:
            raise RocketlineError("the role of this broker changed meanwhile")  # or a new master took over old tables
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark, address, "copying tables")
        return answer
