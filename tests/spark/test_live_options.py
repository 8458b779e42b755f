"""Options of the source `rocketmq`: what they mean, and what is refused with which hint."""

from __future__ import annotations

import pickle

import pytest

from rocketline.client.consumer.group.subscription import Sql
from rocketline.errors import ConfigError
from rocketline.message import MessageQueue
from rocketline.spark.live.options import LiveOptions, Position

NEEDED = {"namesrv": "127.0.0.1:9876", "subscribe": "orders"}
QUEUE = MessageQueue("orders", "a", 0)


def parse(streaming: bool | None = None, **given: str) -> LiveOptions:
    return LiveOptions.parse({**NEEDED, **given}, streaming)


def test_default_values() -> None:
    options = parse(True)
    assert (options.topics.names, options.expression, options.fail_on_loss) == (("orders",), "*", True)
    assert (options.start, options.end) == (None, Position("latest"))
    assert pickle.loads(pickle.dumps(options)) == options


def test_name_servers_have_the_names_people_know() -> None:
    for name in ("nameServer", "rocketmq.namesrv.addr"):
        given = {name: "h:1;g:2", "subscribe": "orders"}
        assert LiveOptions.parse(given).endpoint.name_servers == ("h:1", "g:2")


def test_where_to_start() -> None:
    assert parse(startingOffsets="EARLIEST").start == Position("earliest")
    assert parse(startingTimestamp="1970-01-01T00:00:07Z").start == Position(at_ms=7000)
    assert parse(startingOffsets='{"orders":{"a":{"0":-1}}}').start == Position(offsets={QUEUE: -1})
    assert parse(startingOffsetsByTimestamp='{"orders":{"a":{"0":9}}}').start == Position(times_ms={QUEUE: 9})


def test_expressions() -> None:
    assert parse(subExpression="a || b").expression == "a || b"
    assert parse(subExpression="price > 3", filterType="sql92").expression == Sql("price > 3")


def test_lengths_of_time() -> None:
    for text, seconds in (("500ms", 0.5), ("30s", 30.0), ("2m", 120.0), ("1h", 3600.0)):
        assert parse(minOffsetsPerTrigger="5", maxTriggerDelay=text).max_delay_s == seconds


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"namesrv": ""}, "option 'namesrv' is needed"),
        ({"namesrv": "nowhere"}, "'namesrv'.*nowhere"),
        ({"subscribe": ""}, "one of subscribe .* is needed"),
        ({"subscribe": "../x"}, "'subscribe': the topic"),
        ({"assign": '{"T":[0]}'}, "subscribe and assign contradict"),
        ({"subscribe": "", "subscribePattern": "("}, "not a regular expression"),
        ({"startingOfsets": "earliest"}, "did you mean 'startingOffsets'"),
        ({"startingOffsets": "begin"}, "must be one of earliest, latest, group"),
        ({"startingOffsets": "{"}, "is not JSON"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "contradict each other"),
        ({"endingOffsets": "earliest"}, "must be one of latest, group"),
        ({"endingOffsets": '{"orders":{"a":{"0":-2}}}'}, "from -1 on"),
        ({"startingTimestamp": "9", "endingTimestamp": "5"}, "is behind endingTimestamp"),
        ({"startingOffsets": "group"}, "need the option 'group'"),
        ({"commitOffsets": "true"}, "needs the option 'group'"),
        ({"group": "a b"}, "'group'"),
        ({"maxTriggerDelay": "5m"}, "no effect without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "length of time such as"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "above maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1 to"),
        ({"filterType": "SQL92"}, "needs the option 'subExpression'"),
        ({"filterType": "SQL92", "subExpression": "price >"}, "'subExpression'"),
        ({"subExpression": "||"}, "names no tag"),
        ({"rocketmq.accessKey": "k"}, "'rocketmq.secretKey' is missing"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^rocketmq: .*{problem}"):
        parse(**given)


@pytest.mark.parametrize(
    ("streaming", "given", "problem"),
    [
        (True, {"endingOffsets": "latest"}, "endingOffsets is for spark.read:"),
        (False, {"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for spark.readStream"),
        (False, {"commitOffsets": "true", "group": "g"}, "commitOffsets is for spark.readStream"),
        (False, {"startingOffsets": "latest"}, "nothing to read"),
        (False, {"startingOffsets": '{"orders":{"a":{"0":-1}}}'}, "nothing to read"),
    ],
)
def test_what_has_no_effect_there_is_refused(streaming: bool, given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse(streaming, **given)
