"""Where the master of a group with fixed roles is: name servers know its address, and it tells the rest itself (906).

A master of rocketline gives out a ticket with which the replica proves on the HA port who it is, and compares the end of
the replica's log with its own. Apache's master tells only where its HA port is.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable

from rocketline.broker.replication.follower import MasterPlace
from rocketline.errors import BrokerError, LogDiverged, RequestNotSupported, RocketlineError
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ExchangeHaInfoHeader, RegisterBrokerResponseHeader
from rocketline.store.message_store import MessageStore
from rocketline.transport import RemotingClient
from rocketline.transport.access import Access

ASK_AGAIN_S = 2.0
TIMEOUT_S = 3.0
DIVERGED = "the logs differ: "
"""How a master begins its refusal of a replica that has what it never had."""


def ha_context(access: Access, *, has_tls: bool) -> ssl.SSLContext | None:
    """TLS for a HA port that takes it. RocketlineError when this broker has none to use."""
    if not has_tls:
        return None
    contexts = access.contexts()
    if contexts is None:
        raise RocketlineError("the master's HA port takes only TLS: set tls.enable=true here too")
    return contexts()


class MasterFinder:
    def __init__(
        self,
        store: MessageStore,
        client: RemotingClient,
        access: Access,
        own_id: int,
        own_address: str,
        monotonic: Callable[[], float],
    ) -> None:
        self.address = ""
        """Of the master, for clients; empty: nobody knows."""
        self.ha_address = ""
        self.is_ours = False
        """Whether the master is a broker of rocketline."""
        self.own_id = own_id
        self._own_address = own_address
        self._store = store
        self._client = client
        self._access = access
        self._monotonic = monotonic
        self._asked_at = -ASK_AGAIN_S

    def told(self, answer: RegisterBrokerResponseHeader) -> None:
        """A name server answered a registration."""
        if answer.master_addr:
            self.address = answer.master_addr
        if answer.ha_server_addr:
            self.ha_address = answer.ha_server_addr

    async def find(self, register: Callable[[], Awaitable[None]]) -> MasterPlace | None:
        """Where the master is now; None: nobody knows. LogDiverged: it does not have what this broker has."""
        now = self._monotonic()
        if now - self._asked_at >= ASK_AGAIN_S:
            self._asked_at = now
            await register()
        if self.address:
            place = await self._ask_master()
            if place is not None:
                return place
        return MasterPlace(self.ha_address) if self.ha_address else None

    async def compare(self, address: str) -> None:
        """LogDiverged when the master at this address does not have the last record of this log."""
        found = await self._ask(address)
        if not found.master_address:
            raise RocketlineError(f"the broker at {address} is not the master yet")

    async def _ask(self, address: str) -> ExchangeHaInfoHeader:
        store, last = self._store, self._store.copies.last_record()
        header = ExchangeHaInfoHeader(
            rocketline_member=self.own_id,
            rocketline_address=self._own_address,
            rocketline_log_end=store.log_next_offset,
            rocketline_last_record=None if last is None else ":".join(map(str, last)),
        )
        return ExchangeHaInfoHeader.decode(await self._call(address, header))

    async def _ask_master(self) -> MasterPlace | None:
        """What the master says of itself; None: it does not know the question, as before 5.0."""
        try:
            found = await self._ask(self.address)
        except RequestNotSupported:
            return None
        address = found.master_ha_address or self.ha_address
        self.is_ours = found.rocketline_ticket is not None
        if not address:
            return None
        if found.rocketline_ticket is None:
            return MasterPlace(address)
        try:
            ticket = bytes.fromhex(found.rocketline_ticket)
        except ValueError as error:
            raise RocketlineError(f"{self.address} gave a ticket that is none") from error
        tls = ha_context(self._access, has_tls=bool(found.rocketline_ha_tls))
        return MasterPlace(address, (self.own_id, ticket), tls)

    async def _call(self, address: str, header: ExchangeHaInfoHeader) -> Command:
        command = Command(RequestCode.EXCHANGE_BROKER_HA_INFO, header.encode())
        answer = await self._client.call(address, command, TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            remark = answer.remark or ""
            if remark.startswith(DIVERGED):
                raise LogDiverged(remark)
            raise BrokerError.of(answer.code, remark, address, "replication")
        return answer
