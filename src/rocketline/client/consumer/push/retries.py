"""Failed messages on their way back to the broker, for a later delivery to the same group.

Normally only the commit-log offset travels (code 36): the broker makes a delayed copy on the group's retry topic, or on
its dead-letter topic when the message failed too often. When the broker refuses that, or cannot be reached, the whole
message is sent to the retry topic like any other, if need be through another broker. One that is refused there, because
its properties leave no room for those of brokers, goes to the dead letters with what fits: it must not stay here for ever.
"""

from __future__ import annotations

import logging

from rocketline.client.producer.outgoing import LAST_DELAY_LEVEL, RequestMaker, SendRequest
from rocketline.client.producer.send_options import SendOptions
from rocketline.client.producer.sender import Sender
from rocketline.client.session import ClientSession
from rocketline.errors import BrokerError, InvalidMessage, RocketlineError
from rocketline.message import (
    KEYS,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    TAGS,
    UNIQ_KEY,
    Message,
    MessageQueue,
    MessageView,
)
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.compression import TYPE_MASK
from rocketline.protocol.headers import ConsumerSendMsgBackHeader
from rocketline.protocol.names import retry_topic
from rocketline.protocol.namespaces import NO_NAMESPACE, Namespace
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, property_problem, with_what_fits
from rocketline.protocol.record_layout import COMPRESSED
from rocketline.protocol.records import tried_once_more

log = logging.getLogger(__name__)

INNER_GROUP = "CLIENT_INNER_PRODUCER"
FIRST_RETRY_LEVEL = 3
"""Delay level of the first retry; each further one is a level later."""
ROOM_FOR_BROKERS = 2048
"""Bytes left for the properties that brokers add."""

_KEPT_FIRST = (RETRY_TOPIC, ORIGIN_MESSAGE_ID, UNIQ_KEY, TAGS, KEYS)
# Put there by this client, or meaningful only for the first delivery.
_NOT_KEPT = frozenset({"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "TRAN_MSG", "DELAY", "WAIT"})


class SendBack:
    """Hands failed messages of one group back."""

    def __init__(
        self, session: ClientSession, group: str, max_reconsume_times: int, namespace: Namespace = NO_NAMESPACE
    ) -> None:
        """`group` is the name on the wire; messages come here under the topics their handlers know."""
        self._namespace = namespace
        self._session = session
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        options = SendOptions(timeout_s=session.timing.send_back_s)
        self._maker = RequestMaker(INNER_GROUP, options, session.unique_ids.next, session.clock.now_ms)
        self._sender = Sender(session, options)

    async def __call__(self, message: MessageView, queue: MessageQueue, delay_level: int) -> bool:
        """Whether the broker took the message; when not, it is still ours."""
        header = ConsumerSendMsgBackHeader(
            message.log_offset,
            self._group,
            delay_level,
            message.message_id,
            self._namespace.wrap(message.topic),
            max_reconsume_times=self._max_reconsume_times,
            broker_name=queue.broker_name,
        )
        timeout_s = self._session.timing.send_back_s
        broker = self._session.master_of(queue.broker_name) or self._session.broker_at(message.store_host)
        try:
            await broker.send_back(header, timeout_s)
            return True
        except RocketlineError as error:
            log.warning(
                "message %s of %s goes to the retry topic as a new message: %s", message.message_id, queue, error
            )
        return await self.as_new_message(message, delay_level)

    async def as_new_message(self, message: MessageView, delay_level: int = 0) -> bool:
        """The same by way of an ordinary send to the retry topic: all that consumers in order ever do."""
        try:
            try:
                await self._send(message, self._all_of(message), is_dead=delay_level < 0)
            except RocketlineError as error:
                if not _is_about_its_properties(error):
                    raise
                log.error("message %s, offset %d of %s, goes to the dead letters of group %s, with the properties "
                          "that fit: %s", message.message_id, message.queue_offset, message.queue, self._group,
                          error)  # fmt: skip
                await self._send(message, self._what_fits(message), is_dead=True)
            return True
        except RocketlineError as error:
            log.warning("message %s of %s could not be handed back: %s", message.message_id, message.queue, error)
            return False

    async def _send(self, message: MessageView, properties: dict[str, str], *, is_dead: bool) -> None:
        copy = self._copy_for_retry(message, properties, is_dead=is_dead)
        await self._sender.send(copy, self._maker.options.timeout_s)

    def _all_of(self, message: MessageView) -> dict[str, str]:
        properties = {name: value for name, value in message.properties.items() if name not in _NOT_KEPT}
        properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
        properties[RETRY_TOPIC] = self._namespace.wrap(message.topic)
        return properties

    def _what_fits(self, message: MessageView) -> dict[str, str]:
        properties = self._all_of(message)
        properties = {name: properties[name] for name in _KEPT_FIRST if name in properties} | properties
        can_travel = {name: value for name, value in properties.items() if not property_problem(name, value)}
        return with_what_fits({}, can_travel, MAX_PROPERTIES_BYTES - ROOM_FOR_BROKERS)

    def _copy_for_retry(self, message: MessageView, properties: dict[str, str], *, is_dead: bool) -> SendRequest:
        tried = max(0, message.reconsume_times)
        level = 0 if is_dead else min(FIRST_RETRY_LEVEL + tried, LAST_DELAY_LEVEL)
        copy = Message(
            retry_topic(self._group), message.body, properties=properties, flag=message.flag, delay_level=level
        )
        if message.body_problem is None:
            outgoing = self._maker.pack(copy)
        else:
            outgoing = self._maker.make(copy, message.body, message.sys_flag & (COMPRESSED | TYPE_MASK))
        # How often it was tried travels in the header; the broker gives up when that is more than the limit beside it.
        times = tried_once_more(tried)
        outgoing.ext["j"] = str(times)
        outgoing.ext["l"] = str(min(self._max_reconsume_times, times - 1) if is_dead else self._max_reconsume_times)
        return outgoing


def _is_about_its_properties(error: RocketlineError) -> bool:
    """Whether a message was refused, here or by a broker, in a way that fewer properties may change."""
    return isinstance(error, InvalidMessage) or (
        isinstance(error, BrokerError) and error.code == ResponseCode.MESSAGE_ILLEGAL
    )
