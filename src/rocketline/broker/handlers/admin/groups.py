"""Consumer groups: create or change one (200) or many (225), show one (352) or all (201), delete (207), forbid a topic
(353)."""

from __future__ import annotations

import logging

from rocketline.async_table import Saving, when_saved
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import MAX_QUEUE_COUNT
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.protocol.bodies import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    DeleteGroupHeader,
    GetAllGroupConfigHeader,
    GetGroupConfigHeader,
    GroupForbiddenHeader,
)
from rocketline.protocol.names import MAX_OLD_GROUP_CHARS, group_problem
from rocketline.transport import Channel, Handler, Reply

log = logging.getLogger(__name__)

MAX_GROUPS = 4096
"""Groups that one request may create."""


@wired
class GroupHandlers:
    groups: Groups
    offsets: ConsumerOffsets

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.create_all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
        }

    def create(self, channel: Channel, request: Command) -> Reply:
        group = decode_body(SubscriptionGroupConfig, request.body)
        _check(group)
        return when_saved([self.groups.configure(group)], lambda: request.reply(ResponseCode.SUCCESS))

    def create_all(self, channel: Channel, request: Command) -> Reply:
        """All of them, or none when one cannot be."""
        groups = decode_body(SubscriptionGroupList, request.body).group_config_list
        if len(groups) > MAX_GROUPS:
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, f"{len(groups)} groups are more than {MAX_GROUPS}")
        for group in groups:
            _check(group)
        saving = [self.groups.configure(*groups)] if groups else []
        return when_saved(saving, lambda: request.reply(ResponseCode.SUCCESS))

    def get(self, channel: Channel, request: Command) -> Reply:
        group = self.groups.require(GetGroupConfigHeader.decode(request).group)
        return request.reply(ResponseCode.SUCCESS, body=encode_body(group))

    def get_all(self, channel: Channel, request: Command) -> Reply:
        GetAllGroupConfigHeader.decode(request)
        snapshot = self.groups.snapshot()
        count = str(len(snapshot.subscription_group_table))
        return request.reply(ResponseCode.SUCCESS, {"totalGroupNum": count}, encode_body(snapshot))

    def delete(self, channel: Channel, request: Command) -> Reply:
        """Members that are still connected create the group again, with the defaults, where that is allowed."""
        header = DeleteGroupHeader.decode(request)
        with_offsets = header.clean_offset or bool(header.remove_offset)
        log.warning("%s deletes group %s%s", channel.remote, header.group_name, " and its offsets" * with_offsets)
        return when_saved([self.groups.remove(header.group_name)], lambda: self._deleted(request, header, with_offsets))

    def _deleted(self, request: Command, header: DeleteGroupHeader, with_offsets: bool) -> Command:
        if with_offsets:
            self.offsets.forget_group(header.group_name)
        return request.reply(ResponseCode.SUCCESS)

    def forbid(self, channel: Channel, request: Command) -> Reply:
        """Without `readable` nothing is changed, only answered."""
        header = GroupForbiddenHeader.decode(request)
        saving: Saving = None
        if header.readable is not None:
            log.info("%s: may group %s read %s? %s", channel.remote, header.group, header.topic, header.readable)
            saving = self.groups.allow(header.group, header.topic, readable=header.readable)
        return when_saved([saving], lambda: self._told(request, header))

    def _told(self, request: Command, header: GroupForbiddenHeader) -> Command:
        state = GroupForbidden(header.group, header.topic, self.groups.may_read(header.group, header.topic))
        return request.reply(ResponseCode.SUCCESS, body=encode_body(state), remark="")


def _check(group: SubscriptionGroupConfig) -> None:
    problem = group_problem(group.group_name, MAX_OLD_GROUP_CHARS)
    if problem is None and group.retry_queue_nums > MAX_QUEUE_COUNT:
        problem = f"retryQueueNums {group.retry_queue_nums} is more than {MAX_QUEUE_COUNT}"
    if problem is not None:
        raise RequestRejected(ResponseCode.INVALID_PARAMETER, problem)
