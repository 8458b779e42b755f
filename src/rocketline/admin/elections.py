"""A group that elects its master, asked through any of its members."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

from rocketline.errors import RequestNotSupported
from rocketline.protocol.bodies import GroupSyncState, SyncStateTable, decode_body
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    CleanBrokerMetadataHeader,
    ControllerMetadataHeader,
    ElectMasterHeader,
    GroupMasterHeader,
    Header,
)

FIXED_ROLES = "this group has fixed roles, nobody is elected: changeMaster makes another broker its master"

Ask = Callable[[int, Header | None, str, bytes], Awaitable[Command]]


class RemoteGroup:
    def __init__(self, ask: Ask) -> None:
        self._asked = ask

    async def _ask(self, code: int, header: Header | None, doing: str, body: bytes) -> Command:
        try:
            return await self._asked(code, header, doing, body)
        except RequestNotSupported as error:
            raise RequestNotSupported(error.code, FIXED_ROLES, error.address, doing) from error

    async def sync_state(self, names: list[str]) -> Mapping[str, GroupSyncState]:
        """Who leads, who has everything and who runs, by name of the group; no names: the group of this member."""
        body = json.dumps(names).encode()
        answer = await self._ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, "members in sync", body)
        return decode_body(SyncStateTable, answer.body).replicas_info_table

    async def master(self) -> str:
        """Address of the master."""
        answer = await self._ask(RequestCode.CONTROLLER_GET_METADATA_INFO, None, "master of the group", b"")
        return ControllerMetadataHeader.decode(answer).controller_leader_address

    async def elect_master(self, member_id: int, name: str | None, *, unclean: bool = False) -> GroupMasterHeader:
        """Have a member lead, 0 for the one with the most; asked of the master. `unclean`: asked of that member, when nobody
        runs who has everything; what it lacks is lost."""
        header = ElectMasterHeader(
            broker_name=name, broker_id=member_id, designate_elect=True, rocketline_unclean=unclean or None
        )
        answer = await self._ask(RequestCode.CONTROLLER_ELECT_MASTER, header, "hand-over", b"")
        return GroupMasterHeader.decode(answer)

    async def remove_member(self, member_id: int, name: str | None) -> None:
        """Have the group forget a member that never comes back."""
        header = CleanBrokerMetadataHeader(broker_name=name, broker_controller_ids_to_clean=str(member_id))
        await self._ask(RequestCode.CONTROLLER_CLEAN_BROKER_DATA, header, f"removal of member {member_id}", b"")
