"""Requests about a group that elects its master (1002, 1004, 1005, 1006, 1011): what Apache's tools ask a controller.

There is no controller: every member answers from the record that it read last, and says that the master is the one to ask.
"""

from __future__ import annotations

import json

from rocketline.broker.replication.member import GroupMember
from rocketline.broker.wiring import wired
from rocketline.coordination import GroupRecord
from rocketline.errors import CoordinationFailed, RequestRejected
from rocketline.protocol.bodies import (
    ElectedGroup,
    ElectMasterBody,
    GroupSyncState,
    ReplicaIdentity,
    SyncStateSet,
    SyncStateTable,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    CleanBrokerMetadataHeader,
    ControllerMetadataHeader,
    ElectMasterHeader,
    GroupMasterHeader,
)
from rocketline.protocol.numbers import read_number
from rocketline.transport import Channel, Handler, Reply

CONTROLLER_ELECT_MASTER_FAILED = 2012


@wired
class ElectionHandlers:
    member: GroupMember
    cluster: str
    group: str
    address: str

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.CONTROLLER_ELECT_MASTER: self.elect,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self.replica_info,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.metadata,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self.sync_state,
            RequestCode.CONTROLLER_CLEAN_BROKER_DATA: self.remove,
        }

    async def elect(self, channel: Channel, request: Command) -> Command:
        """1002: hand over to another member; answered when the record names it."""
        header = ElectMasterHeader.decode(request)
        if header.broker_name not in (None, self.group):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"this broker is of group {self.group}")
        wanted = max(header.broker_id or 0, 0)
        if header.rocketline_unclean:
            return await self._elect_unclean(request, wanted)
        record = self._record()
        if wanted != self.member.member_id or not self.member.leads:
            try:
                chosen = await self.member.hand_over(wanted)
            except CoordinationFailed as error:
                raise RequestRejected(CONTROLLER_ELECT_MASTER_FAILED, str(error)) from error
            record = record.with_master(chosen, "")
        members = {member.id: member.address for member in record.members.values()}
        body = ElectMasterBody(ElectedGroup(self.cluster, self.group, members), sorted(record.in_sync))
        return request.reply(ResponseCode.SUCCESS, _master_of(record).encode(), encode_body(body))

    async def _elect_unclean(self, request: Command, wanted: int) -> Command:
        if wanted != self.member.member_id:
            raise RequestRejected(
                CONTROLLER_ELECT_MASTER_FAILED,
                f"this is member {self.member.member_id}: an unclean election is asked of the "
                f"member that is to lead, {wanted}",
            )
        try:
            epoch = await self.member.lead_unclean()
        except CoordinationFailed as error:
            raise RequestRejected(CONTROLLER_ELECT_MASTER_FAILED, str(error)) from error
        answer = GroupMasterHeader(master_broker_id=wanted, master_address=self.address, master_epoch=epoch)
        return request.reply(ResponseCode.SUCCESS, answer.encode())

    async def remove(self, channel: Channel, request: Command) -> Command:
        """1011: forget members that never come back."""
        header = CleanBrokerMetadataHeader.decode(request)
        if header.broker_name not in (None, self.group):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"this broker is of group {self.group}")
        numbers = [read_number(text) for text in (header.broker_controller_ids_to_clean or "").split(";")]
        if not numbers or None in numbers or header.clean_living_broker:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER, "members are named by their numbers, and one that runs is not removed"
            )
        for number in numbers:
            assert number is not None
            try:
                await self.member.remove(number)
            except CoordinationFailed as error:
                raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return request.reply(ResponseCode.SUCCESS)

    def replica_info(self, channel: Channel, request: Command) -> Reply:
        """1004."""
        record = self._record()
        body = SyncStateSet(sorted(record.in_sync), record.in_sync_epoch)
        return request.reply(ResponseCode.SUCCESS, _master_of(record).encode(), encode_body(body))

    def metadata(self, channel: Channel, request: Command) -> Reply:
        """1005: the master answers for the group."""
        record = self._record()
        members = sorted(record.members.values(), key=lambda member: member.id)
        master = record.members.get(record.master)
        answer = ControllerMetadataHeader(
            group=self.group,
            controller_leader_id=str(record.master),
            controller_leader_address=master.address if master else self.address,
            is_leader=self.member.leads,
            peers="".join(f"{member.id}:{member.address};" for member in members),
        )
        return request.reply(ResponseCode.SUCCESS, answer.encode())

    def sync_state(self, channel: Channel, request: Command) -> Reply:
        """1006, for the groups named in the body; this broker knows of its own."""
        try:
            names = json.loads(request.body or b"[]")
        except ValueError as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "the body is not a list of broker names") from error
        table = SyncStateTable()
        if isinstance(names, list) and (not names or self.group in names):
            table.replicas_info_table[self.group] = self._sync_state()
        return request.reply(ResponseCode.SUCCESS, body=encode_body(table))

    def _sync_state(self) -> GroupSyncState:
        record, live = self._record(), self.member.view.live
        replicas = {
            member.id: ReplicaIdentity(self.group, member.id, member.address, member.id in live)
            for member in record.members.values()
        }
        master = record.members.get(record.master)
        return GroupSyncState(
            master_broker_id=record.master,
            master_address=master.address if master else "",
            master_epoch=record.epoch,
            sync_state_set_epoch=record.in_sync_epoch,
            rocketline_problem=self.member.problem,
            in_sync_replicas=[replica for key, replica in sorted(replicas.items()) if key in record.in_sync],
            not_in_sync_replicas=[replica for key, replica in sorted(replicas.items()) if key not in record.in_sync],
        )

    def _record(self) -> GroupRecord:
        record = self.member.record
        if record is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "the record of the group was not read yet: is etcd reachable?"
            )
        return record


def _master_of(record: GroupRecord) -> GroupMasterHeader:
    master = record.members.get(record.master)
    return GroupMasterHeader(
        master_broker_id=record.master or None,
        master_address=master.address if master else None,
        master_epoch=record.epoch,
        sync_state_set_epoch=record.in_sync_epoch,
    )
