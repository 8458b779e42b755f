"""Requests about the copies of a log: who has which part of it, and who is the master (906, 907, 908, 1007, 1008)."""

from __future__ import annotations

from collections.abc import Callable

from rocketline.auth.accounts import Accounts
from rocketline.auth.guard import AccessGuard, is_private
from rocketline.auth.model import UserType
from rocketline.broker.changes import ChangingConfig
from rocketline.broker.replication.config import BrokerRole
from rocketline.broker.replication.finding import DIVERGED, MasterFinder
from rocketline.broker.replication.roles import Role, Roles
from rocketline.broker.replication.source import ReplicaConnection
from rocketline.broker.replication.tables import AccountFilesBody, TableCopier
from rocketline.broker.wiring import wired
from rocketline.errors import ConfigError, RequestRejected, StoreError
from rocketline.protocol.bodies import EpochEntry, EpochTable, HaClient, HaConnection, HaStatus, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ExchangeHaInfoHeader, NotifyRoleChangedHeader, ResetMasterFlushOffsetHeader
from rocketline.protocol.numbers import read_number
from rocketline.store.copies import RecordProof
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler, Reply
from rocketline.transport.client import split_address

_NO_END = (1 << 63) - 1


@wired
class ReplicationHandlers:
    store: MessageStore
    roles: Roles
    finder: MasterFinder
    accounts: Accounts | None
    guard: AccessGuard | None
    address: str
    ha_address: Callable[[], str]
    ha_tls: bool
    max_gap_bytes: int
    broker_name: str
    cluster: str
    copier: TableCopier
    changing: ChangingConfig

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange,
            RequestCode.GET_BROKER_HA_STATUS: self.status,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_flush_offset,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self.role_changed,
        }

    def exchange(self, channel: Channel, request: Command) -> Reply:
        """906. A master tells where replicas connect, and gives a replica of ours a ticket."""
        header = ExchangeHaInfoHeader.decode(request)
        if header.rocketline_copy_tables is not None:
            return self._copy_tables(request, header.rocketline_copy_tables)
        if header.master_ha_address is not None:
            self._take_addresses(header)
            return request.reply(ResponseCode.SUCCESS)
        if not self.roles.is_master:
            return request.reply(ResponseCode.SUCCESS)
        answer = ExchangeHaInfoHeader(
            master_ha_address=self.ha_address() or None,
            master_flush_offset=self.store.flushed_offset,
            master_address=self.address,
        )
        if header.rocketline_member is not None:
            self._compare(header)
            if not self.roles.is_coordinated:
                answer.rocketline_ticket = self.roles.tickets.give(header.rocketline_member).hex()
                self.roles.tickets.note_address(header.rocketline_member, header.rocketline_address or "")
                answer.rocketline_ha_tls = self.ha_tls
        body = self._accounts(channel, request) if header.rocketline_accounts else b""
        return request.reply(ResponseCode.SUCCESS, answer.encode(), body)

    def _copy_tables(self, request: Command, epoch: int) -> Reply:
        """A master has changed its tables, and answers when this replica has them."""
        if self.roles.role is not Role.REPLICA or self.roles.known_epoch != epoch:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"this broker does not follow the master of epoch {epoch}")
        return self._copied(request)

    async def _copied(self, request: Command) -> Command:
        await self.copier.copy_now()
        return request.reply(ResponseCode.SUCCESS)

    def _take_addresses(self, header: ExchangeHaInfoHeader) -> None:
        """A master that returned says where it is."""
        if not self.roles.is_master and not self.roles.is_coordinated:
            self.finder.ha_address = header.master_ha_address or ""
            self.finder.address = header.master_address or self.finder.address

    def _compare(self, header: ExchangeHaInfoHeader) -> None:
        """Refuse a replica whose log has what this one does not have."""
        end, store = header.rocketline_log_end or 0, self.store
        if end > store.log_next_offset:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"{DIVERGED}the replica's ends at {end}, the master's at {store.log_next_offset}. If the master is right, "
                "start the replica with an empty folder",
            )
        numbers = [read_number(text) for text in (header.rocketline_last_record or "").split(":")]
        if len(numbers) != 3 or None in numbers:
            return
        proof = RecordProof(*numbers)  # type: ignore[arg-type]
        if proof.log_offset < store.log_min_offset:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"{DIVERGED}the replica's ends at {end}, and the master's begins at {store.log_min_offset} now: the replica "
                "was away for too long. Start it with an empty folder",
            )
        if not store.copies.has_record(proof):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"{DIVERGED}the record at {proof.log_offset} is another one on the master. If the master is right, start "
                "the replica with an empty folder",
            )

    def _accounts(self, channel: Channel, request: Command) -> bytes:
        """Users and rights, for a super account, where nobody else can read them: there are passwords in them."""
        if self.accounts is None or self.guard is None:
            return b""
        if not is_private(channel):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                "accounts are copied only by TLS, or on one machine: passwords are in them. Give the brokers certificates, "
                "and set tls.enable=true on the replica",
            )
        caller = self.guard.caller(channel, request)
        if caller is None or caller.type is not UserType.SUPER:
            raise RequestRejected(ResponseCode.NO_PERMISSION, "only a super account may copy accounts")
        users, acls = self.accounts.export()
        return encode_body(AccountFilesBody(users.decode(), acls.decode()))

    def status(self, channel: Channel, request: Command) -> Reply:
        """907: how far the replicas are, or the connection to the master."""
        return request.reply(ResponseCode.SUCCESS, body=encode_body(self._status()))

    def _status(self) -> HaStatus:
        roles, store = self.roles, self.store
        if not roles.is_master:
            return HaStatus(ha_client_runtime_info=self._client_status())
        connections = roles.source.connections if roles.source is not None else ()
        replicas = [self._connection(found) for found in connections if found.next_offset is not None]
        return HaStatus(
            master=True,
            master_commit_log_max_offset=store.log_next_offset,
            rocketline_log_begins=store.log_min_offset,
            in_sync_slave_nums=sum(replica.in_sync for replica in replicas),
            ha_connection_info=replicas,
        )

    def _connection(self, found: ReplicaConnection) -> HaConnection:
        behind = self.store.log_next_offset - found.end
        return HaConnection(
            addr=found.name,
            slave_ack_offset=found.end,
            diff=behind,
            in_sync=behind < self.max_gap_bytes,
            transferred_byte_in_second=found.bytes_per_s,
            transfer_from_where=found.next_offset or 0,
        )

    def _client_status(self) -> HaClient:
        follower = self.roles.follower
        connection = follower.connection if follower is not None else None
        status = HaClient(max_offset=self.store.log_next_offset)
        if connection is not None:
            status.master_addr = connection.address
            status.activated = connection.is_following
            status.last_read_timestamp, status.last_write_timestamp = connection.times_ms()
            status.transferred_byte_in_second = connection.bytes_per_s
            status.master_flush_offset = connection.master_end
        return status

    def reset_flush_offset(self, channel: Channel, request: Command) -> Reply:
        """908: Apache's brokers cut their log there at the next start. This one decides by records what to cut."""
        ResetMasterFlushOffsetHeader.decode(request)
        return request.reply(ResponseCode.SUCCESS)

    def epochs(self, channel: Channel, request: Command) -> Reply:
        """1007: which master wrote which span of the log."""
        if not self.roles.is_coordinated:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                "this broker has a fixed role: there are epochs only in groups with elections",
            )
        entries = self.roles.epochs
        ends = [entry.start for entry in entries[1:]] + [_NO_END]
        table = EpochTable(
            broker_id=self.roles.registered_id,
            broker_name=self.broker_name,
            cluster_name=self.cluster,
            epoch_list=[EpochEntry(entry.number, entry.start, end) for entry, end in zip(entries, ends)],
            max_offset=self.store.log_next_offset,
        )
        return request.reply(ResponseCode.SUCCESS, body=encode_body(table))

    def role_changed(self, channel: Channel, request: Command) -> Reply:
        """1008, of an operator: who is the master of a group with fixed roles from now on."""
        header = NotifyRoleChangedHeader.decode(request)
        if self.roles.is_coordinated:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "brokers of this group elect their master: use electMaster for a hand-over"
            )
        try:
            split_address(header.master_address)
        except ValueError as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"masterAddress: {error}") from error
        return self._change_role(channel, request, header)

    async def _change_role(self, channel: Channel, request: Command, header: NotifyRoleChangedHeader) -> Command:
        if header.master_address == self.address:
            if not self.roles.is_master:
                await self.roles.become_master(0)
        else:
            if self.roles.is_master:
                await self._step_down(header)
            self.finder.address, self.finder.ha_address = header.master_address, ""
            await self.roles.follow_found()
        await self._keep_role(channel.remote)
        return request.reply(ResponseCode.SUCCESS)

    async def _keep_role(self, who: str) -> None:
        """Over a restart: whoever starts this broker again has the settings it was first started with."""
        role = BrokerRole.SLAVE
        if self.roles.is_master:
            configured = self.changing.configured_role
            role = BrokerRole.ASYNC_MASTER if configured is BrokerRole.SLAVE else configured
        try:
            saving = self.changing.keep_role(role.value, self.roles.registered_id, who)
            if saving is not None:
                await saving
        except (ConfigError, StoreError) as error:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"the role is changed, but not for the next start: {error}"
            ) from error

    async def _step_down(self, header: NotifyRoleChangedHeader) -> None:
        """Take nothing more, and see that there is a replica that has everything; otherwise go on as master."""
        roles = self.roles
        await roles.settle()
        if not roles.all_have_everything or not roles.has_successor(header.master_broker_id):
            roles.take_up_again()
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                "this broker stays the master: the replica that is to lead is not connected or has not all of its log, or "
                "another one does not catch up: no connected replica can lead. Try again later",
            )
        if header.master_broker_id is not None:
            roles.own_id = self.finder.own_id = header.master_broker_id
