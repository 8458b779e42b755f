"""Options of the source `rocketmq`, checked before connecting to a cluster.

They have the names of Kafka's source, where it has the option; `live.source` lists them. Options that contradict each
other, or have no effect in a stream or a batch, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rocketline.client.consumer.group.subscription import Sql
from rocketline.errors import ConfigError, InvalidMessage
from rocketline.filtering import compile_filter
from rocketline.protocol.names import topic_problem
from rocketline.protocol.subscription import build_subscription
from rocketline.spark.connections import Endpoint
from rocketline.spark.offsets import LATEST, Assignment, Offsets, parse_offsets
from rocketline.spark.options import Options

NAME = "rocketmq"
DEFAULT_GROUP = "spark-rocketmq-source"
TAG, SQL92 = FILTERS = ("TAG", "SQL92")

_ONLY_BATCH = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_ONLY_STREAM = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets")


@dataclass(frozen=True)
class TopicChoice:
    """The topics and queues to read; exactly one of the three is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Assignment | None = None


@dataclass(frozen=True)
class Position:
    """Where reading begins or ends: a word, a time for all queues, or an offset or a time for each queue."""

    word: str | None = None
    """earliest, latest or group."""
    at_ms: int | None = None
    offsets: Offsets = field(default_factory=dict)
    times_ms: Offsets = field(default_factory=dict)

    @property
    def named(self) -> Offsets:
        """The queues that the user named, with an offset or a time."""
        return self.offsets or self.times_ms


@dataclass(frozen=True)
class LiveOptions:
    """The options of the source; can be pickled."""

    endpoint: Endpoint
    topics: TopicChoice
    start: Position | None = None
    """None is the default: latest for a stream, earliest for a batch."""
    end: Position = Position("latest")
    strict_times: bool = False
    group_fallback: str = "earliest"
    fail_on_loss: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_s: float = 900.0
    min_partitions: int | None = None
    max_records: int | None = None
    expression: str | Sql = "*"
    include_properties: bool = True
    commit_offsets: bool = False
    check_crc: bool = True

    @staticmethod
    def parse(given: Mapping[str, str], streaming: bool | None = None) -> LiveOptions:
        """ConfigError for options that are missing, unknown or invalid; `streaming` is None when it is not known yet."""
        options = Options(NAME, given)
        parsed = LiveOptions(
            endpoint=_endpoint(options),
            topics=_topics(options),
            start=_position(options, "starting"),
            end=_position(options, "ending") or Position("latest"),
            strict_times=options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "latest") == "error",
            group_fallback=options.choice("groupOffsetsFallback", ("earliest", "latest", "error"), "earliest"),
            fail_on_loss=options.flag("failOnDataLoss", True),
            max_offsets=options.number("maxOffsetsPerTrigger", 1),
            min_offsets=options.number("minOffsetsPerTrigger", 1),
            max_delay_s=options.seconds("maxTriggerDelay", 900.0),
            min_partitions=options.number("minPartitions", 1, 100_000),
            max_records=options.number("maxRecordsPerPartition", 1),
            expression=_expression(options),
            include_properties=options.flag("includeProperties", True),
            commit_offsets=options.flag("commitOffsets", False),
            check_crc=options.flag("checkCrc", True),
        )
        options.refuse_others()
        _check_together(options, parsed)
        if streaming is not None:
            _check_mode(options, parsed, streaming)
        return parsed


def _endpoint(options: Options) -> Endpoint:
    endpoint = Endpoint.parse(options, DEFAULT_GROUP, "pullTimeoutMs")
    return replace(endpoint, batch=options.number("pullBatchSize", 1, 65_536) or endpoint.batch)


def _topics(options: Options) -> TopicChoice:
    chosen = options.at_most_one("subscribe", "subscribePattern", "assign")
    names = options.names("subscribe")
    pattern, assigned = options.text("subscribePattern"), options.text("assign")
    if chosen is None:
        raise options.wrong("one of subscribe (topics), subscribePattern or assign (queues as JSON) is needed")
    for name in names:
        if problem := topic_problem(name):
            raise options.wrong(f"option 'subscribe': {problem}")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise options.wrong(f"option 'subscribePattern' is not a regular expression: {error}") from None
    return TopicChoice(
        names, pattern, None if assigned is None else Assignment.parse(assigned, f"{NAME}: option 'assign'")
    )


def _position(options: Options, side: str) -> Position | None:
    by_time, offsets = f"{side}OffsetsByTimestamp", f"{side}Offsets"
    options.at_most_one(f"{side}Timestamp", by_time, offsets)
    at_ms, times, text = options.time_ms(f"{side}Timestamp"), options.text(by_time), options.text(offsets)
    if at_ms is not None:
        return Position(at_ms=at_ms)
    if times is not None:
        return Position(times_ms=parse_offsets(times, f"{NAME}: option {by_time!r}", 0))
    if text is None:
        return None
    if text.startswith("{"):
        # The earliest message (-2) is not allowed as an end.
        lowest = LATEST if side == "ending" else -2
        return Position(offsets=parse_offsets(text, f"{NAME}: option {offsets!r}", lowest))
    words = ("earliest", "latest", "group") if side == "starting" else ("latest", "group")
    return Position(options.choice(offsets, words, "latest"))


def _expression(options: Options) -> str | Sql:
    kind = options.choice("filterType", FILTERS, TAG)
    text = options.text("subExpression")
    if kind == SQL92 and text is None:
        raise options.wrong("filterType SQL92 needs the option 'subExpression', for example price > 10")
    try:
        if kind == SQL92:
            compile_filter(SQL92, text)
            return Sql(text or "")
        return build_subscription("any", text).sub_string
    except InvalidMessage as error:
        raise options.wrong(f"option 'subExpression': {error}") from None


def _check_together(options: Options, parsed: LiveOptions) -> None:
    if parsed.commit_offsets and not options.given("group"):
        raise options.wrong("commitOffsets needs the option 'group'")
    uses_group = "group" in (parsed.start.word if parsed.start else None, parsed.end.word)
    if uses_group and not options.given("group"):
        raise options.wrong("offsets of a group need the option 'group'")
    if options.given("maxTriggerDelay") and parsed.min_offsets is None:
        raise options.wrong("maxTriggerDelay has no effect without minOffsetsPerTrigger")
    if (parsed.min_offsets or 0) > (parsed.max_offsets or parsed.min_offsets or 0):
        raise options.wrong(
            f"minOffsetsPerTrigger {parsed.min_offsets} is above maxOffsetsPerTrigger {parsed.max_offsets}"
        )
    start_ms = parsed.start.at_ms if parsed.start else None
    if start_ms is not None and parsed.end.at_ms is not None and start_ms > parsed.end.at_ms:
        raise options.wrong(f"startingTimestamp {start_ms} is behind endingTimestamp {parsed.end.at_ms}")


def _check_mode(options: Options, parsed: LiveOptions, streaming: bool) -> None:
    if streaming and (found := options.given(*_ONLY_BATCH)):
        raise options.wrong(
            f"{found[0]} is for spark.read: a stream has no end; use trigger(availableNow=True) to stop"
        )
    if streaming:
        return
    if found := options.given(*_ONLY_STREAM):
        raise options.wrong(f"{found[0]} is for spark.readStream and has no effect in a batch")
    start = parsed.start
    if start and (start.word == "latest" or LATEST in start.offsets.values()):
        raise ConfigError(
            f"{NAME}: startingOffsets latest leaves a batch nothing to read: use earliest, a time or offsets"
        )
