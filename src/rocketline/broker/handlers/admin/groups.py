"""Consumer groups by hand: create or change (200), delete (207), look at one (352) or all (201)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rocketline.broker.consumer_offsets import ConsumerOffsets
from rocketline.broker.groups import Groups
from rocketline.broker.topics import MAX_QUEUE_COUNT
from rocketline.errors import RequestRejected
from rocketline.protocol.bodies import SubscriptionGroupConfig, decode_body, encode_body
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import DeleteGroupHeader, GetGroupConfigHeader
from rocketline.protocol.names import MAX_OLD_GROUP_CHARS, group_problem
from rocketline.transport import Channel, Reply

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupHandlers:
    groups: Groups
    offsets: ConsumerOffsets

    def create(self, channel: Channel, request: Command) -> Reply:
        group = decode_body(SubscriptionGroupConfig, request.body)
        problem = group_problem(group.group_name, MAX_OLD_GROUP_CHARS)
        if problem is None and group.retry_queue_nums > MAX_QUEUE_COUNT:
            problem = f"retryQueueNums {group.retry_queue_nums} is more than {MAX_QUEUE_COUNT}"
        if problem is not None:
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, problem)
        self.groups.put(group)
        return request.reply(ResponseCode.SUCCESS)

    def delete(self, channel: Channel, request: Command) -> Reply:
        header = DeleteGroupHeader.decode(request)
        with_offsets = header.clean_offset or bool(header.remove_offset)
        log.warning("%s deletes group %s, offsets too: %s", channel.remote, header.group_name, with_offsets)
        self.groups.delete(header.group_name)
        if with_offsets:
            self.offsets.forget_group(header.group_name)
        return request.reply(ResponseCode.SUCCESS)

    def get(self, channel: Channel, request: Command) -> Reply:
        group = self.groups.require(GetGroupConfigHeader.decode(request).group)
        return request.reply(ResponseCode.SUCCESS, body=encode_body(group))

    def get_all(self, channel: Channel, request: Command) -> Reply:
        snapshot = self.groups.snapshot()
        count = str(len(snapshot.subscription_group_table))
        return request.reply(ResponseCode.SUCCESS, {"totalGroupNum": count}, encode_body(snapshot))
