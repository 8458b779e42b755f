"""Which messages a pull selects: the tests its subscription stands for.

An expression comes with the pull or was registered by heartbeat. TAG is tested on the hash in the consume queue, SQL92 on
the bitmap of an extended unit where there is one and then on the properties of the stored record. What cannot be compiled is
refused: Apache answers some of it with unfiltered messages, which no consumer can want.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rocketline.broker.tables.filters import ConsumerFilters, GroupFilter
from rocketline.errors import InvalidExpression, RequestRejected
from rocketline.filtering import Filter, TagFilter, compile_filter
from rocketline.message import RETRY_PREFIX, RETRY_TOPIC
from rocketline.protocol.bodies import SQL92, TAG, SubscriptionData
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.headers import PullMessageHeader
from rocketline.protocol.headers.read import CLASS_FILTER, SUBSCRIPTION
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import properties_part
from rocketline.protocol.subscription import tag_test
from rocketline.store.queue.tags_codes import AcceptExt, AcceptTags
from rocketline.store.reading.reader import AcceptRecord

if TYPE_CHECKING:
    from rocketline.filtering.sql92 import SqlFilter

# A pull consumer sends its expression with every pull.
_compiled = lru_cache(maxsize=64)(compile_filter)


class Selection(NamedTuple):
    """The tests of one pull, cheapest first; None: everything passes."""

    accept_tags: AcceptTags | None = None
    accept_ext: AcceptExt | None = None
    accept_record: AcceptRecord | None = None
    accept_properties: Callable[[Mapping[str, str]], bool] | None = None
    """The same as `accept_record`, for messages that just arrive."""


EVERYTHING = Selection()

MAX_KNOWN = 10_000
"""Groups and topics whose tag tests are kept."""


class Selections:
    def __init__(self, filters: ConsumerFilters, *, sql_enabled: bool = True, filters_retries: bool = False) -> None:
        self._filters = filters
        self._sql_enabled = sql_enabled
        self._filters_retries = filters_retries
        self._known: dict[tuple[str, str], tuple[SubscriptionData, Selection]] = {}

    def of_request(self, header: PullMessageHeader) -> Selection | None:
        """The selection of an expression that came with the pull; None when none did."""
        if header.sys_flag & CLASS_FILTER:
            raise _no_classes()
        if not header.sys_flag & SUBSCRIPTION:
            return None
        compiled = self._compile(header.expression_type, header.subscription)
        if isinstance(compiled, TagFilter):
            return Selection(compiled.accept_tags)
        self._check_enabled()
        return self._sql(header, compiled)

    def of_expression(self, expression_type: str | None, text: str | None) -> Selection:
        """The selection of an expression that came with a pop, for its topic and its redeliveries alike."""
        if not text:
            return EVERYTHING
        compiled = self._compile(expression_type, text)
        if isinstance(compiled, TagFilter):
            return EVERYTHING if compiled.accept_tags is None else Selection(compiled.accept_tags)
        self._check_enabled()
        return Selection(accept_record=compiled.accept_record, accept_properties=compiled.matches)

    def of_heartbeat(self, header: PullMessageHeader, subscription: SubscriptionData) -> Selection:
        """The selection of a subscription that was registered by heartbeat."""
        if subscription.class_filter_mode:
            raise _no_classes()
        if subscription.expression_type != TAG:
            return self._registered_sql(header, subscription)
        key = (header.consumer_group, header.topic)
        known = self._known.get(key)
        if known is None or known[0] is not subscription:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()  # groups come and go; those that are here are soon known again
            known = self._known[key] = (subscription, Selection(tag_test(subscription)))
        return known[1]

    def check(self, subscription: SubscriptionData) -> None:
        """RequestRejected when pulls with this subscription would be refused, as a consumer asks before it starts."""
        if subscription.class_filter_mode:
            raise _no_classes()
        if subscription.expression_type != TAG:
            if subscription.expression_type == SQL92:
                self._check_enabled()
            self._compile(subscription.expression_type, subscription.sub_string)

    def _registered_sql(self, header: PullMessageHeader, subscription: SubscriptionData) -> Selection:
        if subscription.expression_type != SQL92:
            self._compile(subscription.expression_type, subscription.sub_string)  # refuses
        known = self._filters.get(header.consumer_group, header.topic)
        if known is None:
            raise RequestRejected(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"no filter of group {header.consumer_group} for topic {header.topic} is registered: "
                + _why_none(subscription),
            )
        if known.version < header.sub_version:
            raise RequestRejected(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        self._check_enabled()
        return self._sql(header, known.compiled, known)

    def _sql(self, header: PullMessageHeader, compiled: SqlFilter, known: GroupFilter | None = None) -> Selection:
        if header.topic.startswith(RETRY_PREFIX):
            return self._retried(header.consumer_group) if self._filters_retries else EVERYTHING
        return Selection(
            accept_ext=None if known is None else known.accept_ext,
            accept_record=compiled.accept_record,
            accept_properties=compiled.matches,
        )

    def _retried(self, group: str) -> Selection:
        """A message that comes back is tested by the group's filter for the topic it came from."""

        def accept(properties: Mapping[str, str]) -> bool:
            known = self._filters.get(group, properties.get(RETRY_TOPIC, ""))
            return known is None or known.compiled.matches(properties)

        def accept_record(record: memoryview) -> bool:
            return accept(decode_properties(properties_part(record)))

        return Selection(accept_record=accept_record, accept_properties=accept)

    def _compile(self, expression_type: str | None, text: str | None) -> Filter:
        try:
            return _compiled(expression_type, text)
        except InvalidExpression as error:
            raise RequestRejected(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error

    def _check_enabled(self) -> None:
        if not self._sql_enabled:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the broker does not support consumer to filter message by {SQL92}: enablePropertyFilter is false",
            )


def _why_none(subscription: SubscriptionData) -> str:
    try:
        _compiled(subscription.expression_type, subscription.sub_string)
    except InvalidExpression as error:
        return str(error)
    return "the heartbeat with its expression is still to come"


def _no_classes() -> RequestRejected:
    return RequestRejected(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "class filter mode, where consumers sent code to the broker, is not supported: use a TAG or SQL92 expression",
    )
