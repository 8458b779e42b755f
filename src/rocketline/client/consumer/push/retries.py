"""Failed messages on their way back to the broker, for a later delivery to the same group.

Normally only the commit-log offset travels (code 36): the broker makes a delayed copy on the group's retry topic, or on
its dead-letter topic when the message failed too often. When the broker refuses that, or cannot be reached, the whole
message is sent to the retry topic like any other, if need be through another broker.
"""

from __future__ import annotations

import logging

from rocketline.client.producer.outgoing import LAST_DELAY_LEVEL, RequestMaker, SendRequest
from rocketline.client.producer.send_options import SendOptions
from rocketline.client.producer.sender import Sender
from rocketline.client.session import ClientSession
from rocketline.errors import RocketlineError
from rocketline.message import ORIGIN_MESSAGE_ID, RETRY_TOPIC, Message, MessageQueue, MessageView
from rocketline.protocol.headers import ConsumerSendMsgBackHeader
from rocketline.protocol.names import retry_topic
from rocketline.protocol.namespaces import NO_NAMESPACE, Namespace

log = logging.getLogger(__name__)

INNER_GROUP = "CLIENT_INNER_PRODUCER"
FIRST_RETRY_LEVEL = 3
"""Delay level of the first retry; each further one is a level later."""

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
        return await self.as_new_message(message)

    async def as_new_message(self, message: MessageView) -> bool:
        """The same by way of an ordinary send to the retry topic: all that consumers in order ever do."""
        try:
            await self._sender.send(self._copy_for_retry(message), self._maker.options.timeout_s)
            return True
        except RocketlineError as error:
            log.warning("message %s of %s could not be handed back: %s", message.message_id, message.queue, error)
            return False

    def _copy_for_retry(self, message: MessageView) -> SendRequest:
        properties = {name: value for name, value in message.properties.items() if name not in _NOT_KEPT}
        properties.setdefault(ORIGIN_MESSAGE_ID, message.message_id)
        properties[RETRY_TOPIC] = self._namespace.wrap(message.topic)
        level = min(FIRST_RETRY_LEVEL + message.reconsume_times, LAST_DELAY_LEVEL)
        copy = Message(
            retry_topic(self._group), message.body, properties=properties, flag=message.flag, delay_level=level
        )
        outgoing = self._maker.pack(copy)
        # How often it was tried travels in the header; the broker decides by it when to give up.
        outgoing.ext["j"] = str(message.reconsume_times + 1)
        outgoing.ext["l"] = str(self._max_reconsume_times)
        return outgoing
