"""Which handler answers which request code of a broker."""

from __future__ import annotations

from rocketline.broker.handlers.admin.files import FileHandlers
from rocketline.broker.handlers.admin.groups import GroupHandlers
from rocketline.broker.handlers.admin.topics import TopicHandlers
from rocketline.broker.handlers.busy import unless_busy
from rocketline.broker.handlers.clients import ClientHandlers
from rocketline.broker.handlers.offsets import OffsetHandlers
from rocketline.broker.handlers.pull import PullHandlers
from rocketline.broker.handlers.queries import QueryHandlers
from rocketline.broker.handlers.replies import ReplyHandlers
from rocketline.broker.handlers.send import SendHandlers
from rocketline.broker.handlers.send_back import SendBackHandlers
from rocketline.broker.handlers.transactions import TransactionHandlers
from rocketline.protocol.codes import RequestCode
from rocketline.transport import Router


def broker_router(
    sends: SendHandlers,
    pulls: PullHandlers,
    send_backs: SendBackHandlers,
    offsets: OffsetHandlers,
    queries: QueryHandlers,
    clients: ClientHandlers,
    topics: TopicHandlers,
    groups: GroupHandlers,
    files: FileHandlers,
    transactions: TransactionHandlers,
    replies: ReplyHandlers,
) -> Router:
    store = send_backs.store
    send = unless_busy(store, sends.send)
    return Router(
        {
            RequestCode.SEND_MESSAGE: send,
            RequestCode.SEND_MESSAGE_V2: send,
            RequestCode.SEND_BATCH_MESSAGE: unless_busy(store, sends.send_batch),
            RequestCode.CONSUMER_SEND_MSG_BACK: unless_busy(store, send_backs.send_back),
            RequestCode.END_TRANSACTION: transactions.end,
            RequestCode.SEND_REPLY_MESSAGE: replies.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply,
            RequestCode.PULL_MESSAGE: pulls.pull,
            RequestCode.LITE_PULL_MESSAGE: pulls.pull,
            RequestCode.QUERY_MESSAGE: queries.query,
            RequestCode.VIEW_MESSAGE_BY_ID: queries.view,
            RequestCode.QUERY_CONSUMER_OFFSET: offsets.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: offsets.search,
            RequestCode.GET_MAX_OFFSET: offsets.max_offset,
            RequestCode.GET_MIN_OFFSET: offsets.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: offsets.earliest_time,
            RequestCode.HEART_BEAT: clients.heartbeat,
            RequestCode.UNREGISTER_CLIENT: clients.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: clients.check,
            RequestCode.UPDATE_AND_CREATE_TOPIC: topics.create,
            RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete,
            RequestCode.GET_TOPIC_CONFIG: topics.get,
            RequestCode.GET_ALL_TOPIC_CONFIG: topics.get_all,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups.create_all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: groups.delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: groups.forbid,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: groups.get,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.get_all,
            RequestCode.DELETE_EXPIRED_COMMITLOG: files.delete_expired,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: files.trim_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: files.delete_unused_topics,
        }
    )
